"""The goals for Cairn that the benchmark's own rows decide, with what was measured."""

from dataclasses import dataclass

from cairn.bench_allocators import OURS, SYSTEM
from cairn.bench_results import MEMORY, TIME
from cairn.bench_rows import NODES

PROGRAMS = "programs"
HARDENED = OURS + "-hardened"
HARDENED_PEER = "hardened_malloc"  # as --peer names it
HARDENED_LIMITS = (
    # build, aspect, what it is called, over whose, the same in words, most
    (HARDENED, TIME, "CPU time", OURS, "the plain one's", 1.2),
    (HARDENED + "-light", TIME, "CPU time", OURS, "the plain one's", 1.1),
    (HARDENED, TIME, "CPU time", HARDENED_PEER, "hardened_malloc's", 0.7),
    (HARDENED, MEMORY, "memory", HARDENED_PEER, "hardened_malloc's", 0.85),
)
SLOWER_THAN_BEST_MOST = 1.05
FLAT_MOST = 1.15
PROCESS_MOST = 1.1
TIME_OF_ROW = "warm_ns"
GEOMEAN_MOST = 1.15
ROW_MOST = 1.6
GROUPS_OF_ALL = 3  # a run of so many says something of all rows
RING_NS_MOST = 2.2  # 0.3 of what Intersec's ring takes a node, 7.3 ns warm on such a machine


@dataclass(frozen=True)
class Goal:
    text: str
    measured: str
    met: bool


def _worst(results, ratio_of, groups):
    """(ratio, row name) of the highest of the rows with a time in these groups, or None."""
    ratios = ((ratio_of(row), row.name) for row in results.rows
              if row.group in groups and row.time)
    return max(((value, name) for value, name in ratios if value is not None), default=None)


def _over_system(results, row, figure):
    ours, theirs = (results.median(row, name, figure) for name in (OURS, SYSTEM))
    return ours / theirs if ours and theirs else None


def _time_goals(results):
    groups = ("A", "C", "D")
    timed = [row for row in results.rows if not row.name.startswith("a-memory")]
    names = {row.name for row in timed}
    for text, limit, ratio_of in (
            ("every row of A, C and D: time over glibc's", 0.8,
             lambda row: _over_system(results, row.name, row.time)),
            ("every row of A, C and D: time over the best peer's", SLOWER_THAN_BEST_MOST,
             lambda row: results.ratio(row.name, OURS, row.time))):
        worst = _worst(results, lambda row, of=ratio_of: of(row) if row.name in names else None,
                       groups)
        if worst:
            yield Goal(f"{text} at most {limit}", f"worst {worst[0]:.2f} ({worst[1]})",
                       worst[0] <= limit)
    for row, limit in (("b-uncontended", 0.45), ("b-contended", 0.25), ("b-ring-contended", 0.1)):
        ratio = _over_system(results, row, "total_ms")
        if ratio:
            yield Goal(f"{row}: total over glibc's at most {limit}",
                       f"{ratio:.2f}" + _of_nodes(results, row), ratio <= limit)


LIMITS = (
    # row, figure, most, what
    ("b-uncontended", "rss_per_payload", 1.03, "RSS over payload of the live rounds"),
    ("b-contended", "rss_per_payload", 1.03, "RSS over payload of the live rounds"),
    ("b-stack", "warm_alloc_ns", 1.0, "ns a node, warm"),
    ("b-stack", "rss_per_payload", 1.01, "RSS over payload"),
    ("b-fifo", "warm_alloc_ns", 1.2, "ns an alloc, warm"),
    ("b-fifo", "warm_free_ns", 1.3, "ns a free, warm"),
    ("b-fifo", "rss_per_payload", 1.02, "RSS over payload"),
    ("b-ring", "warm_alloc_ns", RING_NS_MOST, "ns a node, warm"),
    ("b-ring-contended", "warm_alloc_ns", RING_NS_MOST, "ns a node, warm"),
    ("a-memory-1-64", "bytes_per_byte", 1.21, "memory per byte asked"),
    ("a-memory-mixed", "bytes_per_byte", 1.05, "memory per byte asked"),
    ("a-memory-1k-31k", "bytes_per_byte", 1.04, "memory per byte asked"),
    ("a-memory-70k-970k", "bytes_per_byte", 1.005, "memory per byte asked"),
    ("returned", "after_2s_kib", 16 * 1024, "KiB above the start after 2 s"),
    ("returned", "after_trim_kib", 4 * 1024, "KiB above the start after malloc_trim(0)"),
    ("start-up", "start_over_libc_ms", 0.3, "ms over glibc"),
    ("start-up", "start_over_libc_kib", 256, "KiB over glibc"),
)


