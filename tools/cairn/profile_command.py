"""`cairn profile`: which call stacks hold the memory of a program."""

import json
import pathlib
import subprocess
import tempfile
from typing import List, Optional

import typer
from typer.core import TyperGroup

from cairn import files, fleet_parquet, output, profile_control, profile_push, program
from cairn.console import note, out
from cairn.errors import UserError, as_sentences
from cairn.measure import with_cairn
from cairn.profile_file import read, read_any
from cairn.profile_page import page
from cairn.profile_pprof import folded, pprof, speedscope
from cairn.profile_report import differences, print_differences, print_top, to_json
from cairn.profile_symbols import Symbols


class _FileIsShown(TyperGroup):
    """`cairn profile FILE` is `cairn profile show FILE`; so with a process or a core file."""

    def parse_args(self, ctx, args):
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_FileIsShown, no_args_is_help=True, pretty_exceptions_enable=False,
                  help="Which call stacks hold the memory of a program, by sampling.\n\n"
                       "cairn profile FILE|PID|CORE is cairn profile show FILE|PID|CORE.")

SOURCE = typer.Argument(..., metavar="FILE|PID|SOCKET|CORE", show_default=False,
                        help="A dump of the profiler, a process by its number, or a core file.")
TOP = typer.Option(20, "--top", metavar="N", min=1, help="Show so many sites.")
DEPTH = typer.Option(4, "--depth", metavar="N", min=1, help="Show so many frames of each.")
ALLOCATED = typer.Option(False, "--allocated",
                         help="By what was allocated since the start, not by what is in use.")
SYMBOLS = typer.Option(None, "--symbols", metavar="FOLDER", show_default=False,
                       help="Look here first for the files that were mapped. May be repeated.")
JSON = typer.Option(False, "--json", help="Print JSON.")


def _target(option, about):
    return typer.Option(None, option, metavar="OUT", show_default=False, help=about)


PPROF = _target("--pprof", "Write pprof's profile.proto, compressed.")
SPEEDSCOPE = _target("--speedscope", "Write a file for speedscope.app.")
HTML = _target("--html", "Write one page: flame graph, table, search.")
FOLDED = _target("--folded", "Write folded stacks, a stack a line, for flame graphs.")


def _write_all(profile, symbols, targets, live):
    """Whether there was anything to write."""
    makers = {
        "--pprof": lambda: pprof(profile, symbols),
        "--speedscope": lambda: speedscope(profile, symbols),
        "--html": lambda: page(profile, symbols),
        "--folded": lambda: folded(profile, symbols, live),
    }
    for option, path in targets.items():
        made = makers[option]()
        if isinstance(made, bytes):
            output.replace(path.resolve(), lambda new, made=made: new.write_bytes(made))
        else:
            output.write(option, path, made)
    return bool(targets)


def _chosen(**targets):
    chosen = {f"--{name}": path for name, path in targets.items() if path is not None}
    for option, path in chosen.items():
        output.check_writable(option, path)
    return chosen


@app.command()
@as_sentences
def show(
        source: str = SOURCE, top: int = TOP, depth: int = DEPTH,
        allocated: bool = ALLOCATED, symbols: Optional[List[pathlib.Path]] = SYMBOLS,
        pprof_file: Optional[pathlib.Path] = PPROF,
        speedscope_file: Optional[pathlib.Path] = SPEEDSCOPE,
        folded_file: Optional[pathlib.Path] = FOLDED,
        html_file: Optional[pathlib.Path] = HTML,
        parquet: Optional[pathlib.Path] = fleet_parquet.OUT,
        host: Optional[str] = fleet_parquet.HOST, release: Optional[str] = fleet_parquet.RELEASE,
        as_json: bool = JSON):
    """The sites of a profile, the largest first; or the profile in another form.

    Of a process or a core file it is read from outside: nothing runs in the process, which may be
    stopped, and no dump is written.
    """
    fleet_parquet.check(parquet, {"--host": host, "--release": release})
    targets = _chosen(pprof=pprof_file, speedscope=speedscope_file, folded=folded_file,
                      html=html_file)
    profile = read_any(source)
    found = Symbols(profile, symbols or ())
    is_written = _write_all(profile, found, targets, not allocated)
    if parquet is not None:
        fleet_parquet.write_profile(parquet, profile, found, host, release)
        is_written = True
    if is_written:
        for remark in found.remarks:
            note(remark)
    if as_json:
        out.file.write(to_json(profile, found))
    elif not is_written:
        print_top(profile, found, not allocated, top, depth)


