"""The command line: what each command takes and what it prints."""

import pathlib
from typing import List, Optional

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cairn import bench_command, compare, files, matrix_command, measure, program, report
from cairn.errors import UserError

app = typer.Typer(add_completion=False, help="Tools around Cairn's memory allocators.",
                  pretty_exceptions_enable=False)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@app.callback()
def _commands():
    """Keeps the commands' names: typer drops the name of an only command."""


def _progress():
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                    TimeElapsedColumn(), console=err, transient=True)


def _stop_at_signal(side, command):
    run = side.killed()
    err.print(f"cairn run: {command[0]} under {side.name}: {report.describe_end(run)}",
              style="red", markup=False, soft_wrap=True)
    if run.stderr_tail:
        err.print("its last words on stderr:", run.stderr_tail.rstrip(), sep="\n", markup=False,
                  soft_wrap=True)
    raise typer.Exit(run.status)


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    command: List[str] = typer.Argument(..., metavar="[--] COMMAND…", show_default=False,
                                        help="The program and its arguments."),
    rounds: int = typer.Option(5, min=1, help="Runs under each allocator."),
    lib: Optional[pathlib.Path] = typer.Option(
        None, show_default=False, help="Preload this library instead of libcairn-malloc.so."),
    hardened: bool = typer.Option(
        False, "--hardened", help="Preload libcairn-malloc-hardened.so."),
    stdin: Optional[pathlib.Path] = typer.Option(
        None, show_default=False,
        help="File that every run reads as its standard input; without it, nothing."),
    show_output: bool = typer.Option(
        False, "--show-output",
        help="Let the program write to the terminal; its output is not compared then."),
):
    """Run a program on the system's malloc and on Cairn, and compare time and memory.

    The exit status is the program's; 128 + N when signal N ended it.
    """
    if lib and hardened:
        raise UserError("--lib and --hardened exclude each other")
    if stdin and not stdin.is_file():
        raise UserError(f"--stdin {stdin}: no such file")
    library = lib.resolve() if lib else files.malloc_library(hardened)
    if not library.is_file():
        raise UserError(f"--lib {library}: no such file")
    program.check_preloadable(command[0])
    measure.check_loads(library)

    theirs = compare.Side("system")
    ours = compare.Side("Cairn hardened" if hardened else library.stem if lib else "Cairn", library)
    sides = (theirs, ours)
    with _progress() as progress:
        task = progress.add_task("", total=2 * rounds)

        def run_one(side):
            progress.update(task, description=side.name)
            result = measure.measure(command, side.library, stdin, show_output)
            progress.advance(task)
            return result

        compare.interleave(sides, rounds, run_one)

    for side in sides:
        if side.killed():
            _stop_at_signal(side, command)
    out.print(report.table(command, theirs, ours))
    for sentence in report.remarks(theirs, ours, output_seen=not show_output):
        out.print(sentence, markup=False, soft_wrap=True)
    raise typer.Exit(ours.status() or theirs.status())


app.command()(bench_command.bench)
app.command()(matrix_command.matrix)


def main():
    try:
        app(prog_name="cairn")
    except UserError as error:
        err.print(f"cairn: {error}", markup=False, style="red", soft_wrap=True)
        raise SystemExit(2) from None
