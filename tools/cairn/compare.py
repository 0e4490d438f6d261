"""The same command under two allocators: interleaved rounds, medians, ratios."""

import statistics
from dataclasses import dataclass, field

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
    runs: list[Run] = field(default_factory=list)

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
        return next((run for run in self.runs if run.signal), None)


def interleave(sides, rounds, run_one, on_run=lambda side: None):
    """Fills the sides with rounds of runs; every second round goes in reverse order, so that a
    drift of the machine meets both sides alike. Stops at the first run that a signal ends."""
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            on_run(side)
            side.runs.append(run_one(side))
            if side.killed():
                return


def ratio(ours, theirs, quantity):
    """Median over median, or None where it says nothing."""
    base = theirs.median(quantity)
    return ours.median(quantity) / base if base else None


def compare_outputs(ours, theirs):
    """One sentence on whether the program said the same under both."""
    if len(ours.outputs() | theirs.outputs()) == 1:
        return "output: the same in every run"
    if len(theirs.outputs()) > 1:
        return "output: differs from run to run, under the system's malloc too"
    return f"output: differs between {theirs.name} and {ours.name}"
