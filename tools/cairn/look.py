"""What cairn-look reads of another process, or of a core file, from outside."""

import io
import subprocess
import sys

from cairn import control, files
from cairn.errors import UserError, signal_name


def _value(word):
    name, _, text = word.partition("=")
    try:
        return sys.intern(name), int(text, 0)  # a big heap's lines are many, their names few
    except ValueError:
        return sys.intern(name), sys.intern(text)


def _failure(process, text):
    if process.returncode < 0:
        return UserError(f"cairn-look was ended by {signal_name(-process.returncode)}: {text}")
    return UserError(text or f"cairn-look ended with status {process.returncode}")


def process_of(target):
    """Of a control socket the number of the process that serves it; else the target itself."""
    if not control.is_socket(target):
        return target
    connection = control.Control(target)
    connection.close()
    return str(connection.pid)


def look_text(command, target, *arguments, errors="backslashreplace"):
    """What cairn-look prints."""
    process = subprocess.run([str(files.look_program()), command, process_of(target), *arguments],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             errors=errors, check=False)
    if process.returncode:
        raise _failure(process, process.stderr.strip())
    return process.stdout


def look(command, target, *arguments):
    """The lines that cairn-look prints, each as (what it is of, its values by name)."""
    rows = []
    for line in io.StringIO(look_text(command, target, *arguments)):
        kind, *words = line.rstrip("\n").split("\t")
        values = dict(_value(word) for word in words)
        for name in ("program", "library", "version", "name", "state", "owner", "path"):
            if name in values:
                values[name] = str(values[name])
        rows.append((sys.intern(kind), values))
    return rows


def pass_on(command, target):
    """Runs cairn-look with our own output; returns its exit status."""
    return subprocess.run([str(files.look_program()), command, process_of(target)],
                          stdin=subprocess.DEVNULL, check=False).returncode


class Census:
    """The count of a whole heap."""

    def __init__(self, target, spans=False):
        rows = look("map" if spans else "census", target)
        self.target = self._one(rows, "target")
        self.pages = self._one(rows, "pages")
        self.calls = self._one(rows, "calls")
        self.sampled = self._one(rows, "sampled")
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
        """Over all classes."""
        return sum(row.get(name, 0) for row in self.classes)

    def is_measured(self):
        """Whether it is known which pages have memory: not of a core file."""
        return "metadata_resident_bytes" in self.pages

    def words(self):
        """The sums, by the words that operators know; bytes where nothing else is said."""
        kinds, pages, sampled = self.kinds, self.pages, self.sampled["live_bytes"]
        whole = kinds["large"]["bytes"] + kinds["huge"]["bytes"] + sampled
        clean = pages["free_bytes"] - pages["dirty_bytes"]
        values = {
            "allocated": self.sum("live_bytes") + whole,
            "allocated_blocks": self.sum("live") + kinds["large"]["count"]
                                + kinds["huge"]["count"] + self.sampled["live"],
            "active": self.sum("slab_bytes") + whole,
            "dirty": pages["dirty_bytes"],
            "kept": kinds["kept"]["bytes"],
            "mapped": pages["committed_bytes"] + pages["kept_outside_bytes"]
                      + pages["huge_bytes"] + sampled,
            "retained": pages["reserved_bytes"] - pages["committed_bytes"] + clean,
            "metadata": pages["metadata_bytes"],
        }
        if self.is_measured():
            values["resident"] = (self.sum("resident_bytes") + sampled
                                  + pages["metadata_resident_bytes"]
                                  + sum(kind["resident_bytes"] for kind in kinds.values()))
        return values

    def counters(self):
        """What only grows, since the process began."""
        return {"purged": self.pages["purged_bytes"], "purges": self.pages["purges"],
                **{f"{name}_calls": count for name, count in self.calls.items()}}

    def remarks(self):
        """What a reader of the figures has to know, a sentence each."""
        target, doubts = self.target, self.doubts
        if target["kind"] == "process" and not target["stopped"]:
            yield ("The process was running while it was read: figures may be of different "
                   "instants. Stop it (kill -STOP) for exact ones.")
        if target.get("missing_bytes"):
            yield (f"The core file was cut: {target['missing_bytes']} of {target['core_bytes']} "
                   "bytes are missing, and what lay in them is not counted.")
        if doubts["unreadable"]:
            yield (f"{doubts['unreadable']} pieces of metadata could not be read: what they tell "
                   "of is not counted.")
        if doubts["torn"]:
            yield f"{doubts['torn']} entries were changing while they were read; they are left out."
        if target["other_libraries"]:
            yield (f"{target['other_libraries']} more Cairn libraries are loaded, each with a heap "
                   "of its own; this is the largest.")
