"""`cairn trace`: records every allocation, resize and free of a program in a file."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import List, Optional

import typer
from rich.table import Table
from typer.core import TyperGroup

from cairn import files, output, program
from cairn.console import note, out, print_json, say
from cairn.errors import UserError, as_sentences, ending, os_sentence
from cairn.measure import run_through, with_cairn
from cairn.texts import bytes_text

# The highest level saves a tenth for much more time, so it is used only where it takes at most a
# second.
COMPRESSORS = (["zstd", "-q", "-9", "-c"], ["gzip", "-c"])
SMALL_BYTES = 8 << 20
SMALL_COMPRESSORS = (["zstd", "-q", "-19", "-c"], ["gzip", "-9", "-c"])
REASONS = {"limit": "it had the size that it may have: --limit allows more",
           "disk": "there was no room on the disk, or its file could not be written",
           "memory": "there was no address space to map more of it",
           "stopped": "it was stopped"}
KINDS = (("allocate", "allocations"), ("free", "frees"), ("resize", "resizes in place"),
         ("resize-to", "resizes that moved"), ("resize-failed", "resizes that failed"))


class _ProgramIsTraced(TyperGroup):
    """`cairn trace -o FILE -- PROGRAM` is `cairn trace run -o FILE -- PROGRAM`."""

    def parse_args(self, ctx, args):
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_ProgramIsTraced, no_args_is_help=True, pretty_exceptions_enable=False,
                  help="Record every allocation, resize and free of a program in a file.\n\n"
                       "cairn trace -o FILE -- PROGRAM is cairn trace run -o FILE -- PROGRAM.")


def _read(mode, path, *more):
    """The output of cairn-trace for a trace, and its message about damage."""
    try:
        done = subprocess.run([files.program("cairn-trace"), mode, str(path), *more], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise UserError(f"cairn-trace: {os_sentence(error)}") from error
    damage = os.fsdecode(done.stderr).strip()
    if done.returncode and not done.stdout:
        raise UserError(damage or f"cannot read {path}")
    return os.fsdecode(done.stdout), damage


def _summary(path):
    text, damage = _read("summary", path)
    values = dict(line.split("=", 1) for line in text.splitlines())
    words = ("state", "reason")
    return {key: value if key in words else int(value) for key, value in values.items()}, damage


def _compress_columns(path, compressor, file):
    """Writes the trace in columns. Returns whether that succeeded."""
    with subprocess.Popen([files.program("cairn-trace"), "columns", path], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as columns:
        subprocess.run(compressor, stdin=columns.stdout, stdout=file, check=True,
                       stderr=subprocess.DEVNULL)
        columns.stdout.close()
        return columns.wait() == 0


def _compress(path, target):
    """Replaces the target by the trace in columns, compressed. The events of a damaged trace are
    compressed as they were written. A trace that cannot be compressed, for lack of a program or of
    disk space, is kept as it is."""
    small = path.stat().st_size <= SMALL_BYTES
    command = next((command for command in (SMALL_COMPRESSORS if small else COMPRESSORS)
                    if shutil.which(command[0])), None)
    new = path.with_name(f"{path.name}.new")
    if command:
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                if not _compress_columns(path, command, file):
                    file.seek(0)
                    file.truncate()
                    with open(path, "rb") as rows:
                        subprocess.run(command, stdin=rows, stdout=file, check=True,
                                       stderr=subprocess.DEVNULL)
            new.replace(target)
            path.unlink()
            return
        except (OSError, subprocess.CalledProcessError) as error:
            words = os_sentence(error) if isinstance(error, OSError) else \
                f"{command[0]} failed, as when the disk is full"
            note(f"cairn trace: {target}: kept without compression: {words}")
            new.unlink(missing_ok=True)
    path.replace(target)


def _traces(prefix):
    """The traces of a run by (process, number)."""
    found = {}
    for path in prefix.parent.iterdir():
        match = re.fullmatch(re.escape(prefix.name) + r"\.(\d+)\.(\d+)", path.name)
        if match:
            found[int(match[1]), int(match[2])] = path
    return found


def _bundle(path, folder):
    """Copies the files that the trace's code came from, and their separate debug data."""
    text, _ = _read("text", path)
    copied = set()
    for line in text.split("\n"):
        words = line.split(" ", 5)
        if words[0] != "map" or len(words) != 6 or words[4] == "-" or words[5] in copied:
            continue
        source, build_id = pathlib.Path(words[5]), words[4]
        copied.add(words[5])
        apart = pathlib.Path("/usr/lib/debug/.build-id") / build_id[:2] / f"{build_id[2:]}.debug"
        for origin, name in ((source, source.name), (apart, f"{source.name}.debug")):
            if origin.is_file():
                folder.mkdir(exist_ok=True)
                shutil.copyfile(origin, folder / name)
    return len(copied)


