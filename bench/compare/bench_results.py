"""The results: samples by row, allocator and figure; medians, spread, ratios, geomeans."""

import csv
import math
import statistics
from collections import defaultdict

from bench_rows import PEAK_PSS, PEAK_RSS
from cairn.allocator_libraries import OURS

TIME, MEMORY = "time", "memory"
ASPECTS = (TIME, MEMORY)
NOISE = 0.02  # a ratio this near to 1 is neither won nor lost
# Below this, a difference of RSS is the size of the libraries, which the row start-up compares.
RSS_NOISE_MIB = 1


class Results:
    def __init__(self, rows, allocators):
        self.rows = list(rows)
        self.allocators = list(allocators)
        self.samples = defaultdict(list)  # (row name, allocator name, figure) -> values
        self.units = {}  # (row name, figure) -> unit
        self.unavailable = set()  # (row name, figure)
        self.failures = {}  # (row name, allocator name) -> what happened first
        self.runs = []  # (round, row name, allocator name, figure, value)

    def add(self, round_number, row, allocator, figures):
        for name, (value, unit) in figures.items():
            self.units[row, name] = unit
            if value is None:
                self.unavailable.add((row, name))
                continue
            self.samples[row, allocator, name].append(value)
            self.runs.append((round_number, row, allocator, name, value))

    def fail(self, row, allocator, text):
        self.failures.setdefault((row, allocator), text)

    def names(self, ours=None):
        """Names of the allocators: all, only ours or only the peers."""
        return [one.name for one in self.allocators if ours is None or one.is_ours == ours]

    def subject(self):
        """The allocator whose losses come first: Cairn, or another build of it, or none."""
        ours = self.names(ours=True)
        return OURS if OURS in ours else ours[0] if ours else None

    def values(self, row, allocator, figure):
        """The samples, none if any run of the row failed under this allocator."""
        if (row, allocator) in self.failures:
            return []
        return self.samples.get((row, allocator, figure), [])

    def median(self, row, allocator, figure):
        values = self.values(row, allocator, figure)
        return statistics.median(values) if values else None

    def quartiles(self, row, allocator, figure):
        """(first, third) quartile; both the value itself when there is only one."""
        values = self.values(row, allocator, figure)
        if len(values) < 2:
            return (values[0], values[0]) if values else None
        first, _, third = statistics.quantiles(values, n=4, method="inclusive")
        return first, third

    def figure_of(self, row, aspect):
        """The name of the figure that a row compares as time or memory, or an empty string."""
        return row.time if aspect == TIME else row.memory

    def best_peer(self, row, figure):
        """(median, name) of the peer with the least, or None."""
        medians = [(self.median(row, name, figure), name) for name in self.names(ours=False)]
        return min(((value, name) for value, name in medians if value is not None), default=None)

    def ratio(self, row, allocator, figure):
        """An allocator's median over the best peer's; None where either is missing or zero."""
        best = self.best_peer(row, figure)
        own = self.median(row, allocator, figure)
        if not best or best[0] <= 0 or own is None or own <= 0:
            return None
        return own / best[0]

    def ratios(self, allocator, aspect, group=None):
        """All ratios of an allocator, by row name."""
        found = {}
        for row in self.rows:
            figure = self.figure_of(row, aspect)
            if figure and (group is None or row.group == group):
                value = self.ratio(row.name, allocator, figure)
                if value is not None:
                    found[row.name] = value
        return found

    def common_rows(self, aspect, group=None):
        """The rows in which all allocators have a ratio, so that their geomeans are comparable. An
        allocator that is measured in some groups only, such as Cairn's own names, excludes no rows.
        Rows in which Cairn does not use its malloc are in no geomean."""
        measured = {(row, name) for row, name, _ in self.samples} | set(self.failures)
        rows = {row for row, _ in measured}
        everywhere = None
        for allocator in self.names():
            if all((row, allocator) in measured for row in rows):
                names = set(self.ratios(allocator, aspect, group))
                everywhere = names if everywhere is None else everywhere & names
        return (everywhere or set()) - {row.name for row in self.rows if row.instead}

    def geomean(self, allocator, aspect, group=None):
        """(geomean of the ratios over the common rows, number of rows); None unless the allocator
        has them all."""
        ratios = self.ratios(allocator, aspect, group)
        common = self.common_rows(aspect, group)
        if not common or not common <= set(ratios):
            return None
        return math.exp(statistics.fmean(math.log(ratios[name]) for name in common)), len(common)

    def sorted_rows(self, aspect):
        """The rows that have the aspect, the subject's worst first; then those without a ratio."""
        subject = self.subject()
        with_figure = [row for row in self.rows if self.figure_of(row, aspect)
                       and self.best_peer(row.name, self.figure_of(row, aspect))]

        def worst_first(row):
            value = self.ratio(row.name, subject, self.figure_of(row, aspect)) if subject else None
            return -value if value is not None else 0

        return sorted(with_figure, key=worst_first)

    def losing(self, aspect):
        """(row, ratio) of the rows that the subject loses, the worst first."""
        subject = self.subject()
        if subject is None:
            return []
        return [(row, self.ratio(row.name, subject, self.figure_of(row, aspect)))
                for row in self.sorted_rows(aspect) if self.is_lost(row, aspect)]

    def is_lost(self, row, aspect):
        subject, figure = self.subject(), self.figure_of(row, aspect)
        ratio = self.ratio(row.name, subject, figure) if subject else None
        if not ratio or ratio <= 1 + NOISE:
            return False
        behind = self.median(row.name, subject, figure) * (1 - 1 / ratio)
        return figure not in (PEAK_RSS, PEAK_PSS) or behind >= RSS_NOISE_MIB


def _write_facts(file, facts, allocators):
    for key, value in facts.items():
        file.write(f"# {key}: {value}\n")
    for allocator in allocators:
        where = allocator.library.name if allocator.library else ""
        file.write(f"# allocator {allocator.name}: {allocator.version} {where}".rstrip() + "\n")


def write_summary(path, results, facts):
    """Writes a line for each row, allocator and figure, after lines with # about the machine."""
    with path.open("w", newline="", encoding="utf-8") as file:
        _write_facts(file, facts, results.allocators)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", "group", "allocator", "figure", "aspect", "unit", "median",
                         "first_quartile", "third_quartile", "least", "most", "runs",
                         "ratio_to_best_peer"])
        for row in results.rows:
            figures = [figure for name, figure in results.units if name == row.name]
            for figure in figures:
                aspect = TIME if figure == row.time else MEMORY if figure == row.memory else ""
                for allocator in results.names():
                    values = results.values(row.name, allocator, figure)
                    if not values:
                        continue
                    first, third = results.quartiles(row.name, allocator, figure)
                    ratio = results.ratio(row.name, allocator, figure)
                    writer.writerow([row.name, row.group, allocator, figure, aspect,
                                     results.units[row.name, figure],
                                     *(f"{value:.6g}" for value in
                                       (results.median(row.name, allocator, figure), first, third,
                                        min(values), max(values))),
                                     len(values), f"{ratio:.4f}" if ratio and aspect else ""])


def write_runs(path, results, facts):
    """Writes every single measured figure."""
    with path.open("w", newline="", encoding="utf-8") as file:
        _write_facts(file, facts, results.allocators)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["round", "row", "allocator", "figure", "value"])
        for number, row, allocator, figure, value in results.runs:
            writer.writerow([number, row, allocator, figure, f"{value:.6g}"])
