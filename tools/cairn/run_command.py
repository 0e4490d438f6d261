"""`cairn run`: compares a command under the system's malloc, under Cairn and under others."""

import functools
import pathlib
import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import List, Optional

import typer

from cairn import allocator_libraries, compare, files, measure, output, probe, program, report
from cairn.console import note, out, progress, say
from cairn.errors import UserError, as_sentences, os_sentence, signal_name, status_of

SYSTEM, OURS = "system", "Cairn"
UNITS_S = {"ms": 1e-3, "s": 1, "": 1, "m": 60, "h": 3600}
LONGEST_S = 1e6


def parse_duration(text):
    """Seconds of 10, 10s, 500ms, 2m or 1h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text.strip())
    seconds = float(match.group(1)) * UNITS_S[match.group(2)] if match else 0
    if not 0 < seconds <= LONGEST_S:
        raise UserError(f"--for {text}: write a time such as 10s, 500ms or 2m")
    return seconds


def parse_side(text):
    """A further side: NAME=/path/library.so, or the name of an allocator that Debian packages."""
    name, separator, path = text.partition("=")
    if not separator:
        packaged = {known: (file, package) for known, file, package in allocator_libraries.PACKAGED}
        if name not in packaged:
            raise UserError(f"--on {text}: write NAME=/path/library.so, or one of "
                            + ", ".join(sorted(packaged)))
        file, package = packaged[name]
        library = allocator_libraries.find_file(file)
        if not library:
            raise UserError(f"--on {text}: {file} is not installed (Debian package {package})")
        return compare.Side(name, library)
    if not name or not path:
        raise UserError(f"--on {text}: write NAME=/path/library.so")
    library = pathlib.Path(path).resolve()
    if not library.is_file():
        raise UserError(f"--on {text}: no such file")
    return compare.Side(name, library)


def choose_sides(lib, hardened, further):
    """The system's malloc first, then Cairn, then the allocators of --on."""
    library = files.preloaded_library(lib, hardened)
    name = f"{OURS} hardened" if hardened else library.stem if lib else OURS
    sides = [compare.Side(SYSTEM), compare.Side(name, library), *map(parse_side, further)]
    for index, side in enumerate(sides):
        if any(side.name == other.name for other in sides[:index]):
            raise UserError(f"two allocators have the name {side.name}: choose another name, "
                            "--on NAME=LIBRARY")
        if side.library:
            measure.check_loads(side.library)
    return sides


@dataclass(frozen=True)
class Plan:
    """The parameters of each run."""

    command: List[str]
    stdin: Optional[pathlib.Path] = None
    show_output: bool = False
    limit_s: Optional[float] = None
    prepare: Optional[str] = None

    def _prepare(self):
        with tempfile.TemporaryFile() as log:
            shown = None if self.show_output else log
            status = subprocess.run(["/bin/sh", "-c", self.prepare], stdin=subprocess.DEVNULL,
                                    stdout=shown, stderr=shown, check=False).returncode
            if status:
                log.seek(0)
                words = log.read().decode(errors="replace").strip().splitlines()
                end = f"exit status {status}" if status > 0 else f"killed by {signal_name(-status)}"
                raise UserError(f"--prepare {self.prepare}: {end}"
                                + (f": {words[-1]}" if words else ""))

    def run_one(self, side, number):
        """Makes one run; a negative number is a warm-up, whose output is not shown. The first run
        under each library also checks whether the library serves the program."""
        if self.prepare:
            self._prepare()
        start = functools.partial(measure.measure, self.command, side.library, self.stdin,
                                  self.show_output and number >= 0, self.limit_s,
                                  options=side.options)
        if not side.library or side.processes is not None:
            return start()
        with probe.probe_file() as path:
            run = start(probe_file=path)
            side.processes = probe.read(path)
        if not run.failed_signal:  # a signal explains more
            self._check_served(side, run)
        return run

    def _check_served(self, side, run):
        if not side.processes and run.status:
            words = run.stderr_tail.strip().splitlines()
            raise UserError(f"{self.command[0]} did not start under {side.name}: "
                            + report.describe_end(run) + (f": {words[-1]}" if words else ""))
        probe.check_served(side.name, self.command, side.library, side.processes)


def measure_sides(plan, sides, rounds, warm_up):
    """Fills the sides. Returns why it ended early, (sentence, exit status), or None."""
    with progress() as shown:
        task = shown.add_task("", total=(warm_up + rounds) * len(sides))

        def on_run(side, number):
            phase = f"round {number + 1}" if number >= 0 else "warm-up"
            shown.update(task, description=f"{phase}: {side.name}")

        def run_one(side, number):
            run = plan.run_one(side, number)
            shown.advance(task)
            return run

        try:
            ended = compare.interleave(sides, rounds, run_one, on_run, warm_up)
        except KeyboardInterrupt as interrupt:
            return "interrupted", status_of(interrupt)
        except (UserError, OSError) as error:
            return (os_sentence(error) if isinstance(error, OSError) else str(error)), 2
    if ended is None:
        return None
    side, run = ended
    if run.stderr_tail:
        note("the end of its stderr:\n" + run.stderr_tail.rstrip())
    return f"{plan.command[0]} under {side.name}: {report.describe_end(run)}", run.status


