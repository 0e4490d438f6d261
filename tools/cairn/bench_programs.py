"""All units of the benchmark: the workloads, the micro-benchmarks and the real programs."""

import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

from cairn import bench_files, measure
from cairn.bench_rows import (PEAK_RSS, CommandUnit, Figure, MicroUnit, Row, RunFailed, Unit,
                              WorkloadUnit, process_figures)
from cairn.bench_traces import trace_units
from cairn.errors import UserError

SERVER_START_S = 20
SERVER_STOP_S = 20


def workload_units():
    for line in bench_files.listed_rows():
        name, group, title, time_figure, memory_figure, need_mib, instead = line.split("\t")
        yield WorkloadUnit(Row(name, group, title, time_figure, memory_figure, int(need_mib),
                               instead))


def micro_unit():
    return MicroUnit(*map(bench_files.program_path, bench_files.MICRO_TARGETS),
                     bench_files.listed_micro_benchmarks())


def libc_path():
    """The libc that programs here run on, taken from this one."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if pathlib.PurePath(path).name.startswith("libc.so"):
            return path
    return None


def _outcome(command, library):
    """The measured run, or what hindered it, for the thread that waits."""
    try:
        return measure.measure(command, library)
    except (UserError, OSError) as error:
        return error


class RedisUnit(Unit):
    """redis-server under load from redis-benchmark, through a socket in a directory of their own.

    The server alone runs on the allocator. Time is the client's; CPU time and memory are the
    server's.
    """

    ROW = Row("redis", "programs", "redis-server, set/get/lists/sets", "wall_s", PEAK_RSS)
    TESTS = "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,lrange_100,mset"
    rows = (ROW,)

    def skip_reason(self, settings):
        for name in ("redis-server", "redis-benchmark", "redis-cli"):
            if not shutil.which(name):
                return f"{name} is not installed (Debian packages redis-server, redis-tools)"
        return None

    def run(self, allocator, settings):
        # Debian's redis-server is linked with jemalloc; libc before it makes "system" be system.
        library = allocator.library or libc_path()
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as directory:
            socket = f"{directory}/socket"
            server = ["timeout", "--foreground", "-k", "2", str(settings.timeout_s),
                      "redis-server", "--port", "0", "--unixsocket", socket, "--save", "",
                      "--appendonly", "no", "--dir", directory, "--daemonize", "no"]
            outcome = []
            thread = threading.Thread(target=lambda: outcome.append(_outcome(server, library)))
            thread.start()
            try:
                self._wait_for(socket, thread)
                client_s = self._load(socket, settings)
            finally:
                self._stop(socket, thread)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        if outcome[0].status:
            raise RunFailed(f"redis-server ended badly: {outcome[0].stderr_tail.strip()[-200:]}")
        figures = process_figures(outcome[0])
        return {"redis": {**figures, "wall_s": Figure(client_s, "s")}}

    @staticmethod
    def _wait_for(socket, thread):
        end = time.monotonic() + SERVER_START_S
        while time.monotonic() < end and thread.is_alive():
            if pathlib.Path(socket).exists():
                return
            time.sleep(0.005)
        raise RunFailed("redis-server did not start")

    def _load(self, socket, settings):
        command = ["redis-benchmark", "-s", socket, "-q", "-t", self.TESTS, "-c", "20", "-P", "16",
                   "-r", "50000", "-d", "200", "-n", "2000" if settings.quick else "100000"]
        start = time.monotonic()
        try:
            result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                    text=True, timeout=settings.timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"redis-benchmark not done after {settings.timeout_s} s") from None
        if result.returncode:
            raise RunFailed(f"redis-benchmark: {result.stderr.strip()[-200:]}")
        return time.monotonic() - start

    @staticmethod
    def _stop(socket, thread):
        try:
            subprocess.run(["redis-cli", "-s", socket, "shutdown", "nosave"], capture_output=True,
                           timeout=SERVER_STOP_S, check=False)
        except subprocess.TimeoutExpired:
            pass  # `timeout`, under which the server runs, ends it
        thread.join()


def sqlite_script(size):
    """SQL whose work is proportional to `size`, and whose output depends on it only."""
    return f"""
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER, note TEXT);
WITH RECURSIVE sequence (n, x) AS (
    VALUES (1, 12345)
    UNION ALL SELECT n + 1, (x * 1103515245 + 12345) % 2147483648 FROM sequence WHERE n < {size})
INSERT INTO item SELECT n, printf('item %d', x % 99991), x % 1000, hex(x) || hex(x / 3)
    FROM sequence;
CREATE INDEX item_name ON item (name, amount);
SELECT amount % 17, count(DISTINCT name), length(group_concat(upper(note))) FROM item GROUP BY 1;
UPDATE item SET note = note || name WHERE amount % 3 = 0;
DELETE FROM item WHERE amount % 5 = 0;
SELECT count(*), sum(length(note)) FROM item JOIN (SELECT DISTINCT name FROM item) USING (name);
"""


def program_units():
    root = bench_files.source_directory()
    programs = root / "bench" / "programs"
    objects = ["env", "PYTHONMALLOC=malloc", "/usr/bin/python3", "-S", programs / "objects.py"]
    containers = bench_files.program_path("cairn-containers")
    rust = bench_files.rust_program()

    yield RedisUnit()
    yield CommandUnit("sqlite3", "sqlite3, tables in memory",
                      ["sqlite3", ":memory:", sqlite_script(200000)],
                      ["sqlite3", ":memory:", sqlite_script(10000)], "sqlite3")
    yield CommandUnit("python3", "python3, objects.py", [*objects, 100], [*objects, 5],
                      "/usr/bin/python3")
    yield CommandUnit("gcc", "gcc -O2, a C++ file of containers",
                      ["g++", "-std=c++17", "-O2", "-S", "-o", "/dev/null",
                       programs / "containers.cc"],
                      ["gcc", "-O2", "-S", "-o", "/dev/null", programs / "nothing.c"], "g++")
    yield CommandUnit("containers", "C++ containers", [containers, 100], [containers, 5],
                      containers, f"{containers} is not built")
    yield CommandUnit("rust", "Rust collections", [rust, 100], [rust, 5], rust,
                      "the Rust program is not built: cargo is not installed, or failed")


def all_units():
    return [*workload_units(), *program_units(), *trace_units(), micro_unit()]
