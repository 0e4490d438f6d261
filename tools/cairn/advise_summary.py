"""Reads the sums of a trace's sites from cairn-advise, and names the sites."""

import dataclasses
import itertools
import json
import os
import re
import subprocess
from typing import List

from cairn import files
from cairn.errors import UserError, ending
from cairn.profile_file import Map
from cairn.profile_symbols import Symbols

ADVISE_VERSION = 1
# Functions that allocate for their callers: the place to change is in the caller.
HELPERS = ("operator new", "std::", "__gnu_cxx::", "void* std::", "cairn::")
HELPER_CALLERS = 5  # a frame with as many callers allocates for others, whatever its name is
HELPER_DEPTH = 6
HELPER_NAME = re.compile(r"alloc|strn?dup|memdup", re.IGNORECASE)  # xmalloc, sqlite3Malloc, ...
SYSTEM_FOLDERS = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")  # code there is not the user's


@dataclasses.dataclass
class _Stack:
    frames: tuple


@dataclasses.dataclass
class _Mapped:
    """The part of a profile that Symbols needs."""

    sites: List
    maps: List
    folders: tuple = ()

    def map_of(self, address):
        # If several maps contain an address, the last one counts.
        return next((each for each in reversed(self.maps) if each.start <= address < each.end),
                    None)


def _maps(text):
    found = []
    for line in text.split("\n"):
        words = line.split(" ", 5)
        if words[0] == "map" and len(words) == 6:
            start, end, offset = (int(word, 16) for word in words[1:4])
            found.append(Map(start, end, offset, "" if words[4] == "-" else words[4], words[5]))
    return found


class Summary:
    """The output of cairn-advise for a trace."""

    def __init__(self, data, folders=()):
        self.data = data
        stacks = {int(number): tuple(frames) for number, frames in data["frames"].items()}
        mapped = _Mapped([_Stack(frames) for frames in stacks.values()], _maps(data["text"]))
        self._symbols = Symbols(mapped, folders)
        self._system = {os.path.basename(each.path) for each in mapped.maps
                        if each.path.startswith(SYSTEM_FOLDERS)}
        self._stacks = stacks
        self._known_callers = None

    @property
    def remarks(self):
        """Remarks that a reader needs to interpret the figures."""
        said = list(self._symbols.remarks)
        if self.data["state"] == 2:
            said.append("the trace was cut before the program's end: what lives at its end may "
                        "have been freed later")
        if self.data["untracked"]:
            said.append(f"{self.data['untracked']} blocks were not followed: more were live than "
                        "are kept")
        if not self.data["has_free_stacks"]:
            said.append("the trace has no stacks of frees: no scope is looked for")
        return said

    def frames(self, site):
        """All frames of a site, innermost first."""
        return self._symbols.stack(self._stacks.get(site["stack"], ()))

    def frame_of_scope(self, site):
        """The innermost function that both the allocation and the free of a block came from, at the
        call that led to the allocation; None if there is none."""
        found = None
        ended = self._symbols.stack(self._stacks.get(site["ancestor_stack"], ()))
        for one, other in zip(reversed(self.frames(site)), reversed(ended)):
            if one.function != other.function:
                break
            found = one
            if one != other:
                break  # the frames inside are separate calls
        return found

    def _callers(self):
        """{frame: the frames that call it at the inner end of a site's stack}"""
        if self._known_callers is None:
            self._known_callers = {}
            for site in self.data["sites"]:
                for inner, outer in itertools.pairwise(self.frames(site)[:HELPER_DEPTH + 1]):
                    self._known_callers.setdefault(inner, set()).add(outer)
                    if len(self._known_callers[inner]) < HELPER_CALLERS:
                        break
        return self._known_callers

    def _helps(self, frame):
        return HELPER_NAME.search(frame.function.partition("(")[0]) or \
            frame.function.startswith(HELPERS) or frame.module in self._system or \
            len(self._callers().get(frame, ())) >= HELPER_CALLERS

    def place(self, site):
        """The frame to change: the innermost one that does not allocate for others."""
        frames = self.frames(site)
        return next((frame for frame in frames[:HELPER_DEPTH] if not self._helps(frame)),
                    frames[0])


def read(trace, folders=()):
    """Returns the Summary of a trace file."""
    command = [str(files.program("cairn-advise")), str(trace)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        words = done.stderr.decode(errors="surrogateescape").strip()
        raise UserError(words or f"{os.path.basename(command[0])} {ending(done.returncode)}")
    data = json.loads(done.stdout.decode(errors="surrogateescape"))
    if data["version"] != ADVISE_VERSION:
        raise UserError(f"{command[0]} belongs to another version of Cairn: use the tools of one "
                        "installation")
    return Summary(data, folders)
