"""The results as tables: as Markdown, and as data for the page.

The rows that Cairn loses are first: the rows of each table are sorted by Cairn's ratio to the best
peer of the row, the worst on top.
"""

from dataclasses import dataclass, field

import bench_goals
from bench_results import ASPECTS, MEMORY, NOISE, RSS_NOISE_MIB, TIME

TITLES = {TIME: "Time", MEMORY: "Memory"}
SCALES = {"ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs")), "ms": ((1e3, "s"),),
          "s": (), "KiB": ((1024, "MiB"),), "MiB": ((1024, "GiB"),)}


@dataclass
class Table:
    title: str
    text: str  # a sentence on how to read it
    columns: list
    rows: list = field(default_factory=list)  # of lists of texts
    lost: set = field(default_factory=set)  # indexes of the rows that Cairn loses

    def __bool__(self):
        return bool(self.rows)


def number(value):
    """Three significant digits, no exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}" if abs(value) < 1 \
        else f"{value:.2f}"


def with_unit(value, unit):
    for factor, larger in SCALES.get(unit, ()):
        if abs(value) >= factor:
            return f"{number(value / factor)} {larger}"
    return f"{number(value)} {unit}".strip()


def cell(results, row, allocator, figure):
    """Median and half the interquartile range."""
    median = results.median(row, allocator, figure)
    if median is None:
        failed = (row, allocator) in results.failures
        return "failed" if failed else "n/a" if (row, figure) in results.unavailable else "-"
    text = with_unit(median, results.units[row, figure])
    first, third = results.quartiles(row, allocator, figure)
    if median and len(results.values(row, allocator, figure)) > 1:
        text += f" ±{50 * (third - first) / abs(median):.0f}%"
    return text


def aspect_table(results, aspect):
    """All rows, the subject's worst first; the best peer's cell is marked."""
    subject = results.subject()
    table = Table(TITLES[aspect],
                  "Medians, ± half the interquartile range; lower is better. * marks the best peer"
                  + (f"; ratio: {subject} over it." if subject else "."),
                  ["row", "work", *results.names(), *(["ratio"] if subject else [])])
    for row in results.sorted_rows(aspect):
        figure = results.figure_of(row, aspect)
        best = results.best_peer(row.name, figure)[1]
        cells = [cell(results, row.name, name, figure) + (" *" if name == best else "")
                 for name in results.names()]
        ratio = results.ratio(row.name, subject, figure) if subject else None
        if results.is_lost(row, aspect):
            table.lost.add(len(table.rows))
        table.rows.append([row.name, row.title, *cells,
                           *([f"{ratio:.2f}" if ratio else "-"] if subject else [])])
    return table


def losing_table(results):
    table = Table("Rows that Cairn loses",
                  f"Cairn's figure exceeds that of the row's best peer by more than {NOISE:.0%}; "
                  f"if the figure is peak RSS, also by at least {RSS_NOISE_MIB} MiB.",
                  ["row", "", "Cairn", "best peer", "its figure", "ratio"])
    losing = [(ratio, aspect, row) for aspect in ASPECTS for row, ratio in results.losing(aspect)]
    for ratio, aspect, row in sorted(losing, key=lambda entry: -entry[0]):
        figure = results.figure_of(row, aspect)
        best = results.best_peer(row.name, figure)[1]
        table.lost.add(len(table.rows))
        table.rows.append([row.name, aspect,
                           cell(results, row.name, results.subject(), figure), best,
                           cell(results, row.name, best, figure), f"{ratio:.2f}"])
    return table


def geomean_table(results):
    """Geomeans of the ratios to the best peer of each row, by group and over all."""
    table = Table("Geomeans",
                  "Each figure is the geometric mean of the ratios to the best peer of a row, over "
                  "the rows that every allocator has. A peer that is best in every row has 1.00. "
                  "Cairn's own libraries are no peers, so only they can be below 1.00. Rows in "
                  "which Cairn uses its stack, FIFO or ring instead of malloc are left out.",
                  ["", "group", "rows", *results.names()])
    groups = list(dict.fromkeys(row.group for row in results.rows))
    for aspect in ASPECTS:
        for group in (None, *groups):
            values = [results.geomean(name, aspect, group) for name in results.names()]
            counts = [value[1] for value in values if value]
            if counts:
                table.rows.append([aspect, group or "all", str(max(counts)),
                                   *(f"{value[0]:.3f}" if value else "-" for value in values)])
    return table


def goals_table(results):
    table = Table("Goals", "The project's goals that these rows can decide.",
                  ["goal", "measured", "met"])
    for goal in sorted(bench_goals.check(results), key=lambda goal: goal.met):
        if not goal.met:
            table.lost.add(len(table.rows))
        table.rows.append([goal.text, goal.measured, "yes" if goal.met else "no"])
    return table


def other_table(results):
    """The figures without ratios: cold passes, counters, parts of a row."""
    table = Table("Other figures", "Cold passes (the first pass in a fresh process), parts of a "
                  "row's work, and the processor's counters for each operation.",
                  ["row", "figure", *results.names()])
    for row in results.rows:
        for name, figure in results.units:
            if name == row.name and figure not in (row.time, row.memory, "faults", "real_ns"):
                cells = [cell(results, row.name, allocator, figure)
                         for allocator in results.names()]
                table.rows.append([row.name, figure, *cells])
    return table


def failed_table(results, skipped):
    table = Table("Failed and skipped", "Not part of any figure above.", ["row", "", "why"])
    for (row, allocator), text in results.failures.items():
        table.rows.append([row, allocator, text])
    for row, reason in skipped.items():
        table.rows.append([row, "skipped", reason])
    return table


def tables(session):
    """All tables that have rows, in the order of the report."""
    results = session.results
    every = (losing_table(results), geomean_table(results), goals_table(results),
             *(aspect_table(results, aspect) for aspect in ASPECTS), other_table(results),
             failed_table(results, session.skipped))
    return [table for table in every if table]


def facts_table(facts, allocators):
    table = Table("Machine and versions", "", ["", ""])
    table.rows = [[key, value] for key, value in facts.items()]
    table.rows += [[f"allocator {one.name}", one.version] for one in allocators if one.version]
    return table


def opening(session):
    """One paragraph on the measurement of the figures."""
    runs = session.rounds_done
    kind = ("A quick run: small sizes and short passes, so only large differences mean something. "
            if session.settings.quick else "")
    end = "Interrupted by the user. " if session.interrupted else \
        f"Stopped: {session.stopped}. " if session.stopped else ""
    part = " and a part of one more" if session.stopped else ""
    return (f"{kind}{end}{runs} round{'s' if runs != 1 else ''}{part}"
            f"{' after a warm-up' if session.warm_up else ''}, interleaved, in shuffled order; "
            f"every run is a fresh process, on {'cold' if session.settings.cold else 'warm'} "
            "memory. bench/README.md explains the groups of rows.")


def _markdown_table(table):
    def line(cells):
        return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"

    yield line(table.columns)
    yield "|" + "---|" * len(table.columns)
    for cells in table.rows:
        yield line(cells)


def markdown(session, facts):
    """The report as a text."""
    lines = ["# Benchmark", "", opening(session), ""]
    for sentence in session.remarks():
        lines += [sentence, ""]
    for table in [*tables(session), facts_table(facts, session.results.allocators)]:
        lines += [f"## {table.title}", ""]
        if table.text:
            lines += [table.text, ""]
        lines += [*_markdown_table(table), ""]
    return "\n".join(lines).rstrip() + "\n"
