"""Samples the memory and the CPU time of a process and all its descendants, from /proc."""

import os
import threading
import time
from typing import NamedTuple

from cairn.errors import UserError

INTERVAL_S = 0.5
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """The memory of all processes at one time."""

    seconds: float  # since the first sample
    bytes: int  # proportional set size, without lazily free pages
    lazy_bytes: int  # pages that the kernel takes when it needs memory, from MADV_FREE


def read_text(pid, name):
    """A file of a process in /proc; None if the process has ended."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None


class Tree:
    """The descendants of a process, which may end and start at any time."""

    def __init__(self, root):
        self.root = root
        self.others = set()  # processes that are no descendants: they cannot become any
        self.unreadable = set()

    def _stats(self):
        """The words of /proc/PID/stat after the name, by process, without known others."""
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self.others &= pids
        texts = {pid: read_text(pid, "stat") for pid in pids - self.others}
        return {pid: text[text.rindex(")") + 2:].split() for pid, text in texts.items() if text}

    def _find(self):
        """(descendants, stats of all that were read)"""
        stats = self._stats()
        inside, outside = {self.root}, self.others | {0}
        for pid in stats:
            chain = []
            while pid in stats and pid not in inside and pid not in outside:
                chain.append(pid)
                pid = int(stats[pid][1])
            if pid in inside:
                inside.update(chain)
            elif pid in outside:
                outside.update(chain)
        self.others = outside - {0}
        return inside - {self.root}, stats

    def pids(self):
        return self._find()[0]

    def cpu_s(self):
        """User and system time so far, of ended descendants too."""
        pids, stats = self._find()
        ticks = sum(sum(map(int, stats[pid][11:15])) for pid in pids)
        if self.root in stats:
            ticks += sum(map(int, stats[self.root][13:15]))
        return ticks * TICK_S

    def memory(self):
        """(bytes without lazily free pages, lazily free bytes)"""
        total = lazy = 0
        for pid in self.pids():
            try:
                text = read_text(pid, "smaps_rollup")
            except PermissionError:
                self.unreadable.add(pid)
                continue
            if text:
                sizes = {name: int(words.split()[0]) << 10 for name, _, words in
                         (line.partition(":") for line in text.splitlines()[1:])}
                total += max(0, sizes["Pss"] - sizes["LazyFree"])
                lazy += sizes["LazyFree"]
        return total, lazy


class Sampler:
    """Samples a tree twice a second, in a thread, until the end of a `with` block."""

    def __init__(self, tree):
        self.tree, self.samples, self.started = tree, [], time.monotonic()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def now(self):
        return time.monotonic() - self.started

    def sample(self):
        """Adds a sample, and returns it."""
        with self._lock:
            self.samples.append(Sample(round(self.now(), 3), *self.tree.memory()))
            return self.samples[-1]

    def _run(self):
        while not self._ended.wait(INTERVAL_S):
            self.sample()

    def __enter__(self):
        if not os.path.exists("/proc/self/smaps_rollup"):
            raise UserError("this kernel has no /proc/PID/smaps_rollup: Linux 4.14 or later is "
                            "required")
        self.sample()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()
