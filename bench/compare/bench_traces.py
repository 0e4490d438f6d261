"""Rows of the benchmark that are replays of committed traces of real programs: bench/traces."""

import os
import shutil
import statistics
import subprocess
import tempfile

import bench_files
from bench_rows import PEAK_RSS, Figure, Row, RunFailed, Unit, run_measured

TITLES = {
    "perl": "perl, a hash of arrays, built, thinned out and sorted",
    "sqlite3": "sqlite3, tables in memory",
    "python3": "python3, objects.py",
    "jq": "jq, 10000 objects grouped by a name",
}
NEED_MIB = 128
PLAYS = 8  # in a run: a play takes tens of milliseconds
PLAYS_QUICK = 2


def play_words(text):
    """The output of cairn-replay for one play, by name."""
    return {name: int(value) for name, _, value in
            (word.partition("=") for word in text.splitlines()[0].split())}


class TraceUnit(Unit):
    """A committed trace, played by cairn-replay. Time is CPU time, including the player's own; the
    trace is prepared once, next to the build."""

    def __init__(self, name):
        self._trace = bench_files.source_directory() / "bench" / "traces" / f"{name}.trace.gz"
        self.rows = (Row(f"trace-{name}", "traces", f"replay: {TITLES[name]}", "cpu_ms", PEAK_RSS,
                         NEED_MIB),)

    def skip_reason(self, settings):
        return None if shutil.which("gzip") else "gzip is not installed"

    def _program(self):
        """The replay program, which is made again only for a newer trace or player."""
        prepare = bench_files.build_directory() / "cairn-replay-prepare"
        program = bench_files.program_path(f"{self.name}.program")
        newest = max(path.stat().st_mtime for path in (self._trace, prepare))
        if program.exists() and program.stat().st_mtime > newest:
            return program
        new = program.with_name(f"{program.name}.{os.getpid()}")
        done = subprocess.run([prepare, self._trace, new], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise RunFailed(done.stderr.strip())
        new.replace(program)
        return program

    def run(self, allocator, settings):
        player = bench_files.build_directory() / "cairn-replay"
        program = self._program()
        plays = []
        with tempfile.NamedTemporaryFile("r", prefix="cairn-bench-") as output:
            for _ in range(PLAYS_QUICK if settings.quick else PLAYS):
                run_measured([player, "--touch", "zeroed", "--output", output.name, program],
                             allocator.library, settings)
                output.seek(0)
                plays.append(play_words(output.read()))
        cpu_ns = statistics.median(play["cpu_ns"] - play["wait_ns"] for play in plays)
        peak = max(play["peak_bytes"] for play in plays)
        faults = statistics.median(play["minor_faults"] for play in plays)
        return {self.name: {"cpu_ms": Figure(cpu_ns / 1e6, "ms"),
                            PEAK_RSS: Figure(peak / 2**20, "MiB"), "faults": Figure(faults, "")}}


def trace_units():
    return [TraceUnit(name) for name in TITLES]