def _state_sentence(summary):
    if summary["state"] == "ended":
        return "It ended with the program."
    if summary["state"] == "cut":
        return f"It is cut: {REASONS.get(summary['reason'], summary['reason'])}."
    if summary["state"].startswith("was ended by"):
        return f"The program {summary['state']}; all that it did is there."
    return "The program runs, was killed, or left by _exit; all that it did is there."


def _print_summary(path, summary, size):
    events = summary["events"]
    say(f"{path}: {events} events of {summary['threads']} "
        f"thread{'s' if summary['threads'] != 1 else ''}, {summary['stacks']} stacks. "
        f"{_state_sentence(summary)}")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for key, name in KINDS:
        table.add_row(name, str(summary[key]))
    table.add_row("bytes asked for", bytes_text(summary["requested_bytes"]))
    seconds = max(0, summary["last_ns"] - summary["first_ns"]) / 1e9
    table.add_row("time", f"{seconds:.3f} s")
    table.add_row("bytes an event", f"{summary['event_bytes'] / max(1, events):.1f}")
    table.add_row("the file, an event", f"{size / max(1, events):.1f}")
    out.print(table)


def _keep(traces, own, target, every):
    """Compresses the traces to be kept and removes the others. Returns the number of the others."""
    if traces[own].stat().st_size == 0:
        raise UserError(f"-o {target}: the trace is empty: there was no room on the disk")
    _compress(traces[own], target)
    others = [key for key in sorted(traces) if key != own]
    for process, number in others:
        path = traces[process, number]
        if every and path.stat().st_size:
            _compress(path, target.with_name(f"{target.name}.{process}.{number}"))
        else:
            path.unlink()
    return len(others)


@app.command(context_settings={"allow_interspersed_args": False})
@as_sentences
def run(
        command: List[str] = typer.Argument(..., metavar="-- PROGRAM [ARGUMENT]...",
                                            show_default=False,
                                            help="The program to run on Cairn."),
        target: pathlib.Path = typer.Option(..., "-o", "--output", metavar="FILE",
                                            show_default=False, help="Write the trace here."),
        limit: str = typer.Option("4G", "--limit", metavar="BYTES",
                                  help="End the trace before it grows beyond BYTES; 0: no limit."),
        every: bool = typer.Option(False, "--all", help="Keep the traces of other processes that "
                                                        "the program started or replaced itself "
                                                        "with: FILE.PROCESS.NUMBER."),
        bundle: bool = typer.Option(False, "--bundle", help="Copy the files with the program's "
                                    "symbols to FILE.symbols, for other machines."),
        lib: Optional[pathlib.Path] = typer.Option(
            None, show_default=False, help="Preload this library instead of libcairn-malloc.so."),
        hardened: bool = typer.Option(False, "--hardened",
                                      help="Preload libcairn-malloc-hardened.so.")):
    """Run a program and record its allocations. The exit status is the program's."""
    output.check_regular("-o", target)
    if not re.fullmatch(r"\d+(?:[KMGkmg](?:i[Bb]?)?)?", limit):
        raise UserError(f"--limit {limit}: write a number of bytes, such as 500M or 4G")
    library = files.preloaded_library(lib, hardened)
    program.check_preloadable(command[0], [library])
    target = target.resolve()
    if "," in str(target):
        raise UserError(f"-o {target}: the path cannot contain a comma")
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        prefix = folder / "trace"
        environment = with_cairn(library, f"trace:{prefix},trace_limit:{limit}")
        pid, status = run_through(command, environment)
        traces = _traces(prefix)
        own = max((key for key in traces if key[0] == pid), default=None)
        if own is None:
            raise UserError(f"{command[0]} wrote no trace: another malloc serves it, or its "
                            "options were rejected (see above)")
        others = _keep(traces, own, target, every)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    summary, damage = _summary(target)
    if summary["state"] not in ("ended", "cut") and status < 0:
        summary["state"] = ending(status)
    _print_summary(target, summary, target.stat().st_size)
    if damage:
        note(damage)
    if others:
        traces_text = "1 trace of another process" if others == 1 else \
            f"{others} traces of other processes"
        say(f"{traces_text}: {target}.*" if every else
            f"not kept: {traces_text} (--all keeps them)")
    if bundle:
        folder = target.with_name(f"{target.name}.symbols")
        say(f"{_bundle(target, folder)} files with symbols: {folder}")
    if status:
        raise typer.Exit(status if status > 0 else 128 - status)


@app.command()
@as_sentences
def show(
        file: pathlib.Path = typer.Argument(..., metavar="FILE", show_default=False,
                                            help="A trace."),
        events: Optional[int] = typer.Option(None, "--events", metavar="N", min=1,
                                             show_default=False,
                                             help="Print only the first N events."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """Show the contents of a trace, or its events, one on each line."""
    if events is not None:
        text, damage = _read("events", file, str(events))
        out.file.write(text)
    else:
        summary, damage = _summary(file)
        if as_json:
            print_json(summary)
        else:
            _print_summary(file, summary, file.stat().st_size)
    if damage:
        raise UserError(damage)
