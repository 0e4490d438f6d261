"""Prints a comparison as a table, as sentences, and as files for other programs."""

import csv
import io
import math
import shlex

from rich.table import Table
from rich.text import Text

from cairn import probe
from cairn.compare import QUANTITIES, ROUNDS_LEAST, compare_outputs, interval, ratio
from cairn.errors import signal_name
from cairn.texts import json_text

RUN_FIELDS = ("wall_s", "cpu_s", "peak_rss_mib", "faults", "exit_code", "signal", "stopped",
              "killed")


def _ratio_text(ours, theirs, quantity, after=""):
    value, within = ratio(ours, theirs, quantity), interval(ours, theirs, quantity)
    low, high = within or (0, math.inf)
    style = "green" if high < 1 else "red" if low > 1 else ""
    return Text("-" if value is None else f"{value:.2f}{after}", style=style)


def _cell(side, quantity, decimals):
    return f"{side.median(quantity):,.{decimals}f} ± {side.half_range(quantity):.{decimals}f}"


def _columns(sides):
    """(title of the first column, other titles), then rows of Text. Two sides are columns; more
    sides are rows."""
    theirs, *others = sides
    if len(others) == 1:
        ours = others[0]
        yield ["", theirs.name, ours.name, f"{ours.name} / {theirs.name}"]
        for quantity, title, unit, decimals in QUANTITIES:
            yield [Text(f"{title} {unit}".strip()),
                   *(Text(_cell(side, quantity, decimals)) for side in sides),
                   _ratio_text(ours, theirs, quantity)]
        return
    yield ["", *(f"{title} {unit}".strip() for _, title, unit, _ in QUANTITIES)]
    for side in sides:
        cells = []
        for quantity, _, _, decimals in QUANTITIES:
            cell = Text(_cell(side, quantity, decimals))
            if side is not theirs:
                cell.append("\n").append_text(_ratio_text(side, theirs, quantity, " ×"))
            cells.append(cell)
        yield [Text(side.name), *cells]


def table(command, sides):
    """A rich table of medians with half the range of the runs, and the median ratios of a round to
    the first side."""
    titles, *lines = _columns(sides)
    shown = Table(title=Text(shlex.join(command), overflow="fold"), title_justify="left",
                  show_lines=len(sides) > 2)
    shown.add_column(titles[0])
    for title in titles[1:]:
        shown.add_column(Text(title), justify="right")
    for line in lines:
        shown.add_row(*line)
    return shown


def describe_end(run):
    """How a run ended, in words."""
    if run.failed_signal:
        return f"killed by {signal_name(run.failed_signal)}"
    return f"exit status {run.exit_code}"


def _status_remark(sides):
    statuses = [side.status() for side in sides]
    if len(set(statuses)) > 1:
        yield "exit status: " + ", ".join(f"{status} under {side.name}"
                                          for side, status in zip(sides, statuses))
    elif statuses[0]:
        yield f"exit status: {statuses[0]} under {'both' if len(sides) == 2 else 'all'}"


def _limit_remark(sides, limit_s):
    ended = [side.name for side in sides if not all(run.stopped for run in side.runs)]
    if len(ended) == len(sides):
        yield f"every run ended before its {limit_s:g} s were over"
        return
    yield f"stopped after {limit_s:g} s, so wall time says nothing" + (
        f"; runs under {', '.join(ended)} ended before" if ended else "")
    killed = [side.name for side in sides if any(run.killed for run in side.runs)]
    if killed:
        yield f"SIGTERM did not end it under {', '.join(killed)}, SIGKILL did"


def _percent(factor, sign="+"):
    """How far a ratio is from 1."""
    size = 100 * (factor - 1)
    return f"{size:{sign}.{1 if abs(size) < 10 else 0}f} %"


def _verdict(ours, theirs, quantity, what):
    low, high = interval(ours, theirs, quantity)
    within = f"(95 % interval: {_percent(low)} to {_percent(high)})"
    if low <= 1 <= high:
        return f"{what}: no significant difference {within}"
    middle = ratio(ours, theirs, quantity)
    return (f"{what}: {ours.name} needs {_percent(1 + abs(middle - 1), '')} "
            f"{'less' if middle < 1 else 'more'} {within}")


def _verdicts(sides, limit_s):
    """Sentences about significant differences, from the pairs of runs in each round."""
    theirs, *others = sides
    rounds = len(theirs.runs)
    if rounds < ROUNDS_LEAST:
        yield (f"{rounds} round{'s are' if rounds > 1 else ' is'} too few to tell a difference "
               f"from chance: --rounds {ROUNDS_LEAST} or more")
        return
    for side in others:
        for quantity, title, *_ in QUANTITIES:
            if interval(side, theirs, quantity) and not (limit_s and quantity == "wall_s"):
                yield _verdict(side, theirs, quantity,
                               title if len(others) == 1 else f"{title} of {side.name}")


def remarks(sides, output_seen=True, limit_s=None):
    """Sentences under the table: how to read it, which malloc served, outputs and exit statuses."""
    rounds = len(sides[0].runs)
    how = "medians of" if rounds > 1 else "figures of"
    below = f"{sides[1].name} needs less" if len(sides) == 2 else f"less than {sides[0].name} needs"
    yield (f"{how} {rounds} interleaved round{'s' if rounds > 1 else ''}, ± half the range; "
           f"a ratio{' (the median of the rounds)' if rounds > 1 else ''} below 1: {below}")
    yield from _verdicts(sides, limit_s)
    for side in sides:
        if side.library and side.processes:
            yield from probe.remarks(side.name, side.library, side.processes)
    if not sides[0].library:
        seen = [process for side in sides[1:2] for process in side.processes or []]
        yield from probe.system_remarks(sides[0].name, seen)
    if limit_s:
        yield from _limit_remark(sides, limit_s)
    elif output_seen:
        yield compare_outputs(sides)
    yield from _status_remark(sides)


def as_json(command, sides, sentences):
    """All measurements, for programs."""
    return json_text({
        "command": list(command),
        "rounds": len(sides[0].runs),
        "units": {quantity: unit for quantity, _, unit, _ in QUANTITIES},
        "sides": [{
            "name": side.name,
            "library": str(side.library) if side.library else None,
            "processes": [process._asdict() for process in side.processes or []],
            "median": {quantity: side.median(quantity) for quantity, *_ in QUANTITIES},
            "ratio": {quantity: ratio(side, sides[0], quantity) for quantity, *_ in QUANTITIES},
            "interval": {quantity: interval(side, sides[0], quantity)
                         for quantity, *_ in QUANTITIES},
            "runs": [{name: getattr(run, name) for name in RUN_FIELDS} for run in side.runs],
        } for side in sides],
        "remarks": list(sentences),
    }, indent=1) + "\n"


def as_csv(sides):
    """One line for each run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["side", "round", *RUN_FIELDS])
    for side in sides:
        for number, run in enumerate(side.runs, 1):
            values = (getattr(run, name) for name in RUN_FIELDS)
            writer.writerow([side.name, number, *(int(value) if isinstance(value, bool) else value
                                                  for value in values)])
    return text.getvalue()


def as_markdown(command, sides, sentences):
    """The table and the sentences."""
    titles, *lines = _columns(sides)

    def line(cells):
        texts = (str(cell).replace("\n", "; ").replace("|", "\\|") for cell in cells)
        return "| " + " | ".join(texts) + " |"

    parts = [f"`{shlex.join(command)}`", "", line(titles),
             "|---|" + "---:|" * (len(titles) - 1), *map(line, lines), ""]
    return "\n".join([*parts, *(f"- {sentence}" for sentence in sentences)]) + "\n"
