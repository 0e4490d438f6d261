"""`cairn-bench`: the command line of the benchmark."""

import pathlib
from dataclasses import dataclass
from typing import List, Optional

import typer
from rich.progress import TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

import bench_files
import bench_goals
import bench_journal
import bench_machine
import bench_options
import bench_plots
import bench_programs
import bench_report
import bench_results
from bench_options import Options, words
from bench_rows import select
from bench_session import Session
from cairn import allocator_libraries, output
from cairn.console import err, note, out, progress, say
from cairn.errors import UserError, as_sentences

STOPPED_STATUS = UserError.status

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass
class Start:
    """The data that a benchmark needs before its first run."""

    options: Options
    units: list
    allocators: list
    facts: dict
    directory: pathlib.Path
    journal: bench_journal.Journal


def _prepare(install, build):
    """Installs packages and builds programs. A peer or cargo that is missing stops nothing."""
    complaints = []
    if install:
        with err.status("packages"):
            complaints.append(bench_files.install_packages())
    if build:
        with err.status("building"):
            bench_files.build()
            complaints.append(bench_files.build_rust())
    for complaint in filter(None, complaints):
        note(f"cairn-bench: {complaint}")


def _list_rows(units):
    table = RichTable(title="Rows", title_justify="left")
    for column in ("row", "group", "work", "time", "memory"):
        table.add_column(column)
    for unit in units:
        for row in unit.rows:
            table.add_row(*map(Text, (row.name, row.group, row.title, row.time or "-",
                                      row.memory or "-")))
    out.print(table)


def _find_allocators(options, commit):
    found, missing = allocator_libraries.find_all(bench_files.build_directory(), commit,
                                                  options.peers)
    chosen = allocator_libraries.choose(found, options.allocators)
    for sentence in missing:
        note(f"cairn-bench: without {sentence}")
    allocator_libraries.check_in_effect(chosen)
    return chosen


def _begin(options, directory, install, build):
    """Starts a new benchmark. Errors in the options are reported before anything is built."""
    units = select(bench_programs.all_units(), options.rows)
    options, remark = bench_options.memory_of_machine(options)
    if remark:
        note(f"cairn-bench: {remark}")
    allocator_libraries.check_names(options.allocators, options.peers)
    directory = (directory or bench_options.default_directory()).resolve()
    bench_options.make_directory(directory)
    _prepare(install, build)
    facts = {**bench_machine.facts(), "seed": str(options.seed)}
    allocators = _find_allocators(options, facts["commit"])
    header = {"options": options.as_json(), "facts": facts,
              "allocators": [one.name for one in allocators],
              "fingerprints": bench_journal.fingerprints(allocators)}
    return Start(options, units, allocators, facts, directory,
                 bench_journal.Journal.create(directory, header))


def _resume(directory, rounds):
    """Resumes a benchmark that ended early, with the libraries and programs of its start."""
    directory = directory.resolve()
    journal = bench_journal.Journal.open(directory)
    try:
        header = journal.header
        options = Options.from_json({**header["options"],
                                     **({"rounds": rounds} if rounds else {})})
        found, _ = allocator_libraries.find_all(bench_files.build_directory(),
                                                  header["facts"]["commit"], options.peers)
        allocators = allocator_libraries.choose(found, header["allocators"])
        for path, digest in bench_journal.fingerprints(allocators).items():
            if header["fingerprints"].get(path) != digest:
                raise UserError(f"{path} is not what the benchmark was begun with")
        facts = {**header["facts"], "resumed": bench_machine.facts()["date"]}
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"--resume: {journal.path} is damaged") from None
    except UserError as error:
        raise UserError(f"--resume {directory}: {error}") from None
    allocator_libraries.check_in_effect(allocators)
    units = select(bench_programs.all_units(), options.rows)
    return Start(options, units, allocators, facts, directory, journal)


def _run(session, options):
    if not session.units:
        raise UserError("every row is skipped: "
                        + "; ".join(f"{row}: {why}" for row, why in session.skipped.items()))
    with progress(TimeRemainingColumn()) as shown:
        rounds = options.rounds_wanted + options.warm_up
        task = shown.add_task("", total=session.runs_a_round() * rounds)
        phase = "warm-up" if options.warm_up else "round 1"

        def on_run(unit, allocator):
            shown.advance(task)
            shown.update(task, description=f"{phase}: {unit.name}, {allocator.name}")

        def on_round(done):
            nonlocal phase
            phase = f"round {done + 1}"

        session.run(options.rounds_wanted, options.deadline_s, on_run, on_round)


