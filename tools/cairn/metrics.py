"""What is measured of a heap, by names that monitoring systems keep for ever.

One table for all of them: Prometheus's names have the unit and `_total` at their end, OTLP's have
neither, and a server that takes in both has the same series.
"""

import dataclasses
from typing import Callable

WORDS = {
    "allocated": "live blocks, as handed out",
    "active": "pages of slabs and of large blocks in use",
    "dirty": "free pages, not given back yet",
    "kept": "freed large blocks that are kept",
    "resident": "in memory, of all this",
    "mapped": "readable and writable, without metadata",
    "retained": "address space kept without memory",
    "metadata": "beside the blocks",
}


@dataclasses.dataclass(frozen=True)
class Metric:
    """A name, and how it is read of a census: [(further labels, number)]."""

    name: str
    unit: str  # bytes; or empty: a plain number
    kind: str  # gauge, or counter: only grows while the process lives
    about: str
    samples: Callable
    by_size: bool = False  # a series for each size of blocks

    @property
    def prometheus_name(self):
        end = "_total" if self.kind == "counter" else ""
        return f"cairn_{self.name}{'_' + self.unit if self.unit else ''}{end}"


def _word(name):
    def samples(census):
        words = census.words()
        return [({}, words[name])] if name in words else []
    return samples


def _calls(census):
    return [({"call": name}, count) for name, count in census.calls.items()]


def _sizes(key):
    def samples(census):
        sums = {}
        for row in census.classes:
            sums[row["size_bytes"]] = sums.get(row["size_bytes"], 0) + row[key]
        return [({"size": str(size)}, value) for size, value in sums.items()]
    return samples


METRICS = (
    *(Metric(name, "bytes", "gauge", f"Bytes: {about}", _word(name))
      for name, about in WORDS.items()),
    Metric("allocated_blocks", "", "gauge", "Live blocks", _word("allocated_blocks")),
    Metric("thread_heaps", "", "gauge", "Thread heaps, of threads that ended too",
           lambda census: [({}, len(census.heaps))]),
    Metric("purged", "bytes", "counter", "Bytes given back to the system",
           lambda census: [({}, census.pages["purged_bytes"])]),
    Metric("purges", "", "counter", "Pieces in which they were",
           lambda census: [({}, census.pages["purges"])]),
    Metric("system_calls", "", "counter", "System calls for memory", _calls),
    Metric("class_live_blocks", "", "gauge", "Live blocks of a size", _sizes("live"), True),
    Metric("class_slab", "bytes", "gauge", "Bytes of slabs for blocks of a size",
           _sizes("slab_bytes"), True),
)


def _quoted(labels):
    text = (f'{name}="' + value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
            for name, value in labels.items())
    return "{" + ",".join(text) + "}"


def prometheus_text(census):
    """The text format of Prometheus, version 0.0.4, of one process or core file."""
    target, lines = census.target, []
    labels = {"pid": str(target["pid"])} if target["kind"] == "process" else {}
    labels["program"] = target["program"]
    for metric in METRICS:
        name, samples = metric.prometheus_name, metric.samples(census)
        if not samples:
            continue
        lines.append(f"# HELP {name} {metric.about}.")
        lines.append(f"# TYPE {name} {metric.kind}")
        lines.extend(f"{name}{_quoted({**labels, **more})} {value}" for more, value in samples)
    return "\n".join(lines) + "\n"
