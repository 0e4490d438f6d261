"""Writes a profile in the formats of other tools: pprof's profile.proto, speedscope, folded stacks.

profile.proto: https://github.com/google/pprof/blob/main/proto/profile.proto. It is encoded by hand:
a message is a sequence of fields, each a key (number and kind) and a varint, or bytes preceded by
their length.
"""

import gzip
import time

from cairn.texts import ESCAPED, json_text


def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Message:
    def __init__(self):
        self.bytes = bytearray()

    def number(self, field, value):
        if value:
            self.bytes += _varint(field << 3) + _varint(value)
        return self

    def data(self, field, value):
        self.bytes += _varint(field << 3 | 2) + _varint(len(value)) + value
        return self

    def message(self, field, other):
        return self.data(field, bytes(other.bytes))

    def packed(self, field, values):
        return self.data(field, b"".join(_varint(value) for value in values))


class _Numbers:
    """Numbers things in the order of their first use."""

    def __init__(self, first):
        self._numbers = {}
        self._first = first

    def __call__(self, thing):
        return self._numbers.setdefault(thing, len(self._numbers) + self._first)

    def items(self):
        return self._numbers.items()


TYPES = (("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"),
         ("inuse_space", "bytes"))


class _Pprof:
    def __init__(self, profile, symbols, time_ns):
        self.profile, self.symbols, self.time_ns = profile, symbols, time_ns
        self.text = _Numbers(0)
        self.text("")
        self.functions = _Numbers(1)
        self.locations = _Numbers(1)
        # The program itself comes first. Unloaded libraries are included only when a frame needs
        # them.
        unloaded = [place for place in profile.modules
                    if any(profile.map_of(frame - 1) is place
                           for site in profile.sites for frame in site.frames)]
        self.maps = sorted([*profile.maps, *unloaded], key=lambda each: (
            each.path.rsplit("/", 1)[-1] != profile.program, each.start))

    def _type(self, name, unit):
        return _Message().number(1, self.text(name)).number(2, self.text(unit))

    def _mapping(self, number, place):
        return (_Message().number(1, number).number(2, place.start).number(3, place.end)
                .number(4, place.offset).number(5, self.text(place.path))
                .number(6, self.text(place.build_id)).number(7, 1).number(8, 1).number(9, 1)
                .number(10, 1))

    def _location(self, number, address):
        place = self.profile.map_of(address - 1)
        message = _Message().number(1, number)
        if place is not None:
            message.number(2, self.maps.index(place) + 1)
        message.number(3, address - 1)
        for frame in self.symbols.at(address):
            function = self.functions((frame.function, frame.file))
            message.message(4, _Message().number(1, function).number(2, frame.line))
        return message

    def encode(self):
        whole = _Message()
        for name, unit in TYPES:
            whole.message(1, self._type(name, unit))
        for site in self.profile.sites:
            values = (round(site.allocated.objects), site.allocated.bytes,
                      round(site.live.objects), site.live.bytes)
            ids = [self.locations(address) for address in site.frames]
            whole.message(2, _Message().packed(1, ids).packed(2, values))
        for number, place in enumerate(self.maps, 1):
            whole.message(3, self._mapping(number, place))
        for address, number in self.locations.items():
            whole.message(4, self._location(number, address))
        for (name, file), number in self.functions.items():
            whole.message(5, _Message().number(1, number).number(2, self.text(name))
                          .number(3, self.text(name)).number(4, self.text(file)))
        comment = self.text(f"Cairn {self.profile.version}, process {self.profile.pid}")
        period, default = self._type("space", "bytes"), self.text("inuse_space")
        for text, _ in self.text.items():
            whole.data(6, text.encode(errors=ESCAPED))
        whole.number(9, self.time_ns).message(11, period).number(12, self.profile.interval)
        return bytes(whole.packed(13, [comment]).number(14, default).bytes)


def pprof(profile, symbols, time_ns=None):
    """profile.proto, compressed as its readers expect. time_ns: the time of the profile; None: now.
    """
    return gzip.compress(_Pprof(profile, symbols, time_ns or time.time_ns()).encode(), mtime=0)


def stacks(profile, symbols, live):
    """[(frames outermost first, Sums)] with bytes, the largest first."""
    rows = [([str(frame) for frame in reversed(symbols.stack(site.frames))],
             site.live if live else site.allocated) for site in profile.sites]
    return sorted((row for row in rows if row[1].bytes), key=lambda row: -row[1].bytes)


def folded(profile, symbols, live):
    """One stack on each line, outermost first, with its bytes: for flamegraph.pl and similar tools.
    """
    sums = {}
    for frames, each in stacks(profile, symbols, live):
        line = ";".join(frame.replace(";", ":") for frame in frames)
        sums[line] = sums.get(line, 0) + each.bytes
    return "".join(f"{line} {size}\n" for line, size in sums.items())


def speedscope(profile, symbols):
    """JSON of https://www.speedscope.app/file-format-schema.json: bytes in use, and allocated."""
    numbers = _Numbers(0)
    shown = []
    for name, live in (("in use", True), ("allocated", False)):
        rows = stacks(profile, symbols, live)
        weights = [each.bytes for _, each in rows]
        shown.append({"type": "sampled", "name": f"{profile.program}: {name}", "unit": "bytes",
                      "startValue": 0, "endValue": sum(weights), "weights": weights,
                      "samples": [[numbers(frame) for frame in frames] for frames, _ in rows]})
    return json_text({"$schema": "https://www.speedscope.app/file-format-schema.json",
                       "exporter": f"cairn {profile.version}", "name": profile.program,
                       "activeProfileIndex": 0, "profiles": shown,
                       "shared": {"frames": [{"name": name} for name, _ in numbers.items()]}})
