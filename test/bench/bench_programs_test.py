"""bench_programs and bench_servers: their refusals, and the sum of a server's memory.

test/bench/bench_command_test.py runs the programs themselves.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import bench_path  # noqa: F401  pylint: disable=unused-import
import bench_mimalloc
import bench_programs
import bench_servers
from bench_rows import (CommandUnit, RunFailed, Settings, check_processes, processes_under)
from cairn.allocator_libraries import Allocator
from cairn.errors import UserError
from cairn.probe import Process

LIBRARY = pathlib.Path(os.environ["CAIRN_TEST_LIBRARY"])
SYSTEM, CAIRN = Allocator("system", None), Allocator("cairn", LIBRARY)
SETTINGS = Settings(quick=True)
BALLAST_MIB = 30

# A program with one ballast from before its fork and one from after it. It writes its number and
# waits.
PARENT = f"""
import os, sys
common = b"x" * ({BALLAST_MIB} << 20)
if os.fork() == 0:
    own = b"y" * ({BALLAST_MIB} << 20)
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
os.wait()
"""


@contextlib.contextmanager
def parent_and_child():
    with subprocess.Popen([sys.executable, "-S", "-c", PARENT], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


class MemoryTest(unittest.TestCase):
    def test_what_processes_share_counts_once(self):
        with parent_and_child() as pid:
            self.assertEqual(len(bench_servers.processes_of(pid)), 2)
            total = bench_servers.pss_mib(pid)
        self.assertGreater(total, 2 * BALLAST_MIB)
        self.assertLess(total, 2 * BALLAST_MIB + 25)

    def test_a_peak_that_is_over_counts(self):
        code = f"x = b'x' * ({BALLAST_MIB} << 20); del x; print(1, flush=True); input()"
        with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            self.assertGreater(bench_servers.pss_mib(process.pid), BALLAST_MIB)
            process.communicate("\n")

    def test_a_server_that_has_ended(self):
        with subprocess.Popen(["true"]) as process:
            pass
        with self.assertRaisesRegex(RunFailed, "the server has ended"):
            bench_servers.pss_mib(process.pid)

    def test_a_process_without_the_library(self):
        with parent_and_child() as pid:
            with self.assertRaisesRegex(UserError, "cairn: .* is not in process"):
                bench_servers.check_mapped(pid, LIBRARY, CAIRN)


class MimallocBenchTest(unittest.TestCase):
    def run_program(self, name, text):
        """The time of a program of mimalloc-bench that prints this text."""
        with tempfile.TemporaryDirectory() as directory:
            with mock.patch.dict(os.environ, MIMALLOC_BENCH=directory):
                unit = next(unit for unit in bench_mimalloc.units() if unit.name == f"mb-{name}")
            program = pathlib.Path(unit.command(SETTINGS)[0])
            program.parent.mkdir(parents=True)
            program.write_text(f"#!/bin/sh\necho '{text}'\n")
            program.chmod(0o755)
            self.assertIsNone(unit.skip_reason(SETTINGS))
            return unit.run(SYSTEM, SETTINGS)[unit.name]["time_s"].value

    def test_time_follows_from_throughput(self):
        self.assertEqual(self.run_program("larson", "x relative time: 1.5s"), 1.5)
        self.assertEqual(self.run_program("rptest", "...4000000 memory ops/s"), 0.5)
        with self.assertRaisesRegex(RunFailed, "its output has no throughput"):
            self.run_program("xmalloc-test", "nothing")
        self.assertLess(self.run_program("cfrac", "done"), 5)

    def test_a_program_that_is_not_served(self):
        with mock.patch.object(bench_mimalloc, "processes_under", return_value=[]):
            with self.assertRaisesRegex(UserError, "the program does not load"):
                self.run_program("cfrac", "done")

    def test_without_a_folder(self):
        with mock.patch.dict(os.environ, MIMALLOC_BENCH="/nowhere"):
            reasons = [unit.skip_reason(SETTINGS) for unit in bench_mimalloc.units()]
        self.assertEqual(len(reasons), 19)
        self.assertEqual(set(reasons), {"MIMALLOC_BENCH names no folder with this program"})


class ServedTest(unittest.TestCase):
    def test_every_process_tells_where_its_malloc_comes_from(self):
        for allocator in (SYSTEM, CAIRN):
            processes = processes_under(["sh", "-c", "true; env true"], allocator.library)
            self.assertGreater(len(processes), 1)
            check_processes(processes, allocator.library, allocator)

    def test_a_child_without_the_library_is_refused(self):
        command = ["sh", "-c", "unset LD_PRELOAD; env LD_PRELOAD=$PROBE true"]
        unit = CommandUnit("x", "", command, [], "sh")
        probe = LIBRARY.parent / "libcairn-probe.so"
        with self.assertRaisesRegex(UserError, "cairn: malloc of .*true came from .*libc"):
            with mock.patch.dict(os.environ, PROBE=str(probe)):
                unit.run(CAIRN, Settings())

    def test_a_malloc_of_its_own_is_refused(self):
        own = [Process("server", "/usr/bin/server", "/usr/bin/server", "")]
        for allocator in (SYSTEM, CAIRN):
            with self.assertRaisesRegex(UserError, "malloc of server came from /usr/bin/server"):
                check_processes(own, allocator.library, allocator)
        with self.assertRaisesRegex(UserError, "does not load what is preloaded"):
            check_processes([], None, SYSTEM)

    def test_time_is_the_processors_and_outputs_are_compared(self):
        unit = CommandUnit("x", "", ["sh", "-c", "sleep 0.3; echo $WORD"], [], "sh")
        self.assertEqual(unit.rows[0].time, "cpu_s")
        with mock.patch.dict(os.environ, WORD="a"):
            figures = unit.run(SYSTEM, Settings())["x"]
        self.assertLess(figures["cpu_s"].value, 0.2)
        self.assertGreater(figures["wall_s"].value, 0.3)
        with mock.patch.dict(os.environ, WORD="b"):
            with self.assertRaisesRegex(RunFailed, "its output differs"):
                unit.run(CAIRN, Settings())


class SkippedTest(unittest.TestCase):
    def test_what_is_missing_skips_its_row_and_says_so(self):
        with tempfile.TemporaryDirectory() as nothing, \
                mock.patch.dict(os.environ, PATH=nothing), \
                mock.patch("bench_servers.SYSTEM_DIRECTORIES", ""), \
                mock.patch("pathlib.Path.glob", return_value=[]):
            for unit in bench_programs.program_units():
                if unit.name in ("redis", "nginx", "git", "node", "sqlite3", "gcc", "clang"):
                    self.assertRegex(unit.skip_reason(SETTINGS), "is not installed", unit.name)
                if unit.name == "postgres":
                    self.assertRegex(unit.skip_reason(SETTINGS), "is not installed|refuses root")

    def test_postgres_without_a_user_to_become(self):
        unit = bench_servers.PostgresUnit()
        with mock.patch("os.geteuid", return_value=0), \
                mock.patch("pwd.getpwnam", side_effect=KeyError):
            self.assertIn("refuses root", unit.skip_reason(SETTINGS))


class BrokenServer(bench_servers.RedisUnit):
    needs = {"sh": "dash"}
    server = "sh"

    def __init__(self, script):
        super().__init__()
        self.script = script

    def library(self, allocator, directory):
        return allocator.library

    def command(self, directory):
        return ["sh", "-c", f"cd {directory}; echo $$ >pid; touch socket; {self.script}"]

    def clients(self, directory, settings):
        yield bench_servers.Client(["true"])
        yield bench_servers.Client(["sh", "-c", "sleep 0.3; echo no answer >&2; exit 3"])


class ServerTest(unittest.TestCase):
    def test_a_server_that_ends_by_itself_tells_why(self):
        with self.assertRaisesRegex(RunFailed, "exit status 7: no memory"):
            BrokenServer("echo no memory >&2; exit 7").run(SYSTEM, SETTINGS)

    def test_a_client_that_fails_stops_the_server(self):
        with tempfile.NamedTemporaryFile("r") as file:
            unit = BrokenServer(f"trap 'exit 0' TERM; echo $$ >{file.name}; "
                                "while :; do sleep 0.05; done")
            with self.assertRaisesRegex(RunFailed, "sh: exit status 3: no answer"):
                unit.run(SYSTEM, SETTINGS)
            with self.assertRaises(ProcessLookupError):
                os.kill(int(file.read()), 0)

    def test_a_server_that_does_not_start(self):
        unit = BrokenServer("exit 0")
        with mock.patch("bench_servers.START_S", 0.5), \
                mock.patch.object(unit, "is_ready", return_value=False):
            with self.assertRaisesRegex(RunFailed, "the server did not start"):
                unit.run(SYSTEM, SETTINGS)


if __name__ == "__main__":
    unittest.main()
