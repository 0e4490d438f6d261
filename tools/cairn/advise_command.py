"""`cairn advise`: the call sites that would gain from another allocator, and their gains."""

import functools
import os
import pathlib
import statistics
import subprocess
import tempfile
from typing import List, Optional

import typer

from cairn import advise_summary, files, output, program
from cairn.advise_report import Advice, Findings, findings_json, page, print_advice
from cairn.advise_savings import Program, measured
from cairn.advise_verdicts import LEAST_SHARE, merged, share, verdicts
from cairn.console import note, out
from cairn.errors import UserError, as_sentences, ending
from cairn.measure import measure, with_cairn

MAGICS = (b"CairnTrc", b"\x28\xb5\x2f\xfd", b"\x1f\x8b")  # plain, zstd, gzip
TRACE_STEP_NS = 1 << 17  # src/watch/trace_file.h: times may be up to two of these too early
REPLAYED_MOST = 12  # verdicts, each of which costs several replays
ROUNDS_LEAST = 3  # fewer have no spread
GAIN_STATUS = 3


def _is_trace(path):
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError:
        return False
    return head.startswith(MAGICS)


def record(command, folder, library):
    """Runs the program once with a trace. Returns the trace of the program that it became first."""
    program.check_preloadable(command[0], [library])
    place = pathlib.Path(folder) / "trace"
    with subprocess.Popen(command, env=with_cairn(library, f"trace:{place}")) as child:
        status = child.wait()
    own = sorted(place.parent.glob(f"trace.{child.pid}.*"),
                 key=lambda path: int(path.name.rpartition(".")[2]))
    if not own:
        raise UserError(f"{command[0]} wrote no trace: see its messages above")
    if len(list(place.parent.glob("trace.*"))) > len(own):
        note("other processes wrote traces too: record them with cairn trace --all, and pass "
             "each to cairn advise")
    if status:
        note(f"{command[0]} {ending(status)}")
    return own[-1]


def traced(data):
    """The cost of the program by its trace, whose times are no more precise than two steps."""
    return Program(max(data["time_ns"], 2 * TRACE_STEP_NS), 0, False)


def _program(command, library, rounds):
    """The cost of the program without a trace."""
    note(f"{command[0]} runs {rounds} more times without a trace, to measure its time and memory")
    runs = [measure(command, library) for _ in range(rounds)]
    return Program(1e9 * statistics.median(run.cpu_s for run in runs),
                   statistics.median(run.peak_rss_mib for run in runs) * (1 << 20), True)


def judged(found, whole, measure_all=None):
    """Returns an Advice for each verdict, in an order that is equal for all runs of a program.
    `measure_all` returns the Saving of each verdict in its list; verdicts beyond REPLAYED_MOST are
    left out, those with the fewest calls and the least memory first."""
    found = sorted(found, key=lambda verdict: -_weight(verdict, whole))
    replayed = [verdict for verdict in found if verdict.policy] if measure_all else []
    if len(replayed) > REPLAYED_MOST:
        note(f"{len(replayed) - REPLAYED_MOST} more sites have fewer calls and are not measured")
        left_out = set(map(id, replayed[REPLAYED_MOST:]))
        found = [verdict for verdict in found if id(verdict) not in left_out]
        replayed = replayed[:REPLAYED_MOST]
    savings = dict(zip(map(id, replayed), measure_all(replayed) if replayed else ()))
    advice = []
    for verdict in found:
        saving, own = savings.get(id(verdict)), _own_share(verdict, whole)
        advice.append(Advice(verdict, saving, saving.share if saving else own,
                             saving.sure_share if saving else own))
    return advice


def _weight(verdict, whole):
    """The sites' share of the program's calls or memory, whichever is larger. It determines the
    order, which is equal for all runs of a program."""
    return max(
        share(sum(site["allocations"] + site["frees"] + site["resizes"] for site in verdict.sites),
              whole["events"]),
        share(sum(site["peak_bytes"] for site in verdict.sites), whole["peak_bytes"]))


