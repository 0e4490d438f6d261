"""Records a heap's sums over time in a file with one JSON object on each line, and draws them.

The first line has the keys "cairn_stats" (the version of the format, 1), "target" (the process) and
"started" (seconds since 1970). Each other line is a snapshot: "seconds" since the start, the values
and counters of `cairn stats --json`, and "sizes", the live bytes of the block sizes with most of
them. Each line is written at its snapshot, so that earlier ones survive a failure.
"""

import errno
import json
import os
import time

from cairn import html_page
from cairn.errors import UserError, os_sentence
from cairn.texts import json_text, target_text

FORM = 1
SIZES_KEPT = 40  # of a snapshot
SIZES_SHOWN = 8  # lines of the page: the sizes that changed most


def look_of(census, values, started):
    sizes = {}
    for row in census.classes:
        sizes[row["size_bytes"]] = sizes.get(row["size_bytes"], 0) + row["live_bytes"]
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:SIZES_KEPT]
    whole = census.kinds["large"]["bytes"] + census.kinds["huge"]["bytes"]
    return {"seconds": round(time.time() - started, 3), **values,
            "sizes": {**{str(size): live for size, live in largest if live}, "larger": whole}}


class Record:
    """The snapshots of one process, written as they are taken if a path is given."""

    def __init__(self, target, path=None, started=None):
        self.target, self.started, self.looks = target, started or time.time(), []
        self.path, self.file = path, None
        if path is not None:
            self.file = path.open("wb", buffering=0)
            self._write({"cairn_stats": FORM, "target": target, "started": self.started})

    def _write(self, value):
        line = (json_text(value, separators=(",", ":")) + "\n").encode()
        try:
            if self.file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise UserError(f"--record {self.path}: {os_sentence(error)}") from error

    def add(self, census, values):
        self.looks.append(look_of(census, values, self.started))
        if self.file:
            self._write(self.looks[-1])

    def close(self):
        if self.file:
            self.file.close()


def is_record(path):
    """Whether the file begins like a record. A core file is not read completely for this."""
    try:
        with open(path, "rb") as file:
            return file.read(16).startswith(b'{"cairn_stats":')
    except OSError:
        return False


def read(path):
    """Reads a Record. A truncated last line is left out."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        lines = file.read().split("\n")
    try:
        head = json.loads(lines[0])
        if head["cairn_stats"] != FORM:
            raise UserError(f"{path}: written by another version of Cairn: use the tools of that "
                            "version")
        record = Record(head["target"], started=float(head["started"]))
        looks = [json.loads(line) for line in lines[1:-1]]  # after the last end: no whole line
        for look in looks:
            look["sizes"].items()
            float(look["seconds"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: damaged: {error}") from error
    record.looks = looks
    return record


def _changed_most(looks):
    """The sizes whose live bytes changed most, measured from minimum to maximum."""
    sizes = {size for look in looks for size in look["sizes"]}

    def change(size):
        values = [look["sizes"].get(size, 0) for look in looks]
        return max(values) - min(values)
    return sorted(sizes, key=lambda size: (-change(size), size))[:SIZES_SHOWN]


def page(record):
    """The text of the HTML file."""
    looks = record.looks
    if len(looks) < 2:
        raise UserError(f"a time line needs two snapshots, and the record has {len(looks)}")
    words = ("allocated", "active", "resident", "dirty", "kept", "retained", "metadata", "mapped")
    counters = ("purged", "purges", "map_calls", "advise_calls", "unmap_calls")
    data = {
        "times": [look["seconds"] for look in looks],
        "words": [[name, [look.get(name) for look in looks]] for name in words
                  if name in looks[0]],
        "blocks": [look["allocated_blocks"] for look in looks],
        "heaps": [look["thread_heaps"] for look in looks],
        "counters": [[name.replace("_", " "), [look.get(name) for look in looks]]
                     for name in counters],
        "sizes": [[size, [look["sizes"].get(size, 0) for look in looks]]
                  for size in _changed_most(looks)]}
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started))
    return html_page.page(
        f"{record.target['program']}: the heap over time",
        [target_text(record.target),
         f"{len(looks)} snapshots in {looks[-1]['seconds'] - looks[0]['seconds']:.1f} s, "
         f"from {started} on"], data, ("table.js", "timeline.js", "stats.js"),
        "Arrow keys move along a line, plus, minus and dragging zoom; Escape shows all.",
        "search: a size (/)")
