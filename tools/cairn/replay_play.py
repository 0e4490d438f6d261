"""Prepares a trace once, and plays it in turn on several allocators.

cairn-replay-prepare and cairn-replay (tools/replay) do the work. In each round the trace is also
played without an allocator: this is the player's own cost, which is subtracted.
"""

import os
import pathlib
import statistics
import struct
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import List, Optional

from cairn import files, measure
from cairn.errors import UserError, signal_name

MAGIC = b"CRNPLAY1"
HEADER = struct.Struct("<8sII14Q")  # tools/replay/program.h
WINDOW = struct.Struct("<IIQQQQ")
WORKS = ("parallel", "in-line")  # tools/replay/work.h
TOUCHES = ("pages", "filled", "zeroed", "first", "nothing")
EMPTY = "no allocator"


def _fields(words):
    return {name: int(value) for name, _, value in (word.partition("=") for word in words)}


def _run(command, environment=None):
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             errors="surrogateescape", check=False, env=environment)
    if process.returncode:
        words = process.stderr.strip().splitlines()
        end = (f"{signal_name(-process.returncode)} ended it" if process.returncode < 0
               else f"it ended with status {process.returncode}")
        sentence = words[-1].partition(": ")[2] if words and process.returncode > 0 else ""
        raise UserError(sentence or f"{pathlib.Path(command[0]).name}: {end}"
                        + (f": {words[-1]}" if words else ""))
    return process.stdout.splitlines()


class Program:
    """A replay program: its file and its header."""

    NAMES = ("threads", "slots", "events", "records", "windows", "policies", "thread_table",
             "window_table", "policy_table", "peak_live_bytes", "end_live_bytes", "waits",
             "unknown_frees", "lost_events", "file_bytes")

    def __init__(self, path):
        self.path = pathlib.Path(path)
        with self.path.open("rb") as file:
            data = file.read(HEADER.size)
        if len(data) < HEADER.size:
            raise UserError(f"{path} is not a replay program")
        for name, value in zip(self.NAMES, HEADER.unpack(data)[2:]):
            setattr(self, name, value)

    def windows_at(self, numbers):
        """(live bytes, seconds of the trace) at the ends of these windows."""
        with self.path.open("rb") as file:
            for number in numbers:
                file.seek(self.window_table + number * WINDOW.size)
                _, _, _, live_bytes, _, time_ns = WINDOW.unpack(file.read(WINDOW.size))
                yield live_bytes, time_ns / 1e9


def is_program(path):
    """Whether the file is a replay program."""
    with pathlib.Path(path).open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@contextmanager
def prepared(trace, policy=None, keep=None):
    """The replay program of a trace, in a temporary file or the one to keep."""
    if is_program(trace):
        if policy:
            raise UserError("--site-policy needs the original trace, not a prepared replay "
                            f"program: {trace}")
        yield Program(trace)
        return
    with tempfile.TemporaryDirectory(prefix="cairn-replay-") as folder:
        path = pathlib.Path(keep) if keep else pathlib.Path(folder) / "program"
        options = ["--site-policy", str(policy)] if policy else []
        _run([str(files.program("cairn-replay-prepare")), *options, str(trace), str(path)])
        yield Program(path)


@dataclass
class Side:
    """A program, the allocator that it is played on, and its measured runs."""

    name: str
    library: Optional[pathlib.Path] = None  # preloaded; None: the system's malloc
    program: Optional[Program] = None
    empty: bool = False
    sites_player: bool = False  # use the player that has Cairn's allocators for sites
    sites_by_malloc: bool = False  # take blocks of sites from malloc, with all other work for sites
    site: int = 0  # the only policy, numbered from 1, with its allocator; 0: all
    work: Optional[tuple] = None  # before each record: WORKS, ns
    options: str = ""  # Cairn's, after the user's
    runs: List[dict] = field(default_factory=list)
    samples: List[tuple] = field(default_factory=list)  # window, ns, resident bytes
    sites: List[tuple] = field(default_factory=list)  # name, blocks served, blocks served by malloc


