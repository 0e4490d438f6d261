"""Compares one command under several allocators: interleaved rounds, medians, ratios, and the
confidence interval of a ratio.

The ratio is the median of the rounds' ratios, and the interval is around it. The two runs of a
round are close in time, so a drift of the machine cancels out in their ratio; it does not in the
ratio of two medians, which may be of different rounds. One round that is far off moves the mean of
the rounds, and widens the interval here."""

import math
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


ROUNDS_LEAST = 3  # for an interval
MEDIAN_ERROR = math.sqrt(math.pi / 2)  # standard error of a median, relative to that of a mean
# 97.5 % of Student's t by the degrees of freedom; others use the next lower number.
STUDENT = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262,
           10: 2.228, 12: 2.179, 14: 2.145, 16: 2.120, 20: 2.086, 25: 2.060, 30: 2.042, 40: 2.021,
           60: 2.000, 120: 1.980}


@dataclass
class Side:
    """One allocator's runs."""

    name: str
    library: object = None  # path of the preloaded library; None: the system's malloc
    runs: List[Run] = field(default_factory=list)
    processes: object = None  # under a library: the list of probe.Process after the first run
    options: str = ""  # options of Cairn, after the user's

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
        """The first run that a signal ended, or None."""
        return next((run for run in self.runs if run.failed_signal), None)


def interleave(sides, rounds, run_one, on_run=lambda side, number: None, warm_up=0):
    """Fills the sides with rounds of runs. Every second round has the reverse order, so that a
    drift of the machine affects all sides equally. Rounds of warm-up come first and are not kept.
    Stops at the first run that a signal ends, and then returns (side, run)."""
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
    """Drops the runs of an incomplete last round. Returns the number of complete rounds."""
    for side in sides:
        if side.runs and side.runs[-1].failed_signal:
            side.runs.pop()
    rounds = min(len(side.runs) for side in sides)
    for side in sides:
        del side.runs[rounds:]
    return rounds


def ratio(ours, theirs, quantity):
    """The median of the rounds' ratios, or None when one is undefined."""
    pairs = list(zip(ours.values(quantity), theirs.values(quantity)))
    if not pairs or not all(other for _, other in pairs):
        return None
    return statistics.median(one / other for one, other in pairs)


def interval(ours, theirs, quantity):
    """The 95 % confidence interval of the ratio, (low, high), from the spread of the rounds'
    logarithms. Returns None when there are too few rounds, or a run measured 0."""
    pairs = list(zip(ours.values(quantity), theirs.values(quantity)))
    if len(pairs) < ROUNDS_LEAST or min(min(pair) for pair in pairs) <= 0:
        return None
    logs = [math.log(one / other) for one, other in pairs]
    student = STUDENT[max(each for each in STUDENT if each <= len(logs) - 1)]
    half = MEDIAN_ERROR * student * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = math.log(ratio(ours, theirs, quantity))
    return math.exp(middle - half), math.exp(middle + half)


def compare_outputs(sides):
    """A sentence that says whether the program's output was equal under all allocators; the first
    side is the reference."""
    base, *others = sides
    if len(set().union(*(side.outputs() for side in sides))) == 1:
        return "output: the same in every run"
    if len(base.outputs()) > 1:
        of_base = "the system's malloc" if base.name == "system" else base.name
        return f"output: differs from run to run, under {of_base} too"
    different = [side.name for side in others if side.outputs() != base.outputs()]
    return f"output: differs between {base.name} and {', '.join(different)}"
