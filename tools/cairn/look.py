"""Runs cairn-look, which reads another process or a core file from outside."""

import errno
import io
import os
import signal
import subprocess
import sys

from cairn import control, files
from cairn.errors import UserError, signal_name
from cairn.texts import readable

NO_CAIRN = "no Cairn library found: its memory belongs to another allocator"  # of cairn-look

class NoCairn(UserError):
    """The target's memory belongs to another allocator."""


def _value(word):
    name, _, text = word.partition("=")
    try:
        return sys.intern(name), int(text, 0)  # a large heap has many lines, few names
    except ValueError:
        return sys.intern(name), sys.intern(text)


def _failure(process, text):
    if process.returncode < 0:
        return UserError(f"cairn-look was ended by {signal_name(-process.returncode)}: {text}")
    if NO_CAIRN in text:
        return NoCairn(text)
    return UserError(text or f"cairn-look ended with status {process.returncode}")


def process_of(target):
    """The number of the process that serves a control socket; for other targets the target itself.
    """
    if not control.is_socket(target):
        return target
    connection = control.Control(target)
    connection.close()
    return str(connection.pid)


def look_text(command, target, *arguments):
    """The output of cairn-look."""
    process = subprocess.run([str(files.program("cairn-look")), command, process_of(target),
                              *arguments],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             errors="surrogateescape", check=False)
    if process.returncode:
        raise _failure(process, process.stderr.strip())
    return process.stdout


def look(command, target, *arguments):
    """The lines of cairn-look's output, each as (its kind, its values by name)."""
    return rows_of(look_text(command, target, *arguments))


def rows_of(text):
    """The lines of an output of cairn-look, each as (its kind, its values by name)."""
    rows = []
    for line in io.StringIO(text):
        kind, *words = line.rstrip("\n").split("\t")
        values = dict(_value(word) for word in words)
        for name in ("program", "library", "version", "name", "state", "owner", "path"):
            if name in values:
                values[name] = str(values[name])
        if "program" in values:
            values["program"] = readable(values["program"])
        rows.append((sys.intern(kind), values))
    return rows


def pass_on(command, target):
    """Runs cairn-look with this process's output. A reader that ends early ends it too."""
    process = subprocess.run([str(files.program("cairn-look")), command, process_of(target)],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             errors="surrogateescape", check=False)
    if process.returncode == -signal.SIGPIPE:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    if process.returncode:
        raise _failure(process, process.stderr.strip())


def cut_remarks(target, meaning):
    """Sentences on the missing parts of a truncated core file."""
    if target.get("missing_bytes"):
        yield (f"The core file was cut: {target['missing_bytes']} of {target['core_bytes']} bytes "
               f"are missing: {meaning}.")
    if target.get("lacks_map"):
        yield ("The page map is among what is missing: blocks are found by the headers that are "
               "there.")
    if target.get("is_from_file"):
        yield (f"The library's own data are missing: {target['library'] or 'its file'} as it is "
               "now says where its structures are.")


class Census:
    """The counts of a whole heap."""

    def __init__(self, target, spans=False):
        rows = look("map" if spans else "census", target)
        self.target = self._one(rows, "target")
        self.pages = self._one(rows, "pages")
        self.calls = self._one(rows, "calls")
        self.guarded = self._one(rows, "guarded")
        self.doubts = self._one(rows, "doubts")
        self.classes = [values for kind, values in rows if kind == "class"]
        self.heaps = [values for kind, values in rows if kind == "heap"]
        self.kinds = {values["name"]: values for kind, values in rows if kind == "kind"}
        self.lengths = [values for kind, values in rows if kind == "length"]
        self.largest = [values for kind, values in rows if kind == "largest"]
        self.spans = [values for kind, values in rows if kind == "span"]

    @staticmethod
    def _one(rows, wanted):
        return next(values for kind, values in rows if kind == wanted)

    def sum(self, name):
        """The sum over all classes."""
        return sum(row.get(name, 0) for row in self.classes)

    def is_measured(self):
        """Whether resident pages are known: not in a core file."""
        return "metadata_resident_bytes" in self.pages

    def words(self):
        """The sums, by the names that operators know, in bytes unless noted."""
        kinds, pages, guarded = self.kinds, self.pages, self.guarded["live_bytes"]
        whole = kinds["large"]["bytes"] + kinds["huge"]["bytes"] + guarded
        clean = pages["free_bytes"] - pages["dirty_bytes"]
        values = {
            "allocated": self.sum("live_bytes") + whole,
            "allocated_blocks": self.sum("live") + kinds["large"]["count"]
                                + kinds["huge"]["count"] + self.guarded["live"],
            "active": self.sum("slab_bytes") + whole,
            "dirty": pages["dirty_bytes"],
            "kept": kinds["kept"]["bytes"],
            "mapped": pages["committed_bytes"] + pages["kept_outside_bytes"]
                      + pages["huge_bytes"] + guarded,
            "retained": pages["reserved_bytes"] - pages["committed_bytes"] + clean,
            "metadata": pages["metadata_bytes"],
        }
        if self.is_measured():
            values["resident"] = (self.sum("resident_bytes") + guarded
                                  + pages["metadata_resident_bytes"]
                                  + sum(kind["resident_bytes"] for kind in kinds.values()))
        return values

    def counters(self):
        """The counters since the start of the process."""
        return {"purged": self.pages["purged_bytes"], "purges": self.pages["purges"],
                **{f"{name}_calls": count for name, count in self.calls.items()}}

    def remarks(self):
        """Sentences that a reader needs to interpret the figures."""
        target, doubts = self.target, self.doubts
        if target["kind"] == "process" and not target["stopped"]:
            yield ("The process was running while it was read: figures may be of different "
                   "instants. Stop it (kill -STOP) for exact ones.")
        yield from cut_remarks(target, "their contents are not counted")
        if doubts["unreadable"]:
            yield (f"{doubts['unreadable']} pieces of metadata could not be read: their blocks "
                   f"are not counted.")
        if doubts["torn"]:
            yield f"{doubts['torn']} entries were changing while they were read; they are left out."
        if target["other_libraries"]:
            yield (f"{target['other_libraries']} more Cairn libraries are loaded, each with a heap "
                   "of its own; this is the largest.")
