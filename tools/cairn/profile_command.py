"""`cairn profile`: the call stacks that hold the memory of a program."""

import pathlib
import re
import tempfile
from typing import List, Optional

import typer
from typer.core import TyperGroup

from cairn import files, html_page, output, profile_control, program
from cairn.console import note, out
from cairn.errors import UserError, as_sentences, ending
from cairn.measure import run_through, with_cairn
from cairn.profile_diff import differences, print_differences, to_values
from cairn.profile_file import read, read_any
from cairn.profile_merge import is_forked, merged, newest
from cairn.profile_pprof import folded, pprof, speedscope
from cairn.profile_report import opening, print_top, remarks, to_json
from cairn.profile_symbols import Symbols
from cairn.texts import bytes_text, json_text

PAGE_SHARE_MIN = 1 / 20000  # of all bytes; smaller frames are left out, so that pages stay small


class _FileIsShown(TyperGroup):
    """`cairn profile FILE` is `cairn profile show FILE`; a process or a core file works too."""

    def parse_args(self, ctx, args):
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_FileIsShown, no_args_is_help=True, pretty_exceptions_enable=False,
                  help="Show which call stacks hold the memory of a program, by sampling.\n\n"
                       "cairn profile FILE|PID|CORE is cairn profile show FILE|PID|CORE.")

SOURCES = typer.Argument(..., metavar="FILE|PID|SOCKET|CORE...", show_default=False,
                         help="Dumps of the profiler, process numbers, or core files. Several "
                              "are merged; of each process only the last dump counts.")
TOP = typer.Option(20, "--top", metavar="N", min=1, help="Show the first N sites.")
DEPTH = typer.Option(None, "--depth", metavar="N", min=1, show_default=False,
                     help="Show the first N frames of each site. Default: the function of the "
                          "standard library that was called, then three frames of the program.")
ALLOCATED = typer.Option(False, "--allocated",
                         help="Sort by the bytes allocated since the start, not by the bytes in "
                              "use.")
SYMBOLS = typer.Option(None, "--symbols", metavar="FOLDER", show_default=False,
                       help="Search this folder first for the mapped files. May be repeated.")
JSON = typer.Option(False, "--json", help="Print JSON.")


def _target(option, about):
    return typer.Option(None, option, metavar="OUT", show_default=False, help=about)


PPROF = _target("--pprof", "Write pprof's profile.proto, compressed.")
SPEEDSCOPE = _target("--speedscope", "Write a file for speedscope.app.")
HTML = _target("--html", "Write one HTML page with flame graph, table and search.")
FOLDED = _target("--folded", "Write folded stacks, a stack a line, for flame graphs.")


def _node(name):
    # name, bytes in use, bytes allocated, blocks in use, blocks allocated, children by name
    return [name, 0, 0, 0, 0, {}]


def _add(node, site):
    node[1] += site.live.bytes
    node[2] += site.allocated.bytes
    node[3] += site.live.objects
    node[4] += site.allocated.objects


def _shown(node, least, names):
    children = sorted(node[5].values(), key=lambda child: (-child[1], -child[2], child[0]))
    return [names.setdefault(node[0], len(names)), node[1], node[2], round(node[3]), round(node[4]),
            [_shown(child, least, names) for child in children
             if child[1] >= least[0] or child[2] >= least[1]]]


def _tree(profile, symbols):
    """{"names": …, "root": [name, in use, allocated, blocks in use, blocks allocated, children]}"""
    root = _node("all")
    for site in profile.sites:
        _add(root, site)
        node = root
        for frame in reversed(symbols.stack(site.frames)):
            node = node[5].setdefault(str(frame), _node(str(frame)))
            _add(node, site)
    names = {}
    least = (max(1, root[1] * PAGE_SHARE_MIN), max(1, root[2] * PAGE_SHARE_MIN))
    shown = _shown(root, least, names)
    return {"names": list(names), "root": shown}


