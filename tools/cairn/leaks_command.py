"""`cairn leaks`: live blocks that no pointer leads to, in a process or a core file."""

import time
from pathlib import Path

import typer
from rich.table import Table

from cairn import output
from cairn.console import out, print_json, say
from cairn.errors import UserError, as_sentences
from cairn.inspect_command import bytes_text, target_text
from cairn.look import Census, look

SIZES_SHOWN = 16
LEAKS_SHOWN = 10
FOUND_STATUS = 1


class Lost:
    """What one reading found."""

    def __init__(self, rows):
        found = dict(rows)
        self.target, self.sums, self.doubts = found["target"], found["lost"], found["doubts"]
        self.sizes = [values for kind, values in rows if kind == "size"]
        self.leaks = [values for kind, values in rows if kind == "leak"]
        self.held = [values for kind, values in rows if kind == "held"]
        for leak in self.leaks:
            leak["begins"] = leak["begins"].removeprefix("x")

    def remarks(self):
        """What a reader has to know, a sentence each."""
        if self.sums["looks"] > 1:
            yield ("The process was running: what is named was found lost twice, and did not "
                   "change in between.")
        if self.sums["threads_unread"]:
            yield (f"The registers of {self.sums['threads_unread']} threads could not be read (a "
                   "debugger has them): a block may be named that only they lead to.")
        if self.target["kind"] == "core" and not self.sums["threads"]:
            yield "The core file has no registers: a block may be named that only they lead to."
        if self.target.get("missing_bytes"):
            yield (f"The core file was cut: {self.target['missing_bytes']} of "
                   f"{self.target['core_bytes']} bytes are missing, and with them pointers: blocks "
                   "may be named falsely.")
        elif self.sums["unread_bytes"]:
            yield (f"{bytes_text(self.sums['unread_bytes'])} could not be read, and with them "
                   "pointers: blocks may be named falsely.")
        if self.doubts["torn"] + self.doubts["unreadable"]:
            yield (f"{self.doubts['torn']} pieces of metadata were changing and "
                   f"{self.doubts['unreadable']} could not be read: their blocks are left out.")


def _contents(leak):
    """How a block begins: a pointer into a file's code or data says what it is, else as text."""
    if "points_to" in leak:
        return f"-> {leak['points_to']}"
    data = bytes.fromhex(leak["begins"])
    text = data.split(b"\0")[0]
    if len(text) > 3 and all(32 <= sign < 127 for sign in text):
        return repr(text.decode("ascii"))
    return leak["begins"][:32]


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


def _print_leaks(lost, every):
    rows = lost.leaks if every else lost.leaks[:LEAKS_SHOWN]
    table = _table("Lost directly, with what they hold", ("address", "left"), ("bytes", "right"),
                   ("holds", "right"), ("in blocks", "right"), ("begins with", "left"))
    for row in rows:
        held = row["held_blocks"]
        table.add_row(f"{row['address']:#x}", str(row["size_bytes"]),
                      bytes_text(row["held_bytes"]) if held else "", str(held) if held else "",
                      _contents(row))
    out.print(table)
    if len(rows) < lost.sums["direct_blocks"]:
        say(f"and {lost.sums['direct_blocks'] - len(rows)} more (--all)")


def _print_lost(lost, every):
    sums = lost.sums
    blocks = sums["direct_blocks"] + sums["held_blocks"]
    say(target_text(lost.target))
    for remark in lost.remarks():
        say(remark)
    if not blocks:
        say(f"No block is lost: pointers lead to all {sums['live_blocks']}.")
        return
    say(f"{blocks} of {sums['live_blocks']} blocks are lost, no pointer leads to them: "
        f"{bytes_text(sums['direct_bytes'] + sums['held_bytes'])}. "
        f"{sums['direct_blocks']} of them directly; those hold the other {sums['held_blocks']}.")
    _print_sizes(lost)
    _print_leaks(lost, every)


def _live_by_size(target):
    census = Census(target)
    live = {row["size_bytes"]: row["live"] for row in census.classes}
    live["larger"] = census.kinds["large"]["count"] + census.kinds["huge"]["count"]
    sizes = {**{size: size * count for size, count in live.items() if size != "larger"},
             "larger": census.kinds["large"]["bytes"] + census.kinds["huge"]["bytes"]}
    return census.target, live, sizes


def _growth(target, seconds):
    """The sizes with more live blocks after so many seconds, those that grew most first."""
    head, live, sizes = _live_by_size(target)
    if head["kind"] != "process":
        raise UserError("--growing looks twice at a process; a core file does not grow")
    time.sleep(seconds)
    head, live_then, sizes_then = _live_by_size(target)
    rows = [{"size_bytes": size, "live": count, "grown_blocks": count - live.get(size, 0),
             "grown_bytes": sizes_then[size] - sizes.get(size, 0)}
            for size, count in live_then.items() if count > live.get(size, 0)]
    return head, sorted(rows, key=lambda row: -row["grown_bytes"])


def _print_growth(target, seconds, as_json):
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


@as_sentences
def leaks(
        target: str = typer.Argument(..., metavar="PID|SOCKET|CORE", show_default=False,
                                     help="A process, the control socket of one, or a core "
                                     "file."),
        every: bool = typer.Option(False, "--all", help="List all lost blocks."),
        hold: bool = typer.Option(False, "--hold", help="Hold the process while it is read, for "
                                  "an exact answer from one look."),
        growing: float = typer.Option(None, "--growing", metavar="SECONDS", min=0.01,
                                      show_default=False, help="Instead, show the sizes with more "
                                      "live blocks after so many seconds."),
        page: Path = typer.Option(None, "--html", metavar="FILE", show_default=False,
                                  help="Write what is lost as one HTML file."),
        check: bool = typer.Option(False, "--check",
                                   help="Exit with status 1 when a block is lost."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """Live blocks that no pointer leads to, in a process or a core file.

    Read from outside, without any preparation. Its threads stop for their registers only, some tens
    of microseconds each.
    """
    if growing is not None:
        if every or hold or check or page is not None:
            raise UserError("--growing goes with --json only")
        _print_growth(target, growing, as_json)
        return
    if page is not None:
        output.check_writable("--html", page)
    arguments = (["hold"] if hold else []) + (["every"] if every or page is not None else [])
    lost = Lost(look("leaks", target, *arguments))
    if page is not None:
        from cairn import leaks_page  # pylint: disable=import-outside-toplevel
        output.write("--html", page, leaks_page.page(lost, _contents))
    if as_json:
        print_json({"target": lost.target, "lost": lost.sums, "sizes": lost.sizes,
                    "leaks": lost.leaks, "held": lost.held, "doubts": lost.doubts})
    elif page is None:
        _print_lost(lost, every)
    if check and lost.sums["direct_blocks"]:
        raise typer.Exit(FOUND_STATUS)
