"""`cairn advise`: which call sites would gain from which allocator, and how much it was."""

import pathlib
import statistics
import subprocess
import tempfile
from typing import List, Optional

import typer

from cairn import advise_sites, advise_summary, files, output, program
from cairn.advise_page import page
from cairn.advise_receipt import Program, receipt
from cairn.advise_report import Advice, json_text, print_advice
from cairn.advise_verdicts import LEAST_SHARE, merged, share, verdicts
from cairn.console import note, out
from cairn.errors import UserError, as_sentences
from cairn.measure import measure, with_cairn

MAGICS = (b"CairnTrc", b"\x28\xb5\x2f\xfd", b"\x1f\x8b")  # plain, zstd, gzip
TRACE_STEP_NS = 1 << 17  # src/watch/trace_file.h: times may be two of these too old
REPLAYED_MOST = 12  # verdicts; each costs some replays
GAIN_STATUS = 3


def _is_trace(path):
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError:
        return False
    return head.startswith(MAGICS)


def record(command, folder, library):
    """Runs the program once with a trace; the file of the process that it became first."""
    program.check_preloadable(command[0], [library])
    place = pathlib.Path(folder) / "trace"
    with subprocess.Popen(command, env=with_cairn(library, f"trace:{place}")) as child:
        status = child.wait()
    own = sorted(place.parent.glob(f"trace.{child.pid}.*"),
                 key=lambda path: int(path.name.rpartition(".")[2]))
    if not own:
        raise UserError(f"{command[0]} left no trace (see above)")
    if len(list(place.parent.glob("trace.*"))) > len(own):
        note("other processes left traces too: `cairn trace` keeps them, and advises on each")
    if status:
        note(f"{command[0]} ended with status {status if status > 0 else 128 - status}")
    return own[-1]


def traced(data):
    """What the program cost by its trace. Below that the trace's times are nothing."""
    return Program(max(data["time_ns"], 2 * TRACE_STEP_NS), 0, False)


def _program(command, library, rounds):
    """What the program costs without a trace."""
    note(f"{command[0]} runs {rounds} times more without a trace, for its time and memory")
    runs = [measure(command, library) for _ in range(rounds)]
    return Program(1e9 * statistics.median(run.cpu_s for run in runs),
                   statistics.median(run.peak_rss_mib for run in runs) * (1 << 20), True)


def measured(found, trace, whole, cost, library, rounds):
    """An Advice for each verdict; with the receipts of those that can be replayed, unless there are
    to be no rounds."""
    advice = []
    for verdict in found:
        proof, saved = None, _own_share(verdict, whole)
        sure = saved
        if verdict.policy and rounds and len(advice) < REPLAYED_MOST:
            proof = receipt(trace, verdict, cost, library, rounds)
            saved = max(0.0 if proof.is_within_noise else proof.time_share, proof.memory_share)
            sure = max(proof.time_low_share, proof.memory_share)
        advice.append(Advice(verdict, proof, saved, sure))
    return advice


def _own_share(verdict, whole):
    """What the evidence alone says of memory: all of it that could be saved."""
    for name in ("live_bytes", "lost_bytes", "pinned_bytes"):
        if name in verdict.numbers:
            return share(verdict.numbers[name], whole["peak_bytes"])
    return 0.0


def _worth(advice, least):
    """The advice that saves enough; what was not measured is not judged."""
    return sorted((each for each in advice if not each.is_measured or each.saved_share >= least),
                  key=lambda each: -each.saved_share)


def _check_writable(targets):
    for option, path in targets.items():
        if path:
            output.check_writable(option, path)


@as_sentences
def advise(
        words: List[str] = typer.Argument(
            ..., metavar="FILE | -- PROGRAM [ARGUMENT]...", show_default=False,
            help="A trace, or what to run and trace."),
        least: float = typer.Option(
            100 * LEAST_SHARE, "--least", metavar="PERCENT", min=0,
            help="Say nothing of what saves less of the program's time and memory."),
        rounds: int = typer.Option(5, "--rounds", metavar="N", min=1,
                                   help="Replay each proposal so often, and take the median."),
        once: bool = typer.Option(
            False, "--once", help="Run the program with its trace alone; shares are then of the "
                                  "longer time that this takes."),
        no_replay: bool = typer.Option(
            False, "--no-replay", help="Say what the evidence suggests, without measuring it."),
        fail_above: Optional[float] = typer.Option(
            None, "--fail-above", metavar="PERCENT", show_default=False,
            help=f"End with status {GAIN_STATUS} when one change is sure to save more than this."),
        frames: int = typer.Option(4, "--depth", metavar="N", min=1,
                                   help="Show so many frames of a site."),
        snippets: bool = typer.Option(False, "--snippets", help="Show the change in C and C++."),
        symbols: Optional[List[pathlib.Path]] = typer.Option(
            None, "--symbols", metavar="FOLDER", show_default=False,
            help="Look here first for the files that were mapped. May be repeated."),
        lib: Optional[pathlib.Path] = typer.Option(
            None, show_default=False, help="Preload this library instead of libcairn-malloc.so."),
        html_file: Optional[pathlib.Path] = typer.Option(
            None, "--html", metavar="OUT", show_default=False,
            help="Write one page: advice, memory over time, treemap, lifetimes."),
        write_sites: Optional[pathlib.Path] = advise_sites.WRITE_OPTION,
        check_sites: Optional[pathlib.Path] = advise_sites.CHECK_OPTION,
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """Which call sites would gain from which allocator: each proposal with its receipt, the trace
    replayed with these sites on the allocator proposed."""
    _check_writable({"--html": html_file, "--write-sites": write_sites})
    library = (lib or files.malloc_library()).resolve()
    if check_sites:
        advise_sites.check(check_sites, words, library, rounds)
    is_trace = len(words) == 1 and _is_trace(words[0])
    with tempfile.TemporaryDirectory(prefix="cairn-advise-") as folder:
        trace = pathlib.Path(words[0]) if is_trace else record(words, folder, library)
        summary = advise_summary.read(trace, symbols or ())
        found = merged(verdicts(summary.data), summary.place)
        cost = traced(summary.data)
        if found and not (is_trace or once or no_replay):
            cost = _program(words, library, rounds)
        found = _worth(measured(found, trace, summary.data, cost, library,
                                 0 if no_replay else rounds), least / 100)
        if write_sites:
            advise_sites.write(write_sites, found, trace, summary)
    if html_file:
        output.write("--html", html_file,
                     page(found, summary, pathlib.Path(words[0]).name + ": advice"))
    if as_json:
        out.file.write(json_text(found, summary))
    elif not html_file:
        print_advice(found, summary, cost, least / 100, frames, snippets)
        advise_sites.hint(found, summary, write_sites)
    if fail_above is not None and any(each.is_measured and each.sure_share > fail_above / 100
                                      for each in found):
        raise typer.Exit(GAIN_STATUS)
