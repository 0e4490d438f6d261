"""The terminal: results go to stdout, remarks and progress to stderr."""

import json
import os
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PIPED_COLUMNS = 120  # where the output is no terminal, whose width would decide


def _fill_closed():
    """Gives descriptors 0 to 2 that the caller closed to the null device; the next file would get
    their numbers, and a program under test write into it."""
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
# Of names in a strange encoding, or signs that the terminal's encoding lacks.
for stream in (sys.stdout, sys.stderr):
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")

_columns_known = sys.stdout.isatty() or os.environ.get("COLUMNS")
out = Console(highlight=False, width=None if _columns_known else PIPED_COLUMNS)
err = Console(stderr=True, highlight=False)


# A sentence is wrapped for a reader, and stays one line for a program.
def say(text):
    out.print(text, markup=False, soft_wrap=not out.is_terminal)


def print_json(value):
    out.file.write(json.dumps(value, indent=2) + "\n")


def note(text, style=None):
    err.print(text, markup=False, soft_wrap=not err.is_terminal, style=style)


class _Progress(Progress):
    """None where there is no terminal; not even the line that rich ends it with."""

    def stop(self):
        if not self.disable:
            super().stop()


def progress(*more_columns):
    return _Progress(TextColumn("{task.description}", markup=False), BarColumn(),
                     MofNCompleteColumn(), TimeElapsedColumn(), *more_columns, console=err,
                     transient=True, disable=not err.is_terminal)
