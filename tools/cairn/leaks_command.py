"""`cairn leaks`: live blocks that no pointer leads to, in a process or a core file."""

import time
from pathlib import Path
from typing import List

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cairn import files, html_page, output, profile_names, program
from cairn.console import INDENT, columns, out, print_json, say
from cairn.errors import UserError, as_sentences, check_seconds
from cairn.look import Census, look
from cairn.lost_blocks import Lost, at_end, contents
from cairn.texts import bytes_text, target_text

PAGE_LEAKS_MAX = 5000  # the largest ones
PAGE_FRAMES_MAX = 6  # of a stack
SIZES_SHOWN = 16
GROUPS_SHOWN = 16
STACKS_SHOWN = 3  # of a group
ALLOCATED_COLUMNS = len("allocated by  (100 samples)")
FOUND_STATUS = 1
SHORTEST_GROWING_S = 0.01


def _table(title, *columns):
    out.print()
    out.print(title, style="bold")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in columns:
        table.add_column(name, justify=justify, overflow="fold")
    return table


def _print_sizes(lost):
    rows = sorted(lost.sizes, key=lambda row: -row["size_bytes"] * row["blocks"])
    table = _table("By size", ("size", "left"), ("blocks", "right"), ("direct", "right"),
                   ("bytes", "right"))
    for row in rows[:SIZES_SHOWN]:
        table.add_row(str(row["size_bytes"]), str(row["blocks"]), str(row["direct"]),
                      bytes_text(row["size_bytes"] * row["blocks"]))
    out.print(table)
    if len(rows) > SIZES_SHOWN:
        say(f"and {len(rows) - SIZES_SHOWN} more sizes (--json has all)")


def _begins(row):
    """How the blocks of a group begin."""
    if row["blocks"] == 1 or "points_to" in row or "class" in row:
        return contents(row)
    return f"text, as {contents(row)}" if row["is_text"] else ""


def _stack_lines(lost, row, every, room):
    """The lines of a group's stacks, which say how many samples a stack of the profiler has."""
    found = {}
    for site in row["sites"]:
        frames = lost.stacks.get(site["site"])
        if frames:
            lines = tuple(profile_names.lines(frames, len(frames) if every else None, room))
            found[lines] = found.get(lines, 0) + site["blocks"]
    stacks = sorted(found.items(), key=lambda stack: -stack[1])
    for lines, blocks in stacks if every else stacks[:STACKS_SHOWN]:
        samples = f" ({blocks} sample{'s' if blocks > 1 else ''})" if lost.sampled else ""
        yield f"allocated by {lines[0]}{samples}"
        yield from (f"  {line}" for line in lines[1:])
    if not every and len(stacks) > STACKS_SHOWN:
        yield f"and by {len(stacks) - STACKS_SHOWN} more stacks (--all)"


def _print_groups(lost, every):
    """Prints similar blocks as one row, with the stacks of their allocation below."""
    groups = lost.groups if every else lost.groups[:GROUPS_SHOWN]
    rows = [("blocks", "size", "bytes", "hold", "for example", "begin with")]
    rows += [(str(row["blocks"]), str(row["size_bytes"]),
              bytes_text(row["size_bytes"] * row["blocks"]),
              bytes_text(row["held_bytes"]) if row["held_bytes"] else "",
              f"{row['address']:#x}", _begins(row)) for row in groups]
    widths = [max(map(len, column)) for column in list(zip(*rows))[:-1]]
    room = columns()
    out.print()
    out.print("Directly lost, similar blocks together", style="bold")
    for row, group in zip(rows, [None, *groups]):
        line = "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) + f"  {row[-1]}"
        out.print(Text(line[:room].rstrip(), style="" if group else "bold"), soft_wrap=True)
        within = room and room - INDENT - ALLOCATED_COLUMNS
        for line in _stack_lines(lost, group, every, within) if group else ():
            out.print(Text(" " * INDENT + line), soft_wrap=True)
    if len(groups) < len(lost.groups):
        say(f"and {len(lost.groups) - len(groups)} more kinds (--all)")
    if not lost.stacks:
        say("Which calls allocated them: run the program with cairn leaks run, or with the "
            "profiler on.")


