"""Finds the processes of this machine that have Cairn, and the labels that identify them.

Only /proc is read, not the memory of a process. A library is recognised by its ELF note, not by
its name, so a renamed library, or one that is linked into the program, is found too. Its file is
opened within the root folder of the process, because a container has files of its own.
"""

import os
import pathlib
import re
import socket
import struct

from cairn.errors import UserError
from cairn.profile_elf import GNU_BUILD_ID, NOTE_SEGMENT, notes_in

# The note of src/base/layout.h, in each library of Cairn and in each program linked with Cairn.
CAIRN_LAYOUT = ("Cairn", 1)
HEAD_BYTES = 64
NOTES_BYTES_MAX = 64 << 10
HEADS_MAX = 256
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
            raise UserError(f"--label {word}: write NAME=VALUE; NAME has letters, digits and _")
        if name in reserved or name.startswith("__"):
            raise UserError(f"--label {word}: label {name} is reserved")
        labels[name] = value
    return labels


def host_name():
    return socket.gethostname()


def own_release():
    """The release where nothing says which: this command's own environment does."""
    return os.environ.get(RELEASE, "")


def read_notes(file):
    """{(name, number): contents} of an open file; empty where it is no 64-bit ELF file."""
    head = file.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES or head[:6] != b"\x7fELF\x02\x01":
        return {}
    segments_at, = struct.unpack_from("<Q", head, 0x20)
    segment_bytes, segments = struct.unpack_from("<HH", head, 0x36)
    if segment_bytes < 56:
        return {}
    found = {}
    for number in range(min(segments, HEADS_MAX)):
        file.seek(segments_at + number * segment_bytes)
        segment = file.read(56)
        if len(segment) < 56:
            break
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", segment)
        if kind == NOTE_SEGMENT and size <= NOTES_BYTES_MAX:
            file.seek(offset)
            found.update(notes_in(file.read(size)))
    return found


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