def _page(profile, symbols):
    """The profile as one HTML file: flame graph, table and search."""
    sentences = (
        opening(profile),
        f"in use {bytes_text(profile.sum(True).bytes)}, allocated "
        f"{bytes_text(profile.sum(False).bytes)}, {profile.sum(False).samples} samples",
        *remarks(profile, symbols))
    return html_page.page(f"{profile.program}: heap profile", sentences, _tree(profile, symbols),
                          ("flame.js", "table.js", "profile.js"),
                          "Arrow keys move between frames, Enter zooms in, Escape zooms out.")


def _write_all(profile, symbols, targets, live):
    """Writes the profile to each target. Returns whether there was any."""
    makers = {
        "--pprof": lambda: pprof(profile, symbols),
        "--speedscope": lambda: speedscope(profile, symbols),
        "--html": lambda: _page(profile, symbols),
        "--folded": lambda: folded(profile, symbols, live),
    }
    for option, path in targets.items():
        made = makers[option]()
        if isinstance(made, bytes):
            output.replace(path, lambda new, made=made: new.write_bytes(made))
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
        sources: List[str] = SOURCES, top: int = TOP, depth: Optional[int] = DEPTH,
        allocated: bool = ALLOCATED, symbols: Optional[List[pathlib.Path]] = SYMBOLS,
        pprof_file: Optional[pathlib.Path] = PPROF,
        speedscope_file: Optional[pathlib.Path] = SPEEDSCOPE,
        folded_file: Optional[pathlib.Path] = FOLDED,
        html_file: Optional[pathlib.Path] = HTML,
        as_json: bool = JSON):
    """Show the sites of a profile, the largest first, or write the profile in another form.

    The profile of a process or a core file is read from outside: nothing runs in the process, which
    may be stopped, and no dump is written.
    """
    targets = _chosen(pprof=pprof_file, speedscope=speedscope_file, folded=folded_file,
                      html=html_file)
    output.check_folders("--symbols", symbols)
    profile = merged(newest([read_any(source) for source in sources]))
    found = Symbols(profile, symbols or ())
    is_written = _write_all(profile, found, targets, not allocated)
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
                                     help="A dump, a process number, or a core file."),
        after: str = typer.Argument(..., metavar="AFTER", show_default=False,
                                    help="A later dump, process or core file; its build may "
                                         "differ."),
        top: int = TOP, depth: Optional[int] = DEPTH, allocated: bool = ALLOCATED,
        symbols: Optional[List[pathlib.Path]] = SYMBOLS, as_json: bool = JSON):
    """Show the growth between two profiles, by stacks of functions."""
    output.check_folders("--symbols", symbols)
    old, new = read_any(before), read_any(after)
    rows = differences(old, new, not allocated, symbols or ())
    if as_json:
        out.file.write(json_text(to_values(rows), indent=2) + "\n")
    else:
        print_differences(old, new, rows, top, depth)


BYTES = re.compile(r"[0-9]+[KMG]?", re.I)


def _options(interval, growth):
    for option, value in (("--interval", interval), ("--growth", growth)):
        if value is not None and not (BYTES.fullmatch(value) and value.strip("0KMGkmg")):
            raise UserError(f"{option} {value}: write a number of bytes above 0, such as 64K")
    growth = f"profile_growth:{growth}," if growth else ""
    return f"profile:{interval},{growth}profile_file:"


def _dumps(prefix):
    """The dumps PREFIX.PROCESS.NUMBER, in the order of both numbers."""
    found = {}
    for path in prefix.parent.iterdir():
        match = re.fullmatch(re.escape(prefix.name) + r"\.(\d+)\.(\d+)", path.name)
        if match:
            found[int(match[1]), int(match[2])] = path
    return [found[key] for key in sorted(found)]


def _last(paths):
    """(the last whole dump of a process, or the longest one, and the number of cut dumps after it)
    """
    cut = []
    for path in reversed(paths):
        profile = read(path)
        if profile.is_whole:
            return profile, len(cut)
        cut.append(profile)
    return newest(cut)[-1], 0