def _print_leaks(lost):
    table = _table("Lost directly, with what they hold", ("address", "left"), ("bytes", "right"),
                   ("holds", "right"), ("in blocks", "right"), ("begins with", "left"))
    for row in lost.leaks:
        held = row["held_blocks"]
        table.add_row(f"{row['address']:#x}", str(row["size_bytes"]),
                      bytes_text(row["held_bytes"]) if held else "", str(held) if held else "",
                      escape(contents(row)))
    out.print(table)


def _print_lost(lost, every):
    sums = lost.sums
    blocks = sums["direct_blocks"] + sums["held_blocks"]
    say(target_text(lost.target))
    for remark in lost.remarks():
        say(remark)
    if not blocks and lost.unsure:
        return
    if not blocks:
        say(f"No block is lost: pointers lead to all {sums['live_blocks']}.")
        return
    say(f"{blocks} of {sums['live_blocks']} blocks are lost, no pointer leads to them: "
        f"{bytes_text(sums['direct_bytes'] + sums['held_bytes'])}. "
        f"{sums['direct_blocks']} are lost directly and hold the other {sums['held_blocks']}.")
    _print_sizes(lost)
    _print_groups(lost, every)
    if every:
        _print_leaks(lost)


def _live_by_size(target):
    census = Census(target)
    live = {row["size_bytes"]: row["live"] for row in census.classes}
    live["larger"] = census.kinds["large"]["count"] + census.kinds["huge"]["count"]
    sizes = {**{size: size * count for size, count in live.items() if size != "larger"},
             "larger": census.kinds["large"]["bytes"] + census.kinds["huge"]["bytes"]}
    return census.target, live, sizes


def _growth(target, seconds):
    """The sizes with more live blocks after this many seconds, those that grew most first."""
    head, live, sizes = _live_by_size(target)
    if head["kind"] != "process":
        raise UserError("--growing needs a process; a core file does not change")
    time.sleep(seconds)
    head, live_then, sizes_then = _live_by_size(target)
    rows = [{"size_bytes": size, "live": count, "grown_blocks": count - live.get(size, 0),
             "grown_bytes": sizes_then[size] - sizes.get(size, 0)}
            for size, count in live_then.items() if count > live.get(size, 0)]
    return head, sorted(rows, key=lambda row: -row["grown_bytes"])


def _print_growth(target, seconds, as_json):
    check_seconds("--growing", seconds, SHORTEST_GROWING_S)
    head, rows = _growth(target, seconds)
    if as_json:
        print_json({"target": head, "seconds": seconds, "growing": rows})
        return
    say(target_text(head))
    if not rows:
        say(f"No size has more live blocks than {seconds:g} s before.")
        return
    table = _table(f"Sizes with more live blocks than {seconds:g} s before", ("size", "left"),
                   ("live", "right"), ("more", "right"), ("bytes more", "right"))
    for row in rows[:SIZES_SHOWN]:
        table.add_row(str(row["size_bytes"]), str(row["live"]), str(row["grown_blocks"]),
                      bytes_text(row["grown_bytes"]))
    out.print(table)


def _run(command, hardened):
    """The lost blocks of a program at its end, and its exit status."""
    if not command:
        raise UserError("cairn leaks run -- PROGRAM: the program is missing")
    library = files.malloc_library(hardened).resolve()
    program.check_preloadable(command[0], [library])
    return at_end(command, library)


def _print(lost, page, every, as_json):
    if page is not None:
        output.write("--html", page, _page(lost, contents))
    if as_json:
        print_json({"target": lost.target, "lost": lost.sums, "sizes": lost.sizes,
                    "groups": lost.groups, "leaks": lost.leaks, "held": lost.held,
                    "stacks": lost.stack_json(), "unsure": lost.unsure, "holds": lost.holds,
                    "doubts": lost.doubts})
    elif page is None:
        _print_lost(lost, every)


def _stack_text(lost, row):
    """The functions that allocated a block, innermost first; "" when unknown."""
    frames = lost.stacks.get(row.get("site"), [])
    return " < ".join(profile_names.lines(frames, None, None)[:PAGE_FRAMES_MAX])


