"""Rows of the benchmark that are the programs of mimalloc-bench, as its bench.sh runs them.

They are skipped unless MIMALLOC_BENCH in the environment names its folder, with the programs in
out/bench. Time is wall time; for a program with a pattern it follows from the throughput that the
program prints.
"""

import os
import pathlib
import re
import shlex
import tempfile

from bench_rows import (PEAK_RSS, CommandUnit, Figure, Row, RunFailed, check_processes,
                        process_figures, processes_under, run_measured)

GROUP = "mimalloc-bench"
NEED_MIB = 700
WORKERS = min(len(os.sched_getaffinity(0)), 16)
RELATIVE = (r" time: ([0-9.]+)", 0)
# Name and command. Where the program runs for a fixed time: a pattern of its output, and the number
# of operations, at the throughput that the pattern finds, or 0, where it finds the time itself.
PROGRAMS = (
    ("cfrac", "cfrac 17545186520507317056371138836327483792789528"),
    ("espresso", "espresso {bench}/espresso/largest.espresso"),
    ("barnes", "barnes"),
    ("alloc-test1", "alloc-test 1"),
    ("alloc-testN", "alloc-test {workers}"),
    ("cache-scratch1", "cache-scratch 1 1000 1 2000000 {workers}"),
    ("cache-scratchN", "cache-scratch {workers} 1000 1 2000000 {workers}"),
    ("cache-thrash1", "cache-thrash 1 1000 1 2000000 {workers}"),
    ("cache-thrashN", "cache-thrash {workers} 1000 1 2000000 {workers}"),
    ("larson", "larson 5 8 1000 5000 100 4141 {workers}", *RELATIVE),
    ("larson-sized", "larson-sized 5 8 1000 5000 100 4141 {workers}", *RELATIVE),
    ("xmalloc-test", "xmalloc-test -w {workers} -t 5 -s 64", r"rtime: ([0-9.]+)", 0),
    ("mstress", "mstress {workers} 50 25"),
    ("rptest", "rptest {workers} 0 1 2 500 1000 100 8 16000", r"\.\.\.([0-9]+) memory ops",
     2_000_000),
    ("glibc-simple", "glibc-simple"),
    ("glibc-thread", "glibc-thread {workers}", r"([0-9.]+)", 1_000_000_000),
    ("malloc-large", "malloc-large"),
    ("mleak10", "mleak 5"),
    ("mleak100", "mleak 50"),
)


class MimallocBenchUnit(CommandUnit):
    """One program of mimalloc-bench."""

    def __init__(self, folder, name, command, pattern="", operations=0):
        words = shlex.split(command.format(bench=folder / "bench", workers=WORKERS))
        program = folder / "out" / "bench" / words[0]
        super().__init__(f"mb-{name}", command, [program, *words[1:]], [program, *words[1:]],
                         program, "MIMALLOC_BENCH names no folder with this program")
        self.rows = (Row(f"mb-{name}", GROUP, command.split()[0], "time_s", PEAK_RSS, NEED_MIB),)
        self._input = folder / "bench" / "barnes" / "input" if name == "barnes" else None
        self._pattern, self._operations = pattern, operations

    def _seconds(self, run, text):
        if not self._pattern:
            return run.wall_s
        found = re.search(self._pattern, text)
        if not found:
            raise RunFailed("its output has no throughput")
        value = float(found.group(1))
        return self._operations / value if self._operations else value

    def run(self, allocator, settings):
        command = self.command(settings)
        if allocator.name not in self._checked:
            # In a run of its own, since some programs take little more memory than the probe.
            check_processes(processes_under(["timeout", "0.1", *command], allocator.library),
                            allocator.library, allocator)
            self._checked.add(allocator.name)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as folder:
            run = run_measured(command, allocator.library, settings, stdin=self._input,
                               output=output, folder=folder)  # rptest writes a file of results
            output.seek(0)
            seconds = self._seconds(run, output.read().decode(errors="replace"))
        return {self.name: {"time_s": Figure(seconds, "s"), **process_figures(run)}}


def units():
    folder = pathlib.Path(os.environ.get("MIMALLOC_BENCH", "/nonexistent")).resolve()
    return [MimallocBenchUnit(folder, *program) for program in PROGRAMS]
