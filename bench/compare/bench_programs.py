"""All units of the benchmark: the workloads, the micro-benchmarks and the real programs."""

import pathlib
import shutil
import tempfile

import bench_files
import bench_mimalloc
from bench_rows import (CommandUnit, MicroUnit, Row, WorkloadUnit, process_figures, run_beside)
from bench_servers import NginxUnit, PostgresUnit, RedisUnit
from bench_services import service_units
from bench_traces import trace_units


def workload_units():
    for line in bench_files.listed_rows():
        name, group, title, time_figure, memory_figure, need_mib, instead = line.split("\t")
        yield WorkloadUnit(Row(name, group, title, time_figure, memory_figure, int(need_mib),
                               instead))


def micro_unit():
    return MicroUnit(*map(bench_files.program_path, bench_files.MICRO_TARGETS),
                     bench_files.listed_micro_benchmarks())


class GitUnit(CommandUnit):
    """git on a fresh copy of a repository that is made once."""

    COMMITS, COMMITS_QUICK = 1000, 60

    def __init__(self, programs):
        super().__init__("git", "git, log, gc, repack and fsck", ["sh", programs / "history.sh"],
                         ["sh", programs / "history.sh"], "git",
                         "git is not installed (Debian package git)")
        self._history = programs / "history.py"
        self._made = None  # the folder of the repository

    def _repository(self, settings):
        if self._made is None:
            # pylint: disable-next=consider-using-with
            made = tempfile.TemporaryDirectory(prefix="cairn-bench-")
            commits = self.COMMITS_QUICK if settings.quick else self.COMMITS
            run_beside(["sh", "-c", 'git init --quiet --bare --initial-branch=main "$1" && '
                        '/usr/bin/python3 -S "$2" "$3" | git -C "$1" fast-import --quiet', "sh",
                        f"{made.name}/repository", self._history, commits])
            self._made = made
        return f"{self._made.name}/repository"

    def run(self, allocator, settings):
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as directory:
            copy = f"{directory}/repository"
            shutil.copytree(self._repository(settings), copy)
            run = self._measured([*self.command(settings), copy], allocator, settings)
        self.check_output(run.output.hex())
        return {self.name: process_figures(run)}


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


# Otherwise the peak depends on the moment at which the threads of V8 collect: 102 to 139 MiB under
# one allocator.
NODE_FLAGS = ("--predictable-gc-schedule", "--single-threaded-gc")


def script_units(programs):
    """Interpreters, each with a script whose work is proportional to its argument."""
    python = "/usr/bin/python3"
    for name, title, environment, interpreter, script, package in (
            ("python3", "python3, objects.py, all by malloc", ["PYTHONMALLOC=malloc"],
             [python, "-S"], "objects.py", "python3"),
            ("python3-own", "python3, objects.py, its own allocator for small objects", [],
             [python, "-S"], "objects.py", "python3"),
            ("perl", "perl, hashes.pl", ["PERL_HASH_SEED=0"], ["/usr/bin/perl"], "hashes.pl",
             "perl"),
            ("lua", "lua, tables.lua", [], ["/usr/bin/lua5.4"], "tables.lua", "lua5.4"),
            ("node", "node, buffers.js", [], ["node", *NODE_FLAGS], "buffers.js", "nodejs")):
        command = ["env", *environment, *interpreter, programs / script]
        yield CommandUnit(name, title, [*command, 100], [*command, 5], interpreter[0],
                          f"{interpreter[0]} is not installed (Debian package {package})")


def turn_units(programs):
    """Interpreters whose threads take turns under one lock; each frees blocks of the others."""
    for name, title, needs, before, script in (
            ("python3-turns", "python3, 16 threads, all by malloc", "/usr/bin/python3",
             ["env", "PYTHONMALLOC=malloc"], "turns.py"),
            ("ruby-turns", "ruby, 8 threads", "ruby", [], "turns.rb")):
        command = [*before, needs, programs / script]
        yield CommandUnit(name, title, [*command, 100], [*command, 5], needs, group="turns")


def compiler_units(programs):
    source = programs / "containers.cc"
    for name, compiler in (("gcc", "g++"), ("clang", "clang++")):
        yield CommandUnit(name, f"{compiler} -O2, a C++ file of containers",
                          [compiler, "-std=c++17", "-O2", "-S", "-o", "/dev/null", source],
                          [name, "-O2", "-S", "-o", "/dev/null", programs / "nothing.c"], compiler)


def program_units():
    programs = bench_files.source_directory() / "bench" / "programs"
    containers = bench_files.program_path("cairn-containers")
    rust = bench_files.rust_program()

    yield RedisUnit()
    yield PostgresUnit()
    yield NginxUnit()
    yield CommandUnit("sqlite3", "sqlite3, tables in memory",
                      ["sqlite3", ":memory:", sqlite_script(200000)],
                      ["sqlite3", ":memory:", sqlite_script(10000)], "sqlite3")
    yield from script_units(programs)
    yield from turn_units(programs)
    yield GitUnit(programs)
    yield from compiler_units(programs)
    yield CommandUnit("containers", "C++ containers", [containers, 250], [containers, 5],
                      containers, f"{containers} is not built")
    yield CommandUnit("rust", "Rust collections", [rust, 250], [rust, 5], rust,
                      "the Rust program is not built: cargo is not installed, or failed")


def all_units():
    return [*workload_units(), *program_units(), *service_units(), *bench_mimalloc.units(),
            *trace_units(), micro_unit()]