def _of_nodes(results, row):
    """What to say of a shorter list than the one that the goals are for, or an empty string."""
    nodes = results.median(row, OURS, "nodes")
    return f" (only {nodes:,.0f} nodes)" if nodes and nodes < NODES else ""


def _limit_goals(results):
    for row, figure, most, what in LIMITS:
        value = results.median(row, OURS, figure)
        if value is not None:
            yield Goal(f"{row}: {what} at most {most}",
                       f"{value:.4g}" + _of_nodes(results, row), value <= most)


def _scaling_goals(results):
    medians = {}
    for row in results.rows:
        if row.name.startswith("threads-"):
            value = results.median(row.name, OURS, row.time)
            if value:
                medians[row.name] = value
    if len(medians) > 1:
        ratio = max(medians.values()) / min(medians.values())
        yield Goal(f"time per operation over 1 to 64 threads: most over least at most {FLAT_MOST}",
                   f"{ratio:.2f} ({max(medians, key=medians.get)})", ratio <= FLAT_MOST)


def _process_goals(results):
    for row, text, ratio in (
            ("fork-2g", "time over glibc's", _over_system(results, "fork-2g", TIME_OF_ROW)),
            ("thread-alone", "time over the best peer's",
             results.ratio("thread-alone", OURS, TIME_OF_ROW))):
        if ratio:
            yield Goal(f"{row}: {text} at most {PROCESS_MOST}", f"{ratio:.2f}",
                       ratio <= PROCESS_MOST)


def _program_goals(results):
    for aspect, what in ((TIME, "CPU time"), (MEMORY, "memory")):
        peers = [(mean[0], name) for name in results.names(ours=False)
                 if (mean := results.geomean(name, aspect, PROGRAMS))]
        ours = results.geomean(OURS, aspect, PROGRAMS)
        if ours and peers:
            best, name = min(peers)
            yield Goal(f"real programs: geomean of {what} at most that of the best single peer",
                       f"{ours[0]:.3f} beside {best:.3f} ({name})", ours[0] <= best)
    worst = _worst(results, lambda row: results.ratio(row.name, OURS, row.time), (PROGRAMS,))
    if worst:
        yield Goal(f"every real program: CPU time over the best peer's at most "
                   f"{SLOWER_THAN_BEST_MOST}", f"worst {worst[0]:.2f} ({worst[1]})",
                   worst[0] <= SLOWER_THAN_BEST_MOST)
    for build, aspect, what, other, other_text, most in HARDENED_LIMITS:
        mean, of_other = (results.geomean(name, aspect, PROGRAMS) for name in (build, other))
        if mean and of_other:
            ratio = mean[0] / of_other[0]
            yield Goal(f"real programs: {what} of the {build.removeprefix(OURS + '-')} build over "
                       f"{other_text} at most {most}", f"{ratio:.3f}", ratio <= most)


def _all_goals(results):
    measured = {row for row, name, _ in results.samples if name == OURS}
    groups = {row.group for row in results.rows if row.name in measured}
    if len(groups) < GROUPS_OF_ALL:
        return
    for aspect in (TIME, MEMORY):
        peers = [(mean[0], name) for name in results.names(ours=False)
                 if (mean := results.geomean(name, aspect))]
        ours = results.geomean(OURS, aspect)
        if not ours or not peers:
            continue
        best, name = min(peers)
        yield Goal(f"all {ours[1]} rows: geomean of {aspect} at most that of the best single peer",
                   f"{ours[0]:.3f} beside {best:.3f} ({name})", ours[0] <= best)
        if aspect == TIME:
            yield Goal(f"all {ours[1]} rows: geomean of time over the best peer's at most "
                       f"{GEOMEAN_MOST}", f"{ours[0]:.3f}", ours[0] <= GEOMEAN_MOST)
    worst = _worst(results, lambda row: results.ratio(row.name, OURS, row.time), groups)
    if worst:
        yield Goal(f"every row: time over the best peer's at most {ROW_MOST}",
                   f"worst {worst[0]:.2f} ({worst[1]})", worst[0] <= ROW_MOST)


def check(results):
    """The goals that these results say something about."""
    if OURS not in results.names():
        return []
    return [*_all_goals(results), *_time_goals(results), *_limit_goals(results),
            *_scaling_goals(results), *_process_goals(results), *_program_goals(results)]
