"""The live view of `cairn stats --watch`: a screen on a terminal, otherwise one table for each
snapshot."""

import contextlib
import os
import select
import sys
import termios
import time
import tty

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cairn.console import out, say
from cairn.errors import UserError
from cairn.stats_record import Record
from cairn.texts import bytes_text, target_text

ENDED = ("no process", "has no memory", "has ended")  # messages of cairn-look
BARS = "▁▂▃▄▅▆▇█"
TURN_SECONDS = 0.1  # between checks of the keyboard and of the terminal's size
HISTORY_MOST = 60
SHORT = {"advise_calls": "madvise", "map_calls": "mmap", "unmap_calls": "munmap",
         "protect_calls": "mprotect", "remap_calls": "mremap"}


def history_text(values, width):
    """The last values as bars from 0 to the highest."""
    values = values[-width:]
    most = max(values, default=0)
    return "".join(BARS[round(value * (len(BARS) - 1) / most) if most else 0] for value in values)


class View:
    """The contents of the screen."""

    def __init__(self, table, words):
        self.table, self.words = table, words  # functions of stats_command that format a snapshot
        self.record, self.census, self.paused = None, None, False

    def add(self, census, values, path):
        if self.record is None:
            self.record = Record(census.target, path)
        self.record.add(census, values)
        self.census = census

    def _sums(self, width):
        looks = self.record.looks
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, justify in (("", "left"), ("now", "right"), ("change", "right"),
                              ("since", "right"), ("", "left")):
            table.add_column(name, justify=justify, no_wrap=True)
        room = min(HISTORY_MOST, width - 58)
        for name in self.words:
            if name not in looks[-1]:
                continue
            values = [look[name] for look in looks]
            table.add_row(name.replace("_", " "), self._text(name, values[-1]),
                          self._change(name, values[-1] - values[-2]) if values[1:] else "",
                          self._change(name, values[-1] - values[0]),
                          Text(history_text(values, room) if room > 4 else "", style="cyan"))
        return table

    @staticmethod
    def _text(name, value):
        return f"{value:,}".replace(",", " ") if name.endswith("blocks") else bytes_text(value)

    def _change(self, name, change):
        return ("+" if change > 0 else "-") + self._text(name, abs(change)) if change else ""

    def _sizes(self, rows):
        first, now = self.record.looks[0]["sizes"], self.record.looks[-1]["sizes"]
        change = {size: now.get(size, 0) - first.get(size, 0) for size in {*first, *now}}
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, justify in (("live bytes by size", "left"), ("now", "right"),
                              ("since", "right")):
            table.add_column(name, justify=justify, no_wrap=True)
        for size in sorted(change, key=lambda size: (-abs(change[size]), -now.get(size, 0),
                                                     size))[:rows]:
            table.add_row(size, bytes_text(now.get(size, 0)),
                          self._change("bytes", change[size]))
        return table

    def screen(self, width, height):
        """The parts of the screen that fit."""
        look = self.record.looks[-1]
        calls = ", ".join(f"{words} {look[name]}" for name, words in SHORT.items() if name in look)
        keys = "paused; space continues" if self.paused else "space pauses"
        parts = [Text(target_text(self.census.target), no_wrap=True, overflow="ellipsis"),
                 Text(f"{look['seconds']:.0f} s, {len(self.record.looks)} snapshots; {keys}, q "
                      f"ends",
                      style="dim", no_wrap=True, overflow="ellipsis"),
                 Text(""), self._sums(width)]
        rows = height - len(self.words) - 8
        if rows > 0:
            parts += [Text(""), self._sizes(rows), Text("")]
        purged = bytes_text(look["purged"])
        parts.append(Text(f"purged {purged} in {look['purges']}; calls: {calls}",
                          no_wrap=True, overflow="ellipsis", style="dim"))
        return Group(*parts)


@contextlib.contextmanager
def _keys():
    """A function that waits for a key, and returns "" after the given seconds. The terminal's
    settings are restored at the end."""
    if not sys.stdin.isatty():
        def wait(seconds):
            time.sleep(seconds)
            return ""
        yield wait
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def wait_for_key(seconds):
        if select.select([number], [], [], seconds)[0]:
            return os.read(number, 1).decode("ascii", errors="replace")
        return ""
    try:
        tty.setcbreak(number)
        yield wait_for_key
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def looks(read, target):
    """Yields (census, values) until the process has ended."""
    seen = False
    while True:
        try:
            census, values = read(target)
        except UserError as error:
            if seen and any(words in str(error) for words in ENDED):
                return
            raise
        if census.target["kind"] != "process":
            raise UserError("--watch needs a process; a core file does not change")
        seen = True
        yield census, values


def _turn(view, live, seconds, wait):
    """Waits until the next snapshot. Returns False when the user ends the watch."""
    size, end = out.size, time.monotonic() + seconds
    while view.paused or time.monotonic() < end:
        key = wait(TURN_SECONDS if view.paused
                   else max(0, min(TURN_SECONDS, end - time.monotonic())))
        if key in ("q", "Q", "\x04"):
            return False
        if key == " ":
            view.paused = not view.paused
        if key == " " or out.size != size:
            size = out.size
            live.update(view.screen(*size), refresh=True)
    return True


def _watch_screen(view, read, target, seconds, path):
    with _keys() as wait, Live(console=out, auto_refresh=False, screen=True,
                               vertical_overflow="crop") as live:
        for census, values in looks(read, target):
            view.add(census, values, path)
            live.update(view.screen(*out.size), refresh=True)
            if not _turn(view, live, seconds, wait):
                return "ended by q"
    return "the process has ended"


def _watch_lines(view, read, target, seconds, path):
    before = {}
    for census, values in looks(read, target):
        view.add(census, values, path)
        if path is None:
            out.print(view.table(values, before), "")
        before = values
        time.sleep(seconds)


def watch(read, table, words, target, seconds, path):
    """Watches a target. Returns the record, and the interrupt that ended it, or None."""
    view = View(table, words)
    interrupt = why = None
    try:
        if out.is_terminal:
            why = _watch_screen(view, read, target, seconds, path)
        else:
            _watch_lines(view, read, target, seconds, path)
    except KeyboardInterrupt as caught:
        interrupt = caught
    finally:
        if view.record:
            view.record.close()
    if out.is_terminal and view.record:
        last = view.record.looks[-1]
        say(target_text(view.census.target))
        out.print(view.table(last, view.record.looks[0]))
        if why:
            say(f"{len(view.record.looks)} snapshots in {last['seconds']:.0f} s: {why}")
    return view.record, interrupt
