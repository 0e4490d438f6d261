"""Columns for a fleet's questions: a row a site of a dump, or a row a look at a process.

tools/fleet/README.md describes the columns. They are plain numbers and text, so that DuckDB, Spark
and ClickHouse read them alike; a file contains each repeated text once.
"""

import datetime
import hashlib
import re

import pyarrow
import pyarrow.parquet

from cairn.metrics import METRICS
from cairn.texts import ESCAPED

WHO = (("time", pyarrow.timestamp("us", "UTC")), ("host", pyarrow.string()),
       ("pid", pyarrow.int64()), ("program", pyarrow.string()), ("build_id", pyarrow.string()),
       ("release", pyarrow.string()), ("library", pyarrow.string()))
SITES = pyarrow.schema([
    *WHO, ("site", pyarrow.string()), ("stack", pyarrow.string()), ("stack_id", pyarrow.int64()),
    ("inuse_bytes", pyarrow.int64()), ("inuse_objects", pyarrow.float64()),
    ("inuse_samples", pyarrow.int64()), ("alloc_bytes", pyarrow.int64()),
    ("alloc_objects", pyarrow.float64()), ("alloc_samples", pyarrow.int64()),
    ("interval_bytes", pyarrow.int64())], {"cairn": "profile 1"})
COUNTED = tuple(metric for metric in METRICS if not metric.by_size)
# The names of Prometheus, without the prefix and suffix that all names share.
NAMES = {metric: metric.prometheus_name.removeprefix("cairn_").removesuffix("_total")
         for metric in COUNTED}
STATS = pyarrow.schema([*WHO, *((name, pyarrow.int64()) for name in NAMES.values())],
                       {"cairn": "stats 1"})
# Functions between a program and the allocator.
PLUMBING = re.compile(r"std::|__gnu_cxx::|operator new|malloc$|calloc$|realloc")
DICTIONARY_BYTES = 16 << 20  # above it a column's text is written again in each row


def instant(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def stack_id(stack):
    """The number of a stack, which is equal in all files."""
    return int.from_bytes(hashlib.sha256(stack.encode(errors=ESCAPED)).digest()[:8],
                          "little", signed=True)


def _site(functions):
    return next((name for name in functions if not PLUMBING.match(name)), functions[0])


def sites_table(profile, symbols, who):
    """A row a stack of functions; those that differ by lines only are one."""
    sums = {}
    for site in profile.sites:
        functions = tuple(frame.function for frame in symbols.stack(site.frames))
        live, allocated = site.live, site.allocated
        values = (live.bytes, live.objects, live.samples, allocated.bytes, allocated.objects,
                  allocated.samples)
        before = sums.get(functions, (0,) * len(values))
        sums[functions] = tuple(map(sum, zip(before, values)))
    rows = []
    for functions, values in sorted(sums.items(), key=lambda item: -item[1][0]):
        stack = ";".join(name.replace(";", ":") for name in reversed(functions))
        rows.append((*who, _site(functions), stack, stack_id(stack), *values, profile.interval))
    return pyarrow.Table.from_pylist([dict(zip(SITES.names, row)) for row in rows], SITES)


def stats_table(census, who):
    """One row."""
    row = dict(zip((name for name, _ in WHO), who))
    for metric, name in NAMES.items():
        samples = metric.samples(census)
        row[name] = sum(value for _, value in samples) if samples else None
    return pyarrow.Table.from_pylist([row], STATS)


def write(table, path):
    """A Parquet file."""
    pyarrow.parquet.write_table(table, path, compression="zstd",
                                dictionary_pagesize_limit=DICTIONARY_BYTES)
