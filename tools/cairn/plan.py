"""The memory that a purge would return, and the blocks that pin the rest, as cairn-look counts them
from outside."""

import contextlib
import dataclasses
import math
import pathlib
import re

from cairn.look import Census, look
from cairn.profile_file import Map
from cairn.profile_symbols import Symbols

# name: description, in the order of the table
GIVES = {
    "free_runs": "free runs of pages",
    "kept_blocks": "freed large blocks that are kept",
    "kept_slabs": "empty slabs that threads keep",
    "empty_slabs": "empty slabs of threads that ended",
    "heaps": "empty slabs of private heaps",
    "slab_pages": "free pages inside slabs",
    "revoked": "freed, addresses fault",
    "page_map": "page map of free runs",
}
STAYS = {
    "live_pages": "pages of slabs with live blocks",
    "current": "free pages of slabs that threads allocate from",
    "heaps": "free pages of private heaps",
    "inherited": "free pages of heaps that a fork left behind",
    "large": "large blocks",
    "huge": "blocks with own mappings",
    "runs": "pages of other allocators",
    "clean_runs": "free runs that read zero",
    "guarded": "guarded blocks",
    "metadata": "metadata",
    "others": "not Cairn's: code, data, stacks",
}


def rss_of(pid):
    """Resident bytes of the process; None when unreadable. The sums of smaps_rollup are exact;
    those of status may lag behind."""
    for name, word in (("smaps_rollup", "Rss"), ("status", "VmRSS")):
        with contextlib.suppress(OSError):
            text = pathlib.Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8",
                                                                 errors="surrogateescape")
            found = re.search(rf"^{word}:\s+(\d+) kB", text, re.MULTILINE)
            if found:
                return int(found[1]) << 10
    return None


@dataclasses.dataclass
class PinningSite:
    """A stack, innermost first, and the pages that its live blocks pin. All figures except
    `samples` are estimates."""

    frames: tuple
    samples: int = 0
    blocks: float = 0
    block_bytes: float = 0
    pages: float = 0
    pinned_bytes: float = 0
    variance: float = 0

    def add(self, row):
        for name in ("samples", "blocks", "block_bytes", "pages", "pinned_bytes", "variance"):
            setattr(self, name, getattr(self, name) + row[name])

    @property
    def error_bytes(self):
        """The standard error of `pinned_bytes`."""
        return math.sqrt(max(self.variance, 0))


class Pins:
    """Pinned bytes: exact by size, and by site from the profiler's samples."""

    def __init__(self, rows, target):
        self.classes = sorted((values for kind, values in rows if kind == "pins"),
                              key=lambda row: -row["pinned_bytes"])
        self.samples = next(values for kind, values in rows if kind == "samples")
        by_frames = {}
        for kind, values in rows:
            if kind == "site":
                frames = tuple(int(word, 16) for word in str(values["frames"]).split(",")[1:])
                by_frames.setdefault(frames, PinningSite(frames)).add(values)
        self.sites = sorted(by_frames.values(), key=lambda site: -site.pinned_bytes)
        self.maps = [Map(values["start"], values["end"], values["offset"],
                         str(values["build_id"])[1:], str(values["path"]))
                     for kind, values in rows if kind == "map"]
        self.folders = [f"/proc/{target['pid']}/root"] if target["kind"] == "process" else []
        self.symbols = Symbols(self)

    def map_of(self, address):
        return next((each for each in self.maps if each.start <= address < each.end), None)

    @property
    def pinned_bytes(self):
        return sum(row["pinned_bytes"] for row in self.classes)

    @property
    def pages(self):
        return sum(row["pages"] for row in self.classes)

    def estimate(self):
        """The pinned bytes that the samples stand for, and their standard error."""
        return (sum(site.pinned_bytes for site in self.sites),
                math.sqrt(sum(max(site.variance, 0) for site in self.sites)))

    def to_json(self):
        estimated, error = self.estimate()
        return {
            "pinned_bytes": self.pinned_bytes, "pages": self.pages, "classes": self.classes,
            "samples": {**self.samples, "pinned_bytes": round(estimated),
                        "error_bytes": round(error)},
            "sites": [{
                "stack": [{"function": frame.function, "file": frame.file, "line": frame.line,
                           "module": frame.module} for frame in self.symbols.stack(site.frames)],
                "samples": site.samples, "blocks": round(site.blocks),
                "block_bytes": round(site.block_bytes), "pages": round(site.pages),
                "pinned_bytes": round(site.pinned_bytes), "error_bytes": round(site.error_bytes),
            } for site in self.sites],
            "remarks": self.symbols.remarks,
        }


class Plan:  # pylint: disable=too-many-instance-attributes
    """The plan of a purge of a process or a core file."""

    def __init__(self, target):
        self.census = Census(target)
        pid = self.census.target.get("pid")
        self.rss_bytes = rss_of(pid) if pid else None
        rows = look("plan", target)
        self.target = next(values for kind, values in rows if kind == "target")
        self.doubts = next(values for kind, values in rows if kind == "doubts")
        self.gives = {values["name"]: values for kind, values in rows if kind == "action"}
        self.stays = {values["name"]: values for kind, values in rows if kind == "stay"}
        self.heaps = [values for kind, values in rows if kind == "heap"]
        self.socket = next((values for kind, values in rows if kind == "socket"), None)
        self.pins = Pins(rows, self.target)
        self._add_rest()

    @property
    def is_measured(self):
        """Whether resident pages, and their sum, are known: not in a core file."""
        return bool(self.doubts["measured"]) and self.rss_bytes is not None

    @property
    def gives_bytes(self):
        return sum(row["bytes"] for row in self.gives.values())

    @property
    def forecast_bytes(self):
        """The process's resident memory after a purge; None for a core file."""
        return self.rss_bytes - self.gives_bytes if self.is_measured else None

    def _add_rest(self):
        if not self.is_measured:
            return
        metadata = self.census.pages.get("metadata_resident_bytes", 0)
        metadata = max(metadata - self.gives["page_map"]["bytes"], 0)
        others = self.forecast_bytes - metadata - sum(row["bytes"] for row in self.stays.values())
        self.stays["metadata"] = {"name": "metadata", "bytes": metadata}
        self.stays["others"] = {"name": "others", "bytes": max(others, 0)}

    def remarks(self):
        yield from self.census.remarks()
        if not self.is_measured and self.target["kind"] == "core":
            yield ("A core file does not say which pages had memory: each figure is the most that "
                   "it can have been.")
        elif not self.is_measured:
            yield ("Which pages have memory may not be read of this process: each figure is the "
                   "most that it can be.")

    def to_json(self):
        return {"target": self.target, "rss_bytes": self.rss_bytes,
                "forecast_bytes": self.forecast_bytes, "gives_bytes": self.gives_bytes,
                "gives": list(self.gives.values()), "stays": list(self.stays.values()),
                "heaps": self.heaps, "pins": self.pins.to_json(), "doubts": self.doubts}