@dataclass
class Cost:
    """A side's figures without the cost of the player itself: medians over the rounds."""

    name: str
    allocator_s: float  # CPU time
    wall_s: float
    half_range_s: float  # of the CPU time over the rounds
    peak_bytes: int
    peak_rss_bytes: int  # of the whole process
    faults: int
    held_over_live: float  # sum of memory over time, divided by that of live memory
    samples: List[tuple]  # seconds of the trace, live bytes, bytes held
    sites: List[tuple]


def play_once(side, touch="pages", samples=0):
    """Plays the side's program once. Returns the player's figures."""
    name = "cairn-replay-sites" if side.sites_player else "cairn-replay"
    command = [str(files.program(name)), "--touch", touch]
    command += ["--empty"] if side.empty else []
    command += ["--sites-by-malloc"] if side.sites_by_malloc else []
    command += ["--site", str(side.site)] if side.site else []
    command += [f"--work-{side.work[0]}", str(side.work[1])] if side.work else []
    command += ["--samples", str(samples)] if samples else []
    environment = dict(os.environ)
    libraries = [side.library] if side.library else []
    if side.sites_player and not any(map(files.has_allocators, libraries)):
        libraries.append(files.allocator_library())
    preload = measure.preload_value(libraries, environment)
    environment.pop("LD_PRELOAD", None)
    if preload:
        environment["LD_PRELOAD"] = preload
    if side.options:
        environment["CAIRN_OPTIONS"] = measure.options_value(side.options)
    lines = [line.split() for line in _run([*command, str(side.program.path)], environment)]
    side.sites = [(words[1], int(words[2]), int(words[3])) for words in lines
                  if words[0] == "site"]
    if samples:
        side.samples = [tuple(map(int, words[1:])) for words in lines if words[0] == "sample"]
    return _fields(lines[0])


def play_all(sides, rounds, touch="pages", samples=400, on_run=lambda side, number: None):
    """Plays all sides in turn, every second round in reverse. An untimed round comes first, which
    takes the samples of memory over time."""
    for number in range(-1, rounds):
        for side in sides if number % 2 else reversed(sides):
            on_run(side, number)
            run = play_once(side, touch, samples if number < 0 else 0)
            if number >= 0:
                side.runs.append(run)


def _median(values):
    return statistics.median(list(values))


def cost(side, empty):
    """The side's cost minus the cost of its program without an allocator. A negative difference is
    within the variation of rounds and counts as 0."""
    own = [(run["cpu_ns"] - run["wait_ns"]) - (bare["cpu_ns"] - bare["wait_ns"])
           for run, bare in zip(side.runs, empty.runs)]
    base = _median(run["peak_bytes"] for run in empty.runs)
    peak = _median(run["peak_bytes"] for run in side.runs)
    windows = [window for window, _, _ in side.samples]
    samples = [(seconds, live, max(0, resident - base)) for (live, seconds), (_, _, resident)
               in zip(side.program.windows_at(windows), side.samples)]
    live_sum = sum(live for _, live, _ in samples)
    return Cost(
        name=side.name, allocator_s=max(0, _median(own)) / 1e9,
        half_range_s=(max(own) - min(own)) / 2e9,
        wall_s=_median(run["wall_ns"] for run in side.runs) / 1e9,
        peak_bytes=max(0, round(peak - base)), peak_rss_bytes=round(peak),
        faults=round(_median(run["minor_faults"] for run in side.runs)
                     - _median(run["minor_faults"] for run in empty.runs)),
        held_over_live=sum(held for _, _, held in samples) / live_sum if live_sum else 0,
        samples=samples, sites=side.sites)


def replay(program, sides, rounds, site_program=None, touch="pages", samples=400,
           on_run=lambda side, number: None):
    """The costs of the program on each (name, library), and with `site_program` those of that
    program too: ([Cost, …] in the order of the sides, the player's own CPU time in seconds)."""
    made, pairs, with_sites = [], [], site_program is not None
    for which, suffix in ((program, ""), (site_program, " + sites")):
        if which is None:
            continue
        empty = Side(EMPTY, None, which, True, with_sites)
        own = [Side(name + suffix, library, which, False, with_sites)
               for name, library in sides]
        made += [empty, *own]
        pairs += [(side, empty) for side in own]
    play_all(made, rounds, touch, samples, on_run)
    own_s = _median(run["cpu_ns"] - run["wait_ns"] for run in made[0].runs) / 1e9
    return [cost(side, empty) for side, empty in pairs], own_s
