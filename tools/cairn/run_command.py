"""`cairn run`: compares a command under the system's malloc, under Cairn and under others. With
--load the command is a server, whose memory is compared over time."""

import functools
import pathlib
import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import List, Optional

import typer
from click.core import ParameterSource
from rich.text import Text

from cairn import (allocator_libraries, compare, files, measure, output, probe, program, report,
                   server_load, server_ready, server_report)
from cairn.console import columns, note, out, progress, say
from cairn.errors import LONGEST_S, UserError, as_sentences, os_sentence, signal_name, status_of

SYSTEM, OURS = "system", "Cairn"
UNITS_S = {"ms": 1e-3, "s": 1, "": 1, "m": 60, "h": 3600}
INSTALLED = "installed"
FOR_SERVICES = "background:on"
PIPED_COLUMNS = 100  # of curves in an output that is no terminal


def parse_duration(text, option="--for"):
    """Seconds of 10, 10s, 500ms, 2m or 1h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text.strip())
    seconds = float(match.group(1)) * UNITS_S[match.group(2)] if match else 0
    if not 0 < seconds <= LONGEST_S:
        raise UserError(f"{option} {text}: write a time such as 10s, 500ms or 2m")
    return seconds


def parse_side(text):
    """A further side: NAME=/path/library.so, or the name of an allocator that Debian packages."""
    name, separator, path = text.partition("=")
    if not separator:
        packaged = {known: (file, package) for known, file, package in allocator_libraries.PACKAGED}
        if name not in packaged:
            raise UserError(f"--on {text}: write NAME=/path/library.so, or one of "
                            + ", ".join([*sorted(packaged), INSTALLED]))
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


def _further_sides(texts):
    for text in texts:
        if text == INSTALLED:
            yield from (parse_side(name) for name, file, _ in allocator_libraries.PACKAGED
                        if name not in texts and allocator_libraries.find_file(file))
        else:
            yield parse_side(text)


def check_options(library, options):
    """Raises UserError if Cairn does not accept the options."""
    said = measure.measure(["ls", "/dev/null"], library, options=options).stderr_tail
    if "cairn: " in said:
        warning = said.strip().splitlines()[0].removeprefix("cairn: ")
        for words in (" in CAIRN_OPTIONS", ", ignored"):
            warning = warning.replace(words, "")
        raise UserError(f"--options {options}: {warning}")


def choose_sides(lib, hardened, further, variants=()):
    """The system's malloc first, then Cairn, also with each of these options, then the allocators
    of --on."""
    library = files.preloaded_library(lib, hardened)
    name = f"{OURS} hardened" if hardened else library.stem if lib else OURS
    sides = [compare.Side(SYSTEM), compare.Side(name, library),
             *(compare.Side(f"{name} {options}", library, options=options)
               for options in variants), *_further_sides(further)]
    for index, side in enumerate(sides):
        if any(side.name == other.name for other in sides[:index]):
            raise UserError(f"two allocators have the name {side.name}: choose another name, "
                            "--on NAME=LIBRARY")
        if side.library:
            measure.check_loads(side.library)
        if side.options:
            check_options(side.library, side.options)
    return sides


@dataclass(frozen=True)
class Plan:
    """The parameters of each run."""

    command: List[str]
    stdin: Optional[pathlib.Path] = None
    show_output: bool = False
    limit_s: Optional[float] = None
    prepare: Optional[str] = None

    def run_prepare(self):
        """Runs the command of --prepare, if one is given."""
        if not self.prepare:
            return
        with tempfile.TemporaryFile() as log:
            shown = None if self.show_output else log
            status = subprocess.run(["/bin/sh", "-c", self.prepare], stdin=subprocess.DEVNULL,
                                    stdout=shown, stderr=shown, check=False).returncode
            if status:
                log.seek(0)
                words = log.read().decode(errors="surrogateescape").strip().splitlines()
                end = f"exit status {status}" if status > 0 else f"killed by {signal_name(-status)}"
                raise UserError(f"--prepare {self.prepare}: {end}"
                                + (f": {words[-1]}" if words else ""))

    def run_one(self, side, number):
        """Makes one run; a negative number is a warm-up, whose output is not shown. The first run
        under each library also checks whether the library serves the program."""
        self.run_prepare()
        start = functools.partial(measure.measure, self.command, side.library, stdin=self.stdin,
                                  show_output=self.show_output and number >= 0,
                                  limit_s=self.limit_s, options=side.options)
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


def _write_files(texts, targets):
    """Writes all files, even if one of them fails. Returns an exit status."""
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
        write_status = _write_files({
            "--json": lambda: report.as_json(plan.command, sides, sentences),
            "--csv": lambda: report.as_csv(sides),
            "--markdown": lambda: report.as_markdown(plan.command, sides, sentences)}, targets)
    if early:
        measured = f"after {done} of {rounds} rounds" if done else "nothing was measured"
        note(f"cairn run: {early[0]} ({measured})", style="red")
        return early[1]
    program_status = next((side.status() for side in (*sides[1:], sides[0]) if side.status()), 0)
    return program_status or write_status


def _measure_servers(job, sides):
    """(results of the allocators that were measured, why it ended early as in measure_sides)"""
    results = []
    with progress() as shown:
        task = shown.add_task("", total=(job.bursts + 2) * len(sides))
        for side in sides:
            def on_phase(words, name=side.name):
                shown.update(task, description=f"{name}: {words}")
                shown.advance(task)
            try:
                results.append(server_load.run(job, side, on_phase))
            except KeyboardInterrupt as interrupt:
                return results, ("interrupted", status_of(interrupt))
            except UserError as error:
                return results, (str(error), error.status)
            except OSError as error:
                return results, (os_sentence(error), 2)
    return results, None


def run_servers(job, sides, targets):
    """Measures, prints and writes the figures of a server. Returns the exit status."""
    results, early = _measure_servers(job, sides)
    write_status = 0
    if results:
        sentences = list(server_report.remarks(job, results))
        out.print(server_report.table(job, results))
        out.print()
        for line in server_report.curves(results, columns() or PIPED_COLUMNS):
            out.print(Text(line), soft_wrap=True)
        out.print()
        for sentence in sentences:
            say(sentence)
        write_status = _write_files({
            "--json": lambda: server_report.as_json(job, results, sentences),
            "--csv": lambda: server_report.as_csv(results),
            "--markdown": lambda: server_report.as_markdown(job, results, sentences),
            "--html": lambda: server_report.page(job, results, sentences)}, targets)
        if "--html" in targets and not write_status:
            say(f"{targets['--html']} has the curves.")
    if early:
        measured = f"after {len(results)} of {len(sides)} allocators"
        note(f"cairn run: {early[0]} ({measured if results else 'nothing was measured'})",
             style="red")
        return early[1]
    return write_status


def _check_combined(context, load):
    """Refuses options that have no effect with --load, or without it."""
    refused = ({"rounds": "--rounds", "warm_up": "--warm-up", "limit": "--for"} if load else
               {"bursts": "--bursts", "idle": "--idle", "ready": "--ready",
                "html_file": "--html"})
    for name, option in refused.items():
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise UserError(f"{option} cannot be combined with --load" if load else
                            f"{option} needs --load")
    if load is not None and not load.strip():
        raise UserError("--load: the command is empty")


ON = typer.Option(
    None, metavar="NAME=LIBRARY", show_default=False,
    help="Add an allocator; without LIBRARY, jemalloc, mimalloc and tcmalloc (gperftools) are "
         "those of Debian, and installed means those of them that are installed. May be repeated.")
LIMIT = typer.Option(
    None, "--for", metavar="TIME", show_default=False,
    help="For servers: end each run after 10s, 500ms, 2m: SIGTERM, and SIGKILL 5 s later.")
LOAD = typer.Option(
    None, "--load", metavar="COMMAND", show_default=False,
    help="The program is a server: start it under each allocator, run this shell command in bursts "
         "and compare the server's memory over time. For lines such as 50% 1.8ms and 99% 9.3ms on "
         "its standard output the table has the time of requests.")
BURSTS = typer.Option(3, min=1, help="With --load: number of times that the command runs.")
IDLE = typer.Option("10s", metavar="TIME", help="With --load: silence after the last burst.")
READY = typer.Option(
    None, metavar="COMMAND|PORT", show_default=False,
    help="With --load: the server answers when this shell command succeeds, or when this port "
         "accepts connections; default: when one of its processes listens.")
HTML = typer.Option(None, "--html", metavar="FILE", show_default=False,
                    help="With --load: write the curves as one HTML file.")
OPTIONS = typer.Option(
    None, "--options", metavar="KEY:VALUE,…", show_default=False,
    help="Measure Cairn with these options, too. May be repeated. With --load, "
         f"{FOR_SERVICES} without it.")


@as_sentences
def run(
    context: typer.Context,
    command: List[str] = typer.Argument(..., metavar="[--] COMMAND…", show_default=False,
                                        help="The program and its arguments."),
    rounds: int = typer.Option(5, min=1, help="Counted runs under each allocator."),
    warm_up: int = typer.Option(
        1, "--warm-up", min=0,
        help="Rounds that are run first and not counted. The first round also checks that each "
             "library serves the program, which costs about 0.1 ms and 0.2 MiB."),
    on: Optional[List[str]] = ON,  # pylint: disable=invalid-name
    variants: Optional[List[str]] = OPTIONS,
    lib: Optional[pathlib.Path] = typer.Option(
        None, show_default=False, help="Preload this library instead of libcairn-malloc.so."),
    hardened: bool = typer.Option(
        False, "--hardened", help="Preload libcairn-malloc-hardened.so."),
    limit: Optional[str] = LIMIT,
    prepare: Optional[str] = typer.Option(
        None, metavar="COMMAND", show_default=False,
        help="Shell command that runs before every run and is not measured."),
    load: Optional[str] = LOAD,
    bursts: int = BURSTS,
    idle: str = IDLE,
    ready: Optional[str] = READY,
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
    html_file: Optional[pathlib.Path] = HTML,
):
    """Run a program on the system's malloc and on Cairn, and compare time and memory.

    The exit status is the program's; 128 + N when signal N ended it, 130 after an interrupt, 2 when
    something could not be measured.
    """
    _check_combined(context, load)
    plan = Plan(command, stdin, show_output, None if limit is None else parse_duration(limit),
                prepare)
    job = load and server_load.Job(command, load, bursts, parse_duration(idle, "--idle"), ready,
                                   stdin, show_output, plan.run_prepare)
    server_ready.port_of(ready)
    if stdin:
        output.check_readable("--stdin", stdin)
    targets = {option: path for option, path in (
        ("--json", json_file), ("--csv", csv_file), ("--markdown", markdown_file),
        ("--html", html_file)) if path}
    for option, path in targets.items():
        output.check_writable(option, path)
    sides = choose_sides(lib, hardened, on or [], variants or ([FOR_SERVICES] if load else []))
    program.check_preloadable(command[0], [side.library for side in sides if side.library])
    raise typer.Exit(run_servers(job, sides, targets) if job else finish(
        plan, sides, targets, measure_sides(plan, sides, rounds, warm_up), rounds))