def _page(lost, contents):
    """The lost blocks as one HTML file. `contents` describes the first bytes of a block."""
    sums = lost.sums
    shown = sorted(lost.leaks,
                   key=lambda row: -row["size_bytes"] - row["held_bytes"])[:PAGE_LEAKS_MAX]
    blocks = sums["direct_blocks"] + sums["held_blocks"]
    sentences = [target_text(lost.target), *lost.remarks(),
                 f"{blocks} of {sums['live_blocks']} blocks are lost, no pointer leads to them: "
                 f"{bytes_text(sums['direct_bytes'] + sums['held_bytes'])}."]
    if len(shown) < sums["direct_blocks"]:
        sentences.append(f"{len(shown)} of {sums['direct_blocks']} directly lost blocks are shown, "
                         "those that hold most.")
    data = {"sums": sums,
            "sizes": [[row["size_bytes"], row["blocks"], row["direct"]] for row in lost.sizes],
            "groups": [[row["blocks"], row["size_bytes"], row["held_bytes"],
                        f"{row['address']:#x}", _begins(row), _stack_text(lost, row)]
                       for row in lost.groups[:PAGE_LEAKS_MAX]],
            "leaks": [[f"{row['address']:#x}", row["size_bytes"], row["held_bytes"],
                       row["held_blocks"], contents(row),
                       row.get("class") or row.get("points_to", ""), _stack_text(lost, row)]
                      for row in shown]}
    return html_page.page(
        f"{lost.target['program'] or 'core file'}: lost blocks", sentences, data,
        ("table.js", "treemap.js", "leaks.js"),
        "Arrow keys move between parts, Enter descends, Escape shows all; / searches.",
        "search: an address, a text (/)")


@as_sentences
def leaks(  # pylint: disable=too-many-arguments, too-many-positional-arguments
        target: str = typer.Argument(..., metavar="PID|SOCKET|CORE|run", show_default=False,
                                     help="A process, its control socket, or a core file; or the "
                                     "word run, to examine a program at its end."),
        command: List[str] = typer.Argument(None, metavar="[-- PROGRAM [ARGUMENT]...]",
                                            show_default=False,
                                            help="With run: the program to run on Cairn. The exit "
                                                 "status is the program's."),
        every: bool = typer.Option(False, "--all", help="List all lost blocks."),
        hold: bool = typer.Option(False, "--hold", help="Stop the process while it is read, for "
                                                        "an exact result from one pass."),
        trace: Path = typer.Option(None, "--trace", metavar="FILE", show_default=False,
                                   help="Take the blocks' allocation stacks from a trace of the "
                                   "process."),
        growing: float = typer.Option(None, "--growing", metavar="SECONDS", show_default=False,
                                      help="Instead, show the block sizes with more live blocks "
                                           "after SECONDS."),
        page: Path = typer.Option(None, "--html", metavar="FILE", show_default=False,
                                  help="Write the lost blocks as one HTML file."),
        check: bool = typer.Option(False, "--check",
                                   help="Exit with status 1 when a block is lost."),
        hardened: bool = typer.Option(False, "--hardened", help="With run: preload "
                                      "libcairn-malloc-hardened.so."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """Find live blocks that no pointer leads to, in a process, a core file, or a program at its
    end.

    A process is read from outside and needs no preparation. While it runs it is stopped for about 4
    ms at a time, to confirm that blocks are lost. cairn leaks run -- PROGRAM records each
    allocation, and names the stack of each lost block.
    """
    if growing is not None:
        if every or hold or check or hardened or page is not None or trace or command:
            raise UserError("--growing can be combined only with --json")
        _print_growth(target, growing, as_json)
        return
    if page is not None:
        output.check_writable("--html", page)
    status = 0
    if target == "run":
        if hold or trace is not None:
            raise UserError("--hold and --trace cannot be combined with run")
        lost, status = _run(command, hardened)
    else:
        if command or hardened:
            raise UserError("only run takes a program: cairn leaks run -- PROGRAM")
        arguments = ["hold"] if hold else []
        if every or page is not None or trace is not None:
            arguments.append("every")
        lost = Lost(look("leaks", target, *arguments))
        if trace is not None:
            lost.take_trace(trace)
    _print(lost, page, every, as_json)
    if status:
        raise typer.Exit(status)
    if check and lost.unsure:
        raise UserError(lost.doubt())
    if check and lost.sums["direct_blocks"]:
        raise typer.Exit(FOUND_STATUS)