def _of_program(own, paths):
    """(the program's profile merged with those of the workers that it forked, other processes, cut
    dumps that do not count)"""
    profile, cut = _last(own)
    all_others = [read(path) for path in paths]
    others = newest(all_others)
    workers = [other for other in others if is_forked(profile, other)]
    cut += sum(not each.is_whole and each not in workers for each in all_others)
    return merged([profile, *workers]), len(others) - len(workers), cut


def _note_cut(cut):
    if cut:
        note(f"{cut} dump{'s were' if cut != 1 else ' was'} cut: the last whole one of each "
             "process counts")


def _no_profile(name, status):
    end = ending(status) if status < 0 else "ended by _exit"
    return (f"{name} wrote no profile: it {end}, or its options were rejected; --growth BYTES "
            "writes dumps while it runs")


@app.command(context_settings={"allow_interspersed_args": False})
@as_sentences
def run(
        command: List[str] = typer.Argument(..., metavar="-- PROGRAM [ARGUMENT]...",
                                            show_default=False,
                                            help="The program to run on Cairn."),
        interval: str = typer.Option("512K", "--interval", metavar="BYTES",
                                     help="Take one sample for about every BYTES allocated."),
        growth: Optional[str] = typer.Option(
            None, "--growth", metavar="BYTES", show_default=False,
            help="Also write a dump whenever the bytes in use have grown by BYTES."),
        prefix: Optional[pathlib.Path] = typer.Option(
            None, "--output", metavar="PATH", show_default=False,
            help="Keep the dumps, as PATH.PROCESS.NUMBER."),
        lib: Optional[pathlib.Path] = typer.Option(
            None, show_default=False, help="Preload this library instead of libcairn-malloc.so."),
        hardened: bool = typer.Option(False, "--hardened",
                                      help="Preload libcairn-malloc-hardened.so."),
        top: int = TOP, depth: Optional[int] = DEPTH, allocated: bool = ALLOCATED,
        pprof_file: Optional[pathlib.Path] = PPROF,
        speedscope_file: Optional[pathlib.Path] = SPEEDSCOPE,
        folded_file: Optional[pathlib.Path] = FOLDED,
        html_file: Optional[pathlib.Path] = HTML, as_json: bool = JSON):
    """Run a program with the profiler on, and show its profile.

    The blocks that a program has not freed at its end are in use. The exit status is the program's.
    """
    targets = _chosen(pprof=pprof_file, speedscope=speedscope_file, folded=folded_file,
                      html=html_file)
    options = _options(interval, growth)
    library = files.preloaded_library(lib, hardened)
    program.check_preloadable(command[0], [library])
    if prefix:
        output.check_writable("--output", prefix.with_name(f"{prefix.name}.0.0"))
        if "," in str(prefix.resolve()):
            raise UserError(f"--output {prefix}: the path cannot contain a comma")
    with tempfile.TemporaryDirectory(prefix="cairn-profile-") as folder:
        place = (prefix or pathlib.Path(folder) / "profile").resolve()
        environment = with_cairn(library, f"{options}{place}")
        before = set(_dumps(place))
        pid, status = run_through(command, environment)
        dumps = [path for path in _dumps(place) if path not in before]
        own = [path for path in dumps if path.name.startswith(f"{place.name}.{pid}.")]
        if not own:
            raise UserError(_no_profile(command[0], status))
        profile, others, cut = _of_program(own, [path for path in dumps if path not in own])
        symbols = Symbols(profile)
        if not _write_all(profile, symbols, targets, not allocated) and not as_json:
            print_top(profile, symbols, not allocated, top, depth)
        if as_json:
            out.file.write(to_json(profile, symbols))
        _note_cut(cut)
        if prefix:
            note(f"{len(dumps)} dump{'s' if len(dumps) != 1 else ''}: {place}.*")
        elif others:
            note(f"{others} processes of other programs wrote profiles, which are not shown: "
                 "--output PATH keeps them")
    if not status and not profile.is_whole:
        raise UserError("the dump of the program is incomplete: only its complete part is shown")
    if status:
        raise typer.Exit(status if status > 0 else 128 - status)


app.command()(profile_control.start)
app.command()(profile_control.stop)
app.command()(profile_control.dump)
