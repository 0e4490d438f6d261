"""The processes of this machine that have Cairn, and what a fleet knows each of them by.

What /proc says is read, nothing of a process's memory. A library is told by its ELF note, not by
its name, so that one which was renamed, or linked into the program, is found too. Its file is
opened within the process's own root folder: a container's has other files under the same names.
"""

import os
import pathlib
import re
import socket

from cairn.elf_notes import CAIRN_LAYOUT, GNU_BUILD_ID, read_notes
from cairn.errors import UserError

PROC = pathlib.Path("/proc")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
OWN_LABELS = ("host", "pid", "program", "build_id", "release")
RELEASE = "CAIRN_RELEASE"  # the variable of a process that says which release it is
DELETED = " (deleted)"


def labels_of_options(words, reserved=OWN_LABELS):
    """{name: value} of options NAME=VALUE."""
    labels = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not LABEL.fullmatch(name):
            raise UserError(f"--label {word}: NAME=VALUE, the name of letters, digits and _")
        if name in reserved or name.startswith("__"):
            raise UserError(f"--label {word}: {name} is a label that Cairn gives by itself")
        labels[name] = value
    return labels


def host_name():
    return socket.gethostname()


def own_release():
    """The release where nothing says which: this command's own environment does."""
    return os.environ.get(RELEASE, "")


def _notes_of(path):
    with open(path, "rb") as file:
        return read_notes(file)


class Finder:
    """Looks through /proc; remembers which files have Cairn's note while they stay mapped."""

    def __init__(self, proc=PROC):
        self.proc = proc
        self._known = {}

    def build_id(self, pid):
        """That of the program's file; empty where it has none, or may not be read."""
        try:
            return _notes_of(self.proc / str(pid) / "exe").get(GNU_BUILD_ID, b"").hex()
        except OSError:
            return ""

    def variable(self, pid, name):
        """Of the environment that the process was started with; empty where it is not there."""
        try:
            words = (self.proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        start = name.encode() + b"="
        return next((word[len(start):].decode(errors="backslashreplace") for word in words
                     if word.startswith(start)), "")

    def _has_note(self, pid, span, path):
        """Of a mapped file: the path as the process sees it, and where that has another file by
        now or none, the mapping itself, which takes more rights."""
        base = self.proc / str(pid)
        places = [base / "map_files" / span]
        if not path.endswith(DELETED):
            places.insert(0, base / "root" / path.lstrip("/"))
        for place in places:
            try:
                return CAIRN_LAYOUT in _notes_of(place)
            except OSError:
                continue
        # All that is left is its name.
        return os.path.basename(path).startswith("libcairn")

    def _files(self, pid):
        """((device, inode, path), the mapping's span) of files that are mapped from their start."""
        with open(self.proc / str(pid) / "maps", encoding="utf-8",
                  errors="surrogateescape") as file:
            for line in file:
                span, _, offset, device, inode, *path = line.rstrip("\n").split(None, 5)
                if path and inode != "0" and int(offset, 16) == 0:
                    yield (device, inode, path[0]), span

    def find(self):
        """(the numbers of the processes that have Cairn, how many may not be looked at)."""
        found, refused, seen = [], 0, {}
        for entry in self.proc.iterdir():
            if not entry.name.isdigit():
                continue
            try:
                has_it = False
                for key, span in self._files(entry.name):
                    if key not in seen:
                        seen[key] = (self._known[key] if key in self._known else
                                     self._has_note(entry.name, span, key[2]))
                    has_it = has_it or seen[key]
                if has_it:
                    found.append(int(entry.name))
            except PermissionError:
                refused += 1
            except OSError:
                continue  # it has ended meanwhile
        self._known = seen
        return sorted(found), refused
