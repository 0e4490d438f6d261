"""`cairn stats`: the sums of a heap, of a process or a core file, once or repeatedly."""

from pathlib import Path

import typer
from rich.table import Table

from cairn import metrics, other_malloc, output, stats_record
from cairn.console import out, print_json, say
from cairn.errors import Interrupted, UserError, as_sentences, check_seconds
from cairn.look import Census, NoCairn
from cairn.texts import bytes_text, target_text

SHORTEST_SECONDS = 0.1

# name: description, in the order of the table
WORDS = {"allocated": metrics.WORDS["allocated"], "allocated_blocks": "number of live blocks",
         **metrics.WORDS}
COUNTERS = {
    "purged": "given back to the system so far",
    "purges": "number of pieces given back",
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


def _write_page(path, record):
    output.write("--html", path, stats_record.page(record))


def _watch(target, seconds, record_path, page_path):
    from cairn import stats_watch  # pylint: disable=import-outside-toplevel
    for option, path in (("--record", record_path), ("--html", page_path)):
        if path is not None:
            output.check_writable(option, path)
    record, interrupt = stats_watch.watch(_read, _table, WORDS, target, seconds, record_path)
    if page_path is not None and record is not None:
        _write_page(page_path, record)
    if interrupt is not None:
        raise Interrupted(interrupt)


def _check_options(target, watch, record, page, forms):
    is_of_many = watch is not None or page is not None
    if forms + is_of_many > 1:
        raise UserError("--prometheus and --json cannot be combined with each other, --watch or "
                        "--html")
    if watch is not None:
        check_seconds("--watch", watch, SHORTEST_SECONDS)
    if record is not None and watch is None:
        raise UserError("--record needs --watch SECONDS")
    if page is not None and watch is None and not stats_record.is_record(target):
        raise UserError("--html needs --watch SECONDS, or a file that --record wrote")


@as_sentences
def stats(
        target: str = typer.Argument(..., metavar="PID|SOCKET|CORE", show_default=False,
                                     help="A process, its control socket, or a core file; "
                                     "with --html alone, a file that --record wrote."),
        watch: float = typer.Option(None, "--watch", metavar="SECONDS", show_default=False,
                                    help="Repeat every SECONDS until the process ends."),
        record: Path = typer.Option(None, "--record", metavar="FILE", show_default=False,
                                    help="With --watch: write each snapshot as one line of JSON."),
        page: Path = typer.Option(None, "--html", metavar="FILE", show_default=False,
                                  help="Write the snapshots as a time line, one HTML file."),
        prometheus: bool = typer.Option(False, "--prometheus",
                                        help="Print Prometheus's text format."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """Show the sums of a heap: live blocks, the memory that they take, and free memory.

    The heap is read from outside: nothing runs in the process, which may be stopped.
    """
    _check_options(target, watch, record, page, prometheus + as_json)
    if watch is not None:
        _watch(target, watch, record, page)
        return
    if page is not None:
        _write_page(page, stats_record.read(target))
        return
    try:
        census, values = _read(target)
    except NoCairn:
        if prometheus or as_json or not target.isdigit():
            raise
        other_malloc.describe(target)
        return
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