def _write_files(plan, sides, sentences, targets):
    """Writes all files, even if one of them fails. Returns an exit status."""
    texts = {"--json": lambda: report.as_json(plan.command, sides, sentences),
             "--csv": lambda: report.as_csv(sides),
             "--markdown": lambda: report.as_markdown(plan.command, sides, sentences)}
    status = 0
    for option, path in targets.items():
        try:
            output.write(option, path, texts[option]())
        except UserError as error:
            note(f"cairn run: {error}", style="red")
            status = error.status
    return status


def finish(plan, sides, targets, early, rounds):
    """Prints and writes the measurements. Returns the exit status."""
    done = compare.keep_whole_rounds(sides)
    write_status = 0
    if done:
        sentences = list(report.remarks(sides, not plan.show_output, plan.limit_s))
        out.print(report.table(plan.command, sides))
        for sentence in sentences:
            say(sentence)
        if early:
            sentences.append(f"ended after {done} of {rounds} rounds: {early[0]}")
        write_status = _write_files(plan, sides, sentences, targets)
    if early:
        measured = f"after {done} of {rounds} rounds" if done else "nothing was measured"
        note(f"cairn run: {early[0]} ({measured})", style="red")
        return early[1]
    program_status = next((side.status() for side in (*sides[1:], sides[0]) if side.status()), 0)
    return program_status or write_status


@as_sentences
def run(
    command: List[str] = typer.Argument(..., metavar="[--] COMMAND…", show_default=False,
                                        help="The program and its arguments."),
    rounds: int = typer.Option(5, min=1, help="Counted runs under each allocator."),
    warm_up: int = typer.Option(
        1, "--warm-up", min=0,
        help="Rounds that are run first and not counted. The first round also checks that each "
             "library serves the program, which costs about 0.1 ms and 0.2 MiB."),
    on: Optional[List[str]] = typer.Option(  # pylint: disable=invalid-name
        None, metavar="NAME=LIBRARY", show_default=False,
        help="Add an allocator; without LIBRARY, jemalloc, mimalloc and tcmalloc are those of "
             "Debian. May be repeated."),
    lib: Optional[pathlib.Path] = typer.Option(
        None, show_default=False, help="Preload this library instead of libcairn-malloc.so."),
    hardened: bool = typer.Option(
        False, "--hardened", help="Preload libcairn-malloc-hardened.so."),
    limit: Optional[str] = typer.Option(
        None, "--for", metavar="TIME", show_default=False,
        help="For servers: end each run after 10s, 500ms, 2m: SIGTERM, and SIGKILL 5 s later."),
    prepare: Optional[str] = typer.Option(
        None, metavar="COMMAND", show_default=False,
        help="Shell command that runs before every run and is not measured."),
    stdin: Optional[pathlib.Path] = typer.Option(
        None, show_default=False,
        help="File that every run reads as its standard input; default: empty."),
    show_output: bool = typer.Option(
        False, "--show-output",
        help="Let the program write to the terminal; its output is not compared then."),
    json_file: Optional[pathlib.Path] = typer.Option(
        None, "--json", metavar="FILE", show_default=False, help="Write every figure as JSON."),
    csv_file: Optional[pathlib.Path] = typer.Option(
        None, "--csv", metavar="FILE", show_default=False, help="Write one line for each run."),
    markdown_file: Optional[pathlib.Path] = typer.Option(
        None, "--markdown", metavar="FILE", show_default=False, help="Write the table."),
):
    """Run a program on the system's malloc and on Cairn, and compare time and memory.

    The exit status is the program's; 128 + N when signal N ended it, 130 after an interrupt, 2 when
    something could not be measured.
    """
    limit_s = None if limit is None else parse_duration(limit)
    plan = Plan(command, stdin, show_output, limit_s, prepare)
    if stdin:
        output.check_readable("--stdin", stdin)
    targets = {option: path for option, path in (("--json", json_file), ("--csv", csv_file),
                                                 ("--markdown", markdown_file)) if path}
    for option, path in targets.items():
        output.check_writable(option, path)
    sides = choose_sides(lib, hardened, on or [])
    program.check_preloadable(command[0], [side.library for side in sides if side.library])

    early = measure_sides(plan, sides, rounds, warm_up)
    raise typer.Exit(finish(plan, sides, targets, early, rounds))
