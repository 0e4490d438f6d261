"""The comparison as a table."""

import shlex
import signal

from rich.table import Table
from rich.text import Text

from cairn.compare import QUANTITIES, compare_outputs, ratio

NOISE = 0.02  # a ratio this near to 1 is called neither better nor worse


def _ratio_text(value):
    if value is None:
        return Text("-")
    style = "green" if value < 1 - NOISE else "red" if value > 1 + NOISE else ""
    return Text(f"{value:.2f}", style=style)


def table(command, theirs, ours):
    """A rich table of medians with half the range of the runs, and the ratios."""
    rows = Table(title=Text(shlex.join(command), overflow="fold"), title_justify="left")
    rows.add_column("")
    for name in (theirs.name, ours.name, f"{ours.name} / {theirs.name}"):
        rows.add_column(name, justify="right")
    for quantity, title, unit, decimals in QUANTITIES:
        cells = [f"{side.median(quantity):,.{decimals}f} ± {side.half_range(quantity):.{decimals}f}"
                 for side in (theirs, ours)]
        rows.add_row(f"{title} {unit}".strip(), *cells, _ratio_text(ratio(ours, theirs, quantity)))
    return rows


def describe_end(run):
    """How a run ended, in words."""
    if run.signal:
        return f"killed by {signal.Signals(run.signal).name}"
    return f"exit status {run.exit_code}"


def remarks(theirs, ours, output_seen=True):
    """Sentences under the table: how to read it, outputs and exit statuses."""
    yield (f"medians of {len(ours.runs)} interleaved rounds, ± half the range; "
           f"a ratio below 1: {ours.name} needs less")
    if output_seen:
        yield compare_outputs(ours, theirs)
    if theirs.status() != ours.status():
        yield (f"exit status: {theirs.status()} under {theirs.name}, "
               f"{ours.status()} under {ours.name}")
    elif ours.status():
        yield f"exit status: {ours.status()} under both"
