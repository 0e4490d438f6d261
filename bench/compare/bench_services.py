"""Rows of the benchmark that are services in phases: a burst, steady requests, a burst of other
sizes, the first burst twice again, and silence. The memory of the service and its children is
sampled all the time, as by `cairn run --load`, whose code this is.

A row compares CPU time, and the memory at the end of the silence. Further figures are the peak, the
memory after each phase and after five seconds of silence, lazily free memory, the growth of the
most memory from the first to the last burst, and the time of the requests of the bursts.

The rows of Ruby, Node.js and Java show mainly what their last garbage collection has left: in the
silence none runs, and what they hold is in use for an allocator.

Some allocators are measured in another setting, too: see SETTINGS. The rows take hours, so they are
measured only if --rows names them.
"""

import contextlib
import os
import shlex
import shutil
import socket
import statistics
import subprocess
import tempfile
from typing import NamedTuple

import bench_files
from bench_rows import PROGRAM_MIB, Figure, Row, RunFailed, run_beside
from bench_servers import InstalledUnit, PostgresUnit, libc_path
from cairn import compare, server_load
from cairn.allocator_libraries import OURS, SYSTEM, Allocator

GROUP = "services"
MIB = 1 << 20
SILENCE_S, SILENCE_QUICK_S = 30, 6
EARLY_S = 5  # an earlier look into the silence
PYTHON = "/usr/bin/python3"
# The name of an allocator begins with the first word. In the environment of the service.
SETTINGS = (
    (SYSTEM, "two-arenas", "MALLOC_ARENA_MAX=2"),
    ("jemalloc", "background", "MALLOC_CONF=background_thread:true"),
    (OURS, "background", "CAIRN_OPTIONS=background:on"),
)


