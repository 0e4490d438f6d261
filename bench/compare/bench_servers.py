"""Rows of the benchmark that are servers: each listens on a Unix socket in a folder of its own and
is stopped when its clients have finished.

Only the server runs on the allocator, from its start to its end: CPU time is that of all its
processes. Wall time is that of the clients, which run on the malloc of the tool.

A server of one process is compared by its peak RSS. A server of several processes is compared by
their sum, the peak PSS, since each has a heap of its own. RSS would count shared memory, such as
PostgreSQL's buffers, once for each of them; PSS divides it. The difference between the peak of a
process and its memory at the time of the look is added, so that this time has little effect. The
largest single process is reported as peak RSS.
"""

import contextlib
import hashlib
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from typing import List, NamedTuple

import bench_files
from bench_rows import (PEAK_PSS, PEAK_RSS, PROGRAM_MIB, Figure, Row, RunFailed, Unit,
                        check_processes, last_line, limited, process_figures, processes_under,
                        run_beside, run_measured)
from cairn import files
from cairn.errors import UserError

START_S = 20
LOOK_S = 0.1  # between two looks at the memory of a server's processes
SYSTEM_DIRECTORIES = ":/usr/sbin:/sbin"  # not in every user's PATH


def libc_path():
    """The path of the libc that this process and other programs use."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if pathlib.PurePath(path).name.startswith("libc.so"):
            return path
    return None


class Client(NamedTuple):
    command: List
    is_compared: bool = False  # its output must be equal in all runs


def processes_of(pid):
    """A process and its children."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        raise RunFailed("the server has ended, or the kernel does not tell its processes") from None
    return [pid, *map(int, children)]


def _kib(text, name):
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.M)
    return int(found.group(1)) if found else 0


