"""The metrics of a heap, under names that monitoring systems store permanently.

Prometheus's names end with the unit and `_total`.
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
    "metadata": "next to the blocks",
}


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric, and the function that reads it from a census: [(further labels, number)]."""

    name: str
    unit: str  # bytes, or empty for a plain number
    kind: str  # gauge, or counter: only grows while the process lives
    about: str
    samples: Callable
    by_size: bool = False  # one series for each block size

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
    Metric("purges", "", "counter", "Number of pieces given back to the system",
           lambda census: [({}, census.pages["purges"])]),
    Metric("system_calls", "", "counter", "System calls for memory", _calls),
    Metric("class_live_blocks", "", "gauge", "Live blocks of a size", _sizes("live"), True),
    Metric("class_slab", "bytes", "gauge", "Bytes of slabs for blocks of a size",
           _sizes("slab_bytes"), True),
)


def _quoted(labels):
    text = (f'{name}="' + value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
            for name, value in labels.items())
    return "{" + ",".join(text) + "}" if labels else ""


def family_text(name, kind, about, samples):
    """The lines of one metric in Prometheus's text format. samples: [(labels, number)]."""
    lines = [f"# HELP {name} {about}.", f"# TYPE {name} {kind}",
             *(f"{name}{_quoted(labels)} {value}" for labels, value in samples)]
    return "\n".join(lines) + "\n"


def prometheus_text(census):
    """The metrics of one process or core file in Prometheus's text format, version 0.0.4."""
    target = census.target
    labels = {"pid": str(target["pid"])} if target["kind"] == "process" else {}
    labels["program"] = target["program"]
    found = ((metric, metric.samples(census)) for metric in METRICS)
    return "".join(family_text(metric.prometheus_name, metric.kind, metric.about,
                               [({**labels, **more}, value) for more, value in samples])
                   for metric, samples in found if samples)
