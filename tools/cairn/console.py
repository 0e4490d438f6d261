"""The terminal: results are written to stdout, remarks and progress to stderr."""

import os
import re
import sys
import textwrap

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from cairn.texts import ESCAPED, json_text

SITE_COLUMNS_LEAST = 30  # columns of a site next to its figures
INDENT = 4  # of a site below its figures
PIPED_COLUMNS = 1 << 14  # width of an output that is no terminal: a line is as long as its text


def _fill_closed():
    """Opens the null device as each of the descriptors 0 to 2 that the caller closed. Otherwise the
    next file would get their number, and a program under test would write into it."""
    while True:
        number = os.open(os.devnull, os.O_RDWR)
        if number > 2:
            os.close(number)
            break
        os.set_inheritable(number, True)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))


_fill_closed()
# Names in another encoding, and characters that the terminal's encoding lacks, are escaped.
for stream in (sys.stdout, sys.stderr):
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=ESCAPED)


class _Out(Console):
    """The standard output. Unless it is a terminal, lines do not end with the blanks that fill a
    column."""

    def print(self, *objects, **options):
        if self.is_terminal:
            self._print_uncut(*objects, **options)
            return
        with self.capture() as printed:
            super().print(*objects, **options)
        self.file.write(re.sub("[ \\t]+$", "", printed.get(), flags=re.M))

    def _print_uncut(self, *objects, **options):
        """Prints without cutting a table of figures that is wider than the terminal, which wraps
        it."""
        width = self.width
        for table in objects:
            if isinstance(table, Table) and all(column.no_wrap for column in table.columns):
                roomy = self.options.update(max_width=PIPED_COLUMNS)
                width = max(width, Measurement.get(self, roomy, table).maximum)
        if width > self.width:
            wider = Console(highlight=False, emoji=False, width=width, file=self.file,
                            force_terminal=True)
            wider.print(*objects, crop=False, **options)
        else:
            super().print(*objects, **options)


_columns_known = sys.stdout.isatty() or os.environ.get("COLUMNS")
out = _Out(highlight=False, emoji=False, width=None if _columns_known else PIPED_COLUMNS)
err = Console(stderr=True, highlight=False, emoji=False)


def columns():
    """The width to observe; None: no limit."""
    return out.width if _columns_known else None


def print_sites(titles, rows):
    """Prints a table of sites: rows of figures, each with a function that returns a site's lines
    for a number of columns. The lines are next to the figures, or below them when there is too
    little space."""
    widths = [max(len(row[place]) for row in [titles, *(cells for cells, _ in rows)])
              for place in range(len(titles))]
    used = sum(width + 2 for width in widths)
    room = columns()
    is_below = room is not None and room - used < SITE_COLUMNS_LEAST

    def figures(cells):
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths))

    def put(line, style=""):
        out.print(Text(line, style=style), soft_wrap=True)

    put(figures(titles) + ("" if is_below else "  site"), "bold")
    for cells, lines in rows:
        if is_below:
            put(figures(cells))
            for line in lines(room - INDENT):
                put(" " * INDENT + line)
        else:
            before = figures(cells) + "  "
            for line in lines(None if room is None else room - used):
                put(before + line)
                before = " " * used


def say(text, first="", indent="", style=""):
    """Prints a sentence. It is wrapped between words on a terminal, and stays one line for a
    program. `first` and `indent` are put before the first line and the others."""
    wrapper = textwrap.TextWrapper(out.width, first, indent, break_long_words=False,
                                   break_on_hyphens=False, replace_whitespace=False)
    lines = wrapper.wrap(text) if out.is_terminal and "\n" not in text else [first + text]
    for line in lines or [first]:
        out.print(Text(line, style=style), soft_wrap=True)


def print_json(value):
    out.file.write(json_text(value, indent=2) + "\n")


def note(text, style=None):
    err.print(text, markup=False, soft_wrap=not err.is_terminal, style=style)


class _Progress(Progress):
    """A progress bar that prints nothing without a terminal, not even rich's last line."""

    def stop(self):
        if not self.disable:
            super().stop()


def progress(*more_columns):
    return _Progress(TextColumn("{task.description}", markup=False), BarColumn(),
                     MofNCompleteColumn(), TimeElapsedColumn(), *more_columns, console=err,
                     transient=True, disable=not err.is_terminal)
