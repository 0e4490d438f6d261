"""cairn-matrix: the result of each fault under each allocator, as a table."""

import datetime
import pathlib
import platform
from typing import List, Optional

import typer
from rich.table import Table

import bench_files
import misuse_matrix
from cairn import allocator_libraries, output
from cairn.allocator_libraries import Allocator
from cairn.console import note, out, progress, say
from cairn.errors import UserError, as_sentences, status_of

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

BEGIN = "<!-- misuse matrix: written by `bench/cairn-matrix --write`, do not edit -->"
END = "<!-- end of the misuse matrix -->"
STYLES = {misuse_matrix.AT_ONCE: "green", misuse_matrix.REPORTED: "cyan",
          misuse_matrix.PREVENTED: "cyan", misuse_matrix.LATE: "yellow",
          misuse_matrix.SILENT: "red", misuse_matrix.CRASH: "red", misuse_matrix.HANGS: "red"}


def parse_library(text):
    name, separator, path = text.partition("=")
    if not separator or not name or not path:
        raise UserError(f"{text}: write NAME=/path/library.so, NAME=/path/library.so=VERSION")
    path, _, version = path.partition("=")
    library = pathlib.Path(path).resolve()
    if not library.is_file():
        raise UserError(f"{text}: no such file")
    return Allocator(name, library, version or allocator_libraries.fingerprint(library))


def packaged():
    yield Allocator(allocator_libraries.SYSTEM, None, allocator_libraries.libc_version())
    for name, file, package in allocator_libraries.PACKAGED:
        library = allocator_libraries.find_file(file)
        if library:
            yield Allocator(name, library, allocator_libraries.package_version(package))
        else:
            note(f"{name}: {file} is not installed (Debian package {package})")


def counts(results):
    kinds = (*reversed(misuse_matrix.RANKS), misuse_matrix.NONE, misuse_matrix.UNKNOWN)
    return [(kind, [sum(result == kind for result in column.values())
                    for column in results.values()]) for kind in kinds]


def print_table(faults, results):
    table = Table()
    for title in ("fault", *results):
        table.add_column(title, no_wrap=True)
    group = None
    for fault in faults:
        if fault.group != group:
            group = fault.group
            table.add_section()
        cells = [column[fault.name] for column in results.values()]
        table.add_row(f"{group}: {fault.title}",
                      *(f"[{STYLES.get(cell, 'default')}]{cell}" for cell in cells))
    out.print(table)


def markdown(faults, allocators, results, command, runs):
    """The matrix between its markers, as lines."""
    yield BEGIN
    yield ""
    yield (f"{datetime.date.today()}, {platform.machine()}, Linux {platform.release()}, the worst "
           f"of {runs} runs. `{command}`")
    yield ""
    for allocator in allocators:
        yield f"- {allocator.name}: {allocator.version}"
    yield ""
    head = f"| | {' | '.join(results)} |"
    rule = "|---" * (len(results) + 1) + "|"
    yield head
    yield rule
    for kind, numbers in counts(results):
        if any(numbers):
            yield f"| **{kind}** | {' | '.join(str(number) for number in numbers)} |"
    group = None
    for fault in faults:
        if fault.group != group:
            group = fault.group
            yield ""
            yield f"### {group[0].upper()}{group[1:]}"
            yield ""
            yield head
            yield rule
        cells = [column[fault.name] for column in results.values()]
        yield (f"| {fault.title} | "
               + " | ".join(f"**{cell}**" if cell == misuse_matrix.SILENT else cell
                            for cell in cells) + " |")
    yield ""
    yield END


def replace_part(text, lines):
    start, found, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise UserError(f"--write: the file lacks the lines {BEGIN} and {END}")
    return start + "\n".join(lines) + after


