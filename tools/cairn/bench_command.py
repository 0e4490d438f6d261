"""`cairn bench`: the command line of the benchmark."""

import pathlib
import sys
from typing import List, Optional

import typer
from rich.console import Console
from rich.progress import (BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn,
                           TimeRemainingColumn)
from rich.table import Table as RichTable
from rich.text import Text

from cairn import (bench_allocators, bench_files, bench_machine, bench_page, bench_plots,
                   bench_programs, bench_report, bench_results)
from cairn.bench_rows import Settings, select
from cairn.bench_session import Session
from cairn.errors import UserError

QUICK_SECONDS = 110  # of the two minutes that --quick promises, the rest is for the report
FULL_ROUNDS, QUICK_ROUNDS = 5, 3
SEED = 20240607

PIPED_COLUMNS = 120  # where the output is no terminal, whose width would decide

out = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_COLUMNS)
err = Console(stderr=True, highlight=False)


def _note(text, style=None):
    err.print(text, markup=False, soft_wrap=True, style=style)


def _prepare(build):
    """Packages and programs. Peers that cannot be installed are no reason to stop."""
    if not build:
        return
    with err.status("packages"):
        complaint = bench_files.install_packages()
    if complaint:
        _note(complaint)
    with err.status("building"):
        bench_files.build()


def _list_rows(units):
    table = RichTable(title="Rows", title_justify="left")
    for column in ("row", "group", "what", "time", "memory"):
        table.add_column(column)
    for unit in units:
        for row in unit.rows:
            table.add_row(*map(Text, (row.name, row.group, row.title, row.time or "-",
                                      row.memory or "-")))
    out.print(table)


def _check_settings(settings, units):
    needed = settings.memory_mib
    available = bench_machine.available_mib()
    if available and needed > available:
        raise UserError(f"--memory {needed / 1024:.1f}: only {available / 1024:.1f} GiB are "
                        "available")
    if not units:
        raise UserError("no rows to run")


def _run(session, rounds, deadline_s):
    if not session.units:
        raise UserError("every row is skipped: "
                        + "; ".join(f"{row}: {why}" for row, why in session.skipped.items()))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=session.runs_a_round() * (rounds + 1))
        phase = "warm-up"

        def on_run(unit, allocator):
            progress.advance(task)
            progress.update(task, description=f"{phase}: {unit.rows[0].name}, {allocator.name}")

        def on_round(done):
            nonlocal phase
            phase = f"round {done + 1}"

        session.run(rounds, deadline_s, on_run, on_round)
    if session.rounds_done == 0:
        raise UserError("interrupted before the first round was done")


def _write(session, facts, directory):
    """All files of the report."""
    results = session.results
    bench_results.write_summary(directory / "results.csv", results, facts)
    bench_results.write_runs(directory / "runs.csv", results, facts)
    plots = []
    try:
        plots = bench_plots.write(results, directory)
    except UserError as error:
        _note(f"cairn bench: no plots: {error}")
    (directory / "report.md").write_text(bench_report.markdown(session, facts, plots),
                                         encoding="utf-8")
    (directory / "report.html").write_text(bench_page.page(session, facts, directory, plots),
                                           encoding="utf-8")


def _print_table(table):
    shown = RichTable(title=Text(table.title), title_justify="left")
    for index, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="left" if index < 2 else "right")
    for index, cells in enumerate(table.rows):
        shown.add_row(*map(Text, cells), style="red" if index in table.lost else "")
    out.print(shown)


def _print_summary(session, directory):
    results = session.results
    for table in (bench_report.losing_table(results), bench_report.geomean_table(results),
                  bench_report.goals_table(results),
                  bench_report.failed_table(results, session.skipped)):
        if table:
            _print_table(table)
    for sentence in session.remarks():
        out.print(sentence, markup=False, soft_wrap=True)
    out.print(f"results: {directory}/report.html, report.md, results.csv, runs.csv", markup=False,
              soft_wrap=True)


def _leave(session):
    """The exit status: 130 after an interrupt, 1 when a run under Cairn failed."""
    ours_failed = any(name.startswith(bench_allocators.OURS)
                      for _, name in session.results.failures)
    if session.interrupted or ours_failed:
        raise typer.Exit(130 if session.interrupted else 1)


def _make_directory(path):
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / "results.csv"
        with probe.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise UserError(f"--out {path}: {error.strerror}") from None


def _words(texts):
    """Options may be repeated or hold several words with commas between."""
    return [word for text in texts or [] for word in text.split(",") if word]


def bench(
    quick: bool = typer.Option(
        False, "--quick", help="Small sizes, short passes, done within two minutes."),
    rounds: Optional[int] = typer.Option(
        None, min=1, show_default=False,
        help=f"Recorded rounds; {FULL_ROUNDS} without it, up to {QUICK_ROUNDS} with --quick."),
    rows: Optional[List[str]] = typer.Option(
        None, show_default=False,
        help="Only these rows or groups; names with * and ?, commas between; may be repeated."),
    allocators: Optional[List[str]] = typer.Option(
        None, show_default=False, help="Only these allocators, commas between; may be repeated."),
    peer: Optional[List[str]] = typer.Option(
        None, metavar="NAME=/path/lib.so", show_default=False,
        help="One more allocator to compare; may be repeated."),
    out_directory: Optional[pathlib.Path] = typer.Option(
        None, "--out", metavar="DIR", show_default=False,
        help="Where the report goes; build/bench without it."),
    list_rows: bool = typer.Option(False, "--list", help="List the rows and leave."),
    seconds: float = typer.Option(1.0, min=0.001, max=60, help="Of warm passes, for each run."),
    nodes: int = typer.Option(0, min=0, show_default=False,
                              help="Nodes of group B's lists; 100 million without it."),
    threads: int = typer.Option(0, min=0, max=256, show_default=False,
                                help="Threads of the rows that leave it open."),
    memory: float = typer.Option(4.0, min=0.1, metavar="GIB",
                                 help="Rows that may need more are skipped or made smaller."),
    seed: int = typer.Option(SEED, help="Of the order of the runs."),
    no_build: bool = typer.Option(
        False, "--no-build", help="Neither install packages nor build; use what is there."),
):
    """Compare Cairn with the system's malloc and with the peers, in time and memory.

    Builds the release, installs Debian's packages of the peers where they are missing, and runs
    every row under every allocator in interleaved rounds. docs/BENCHMARKS.md explains the rows.
    """
    _prepare(build=not no_build)
    settings = Settings(quick=quick, seconds=seconds, threads=threads, nodes=nodes,
                        memory_mib=int(memory * 1024))
    units = select(bench_programs.all_units(), _words(rows))
    if list_rows:
        _list_rows(units)
        return
    _check_settings(settings, units)
    facts = {**bench_machine.facts(), "seed": str(seed)}
    found, missing = bench_allocators.find_all(bench_files.build_directory(), facts["commit"],
                                               peer or [])
    chosen = bench_allocators.choose(found, _words(allocators))
    for sentence in missing:
        _note(f"cairn bench: without {sentence}")
    directory = out_directory or bench_files.source_directory() / "build" / "bench"
    _make_directory(directory)

    session = Session(units, chosen, settings, seed)
    _run(session, rounds or (QUICK_ROUNDS if quick else FULL_ROUNDS),
         QUICK_SECONDS if quick and not rounds else None)
    _write(session, facts, directory)
    _print_summary(session, directory)
    _leave(session)
