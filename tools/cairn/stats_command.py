"""`cairn stats`: the sums of a heap, of a process or a core file, once or again and again."""

import time

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cairn import metrics
from cairn.console import out, print_json, say
from cairn.errors import UserError, as_sentences
from cairn.inspect_command import bytes_text, target_text
from cairn.look import Census

SHORTEST_SECONDS = 0.1
ENDED = ("there is no process", "has no memory", "has ended")  # as cairn-look says it

# name: what it is, in the order of the table
WORDS = {"allocated": metrics.WORDS["allocated"], "allocated_blocks": "so many", **metrics.WORDS}
COUNTERS = {
    "purged": "given back to the system so far",
    "purges": "in so many pieces",
    "map_calls": "mmap",
    "protect_calls": "mprotect",
    "unmap_calls": "munmap",
    "advise_calls": "madvise and mincore",
    "remap_calls": "mremap",
}
NUMBERS = {"allocated_blocks", *COUNTERS} - {"purged"}  # all others are bytes


def _text(name, value):
    return f"{value:,}".replace(",", " ") if name in NUMBERS else bytes_text(value)


def _change_text(name, change):
    if not change:
        return ""
    return ("+" if change > 0 else "-") + _text(name, abs(change))


def _values(census):
    return {**census.words(), **census.counters(), "thread_heaps": len(census.heaps)}


def _table(values, before):
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("now", justify="right")
    if before:
        table.add_column("change", justify="right")
    table.add_column("", style="dim")
    for name, about in {**WORDS, **COUNTERS}.items():
        if name not in values:
            continue
        cells = [name.replace("_", " "), _text(name, values[name])]
        if before:
            cells.append(_change_text(name, values[name] - before.get(name, values[name])))
        table.add_row(*cells, about)
    return table


def _read(target):
    census = Census(target)
    return census, _values(census)


def _looks(target, seconds):
    """Yields what is seen, with what was before, until the process has ended."""
    before = {}
    while True:
        try:
            census, values = _read(target)
        except UserError as error:
            if before and any(words in str(error) for words in ENDED):
                return
            raise
        if census.target["kind"] != "process":
            raise UserError("--watch is for a process; a core file does not change")
        yield census, values, before
        before = values
        time.sleep(seconds)


def _watch(target, seconds):
    if not out.is_terminal:
        for _, values, before in _looks(target, seconds):
            out.print(_table(values, before), "")
        return
    with Live(console=out, auto_refresh=False) as live:
        for census, values, before in _looks(target, seconds):
            live.update(Group(Text(target_text(census.target)), _table(values, before)),
                        refresh=True)


@as_sentences
def stats(
        target: str = typer.Argument(..., metavar="PID|CORE", show_default=False,
                                     help="A process, or a core file of one."),
        watch: float = typer.Option(None, "--watch", metavar="SECONDS", show_default=False,
                                    help="Look again and again, until the process ends."),
        prometheus: bool = typer.Option(False, "--prometheus",
                                        help="Print Prometheus's text format."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """The sums of a heap: what is allocated, what that takes, what lies free.

    Read from outside: nothing runs in the process, which may be stopped.
    """
    if (watch is not None) + prometheus + as_json > 1:
        raise UserError("--watch, --prometheus and --json exclude one another")
    if watch is not None and not watch >= SHORTEST_SECONDS:
        raise UserError(f"--watch: at least {SHORTEST_SECONDS} seconds")
    if watch is not None:
        _watch(target, watch)
        return
    census, values = _read(target)
    if prometheus:
        out.file.write(metrics.prometheus_text(census))
    elif as_json:
        print_json({"target": census.target, **values})
    else:
        say(target_text(census.target))
        for remark in census.remarks():
            say(remark)
        out.print("")
        out.print(_table(values, None))