def read_markdown(text):
    """[{allocator name: result}] of a table that markdown() wrote, a line each; and the titles."""
    part = text.partition(BEGIN)[2].partition(END)[0].partition("\n### ")[2]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")]
            for line in part.splitlines() if line.startswith("|") and "---" not in line]
    names = rows[0][1:]
    lines = [row for row in rows if row[0]]
    return [row[0] for row in lines], [dict(zip(names, row[1:])) for row in lines]


def _choose(libraries, with_packaged):
    allocators = [parse_library(text) for text in libraries or ()]
    if with_packaged:
        allocators += packaged()
    if not allocators:
        raise UserError("name a library, or --packaged")
    if len({allocator.name for allocator in allocators}) < len(allocators):
        raise UserError("two libraries have the same name")
    return allocators


def _read_document(path):
    """The text that --write will change; an unwritable file is refused before the runs."""
    output.check_writable("--write", path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"--write {path}: {getattr(error, 'strerror', None) or error}") from None
    replace_part(text, ())
    return text


def _commit_all(program, faults, allocators, runs):
    """Every fault under every allocator, with progress."""
    with progress() as shown:
        task = shown.add_task("faults", total=len(allocators) * len(faults))
        return misuse_matrix.run_all(program, faults, allocators, runs,
                                     lambda: shown.advance(task))


def _leave(problems, interrupt=None):
    for problem in problems:
        say(problem)
    if interrupt:
        note("cairn-matrix: interrupted; a ? is a fault that was not committed", style="red")
        raise typer.Exit(status_of(interrupt))
    raise typer.Exit(1 if problems else 0)


@app.command()
@as_sentences
def matrix(
    libraries: List[str] = typer.Argument(
        None, metavar="[NAME=LIBRARY[=VERSION]]…", show_default=False,
        help="Shared libraries that replace malloc. Names of our own builds begin with cairn."),
    with_packaged: bool = typer.Option(
        False, "--packaged", help="Also the system's malloc and Debian's peers, if installed."),
    faults_program: Optional[pathlib.Path] = typer.Option(
        None, "--faults", show_default=False, help="cairn-faults, if not in build/release."),
    runs: int = typer.Option(1, min=1, help="Runs of each fault; the worst one counts."),
    write: Optional[pathlib.Path] = typer.Option(
        None, show_default=False, help="Writes the table into this file, between its markers."),
    expect: Optional[pathlib.Path] = typer.Option(
        None, show_default=False, help="Fails when a line is worse than this file says."),
    record: Optional[pathlib.Path] = typer.Option(
        None, show_default=False, help="Writes what our own builds did as such a file."),
    show_as: Optional[str] = typer.Option(
        None, "--as", show_default=False, help="The command as --write is to quote it."),
):
    """Commit every fault of the misuse matrix under every library and report the results.

    The exit status is 1 when a line is worse than --expect says, or a build of ours does not
    detect a bad free at once.
    """
    allocators = _choose(libraries, with_packaged)
    document = _read_document(write) if write else ""
    if record:
        output.check_writable("--record", record)
    expected = misuse_matrix.read_expectation(expect, [one.name for one in allocators]) \
        if expect else None
    program = misuse_matrix.Program(faults_program
                                    or bench_files.build_directory() / "cairn-faults")
    faults = program.faults()
    for allocator in allocators:
        program.check_owner(allocator)

    results, problems, interrupt = _commit_all(program, faults, allocators, runs)
    if expect is None or interrupt:
        print_table(faults, results)
    if interrupt:
        _leave((), interrupt)  # faults that the interrupt has ended are no problems
    if write:
        lines = markdown(faults, allocators, results, show_as or "bench/cairn-matrix", runs)
        output.write("--write", write, replace_part(document, lines))
    if record:
        output.write("--record", record, misuse_matrix.expectation_text(faults, results))
    problems += [f"a bad free is not detected at once: {gap}"
                 for gap in misuse_matrix.undetected_frees(faults, results)]
    if expected:
        problems += misuse_matrix.regressions(program, allocators, faults, results, expected)
    _leave(problems)
