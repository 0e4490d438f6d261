"""The sums of a trace's sites, from cairn-advise, and the names of the sites."""

import dataclasses
import itertools
import json
import os
import re
import subprocess
from typing import List

from cairn import files
from cairn.errors import UserError
from cairn.profile_file import Map
from cairn.profile_symbols import Symbols, elf_of

ADVISE_VERSION = 1
# Functions that allocate for whoever calls them: the place to change is their caller's.
HELPERS = ("operator new", "std::", "__gnu_cxx::", "void* std::", "cairn::")
HELPER_CALLERS = 5  # a frame that so many call allocates for others, whatever its name
HELPER_DEPTH = 6
HELPER_NAME = re.compile(r"alloc|strn?dup|memdup", re.IGNORECASE)  # xmalloc, sqlite3Malloc…
SYSTEM_FOLDERS = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")  # what is there is not the user's


@dataclasses.dataclass
class _Stack:
    frames: tuple


@dataclasses.dataclass
class _Mapped:
    """What Symbols takes of a profile."""

    sites: List
    maps: List
    folders: tuple = ()

    def map_of(self, address):
        # Of several that hold an address the last one counts.
        return next((each for each in reversed(self.maps) if each.start <= address < each.end),
                    None)


def _maps(text):
    found = []
    for line in text.splitlines():
        words = line.split(" ", 5)
        if words[0] == "map" and len(words) == 6:
            start, end, offset = (int(word, 16) for word in words[1:4])
            found.append(Map(start, end, offset, "" if words[4] == "-" else words[4], words[5]))
    return found


class Summary:
    """What cairn-advise says of a trace."""

    def __init__(self, data, folders=()):
        self.data = data
        stacks = {int(number): tuple(frames) for number, frames in data["frames"].items()}
        mapped = _Mapped([_Stack(frames) for frames in stacks.values()], _maps(data["text"]))
        self._symbols = Symbols(mapped, folders)
        self._system = {os.path.basename(each.path) for each in mapped.maps
                        if each.path.startswith(SYSTEM_FOLDERS)}
        self._mapped, self._folders, self._files = mapped, folders, {}
        self._stacks = stacks
        self._known_callers = None

    @property
    def remarks(self):
        """What a reader has to know of the figures."""
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
        """The innermost function that both a block's making and its end came from, at the call
        that led to the making; None: there is none."""
        found = None
        ended = self._symbols.stack(self._stacks.get(site["ancestor_stack"], ()))
        for one, other in zip(reversed(self.frames(site)), reversed(ended)):
            if one.function != other.function:
                break
            found = one
            if one != other:
                break  # from here on these are calls of their own
        return found

    def locate(self, address):
        """(build id, path, offset from where it was loaded) of a return address; None: its file is
        not here."""
        place = self._mapped.map_of(address - 1)
        if place is None or place.path.startswith("["):
            return None
        key = (place.path, place.build_id)
        if key not in self._files:
            self._files[key] = elf_of(*key, self._folders)
        elf = self._files[key]
        start = elf.address_of_offset(place.offset) if elf else None
        if start is None:
            return None
        return place.build_id, place.path, address - place.start + start

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


def _all_stacks(trace):
    """(number, frames, innermost first) of each stack of a trace."""
    with subprocess.Popen([str(files.trace_program()), "stacks", str(trace)],
                          stdout=subprocess.PIPE, text=True) as reader:
        for line in reader.stdout:
            number, *frames = line.replace("...", "").split()  # which ends one that was cut
            if frames:
                yield int(number), tuple(int(frame, 16) for frame in frames)


def shortest_stacks(trace, groups, most):
    """([[frames] of each group], stacks left out): of groups of stack numbers, the innermost frames
    that no stack outside of the group begins with, as few as will do; at most so many."""
    group_of = {stack: group for group, stacks in enumerate(groups) for stack in stacks}
    wanted = [(group_of[number], frames[:most]) for number, frames in _all_stacks(trace)
              if number in group_of]
    innermost = {frames[0] for _, frames in wanted}
    owners = {}  # {beginning: its group, or None where others begin so, too}
    for number, frames in _all_stacks(trace):
        group = group_of.get(number)
        for depth in range(1, min(len(frames), most) + 1) if frames[0] in innermost else ():
            if owners.setdefault(frames[:depth], group) != group:
                owners[frames[:depth]] = None
    shortest, alike = [{} for _ in groups], 0
    for group, frames in wanted:
        begins = (frames[:depth] for depth in range(1, len(frames) + 1))
        found = next((begin for begin in begins if owners[begin] == group), None)
        alike += found is None
        if found:
            shortest[group][found] = None
    return [list(each) for each in shortest], alike


def read(trace, folders=()):
    """The Summary of a trace's file."""
    command = [str(files.advise_program()), str(trace)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()
        raise UserError(words if words else f"{os.path.basename(command[0])} ended by signal "
                        f"{-done.returncode}")
    data = json.loads(done.stdout.decode(errors="surrogateescape"))
    if data["version"] != ADVISE_VERSION:
        raise UserError(f"{command[0]} is of another version of Cairn")
    return Summary(data, folders)
