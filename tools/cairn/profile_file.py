"""Reads a profile: a dump of the heap profiler (docs/dev/PROFILE-FORMAT.md), or the lines
 that cairn-look prints for a process or a core file."""

import dataclasses
import os
import pathlib
import re
import time

from cairn.errors import UserError, os_sentence
from cairn.look import look_text, process_of

FIRST = "cairn-profile 1"
ELF = b"\x7fELF"
OBJECT = 65536  # the unit of objects
NAME_BYTES_MOST = 15  # length of the program name that the kernel keeps


@dataclasses.dataclass
class Sums:
    """Sums of samples. All are estimates except `samples`."""

    samples: int = 0
    objects: float = 0
    bytes: int = 0

    def add(self, other, sign=1):
        self.samples += sign * other.samples
        self.objects += sign * other.objects
        self.bytes += sign * other.bytes


@dataclasses.dataclass
class Site:
    """A stack, innermost first, with the sums of its allocations, and of those in use."""

    frames: tuple
    allocated: Sums
    live: Sums


@dataclasses.dataclass
class Map:
    """The mapping of code from a file."""

    start: int
    end: int
    offset: int
    build_id: str  # empty: none
    path: str
    is_module: bool = False  # from the linker; `offset` is then the address of `start` in the file


@dataclasses.dataclass
class Block:
    """A live sample."""

    address: int
    frames: tuple
    asked: int
    objects: float
    bytes: int
    thread: int
    time_ms: int


@dataclasses.dataclass
class Profile:  # pylint: disable=too-many-instance-attributes
    """A dump, or its equivalent read from outside."""

    path: str
    written_ns: int = 0  # since 1970
    folders: tuple = ()  # further folders of the mapped files
    version: str = ""
    pid: int = 0
    program: str = ""
    reason: str = ""
    time_ms: int = 0
    interval: int = 0
    lost_stacks: int = 0
    lost_blocks: int = 0
    torn: int = 0  # these three only for profiles read from outside
    unreadable: int = 0
    others: int = 0
    sites: list = dataclasses.field(default_factory=list)
    blocks: list = dataclasses.field(default_factory=list)
    maps: list = dataclasses.field(default_factory=list)
    modules: list = dataclasses.field(default_factory=list)
    processes: int = 1  # number of processes in it
    is_whole: bool = False
    lines: int = 0  # of its text

    @property
    def is_of_process(self):
        """Whether it was read from the memory of a process, which existed until now."""
        return self.reason == "memory"

    def sum(self, live):
        total = Sums()
        for site in self.sites:
            total.add(site.live if live else site.allocated)
        return total

    def map_of(self, address):
        """The file that the code at an address came from: a mapping, else a library loaded before.
        """
        return next((each for each in (*self.maps, *self.modules)
                     if each.start <= address < each.end), None)


def _sums(words):
    samples, objects, size = map(int, words)
    # The parts of a sum may be of different instants, because threads run meanwhile.
    return Sums(max(samples, 0), max(objects / OBJECT, 0), max(size, 0))


class _Reader:
    def __init__(self, path, written_ns):
        self.profile = Profile(str(path), written_ns)
        self.by_number = {}
        self.by_frames = {}

    def site(self, words):
        frames = tuple(int(word, 16) for word in words[7:])
        self.by_number[int(words[0])] = frames
        allocated, live = _sums(words[1:4]), _sums(words[4:7])
        if frames in self.by_frames:
            self.by_frames[frames].allocated.add(allocated)
            self.by_frames[frames].live.add(live)
        else:
            self.by_frames[frames] = Site(frames, allocated, live)
            self.profile.sites.append(self.by_frames[frames])

    def block(self, words):
        address, site, asked, objects, size, thread, time_ms = words
        self.profile.blocks.append(
            Block(int(address, 16), self.by_number.get(int(site), ()), int(asked),
                  int(objects) / OBJECT, int(size), int(thread), int(time_ms)))

    def line(self, text):
        word, _, rest = text.partition(" ")
        profile = self.profile
        if word == "site":
            self.site(rest.split())
        elif word == "block":
            self.block(rest.split())
        elif word == "map":
            start, end, offset, build_id, path = rest.split(" ", 4)
            profile.maps.append(Map(int(start, 16), int(end, 16), int(offset, 16),
                                    "" if build_id == "-" else build_id, path))
        elif word == "module":
            start, end, base, build_id, path = rest.split(" ", 4)
            profile.modules.append(Map(int(start, 16), int(end, 16),
                                        int(start, 16) - int(base, 16),
                                        "" if build_id == "-" else build_id, path, True))
        elif word == "process":
            pid, _, profile.program = rest.partition(" ")
            profile.pid = int(pid)
        elif word == "lost":
            profile.lost_stacks, profile.lost_blocks = map(int, rest.split())
        elif word in ("time", "interval"):
            setattr(profile, "time_ms" if word == "time" else word, int(rest))
        elif word in ("library", "reason"):
            setattr(profile, "version" if word == "library" else word, rest)
        elif word in ("torn", "unreadable", "others"):
            setattr(profile, word, int(rest))
        elif word == "end":
            profile.is_whole = True


def _parse(path, text, written_ns):
    """Parses a dump. A process that is killed while it writes leaves only the beginning, or an
    empty file."""
    lines = text.split("\n")
    if lines[0] != FIRST and not FIRST.startswith(text):
        if lines[0].startswith("cairn-profile "):
            raise UserError(f"{path}: a dump of another version of Cairn ({lines[0]}): use the "
                            "tool that came with it")
        raise UserError(f"{path}: not a dump of Cairn's heap profiler")
    reader = _Reader(path, written_ns)
    reader.profile.lines = len(lines)
    for number, text in enumerate(lines[1:], 2):
        try:
            reader.line(text)
        except ValueError as error:
            if number >= len(lines):  # the truncated line
                break
            raise UserError(f"{path}:{number}: damaged: {text[:60]}") from error
    return reader.profile


def read(path):
    """Reads the profile in a file; a truncated dump is read as far as possible."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            profile = _parse(path, file.read(), os.fstat(file.fileno()).st_mtime_ns)
    except OSError as error:
        raise UserError(os_sentence(error)) from error
    named = re.search(r"\.(\d+)\.\d+$", profile.path)  # PATH.PROCESS.NUMBER
    if not profile.pid and named:
        profile.pid = int(named[1])
    return profile


def _is_core(path):
    try:
        with open(path, "rb") as file:
            return file.read(len(ELF)) == ELF
    except OSError as error:
        raise UserError(os_sentence(error)) from error


def _whole_name(profile):
    """The full name of the program: the kernel keeps 15 bytes of it, but the mapped files have it
    all."""
    names = [place.path.rpartition("/")[2] for place in profile.maps]
    return next((name for name in names if name.startswith(profile.program) and
                 len(profile.program.encode(errors="surrogateescape")) == NAME_BYTES_MOST),
                profile.program)


def read_any(target):
    """Reads the profile of a process, by its number or control socket, of a core file, or in a
    dump."""
    target = process_of(str(target))
    if not target.isdecimal() and not _is_core(target):
        return read(target)
    text = look_text("profile", target)
    profile = _parse(target, text, time.time_ns())
    profile.program = _whole_name(profile)
    if profile.is_of_process:
        profile.folders = (pathlib.Path(f"/proc/{profile.pid}/root"),)
    else:
        profile.written_ns = os.stat(target).st_mtime_ns
    return profile