@app.command()
@as_sentences
def diff(
        before: str = typer.Argument(..., metavar="BEFORE", show_default=False,
                                     help="A dump, a process by its number, or a core file."),
        after: str = typer.Argument(..., metavar="AFTER", show_default=False,
                                    help="A later one, also of another build."),
        top: int = TOP, depth: int = DEPTH, allocated: bool = ALLOCATED,
        symbols: Optional[List[pathlib.Path]] = SYMBOLS, as_json: bool = JSON):
    """What grew and what shrank between two profiles, by stacks of functions."""
    old, new = read_any(before), read_any(after)
    rows = differences(old, new, not allocated, symbols or ())
    if as_json:
        out.file.write(json.dumps([
            {"stack": list(key), "before_bytes": first.bytes, "after_bytes": second.bytes,
             "change_bytes": second.bytes - first.bytes} for key, first, second in rows],
            indent=2) + "\n")
    else:
        print_differences(old, new, rows, top, depth)


def _options(interval, growth, prefix):
    options = f"profile:{interval},profile_file:{prefix}"
    return f"{options},profile_growth:{growth}" if growth else options


def _dumps(prefix):
    """All dumps of a run, the process that the command became first."""
    def order(path):
        pid, number = path.name[len(prefix.name) + 1:].split(".")
        return int(pid), int(number)
    return sorted(prefix.parent.glob(prefix.name + ".*.*"), key=order)


@app.command(context_settings={"allow_interspersed_args": False})
@as_sentences
def run(
        command: List[str] = typer.Argument(..., metavar="-- PROGRAM [ARGUMENT]...",
                                            show_default=False, help="What to run on Cairn."),
        interval: str = typer.Option("512K", "--interval", metavar="BYTES",
                                     help="A sample in about so many bytes allocated."),
        growth: Optional[str] = typer.Option(
            None, "--growth", metavar="BYTES", show_default=False,
            help="A dump also each time that what is in use has grown by so much."),
        prefix: Optional[pathlib.Path] = typer.Option(
            None, "--output", metavar="PATH", show_default=False,
            help="Keep the dumps, as PATH.PROCESS.NUMBER."),
        lib: Optional[pathlib.Path] = typer.Option(
            None, show_default=False, help="Preload this library instead of libcairn-malloc.so."),
        hardened: bool = typer.Option(False, "--hardened",
                                      help="Preload libcairn-malloc-hardened.so."),
        top: int = TOP, depth: int = DEPTH, allocated: bool = ALLOCATED,
        pprof_file: Optional[pathlib.Path] = PPROF,
        speedscope_file: Optional[pathlib.Path] = SPEEDSCOPE,
        folded_file: Optional[pathlib.Path] = FOLDED,
        html_file: Optional[pathlib.Path] = HTML, as_json: bool = JSON):
    """Run a program with the profiler on, and show what it left.

    At the end of a program, what it has not freed is in use. The exit status is the program's.
    """
    targets = _chosen(pprof=pprof_file, speedscope=speedscope_file, folded=folded_file,
                      html=html_file)
    library = (lib or files.malloc_library(hardened)).resolve()
    program.check_preloadable(command[0], [library])
    with tempfile.TemporaryDirectory(prefix="cairn-profile-") as folder:
        place = (prefix or pathlib.Path(folder) / "profile").resolve()
        if "," in str(place):
            raise UserError(f"--output {place}: a comma ends an option")
        environment = with_cairn(library, _options(interval, growth, place))
        with subprocess.Popen(command, env=environment) as child:
            status = child.wait()
        dumps = _dumps(place)
        own = [path for path in dumps if path.name.startswith(f"{place.name}.{child.pid}.")]
        if not own:
            raise UserError(f"{command[0]} left no profile: it did not end by itself, ended by "
                            "_exit, or its options were refused (see above); --growth BYTES "
                            "writes dumps while it runs")
        profile = read(own[-1])
        symbols = Symbols(profile)
        if not _write_all(profile, symbols, targets, not allocated) and not as_json:
            print_top(profile, symbols, not allocated, top, depth)
        if as_json:
            out.file.write(to_json(profile, symbols))
        others = len({path.name.split(".")[-2] for path in dumps}) - 1
        if prefix:
            note(f"{len(dumps)} dumps: {place}.*")
        elif others:
            note(f"{others} other processes left profiles too: --output PATH keeps them")
    if status:
        raise typer.Exit(status if status > 0 else 128 - status)


app.command()(profile_push.push)
app.command()(profile_control.start)
app.command()(profile_control.stop)
app.command()(profile_control.dump)
