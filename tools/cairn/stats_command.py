"""`cairn stats`: the sums of a heap, of a process or a core file, once or again and again."""

from pathlib import Path
from typing import Optional

import typer
from rich.table import Table

from cairn import fleet_parquet, metrics, output, stats_record
from cairn.console import out, print_json, say
from cairn.errors import Interrupted, UserError, as_sentences
from cairn.inspect_command import bytes_text, target_text
from cairn.look import Census

SHORTEST_SECONDS = 0.1

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
        raise UserError("--prometheus, --parquet and --json are forms of one look: they exclude "
                        "one another, --watch and --html")
    if watch is not None and not watch >= SHORTEST_SECONDS:
        raise UserError(f"--watch: at least {SHORTEST_SECONDS} seconds")
    if record is not None and watch is None:
        raise UserError("--record keeps what --watch SECONDS sees")
    if page is not None and watch is None and not stats_record.is_record(target):
        raise UserError("--html shows a time line: with --watch SECONDS, or of a file that "
                        "--record made")


@as_sentences
def stats(
        target: str = typer.Argument(..., metavar="PID|SOCKET|CORE", show_default=False,
                                     help="A process, the control socket of one, or a core file; "
                                     "with --html alone, a file that --record made."),
        watch: float = typer.Option(None, "--watch", metavar="SECONDS", show_default=False,
                                    help="Look again and again, until the process ends."),
        record: Path = typer.Option(None, "--record", metavar="FILE", show_default=False,
                                    help="With --watch: keep each look, a line of JSON each."),
        page: Path = typer.Option(None, "--html", metavar="FILE", show_default=False,
                                  help="Write the looks as a time line, one HTML file."),
        prometheus: bool = typer.Option(False, "--prometheus",
                                        help="Print Prometheus's text format."),
        parquet: Optional[Path] = fleet_parquet.OUT,
        host: Optional[str] = fleet_parquet.HOST, release: Optional[str] = fleet_parquet.RELEASE,
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """The sums of a heap: what is allocated, what that takes, what lies free.

    Read from outside: nothing runs in the process, which may be stopped.
    """
    _check_options(target, watch, record, page, prometheus + as_json + (parquet is not None))
    fleet_parquet.check(parquet, {"--host": host, "--release": release})
    if watch is not None:
        _watch(target, watch, record, page)
        return
    if page is not None:
        _write_page(page, stats_record.read(target))
        return
    census, values = _read(target)
    if prometheus:
        out.file.write(metrics.prometheus_text(census))
    elif parquet is not None:
        fleet_parquet.write_stats(parquet, census, target, host, release)
    elif as_json:
        print_json({"target": census.target, **values})
    else:
        say(target_text(census.target))
        for remark in census.remarks():
            say(remark)
        out.print("")
        out.print(_table(values, None))