def _own_share(verdict, whole):
    """The share of the memory that could be saved at most, by the trace alone."""
    for name in ("live_bytes", "lost_bytes", "pinned_bytes"):
        if name in verdict.numbers:
            return share(verdict.numbers[name], whole["peak_bytes"])
    return 0.0


def _findings(advice, least):
    named = [each for each in advice if each.is_worth(least)]
    return Findings(named, [each for each in advice if not each.is_worth(least) and each.saving])


def _check_files(targets, folders):
    output.check_folders("--symbols", folders)
    for option, path in targets.items():
        if path:
            output.check_writable(option, path)


@as_sentences
def advise(
        words: List[str] = typer.Argument(
            ..., metavar="FILE | -- PROGRAM [ARGUMENT]...", show_default=False,
            help="A trace, or the program to run and trace."),
        least: float = typer.Option(
            100 * LEAST_SHARE, "--least", metavar="PERCENT", min=0,
            help="Leave out proposals that save less than this share of the program's time and "
                 "memory."),
        rounds: int = typer.Option(ROUNDS_LEAST, "--rounds", metavar="N", min=1,
                                   help="Replay each proposal at least N times; more often while "
                                        "the saving is uncertain."),
        once: bool = typer.Option(
            False, "--once", help="Run the program only once, with its trace; shares refer to "
                                  "the time of that run."),
        no_replay: bool = typer.Option(
            False, "--no-replay", help="Print the proposals without measuring them."),
        fail_above: Optional[float] = typer.Option(
            None, "--fail-above", metavar="PERCENT", show_default=False,
            help=f"Exit with status {GAIN_STATUS} if a change certainly saves more than this."),
        frames: int = typer.Option(4, "--depth", metavar="N", min=1,
                                   help="Show N frames of a site."),
        snippets: bool = typer.Option(False, "--snippets", help="Show the change in C and C++."),
        symbols: Optional[List[pathlib.Path]] = typer.Option(
            None, "--symbols", metavar="FOLDER", show_default=False,
            help="Search this folder first for the mapped files. May be repeated."),
        lib: Optional[pathlib.Path] = typer.Option(
            None, show_default=False, help="Preload this library instead of libcairn-malloc.so."),
        html_file: Optional[pathlib.Path] = typer.Option(
            None, "--html", metavar="OUT", show_default=False,
            help="Write one HTML page with advice, memory over time, treemap and lifetimes."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """Propose allocators for the call sites of a program, each with its measured saving."""
    _check_files({"--html": html_file}, symbols)
    library = files.preloaded_library(lib)
    is_trace = len(words) == 1 and _is_trace(words[0])
    if len(words) == 1 and os.path.isfile(words[0]) and not (
            is_trace or os.access(words[0], os.X_OK)):
        raise UserError(f"{words[0]}: neither a trace of Cairn nor an executable program")
    with tempfile.TemporaryDirectory(prefix="cairn-advise-") as folder:
        trace = pathlib.Path(words[0]) if is_trace else record(words, folder, library)
        summary = advise_summary.read(trace, symbols or ())
        found = merged(verdicts(summary.data), summary.place)
        cost = traced(summary.data)
        if found and not (is_trace or once or no_replay):
            cost = _program(words, library, rounds)
        measure_all = None if no_replay else functools.partial(
            measured, trace, cost, library, max(rounds, ROUNDS_LEAST), least / 100)
        findings = _findings(judged(found, summary.data, measure_all), least / 100)
    if html_file:
        title = pathlib.Path(words[0]).name + ": advice"
        output.write("--html", html_file, page(findings.named, summary, title))
    if as_json:
        out.file.write(findings_json(findings, summary))
    elif not html_file:
        print_advice(findings, summary, cost, least / 100, frames, snippets)
    if fail_above is not None and any(each.is_measured and each.sure_share > fail_above / 100
                                      for each in findings.named):
        raise typer.Exit(GAIN_STATUS)