def _write(session, facts, directory):
    """Writes all files of the report, also after one of them failed. Returns whether all exist."""
    results = session.results
    def text(make):
        return lambda path: path.write_text(make(), encoding="utf-8")

    complete = True
    for name, write in (
            ("results.csv", lambda path: bench_results.write_summary(path, results, facts)),
            ("runs.csv", lambda path: bench_results.write_runs(path, results, facts)),
            ("", lambda path: bench_plots.write(results, path)),
            ("report.md", text(lambda: bench_report.markdown(session, facts)))):
        try:
            if name:
                output.replace(directory / name, write)
            else:
                write(directory)
        except UserError as error:
            note(f"cairn-bench: no plots: {error}")
        except OSError as error:
            what = directory / name if name else "the plots"
            note(f"cairn-bench: {what}: {error.strerror or error}", style="red")
            complete = False
    return complete


def _print_table(table):
    shown = RichTable(title=Text(table.title), title_justify="left")
    for index, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="left" if index < 2 else "right", overflow="fold")
    for index, cells in enumerate(table.rows):
        shown.add_row(*map(Text, cells), style="red" if index in table.lost else "")
    out.print(shown)


def _print_summary(session):
    results = session.results
    for table in (bench_report.losing_table(results), bench_report.geomean_table(results),
                  bench_report.goals_table(results),
                  bench_report.failed_table(results, session.skipped)):
        if table:
            _print_table(table)
    for sentence in session.remarks():
        say(sentence)


def _finish(session, start):
    """Reports the results; returns the exit status: that of an early end, 2 when a file could not
    be written, 1 when a run under Cairn failed."""
    measured = bool(session.results.runs or session.results.failures)
    complete = True
    if measured:
        _print_summary(session)
        complete = _write(session, start.facts, start.directory)
        if complete:
            say(f"results: {start.directory}/report.md, results.csv, runs.csv")
    if session.stopped:
        after = (f"after {session.rounds_done} of {start.options.rounds_wanted} rounds" if measured
                 else "before anything was measured")
        note(f"cairn-bench: {session.stopped} {after}; to go on: "
             f"cairn-bench --resume {start.directory}", style="red")
        return session.status
    ours_failed = any(name.startswith(allocator_libraries.OURS)
                      for _, name in session.results.failures)
    return (1 if ours_failed else 0) if complete else STOPPED_STATUS


@app.command()
@as_sentences
def bench(
    context: typer.Context,
    quick: bool = bench_options.QUICK,
    rounds: Optional[int] = bench_options.ROUNDS,
    rows: Optional[List[str]] = bench_options.ROWS,
    allocators: Optional[List[str]] = bench_options.ALLOCATORS,
    peer: Optional[List[str]] = bench_options.PEER,
    peers: Optional[pathlib.Path] = bench_options.PEERS,
    out_directory: Optional[pathlib.Path] = bench_options.OUT,
    list_rows: bool = bench_options.LIST,
    seconds: float = bench_options.SECONDS,
    nodes: int = bench_options.NODES,
    threads: int = bench_options.THREADS,
    memory: Optional[float] = bench_options.MEMORY,
    seed: int = bench_options.SEED_OPTION,
    cold: bool = bench_options.COLD,
    no_warm_up: bool = bench_options.NO_WARM_UP,
    write_goals: Optional[pathlib.Path] = bench_options.WRITE_GOALS,
    install: bool = bench_options.INSTALL,
    no_build: bool = bench_options.NO_BUILD,
    resume: Optional[pathlib.Path] = bench_options.RESUME,
):
    """Compare Cairn with the system's malloc and with the peers, in time and memory.

    Builds the release, and runs every row under every allocator that it finds in interleaved
    rounds. bench/README.md explains the groups of rows.
    """
    every_peer = [*(allocator_libraries.read_peers(peers) if peers else []), *(peer or [])]
    options = Options(quick, rounds, words(rows), words(allocators), every_peer, seconds,
                      nodes, threads, memory, seed, cold, not no_warm_up)
    if resume:
        bench_options.check_alone(context)
        start = _resume(resume, rounds)
    elif list_rows:
        _list_rows(select(bench_programs.all_units(), options.rows or ["*"]))
        return
    else:
        start = _begin(options, out_directory, install, not no_build)
    try:
        session = Session(start.units, start.allocators, start.options.settings(),
                          start.options.seed, start.journal, start.options.warm_up)
        _run(session, start.options)
        status = _finish(session, start)
        if write_goals:
            output.replace(write_goals, lambda path: path.write_text(bench_goals.written(
                write_goals.read_text(encoding="utf-8"), session.results), encoding="utf-8"))
    finally:
        start.journal.close()
    if status:
        raise typer.Exit(status)
