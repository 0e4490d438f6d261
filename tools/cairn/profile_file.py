"""A dump of the heap profiler, read: docs/PROFILING.md describes the format."""

import dataclasses

from cairn.errors import UserError, os_sentence

FIRST = "cairn-profile 1"
OBJECT = 65536  # the unit of objects


@dataclasses.dataclass
class Sums:
    """Estimates but for `samples`."""

    samples: int = 0
    objects: float = 0
    bytes: int = 0

    def add(self, other, sign=1):
        self.samples += sign * other.samples
        self.objects += sign * other.objects
        self.bytes += sign * other.bytes


@dataclasses.dataclass
class Site:
    """A stack, innermost first, with what it has allocated, and what of that is in use."""

    frames: tuple
    allocated: Sums
    live: Sums


@dataclasses.dataclass
class Map:
    """Where code was mapped from."""

    start: int
    end: int
    offset: int
    build_id: str  # empty: none
    path: str


@dataclasses.dataclass
class Block:
    """A sample in use."""

    address: int
    frames: tuple
    asked: int
    objects: float
    bytes: int
    thread: int
    time_ms: int


@dataclasses.dataclass
class Profile:  # pylint: disable=too-many-instance-attributes
    """A whole dump."""

    path: str
    version: str = ""
    pid: int = 0
    program: str = ""
    reason: str = ""
    time_ms: int = 0
    interval: int = 0
    lost_stacks: int = 0
    lost_blocks: int = 0
    sites: list = dataclasses.field(default_factory=list)
    blocks: list = dataclasses.field(default_factory=list)
    maps: list = dataclasses.field(default_factory=list)
    is_whole: bool = False

    def sum(self, live):
        total = Sums()
        for site in self.sites:
            total.add(site.live if live else site.allocated)
        return total

    def map_of(self, address):
        return next((each for each in self.maps if each.start <= address < each.end), None)


def _sums(words):
    samples, objects, size = map(int, words)
    # Taken while threads run, the parts of a sum may be of different instants.
    return Sums(max(samples, 0), max(objects / OBJECT, 0), max(size, 0))


class _Reader:
    def __init__(self, path):
        self.profile = Profile(str(path))
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
        elif word == "process":
            pid, _, profile.program = rest.partition(" ")
            profile.pid = int(pid)
        elif word == "lost":
            profile.lost_stacks, profile.lost_blocks = map(int, rest.split())
        elif word in ("time", "interval"):
            setattr(profile, "time_ms" if word == "time" else word, int(rest))
        elif word in ("library", "reason"):
            setattr(profile, "version" if word == "library" else word, rest)
        elif word == "end":
            profile.is_whole = True


def read(path):
    """The profile in a file; a dump that was cut is read as far as it goes."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().split("\n")
    except OSError as error:
        raise UserError(os_sentence(error)) from error
    if lines[0] != FIRST:
        if lines[0].startswith("cairn-profile "):
            raise UserError(f"{path}: a dump of another version of Cairn ({lines[0]}): use the "
                            "tool that came with it")
        raise UserError(f"{path}: not a dump of Cairn's heap profiler")
    reader = _Reader(path)
    for number, text in enumerate(lines[1:], 2):
        try:
            reader.line(text)
        except ValueError as error:
            if number >= len(lines):  # the line that was cut
                break
            raise UserError(f"{path}:{number}: damaged: {text[:60]}") from error
    return reader.profile
