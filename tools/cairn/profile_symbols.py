"""Maps the addresses of a profile to functions, through the files that the code was mapped from.

Names are looked up on this machine, although a profile may come from another one: a file with
another build id is not used. Debug information is used if binutils' addr2line exists; otherwise the
functions of the symbol table; without these the file's name and the offset in it.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess

from cairn.profile_elf import Elf

DEBUG_FOLDER = pathlib.Path("/usr/lib/debug")


@dataclasses.dataclass(frozen=True)
class Frame:
    """A function. Where functions were inlined several share an address, the innermost first."""

    function: str
    file: str = ""
    line: int = 0
    path: str = ""  # the file that the code was loaded from

    @property
    def module(self):
        """The name of the file without its folder."""
        return os.path.basename(self.path)

    def __str__(self):
        place = f" {os.path.basename(self.file)}:{self.line}" if self.file and self.line else ""
        return self.function + place


def _python_remark(path):
    """A sentence when a file is CPython, whose stacks are those of its loop."""
    name = path.rpartition("/")[2]
    if not re.fullmatch(r"python[\d.]*|libpython\d.*\.so.*", name):
        return None
    return "CPython runs the program: functions of C are named here; memray names those of Python"


def demangle(names):
    """{mangled name: demangled name}"""
    mangled = sorted({name for name in names if name.startswith(("_Z", "_R"))})
    tool = shutil.which("c++filt")
    if not mangled or not tool:
        return {}
    done = subprocess.run([tool], input="\n".join(mangled), stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, errors="surrogateescape", check=False)
    shown = done.stdout.splitlines()
    return dict(zip(mangled, shown)) if len(shown) == len(mangled) else {}


def _lines_of(path, addresses):
    """{address: [(function, file, line)…]} from addr2line, innermost first."""
    tool = shutil.which("addr2line")
    if not tool:
        return {}
    text = "\n".join(f"{address:#x}" for address in addresses)
    done = subprocess.run([tool, "-a", "-f", "-i", "-C", "-e", str(path)], input=text,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          errors="surrogateescape", check=False)
    found, rows, name = {}, None, None
    for line in done.stdout.splitlines():
        if line.startswith("0x") and name is None:
            rows = found.setdefault(int(line, 16), [])
        elif name is None:
            name = line
        else:
            file, _, number = line.partition(" ")[0].rpartition(":")
            if rows is not None and name != "??":
                rows.append((name, "" if file == "??" else file,
                             int(number) if number.isdigit() else 0))
            name = None
    return found


class _Object:
    """A file that code was mapped from."""

    def __init__(self, path, build_id, folders):
        self.path, self.build_id = path, build_id
        self.elf = None
        self.remark = None
        if path.startswith("["):
            return  # code of the kernel
        for place in self._places(folders):
            self._try(place)
            if self.elf:
                return
        if self.remark is None:
            self.remark = f"{path}: is not here, so its functions have no names"

    def _places(self, folders):
        name = os.path.basename(self.path)
        for folder in folders:
            yield pathlib.Path(folder) / name
            yield pathlib.Path(folder) / self.path.lstrip("/")
        yield pathlib.Path(self.path.removesuffix(" (deleted)"))

    def _try(self, place):
        try:
            elf = Elf(place)
        except (OSError, ValueError):
            return
        if self.build_id and elf.build_id != self.build_id:
            self.remark = f"{place}: is another build than that of the profile, so it is not used"
        else:
            self.elf, self.remark = elf, None

    def _debug_file(self):
        """The file with the lines: the file itself, or the separate one for its build id."""
        if self.elf.has_lines:
            return self.elf.path
        identity = self.elf.build_id
        apart = DEBUG_FOLDER / ".build-id" / identity[:2] / f"{identity[2:]}.debug"
        return apart if identity and apart.is_file() else None

    def frames(self, offsets, is_address):
        """{offset: [Frame…]}; offsets in the file, or addresses of the file."""
        path, module = self.path, os.path.basename(self.path)
        unknown = {offset: [Frame(f"{module}+{offset:#x}", path=path)] for offset in offsets}
        if self.elf is None:
            return unknown
        addresses = {offset: offset if is_address else self.elf.address_of_offset(offset)
                     for offset in offsets}
        debug = self._debug_file()
        lines = _lines_of(debug, sorted(set(addresses.values()) - {None})) if debug else {}
        names = {offset: self.elf.function_of(address) for offset, address in addresses.items()
                 if address is not None}
        shown = demangle(name for name in names.values() if name)
        found = {}
        for offset in offsets:
            rows = lines.get(addresses[offset])
            name = names.get(offset)
            if rows:
                found[offset] = [Frame(*row, path=path) for row in rows]
            elif name:
                found[offset] = [Frame(shown.get(name, name), path=path)]
            else:
                found[offset] = unknown[offset]
        return found


def elf_of(path, build_id, folders=()):
    """The file that code was mapped from, as an Elf; None when this build of it does not exist
    here."""
    return _Object(path, build_id, folders).elf


class Symbols:
    """The frames of a profile's addresses."""

    def __init__(self, profile, folders=()):
        self._known = {}
        self.remarks = []
        by_map = {}
        for address in {frame for site in profile.sites for frame in site.frames}:
            place = profile.map_of(address - 1)
            if place is None:
                self._known[address] = [Frame(f"{address:#x}")]
            else:
                by_map.setdefault((place.path, place.build_id, place.is_module),
                                  []).append((address, place))
        for (path, build_id, is_module), rows in sorted(by_map.items()):
            found = _Object(path, build_id, (*folders, *profile.folders))
            for remark in (found.remark, _python_remark(path)):
                if remark and remark not in self.remarks:
                    self.remarks.append(remark)
            # A return address may be behind the end of its function, so the address of the call is
            # used.
            offsets = {address: address - 1 - place.start + place.offset
                       for address, place in rows}
            frames = found.frames(sorted(set(offsets.values())), is_module)
            self._known.update({address: frames[offset] for address, offset in offsets.items()})

    def at(self, address):
        """The frames of a return address, the innermost of inlined ones first."""
        return self._known[address]

    def stack(self, frames):
        """All frames of a stack, innermost first."""
        if not frames:
            return [Frame("(no stack)")]
        return [frame for address in frames for frame in self.at(address)]