class Load(NamedTuple):
    """The requests of one phase. A client makes its own parameters of these."""

    name: str
    requests: int
    connections: int
    percent: int = 100  # of the usual sizes
    pause_ms: int = 0  # before each request of a connection

    def words(self):
        return [self.requests, self.connections, self.percent, self.pause_ms]

    def smaller(self):
        """The load of --quick."""
        return self._replace(requests=-(-self.requests // 5))


BURST = Load("burst", 300, 24)
PHASES = (BURST, Load("steady", 150, 2, pause_ms=100), Load("sizes", 300, 24, percent=70),
          BURST, BURST)
BURSTS = [place for place, load in enumerate(PHASES) if load == BURST]


def with_settings(allocators):
    """These allocators in their other settings, of those that have any."""
    return [Allocator(f"{one.name}-{suffix}", one.library, one.version, setting)
            for one in allocators for first, suffix, setting in SETTINGS
            if one.name.split("-")[0].startswith(first) and "hardened" not in one.name]


@contextlib.contextmanager
def environment_of(setting):
    """The setting of an allocator in the environment of all programs that are started."""
    name, _, value = setting.partition("=")
    former = os.environ.get(name)
    if name:
        os.environ[name] = value
    try:
        yield
    finally:
        if former is not None:
            os.environ[name] = former
        elif name:
            del os.environ[name]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def source(*parts):
    return bench_files.source_directory().joinpath(*parts)


def client_of(name, *words):
    """The shell command of a client in bench/services, which prints times as documents_load.py."""
    return shlex.join(map(str, ["env", f"PYTHONPATH={source('tools', 'workloads')}", PYTHON, "-S",
                                source("bench", "services", name), *words]))


def highest(result, place):
    """The most memory in a phase. The memory at its end depends on a moment."""
    burst = result.bursts[place]
    return max(sample.bytes for sample in result.samples
               if burst.start <= sample.seconds <= burst.end)


def figures_of(result):
    """The figures of a service, from a server_load.Result."""
    after = [sample.bytes / MIB for sample in result.after]
    last_s = result.bursts[-1].end
    early = [sample for sample in result.samples if sample.seconds <= last_s + EARLY_S][-1]
    growth = highest(result, BURSTS[-1]) / highest(result, BURSTS[0]) - 1
    figures = {"cpu_s": (result.cpu_s, "s"), "silent": (result.silent.bytes / MIB, "MiB"),
               "silent_5s": (early.bytes / MIB, "MiB"), "peak": (result.peak() / MIB, "MiB"),
               "silent_lazy": (result.silent.lazy_bytes / MIB, "MiB"),
               "growth": (100 * growth, "%")}
    for place, load in enumerate(PHASES):
        figures[f"after_{place + 1}_{load.name}"] = (after[place], "MiB")
    for percentile, name in ((50, "median_ms"), (99, "p99_ms")):
        times = [result.bursts[place].latencies.get(percentile) for place in BURSTS]
        figures[name] = (None if None in times else statistics.median(times), "ms")
    return {name: Figure(*value) for name, value in figures.items()}


class ServiceUnit(InstalledUnit):
    """A service. Derived classes define how it and its clients are started."""

    by_name_only = True
    ready = ""  # a command, with the folder as DIR; "": when a process listens

    def __init__(self, name, title):
        self.rows = (Row(name, GROUP, title, "cpu_s", "silent", PROGRAM_MIB),)

    def more_allocators(self, allocators):
        return with_settings(allocators)

    def command(self, directory, port):
        """The command of the service. It listens on the port, or on directory/socket."""
        raise NotImplementedError

    def client(self, directory, port, load):
        """The shell command of one phase."""
        raise NotImplementedError

    def _job(self, directory, settings):
        port = free_port()
        loads = [load.smaller() if settings.quick else load for load in PHASES]
        clients = [self.client(directory, port, load) for load in loads]
        limited = [f"timeout {settings.timeout_s} sh -c {shlex.quote(one)}" for one in clients]
        return server_load.Job(
            list(map(str, self.command(directory, port))), limited[0], len(limited),
            SILENCE_QUICK_S if settings.quick else SILENCE_S,
            self.ready.replace("DIR", shlex.quote(directory)) or None, loads=tuple(limited))

    def run(self, allocator, settings):
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as directory:
            self.prepare(directory)
            side = compare.Side(allocator.name, self.library(allocator, directory))
            job = self._job(directory, settings)
            with environment_of(allocator.setting):
                result = server_load.run(job, side)
        if result.unreadable:
            raise RunFailed(f"the memory of {result.unreadable} processes cannot be read")
        return {self.name: figures_of(result)}


class DocumentsUnit(ServiceUnit):
    """A service with the interface of tools/workloads/documents.py, under the load of
    documents_load.py."""

    def __init__(self, name, title, command, needs, modules=()):
        super().__init__(name, title)
        self._command, self.needs, self._modules = command, needs, modules

    def _python(self):
        """The interpreter that has the modules, or None."""
        for python in filter(None, (shutil.which("python3"), PYTHON)):
            if not subprocess.run([python, "-c", f"import {', '.join(self._modules)}"],
                                  capture_output=True, check=False).returncode:
                return python
        return None

    def skip_reason(self, settings):
        if self._modules and not self._python():
            return (f"python3 has no {' or no '.join(self._modules)} (pip install "
                    f"{' '.join(self._modules)}, in a virtual environment)")
        return super().skip_reason(settings)

    def command(self, directory, port):
        python = self._python() if self._modules else PYTHON
        return [word.format(python=python, folder=directory) if isinstance(word, str) else word
                for word in self._command] + [port]

    def client(self, directory, port, load):
        return shlex.join(map(str, [PYTHON, "-S", source("tools", "workloads", "documents_load.py"),
                                    port, *load.words()]))


class JavaUnit(DocumentsUnit):
    """The Java service, which is compiled once."""

    def __init__(self):
        super().__init__("service-java", "Java, direct buffers, inflaters",
                         ["java", "-Xmx512m", "-cp", "{folder}", "Documents"],
                         {name: "default-jdk-headless" for name in ("java", "javac")})

    def prepare(self, directory):
        run_beside(["javac", "-d", directory, source("bench", "services", "Documents.java")])


class RedisServiceUnit(ServiceUnit):
    """redis-server with values of mixed size, most of which are deleted."""

    needs = {"redis-server": "redis-server"}

    def library(self, allocator, directory):
        # Debian's redis-server is linked with jemalloc; libc before it makes "system" the system's.
        return allocator.library or libc_path()

    def command(self, directory, port):
        return [self.find("redis-server"), "--port", "0", "--unixsocket", f"{directory}/socket",
                "--save", "", "--appendonly", "no", "--dir", directory, "--daemonize", "no"]

    def client(self, directory, port, load):
        return client_of("redis_load.py", f"{directory}/socket", *load.words())


class MariaDbUnit(ServiceUnit):
    """MariaDB with a connection for each client, inserts and selects. Its client reports no time
    of single requests."""

    needs = {"mariadbd": "mariadb-server-core", "mariadb-install-db": "mariadb-server-core",
             "mariadb-slap": "mariadb-client"}

    def __init__(self, name, title):
        super().__init__(name, title)
        self._made = None  # the folder of the new data directory, made once

    def prepare(self, directory):
        if self._made is None:
            # pylint: disable-next=consider-using-with
            made = tempfile.TemporaryDirectory(prefix="cairn-bench-")
            run_beside(["mariadb-install-db", "--no-defaults", f"--datadir={made.name}/data",
                        "--auth-root-authentication-method=normal", "--skip-test-db"])
            self._made = made
        run_beside(["cp", "-a", f"{self._made.name}/data", directory])

    def command(self, directory, port):
        return [self.find("mariadbd"), "--no-defaults", "--user=root", "--skip-networking",
                f"--datadir={directory}/data", f"--socket={directory}/socket",
                "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"]

    def client(self, directory, port, load):
        return shlex.join(["mariadb-slap", "--no-defaults", "--user=root",
                           f"--socket={directory}/socket", "--auto-generate-sql",
                           "--auto-generate-sql-load-type=mixed", "--number-char-cols=20",
                           f"--auto-generate-sql-write-number={10 * load.percent}",
                           f"--concurrency={load.connections}",
                           f"--number-of-queries={8 * load.requests}"])


class PostgresServiceUnit(ServiceUnit):
    """PostgreSQL, with a process for each connection of pgbench."""

    def __init__(self, name, title):
        super().__init__(name, title)
        self._server = PostgresUnit()
        self.ready = f"{self._server.find('psql')} -h DIR -U postgres -c 'select 1'"

    def skip_reason(self, settings):
        return self._server.skip_reason(settings)

    def library(self, allocator, directory):
        return self._server.library(allocator, directory)

    def prepare(self, directory):
        self._server.prepare(directory)

    def command(self, directory, port):
        return self._server.command(directory)

    def client(self, directory, port, load):
        return client_of("postgres_load.py", self._server.find("pgbench"), directory,
                         *load.words())


def service_units():
    services = source("bench", "services")
    python = ["env", f"PYTHONPATH={source('tools', 'workloads')}"]
    yield DocumentsUnit("service-python", "Python's http.server, threads, JSON, zlib",
                        [PYTHON, source("tools", "workloads", "documents.py")],
                        {PYTHON: "python3"})
    yield DocumentsUnit("service-fastapi", "FastAPI on uvicorn, large JSON bodies",
                        [*python, "{python}", services / "documents_fastapi.py"], {},
                        ("fastapi", "uvicorn"))
    yield DocumentsUnit("service-arrow", "Arrow, group-by, sorting, Parquet",
                        [*python, "ARROW_DEFAULT_MEMORY_POOL=system", "{python}",
                         services / "documents_arrow.py"], {}, ("pyarrow",))
    yield DocumentsUnit("service-node", "Node.js, JSON, zlib", ["node", services / "documents.js"],
                        {"node": "nodejs"})
    yield DocumentsUnit("service-ruby", "Ruby, a thread for each connection",
                        ["ruby", services / "documents.rb"], {"ruby": "ruby"})
    yield JavaUnit()
    yield RedisServiceUnit("service-redis", "redis-server, values of mixed size, deletes")
    yield MariaDbUnit("service-mariadb", "MariaDB, mariadb-slap")
    yield PostgresServiceUnit("service-postgres", "PostgreSQL, pgbench, 24 connections")
