"""`cairn replay`: plays a trace on several allocators."""

import pathlib
from contextlib import ExitStack
from typing import List, Optional

import typer
from rich.table import Table

from cairn import html_page, output
from cairn.console import out, print_json, progress, say
from cairn.errors import UserError, as_sentences
from cairn.replay_play import TOUCHES, is_program, prepared, replay
from cairn.run_command import choose_sides
from cairn.texts import bytes_text


def _print_table(costs, events):
    table = Table(box=None, pad_edge=False)
    table.add_column("allocator")
    for title in ("in it", "±", "ns an event", "wall", "peak memory", "held / live",
                  "page faults"):
        table.add_column(title, justify="right")
    for cost in costs:
        table.add_row(cost.name, f"{cost.allocator_s:.3f} s", f"{cost.half_range_s:.3f}",
                      f"{cost.allocator_s * 1e9 / max(1, events):.1f}", f"{cost.wall_s:.3f} s",
                      bytes_text(cost.peak_bytes), f"{cost.held_over_live:.2f}", str(cost.faults))
    out.print(table)


def sentences(trace, program, own_s, rounds):
    """Sentences that describe the trace and the figures."""
    yield (f"{trace.name}: {program.events} events of {program.threads} "
           f"thread{'s' if program.threads != 1 else ''}, at most "
           f"{bytes_text(program.peak_live_bytes)} live; {rounds} rounds, medians.")
    yield (f"The player itself took {own_s:.3f} s of CPU time a round, which is taken off, as is "
           "its memory.")
    if program.unknown_frees:
        yield (f"{program.unknown_frees} events are of blocks older than the trace, and left out, "
               "or begin a block where they resize it.")
    if program.lost_events:
        yield f"{program.lost_events} blocks have no end in the trace; they end at their reuse."


def _site_lines(costs):
    for cost in costs:
        for name, served, elsewhere in cost.sites:
            yield (f"{cost.name}: {name}: {served} blocks served"
                   + (f", {elsewhere} went to malloc" if elsewhere else ""))


def to_json(trace, program, costs, own_s, rounds, touch):
    """The figures of a replay, for --json."""
    return {
        "trace": str(trace), "events": program.events, "threads": program.threads,
        "peak_live_bytes": program.peak_live_bytes, "rounds": rounds, "touch": touch,
        "player_s": own_s,
        "allocators": [{
            "name": cost.name, "allocator_s": cost.allocator_s, "half_range_s": cost.half_range_s,
            "wall_s": cost.wall_s, "peak_bytes": cost.peak_bytes,
            "peak_rss_bytes": cost.peak_rss_bytes, "page_faults": cost.faults,
            "held_over_live": cost.held_over_live,
            "sites": [{"name": name, "served": served, "elsewhere": elsewhere}
                      for name, served, elsewhere in cost.sites],
            "samples": [{"trace_s": seconds, "live_bytes": live, "held_bytes": held}
                        for seconds, live, held in cost.samples],
        } for cost in costs],
    }


def _played(program, sides, rounds, site_program, touch):
    pairs = [(side.name, side.library) for side in sides]
    total = (rounds + 1) * (len(sides) + 1) * (2 if site_program else 1)
    with progress() as shown:
        task = shown.add_task("", total=total)

        def on_run(side, number):
            phase = f"round {number + 1}" if number >= 0 else "memory over time"
            shown.update(task, description=f"{phase}: {side.name}", advance=1)

        return replay(program, pairs, rounds, site_program, touch, on_run=on_run)


def _page(trace, sentences, costs, program):
    """The replay as one HTML file: the allocators in a table, and their memory over time."""
    rows = [[cost.name, cost.allocator_s, cost.allocator_s * 1e9 / max(1, program.events),
             cost.wall_s, cost.peak_bytes, cost.held_over_live, cost.faults] for cost in costs]
    # All allocators took their samples at the ends of the same windows.
    samples = costs[0].samples
    data = {
        "rows": rows,
        "times": [seconds for seconds, _, _ in samples],
        "live": [live for _, live, _ in samples],
        "held": [{"name": cost.name, "values": [held for _, _, held in cost.samples]}
                 for cost in costs],
    }
    return html_page.page(
        f"{trace.name}: replayed", sentences, data, ("table.js", "timeline.js", "replay.js"),
        "In the time line arrow keys go along, plus and minus zoom, Escape shows all.",
        search="search allocators (/)")


@as_sentences
def replay_command(
    trace: pathlib.Path = typer.Argument(
        ..., metavar="FILE", show_default=False,
        help="A trace, or the replay program that --keep wrote."),
    on: Optional[List[str]] = typer.Option(
        None, "--on", metavar="NAME[=LIBRARY]", show_default=False,
        help="Add an allocator; without LIBRARY, jemalloc, mimalloc and tcmalloc (gperftools) are "
             "those of Debian. May be repeated."),
    lib: Optional[pathlib.Path] = typer.Option(
        None, show_default=False, help="Preload this library instead of libcairn-malloc.so."),
    hardened: bool = typer.Option(
        False, "--hardened", help="Preload libcairn-malloc-hardened.so."),
    rounds: int = typer.Option(5, min=1, max=1000, help="Plays of the trace on each allocator."),
    touch: str = typer.Option(
        "filled", metavar="WHAT",
        help="Bytes that the replay writes. first: the first bytes of each block. pages: also one "
             "byte of each page. zeroed: as pages, but only the first bytes of zeroed blocks. "
             "filled: as zeroed, and the whole first page of the other blocks. nothing: no bytes."),
    site_policy: Optional[pathlib.Path] = typer.Option(
        None, metavar="FILE", show_default=False,
        help="Also play it with this file's call sites on other allocators of Cairn."),
    keep: Optional[pathlib.Path] = typer.Option(
        None, metavar="PROGRAM", show_default=False,
        help="Keep the replay program made from the trace, to play it again."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    html: Optional[pathlib.Path] = typer.Option(
        None, metavar="OUT", show_default=False, help="Write an HTML page: table, time line."),
):
    """Play a trace's allocations on several allocators, and compare time and memory.

    The order of each thread and of each block is kept; between threads it differs by at most a few
    thousand events. The program's own work between its calls is not played.
    """
    if not trace.is_file():
        what = "it is a folder" if trace.is_dir() else "not a file"
        raise UserError(f"{trace}: {what if trace.exists() else 'no such file'}")
    if touch not in TOUCHES:
        raise UserError(f"--touch {touch}: write one of " + ", ".join(TOUCHES))
    if html:
        output.check_writable("--html", html)
    if keep:
        output.check_regular("--keep", keep)
    if keep and is_program(trace):
        raise UserError(f"--keep needs a trace: {trace} is already a replay program")
    sides = choose_sides(lib, hardened, on or [])
    with ExitStack() as stack:
        program = stack.enter_context(prepared(trace, keep=keep))
        sites = stack.enter_context(prepared(trace, site_policy)) if site_policy else None
        costs, own_s = _played(program, sides, rounds, sites, touch)
    about = list(sentences(trace, program, own_s, rounds))
    if html:
        output.write("--html", html, _page(trace, about, costs, program))
    if as_json:
        print_json(to_json(trace, program, costs, own_s, rounds, touch))
        return
    for sentence in about:
        say(sentence)
    _print_table(costs, program.events)
    for line in _site_lines(costs):
        say(line)
