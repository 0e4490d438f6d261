"""The same command under several allocators: interleaved rounds, medians, ratios."""

import statistics
from dataclasses import dataclass, field
from typing import List

from cairn.measure import Run

QUANTITIES = (
    # attribute of Run, title, unit, decimals
    ("wall_s", "wall time", "s", 3),
    ("cpu_s", "CPU time", "s", 3),
    ("peak_rss_mib", "peak RSS", "MiB", 1),
    ("faults", "page faults", "", 0),
)


@dataclass
class Side:
    """One allocator's runs."""

    name: str
    library: object = None  # path of the preloaded library; None: the system's malloc
    runs: List[Run] = field(default_factory=list)
    processes: object = None  # under a library, a list of probe.Process after the first run
    options: str = ""  # of Cairn, behind the user's

    def values(self, quantity):
        return [getattr(run, quantity) for run in self.runs]

    def median(self, quantity):
        return statistics.median(self.values(quantity))

    def half_range(self, quantity):
        values = self.values(quantity)
        return (max(values) - min(values)) / 2

    def status(self):
        """The first exit status other than 0, or 0."""
        return next((run.status for run in self.runs if run.status), 0)

    def outputs(self):
        return {run.output for run in self.runs}

    def killed(self):
        """The run that a signal ended, or None."""
        return next((run for run in self.runs if run.failed_signal), None)


def interleave(sides, rounds, run_one, on_run=lambda side, number: None, warm_up=0):
    """Fills the sides with rounds of runs; every second round goes in reverse order, so that a
    drift of the machine meets all sides alike. Rounds of warm-up come before and are not kept.
    Stops at the first run that a signal ends, and returns (side, run) then."""
    for number in range(-warm_up, rounds):
        for side in sides if (number + warm_up) % 2 == 0 else reversed(sides):
            on_run(side, number)
            run = run_one(side, number)
            if number >= 0:
                side.runs.append(run)
            if run.failed_signal:
                return side, run
    return None


def keep_whole_rounds(sides):
    """Drops what an end in mid-round has left over; returns the number of whole rounds."""
    for side in sides:
        if side.runs and side.runs[-1].failed_signal:
            side.runs.pop()
    rounds = min(len(side.runs) for side in sides)
    for side in sides:
        del side.runs[rounds:]
    return rounds


def ratio(ours, theirs, quantity):
    """Median over median, or None where it says nothing."""
    base = theirs.median(quantity)
    return ours.median(quantity) / base if base else None


def compare_outputs(sides):
    """One sentence on whether the program said the same under all; the first side is the one that
    the others are compared with."""
    base, *others = sides
    if len(set().union(*(side.outputs() for side in sides))) == 1:
        return "output: the same in every run"
    if len(base.outputs()) > 1:
        of_base = "the system's malloc" if base.name == "system" else base.name
        return f"output: differs from run to run, under {of_base} too"
    different = [side.name for side in others if side.outputs() != base.outputs()]
    return f"output: differs between {base.name} and {', '.join(different)}"