def pss_mib(pid):
    """The memory of all processes of a server, each at its peak; see the text of the module."""
    total = 0
    for process in processes_of(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process ended
            directory = pathlib.Path("/proc") / str(process)
            status = (directory / "status").read_text()
            total += _kib((directory / "smaps_rollup").read_text(), "Pss")
            total += _kib(status, "VmHWM") - _kib(status, "VmRSS")
    return total / 1024


def check_mapped(pid, library, allocator):
    """Checks that every process of the server has the library, also the forked ones."""
    name = os.path.realpath(library)
    for process in processes_of(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # A process that starts or ends has no maps, or a part of them: so it is read again.
            for _ in range(3):
                maps = pathlib.Path(f"/proc/{process}/maps").read_text()
                if not maps or name in maps:
                    break
                time.sleep(LOOK_S)
            else:
                raise UserError(f"{allocator.name}: {library} is not in process {process} of the "
                                "server")


class Server:
    """A server that runs in a thread, measured from its start to its end. It writes its process
    number to a file."""

    def __init__(self, command, library, settings, pid_file):
        self._pid_file = pathlib.Path(pid_file)
        self._outcome = None
        self._thread = threading.Thread(target=self._run, args=(command, library, settings))
        self._thread.start()

    def _run(self, command, library, settings):
        try:
            self._outcome = run_measured(command, library, settings)
        except (RunFailed, UserError, OSError) as error:
            self._outcome = error

    def pid(self):
        """The process number of the server, or None before it has written that."""
        try:
            return int(self._pid_file.read_text().split("\n")[0])
        except (FileNotFoundError, ValueError):
            return None

    def wait_for(self, is_ready):
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._thread.is_alive():
            if self.pid() and is_ready():
                return self.pid()
            time.sleep(0.005)
        raise RunFailed("the server did not start")

    def stop(self, number):
        """Sends the stop signal and waits; `timeout`, under which the server runs, ends a hang."""
        pid = self.pid()
        if pid and self._thread.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        self._thread.join()

    def measured(self):
        """The measurement of the stopped server; raises the error that prevented it."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class InstalledUnit(Unit):
    """A server that the system has or lacks."""

    needs = {}  # programs and their Debian packages

    def find(self, name):
        """The path of a program, or None."""
        return shutil.which(name, path=os.environ.get("PATH", os.defpath) + SYSTEM_DIRECTORIES)

    def skip_reason(self, settings):
        for name, package in self.needs.items():
            if not self.find(name):
                return f"{name} is not installed (Debian package {package})"
        return None

    def library(self, allocator, directory):  # pylint: disable=unused-argument
        """The library that is preloaded."""
        return allocator.library

    def prepare(self, directory):
        """Writes the files that the server needs into the new folder."""


class ServerUnit(InstalledUnit):
    """A server and its clients. Derived classes define how they are started."""

    row = None
    server = ""  # the program that is measured
    stop_signal = signal.SIGTERM

    def __init__(self):
        self.rows = (self.row,)
        self._checked = set()  # names of allocators that serve the server

    def command(self, directory):
        """The command of the server, which listens on directory/socket and writes its process
        number to directory/pid."""
        raise NotImplementedError

    def is_ready(self, directory):
        return pathlib.Path(directory, "socket").exists()

    def clients(self, directory, settings):
        """The clients, which run one after another."""
        raise NotImplementedError

    def _run_client(self, client, settings, pid):
        """(digest of the output, peak PSS of the server)"""
        most = 0
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, \
                subprocess.Popen(limited(client.command, settings), stdout=out, stderr=err) as run:
            while run.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.wait(LOOK_S)
                if self.row.memory == PEAK_PSS:
                    most = max(most, pss_mib(pid))
            if run.returncode:
                err.seek(0)
                raise RunFailed(f"{client.command[0]}: exit status {run.returncode}: "
                                f"{last_line(err.read().decode(errors='replace'))}")
            return files.digest(out).hexdigest() if client.is_compared else "", most

    def _load(self, directory, settings, pid):
        """(seconds, peak PSS) of the clients' work."""
        start = time.monotonic()
        runs = [self._run_client(client, settings, pid)
                for client in self.clients(directory, settings)]
        seconds = time.monotonic() - start
        self.check_output(" ".join(digest for digest, _ in runs))
        return seconds, max(most for _, most in runs)

    def _check_program(self, library, allocator):
        """Runs the server with --version, or an unknown option, in a run of its own."""
        if allocator.name not in self._checked:
            command = [self.find(self.server), "--version"]
            check_processes(processes_under(command, library), library, allocator)
            self._checked.add(allocator.name)

    def _serve(self, allocator, settings, directory):
        self.prepare(directory)
        library = self.library(allocator, directory)
        self._check_program(library, allocator)
        server = Server(self.command(directory), library, settings, f"{directory}/pid")
        try:
            pid = server.wait_for(lambda: self.is_ready(directory))
            seconds, pss = self._load(directory, settings, pid)
            if library:
                check_mapped(pid, library, allocator)
        except RunFailed:
            server.stop(self.stop_signal)
            server.measured()  # raises first if the server itself failed
            raise
        finally:
            server.stop(self.stop_signal)
        figures = {**process_figures(server.measured()), "wall_s": Figure(seconds, "s")}
        return {**figures, PEAK_PSS: Figure(pss, "MiB")} if pss else figures

    def run(self, allocator, settings):
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as directory:
            return {self.name: self._serve(allocator, settings, directory)}


class RedisUnit(ServerUnit):
    """redis-server under load from redis-benchmark."""

    row = Row("redis", "programs", "redis-server, set/get/lists/sets", "cpu_s", PEAK_RSS,
              PROGRAM_MIB)
    needs = {"redis-server": "redis-server", "redis-benchmark": "redis-tools"}
    server = "redis-server"
    TESTS = "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,lrange_100,mset"

    def library(self, allocator, directory):
        # Debian's redis-server is linked with jemalloc; libc before it makes "system" the system's.
        return allocator.library or libc_path()

    def command(self, directory):
        return [self.find("redis-server"), "--port", "0", "--unixsocket", f"{directory}/socket",
                "--pidfile", f"{directory}/pid", "--save", "", "--appendonly", "no", "--dir",
                directory, "--daemonize", "no"]

    def clients(self, directory, settings):
        yield Client([self.find("redis-benchmark"), "-s", f"{directory}/socket", "-q", "-t",
                      self.TESTS, "-c", "20", "-P", "16", "-r", "50000", "-d", "200", "-n",
                      "2000" if settings.quick else "70000"])


NGINX_CONFIGURATION = """
{user}
daemon off;
worker_processes 1;
pid {directory}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    root {directory}/root;
    keepalive_requests 1000000;
    upstream itself {{
        server unix:{directory}/behind;
        keepalive 16;
    }}
    server {{
        listen unix:{directory}/socket;
        location /proxied/ {{
            proxy_pass http://itself/;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
        location /packed/ {{ gzip on; gzip_types *; gzip_comp_level 1; alias {directory}/root/; }}
        location /included/ {{ ssi on; ssi_types *; alias {directory}/root/; }}
    }}
    server {{ listen unix:{directory}/behind; }}
}}
"""


class NginxUnit(ServerUnit):
    """nginx with one worker: files, compressed pages, server-side includes, and pages that it
    fetches from itself."""

    row = Row("nginx", "programs", "nginx, files, gzip, includes, proxy", "cpu_s", PEAK_PSS,
              PROGRAM_MIB)
    needs = {"nginx": "nginx"}
    server = "nginx"
    stop_signal = signal.SIGQUIT
    PATHS = ("/1000.txt", "/proxied/20000.txt", "/packed/1000.txt", "/included/page.html")

    def prepare(self, directory):
        root = pathlib.Path(directory) / "root"
        root.mkdir()
        for size in (1000, 20000):
            line = hashlib.sha256(str(size).encode()).hexdigest() + "\n"
            (root / f"{size}.txt").write_text((line * size)[:size])
        (root / "page.html").write_text('<!--#include virtual="/1000.txt" -->|'
                                        '<!--#include virtual="/proxied/1000.txt" -->')
        # Only root can choose the workers' user, and has to: they read files of this user.
        user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
        (root.parent / "nginx.conf").write_text(
            NGINX_CONFIGURATION.format(directory=directory, user=user))

    def command(self, directory):
        return [self.find("nginx"), "-e", "stderr", "-c", f"{directory}/nginx.conf"]

    def clients(self, directory, settings):
        client = bench_files.source_directory() / "bench" / "programs" / "http_load.py"
        yield Client(["/usr/bin/python3", "-S", client, f"{directory}/socket",
                      "4000" if settings.quick else "64000", *self.PATHS], is_compared=True)


class PostgresUnit(ServerUnit):
    """PostgreSQL under pgbench, which writes, and under queries that sort and join. It refuses
    root, so root runs it as another user."""

    row = Row("postgres", "programs", "PostgreSQL, pgbench and reports", "cpu_s", PEAK_PSS,
              PROGRAM_MIB)
    needs = {name: "postgresql" for name in ("postgres", "initdb", "pgbench", "psql")}
    server = "postgres"
    stop_signal = signal.SIGINT  # "fast": without waiting for clients
    USERS = ("postgres", "nobody")
    SETTINGS = ("listen_addresses=", "fsync=off", "full_page_writes=off", "autovacuum=off",
                "shared_buffers=32MB", "max_wal_size=1GB", "jit=off", "huge_pages=off",
                "max_parallel_workers_per_gather=0", "max_parallel_maintenance_workers=0")

    def __init__(self):
        super().__init__()
        self._made = None  # the folder of the new data directory, made once

    def find(self, name):
        # Debian installs only wrappers for its clusters into PATH.
        versions = pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
        newest = max(versions, key=lambda path: float(path.parts[4]), default=None)
        return str(newest) if newest else super().find(name)

    def account(self):
        """The account that runs the server where the benchmark runs as root, or None."""
        if os.geteuid() != 0:
            return None
        for name in self.USERS:
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name)
        return None

    def skip_reason(self, settings):
        if os.geteuid() == 0 and not (self.account() and shutil.which("setpriv")):
            return "PostgreSQL refuses root, and there is no user or no setpriv to become another"
        return super().skip_reason(settings)

    def _as_user(self, command):
        account = self.account()
        return [*(["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}",
                   "--clear-groups"] if account else []), *command]

    def _own(self, directory):
        if self.account():
            os.chown(directory, self.account().pw_uid, self.account().pw_gid)

    def _new_data(self):
        """Makes a data directory by initdb."""
        if self._made is None:
            # pylint: disable-next=consider-using-with
            made = tempfile.TemporaryDirectory(prefix="cairn-bench-")
            self._own(made.name)
            run_beside(self._as_user(
                [self.find("initdb"), "--pgdata", f"{made.name}/data", "--username", "postgres",
                 "--no-sync", "--no-locale", "--encoding", "UTF8", "--auth", "trust",
                 "--wal-segsize", "4"]))
            self._made = made
        return f"{self._made.name}/data"

    def library(self, allocator, directory):
        if not allocator.library or not self.account():
            return allocator.library
        # Only root may be able to read it.
        copy = pathlib.Path(directory) / allocator.library.name
        shutil.copy(allocator.library, copy)
        copy.chmod(0o755)
        return copy

    def prepare(self, directory):
        self._own(directory)
        run_beside(["cp", "-a", self._new_data(), f"{directory}/data"])

    def command(self, directory):
        options = [word for setting in self.SETTINGS for word in ("-c", setting)]
        return self._as_user([self.find("postgres"), "-D", f"{directory}/data", "-k", directory,
                              "-c", f"external_pid_file={directory}/pid", *options])

    def is_ready(self, directory):
        with contextlib.suppress(FileNotFoundError):
            lines = pathlib.Path(directory, "data", "postmaster.pid").read_text().splitlines()
            return len(lines) > 7 and lines[7].startswith("ready")
        return False

    def clients(self, directory, settings):
        reports = bench_files.source_directory() / "bench" / "programs" / "reports.sql"
        where = ["--host", directory, "--username", "postgres"]
        bench = [self.find("pgbench"), *where]
        writes, reads = ("50", "1") if settings.quick else ("1000", "3")
        yield Client([*bench, "--initialize", "--quiet", "postgres"])
        load = [*bench, "--no-vacuum", "--client", "4", "--random-seed", "7"]
        yield Client([*load, "--builtin", "simple-update", "--transactions", writes, "postgres"])
        yield Client([*load, "--file", reports, "--transactions", reads, "postgres"])
        yield Client([self.find("psql"), *where, "--no-psqlrc", "--quiet", "--tuples-only",
                      "--no-align", "--set", "ON_ERROR_STOP=1", "--file", reports, "postgres"],
                     is_compared=True)
