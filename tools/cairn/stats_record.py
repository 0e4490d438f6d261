"""A heap's sums over time: a file of one JSON object a line, and its page.

The first line has the keys "cairn_stats" (the version of the form, 1), "target" (what was read) and
"started" (seconds since 1970). Each other line is a look: "seconds" since then, the words and
counters of `cairn stats --json`, and "sizes", the live bytes by size of block, of those that have
most. A line is written whole at its look, so that what was seen stays whatever happens.
"""

import json
import time

from cairn import html_page
from cairn.errors import UserError
from cairn.inspect_command import target_text

FORM = 1
SIZES_KEPT = 40  # of a look
SIZES_SHOWN = 8  # lines of the page: those that changed most


def look_of(census, values, started):
    sizes = {}
    for row in census.classes:
        sizes[row["size_bytes"]] = sizes.get(row["size_bytes"], 0) + row["live_bytes"]
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:SIZES_KEPT]
    whole = census.kinds["large"]["bytes"] + census.kinds["huge"]["bytes"]
    return {"seconds": round(time.time() - started, 3), **values,
            "sizes": {**{str(size): live for size, live in largest if live}, "larger": whole}}


class Record:
    """The looks at one process, written as they come where a path is given."""

    def __init__(self, target, path=None, started=None):
        self.target, self.started, self.looks = target, started or time.time(), []
        self.file = None
        if path is not None:
            self.file = path.open("w", encoding="utf-8")
            self._write({"cairn_stats": FORM, "target": target, "started": self.started})

    def _write(self, value):
        self.file.write(json.dumps(value, separators=(",", ":")) + "\n")
        self.file.flush()

    def add(self, census, values):
        self.looks.append(look_of(census, values, self.started))
        if self.file:
            self._write(self.looks[-1])

    def close(self):
        if self.file:
            self.file.close()


def is_record(path):
    """Whether a file begins as a record does; a core file is not read whole for that."""
    try:
        with open(path, "rb") as file:
            return file.read(16).startswith(b'{"cairn_stats":')
    except OSError:
        return False


def read(path):
    """A Record; a last line that was cut is left out."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    try:
        head = json.loads(lines[0])
        if head["cairn_stats"] != FORM:
            raise UserError(f"{path}: is of another version of Cairn: use the tool that came "
                            "with that")
        record = Record(head["target"], started=float(head["started"]))
        looks = [json.loads(line) for line in lines[1:-1]]  # after the last line end: nothing whole
        for look in looks:
            look["sizes"].items()
            float(look["seconds"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: is damaged: {error}") from error
    record.looks = looks
    return record


def _changed_most(looks):
    """The sizes whose live bytes changed most, from the least to the most of them."""
    sizes = {size for look in looks for size in look["sizes"]}

    def change(size):
        values = [look["sizes"].get(size, 0) for look in looks]
        return max(values) - min(values)
    return sorted(sizes, key=lambda size: (-change(size), size))[:SIZES_SHOWN]


def page(record):
    """The text of the HTML file."""
    looks = record.looks
    if len(looks) < 2:
        raise UserError("a time line needs two looks, and there "
                        + ("is one" if looks else "is none"))
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
         f"{len(looks)} looks in {looks[-1]['seconds'] - looks[0]['seconds']:.1f} s, "
         f"from {started} on"], data, ("table.js", "timeline.js", "stats.js"),
        "Arrow keys go along a line, plus and minus zoom, so does dragging; Escape shows all.",
        "search: a size (/)")
