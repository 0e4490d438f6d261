"""The goals for Cairn that the benchmark's own rows decide, with the results."""

import fnmatch
import math
import statistics
from dataclasses import dataclass

from bench_results import MEMORY, TIME
from bench_rows import NODES
from cairn.allocator_libraries import OURS, SYSTEM

PROGRAMS = "programs"
MIMALLOC_BENCH = "mimalloc-bench"
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
GROUPS_OF_ALL = 8  # a run of that many groups is enough for a goal about all rows
RING_NS_MOST = 2.2  # 0.3 of the time of Intersec's ring per node, 7.3 ns warm on such a machine
LONGEST_US_MORE = 1000
ENDED_MOST = 1.2
FAULTS_MOST = 0.1
# Page faults of programs that allocate much, as they were at commit 533f6f2.
FAULTS_BEFORE = {"sqlite3": 11193, "python3": 8349, "perl": 16668, "lua": 8755}
# The calls of the row service whose percentiles are compared.
LATENCIES = [f"{call}_{share}_ns" for call in ("malloc", "free")
             for share in ("p50", "p99", "p999", "p9999", "max")]
# Rows, their figures, what the figures are called, and their most over the best peer's.
RATIOS = (
    ("medium-*", ("warm_ns",), "time", 1.2),
    ("live-megabyte", ("warm_ns",), "time", 1.2),
    ("live-megabyte", ("held_kib",), "memory held", 1.5),
    ("short-threads-*", ("warm_ns",), "time", PROCESS_MOST),
    ("service", LATENCIES, "each percentile and the maximum", 1.2),
    ("turns-*", ("peak_rss",), "peak RSS", 1.1),
    ("*-turns", ("peak_rss",), "peak RSS", 1.1),
    ("come-and-go", ("warm_ns",), "time", ROW_MOST),
    ("fill-and-empty", ("warm_ns",), "time", ROW_MOST),
    ("aligned-8k", ("warm_ns",), "time", ROW_MOST),
    ("aligned-8k", ("peak_rss",), "peak RSS", ROW_MOST),
)
# Geometric means over the best of all: group, in words, most of time, of any row's time, of memory,
# and the peers that may take less memory.
OVER_BEST_OF_ALL = (
    (PROGRAMS, "real programs", 1.02, SLOWER_THAN_BEST_MOST, 1.05, (SYSTEM,)),
    (MIMALLOC_BENCH, "mimalloc-bench", 1.06, 1.2, 1.1, ()),
)


# Of services under OURS_FOR_SERVICES: figure, what it is called, its most over the best of all.
SERVICES = "services"
OURS_FOR_SERVICES = OURS + "-background"
SERVICE_RATIOS = (
    ("silent", "memory after the silence", 1.05),
    ("peak", "peak memory", 1.05),
    ("cpu_s", "CPU time", 1.03),
)
SERVICE_GROWTH_MOST = 3  # percent, from the first to the last of equal bursts


@dataclass(frozen=True)
class Goal:
    text: str
    measured: str
    met: bool


def _worst(results, ratio_of, groups):
    """The highest (ratio, row name) among the rows with a time in these groups, or None."""
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
    ("returned-asleep", "after_2s_kib", 8 * 1024, "KiB above the start after 2 s"),
    ("producer-idle-8", "after_trim_kib", 4 * 1024, "KiB above the start after malloc_trim(0)"),
    ("all-idle", "after_trim_kib", 4 * 1024, "KiB above the start after malloc_trim(0)"),
    ("second-trim", "second_us", 100, "us"),
    ("shrink-1g", "kept_kib", 801 * 1024, "KiB kept"),
    ("sparse-1g", "held_kib", 4 * 1024, "KiB held"),
    ("fork-threads", "kept_bytes", 256, "bytes that a fork leaves"),
    ("turns-8", "peak_per_live", 1.3, "peak over the live set"),
    ("turns-16", "peak_per_live", 1.3, "peak over the live set"),
    ("turns-32", "peak_per_live", 1.3, "peak over the live set"),
    ("fragmentation", "peak_per_live", 1.8, "memory held per byte live"),
    ("start-up", "start_over_libc_ms", 0.3, "ms over glibc"),
    ("start-up", "start_over_libc_kib", 256, "KiB over glibc"),
)


def _of_nodes(results, row):
    """A remark on a list that is shorter than the goals require, or an empty string."""
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
            ("fork-refill-1g", "time over glibc's",
             _over_system(results, "fork-refill-1g", TIME_OF_ROW)),
            ("fork-write", "memory copied over glibc's",
             _over_system(results, "fork-write", "copied_kib")),
            ("thread-alone", "time over the best peer's",
             results.ratio("thread-alone", OURS, TIME_OF_ROW))):
        if ratio:
            yield Goal(f"{row}: {text} at most {PROCESS_MOST}", f"{ratio:.2f}",
                       ratio <= PROCESS_MOST)


def _ratio_goals(results):
    for pattern, figures, what, most in RATIOS:
        found = [(ratio, f"{row.name}, {figure}" if len(figures) > 1 else row.name)
                 for row in results.rows if fnmatch.fnmatchcase(row.name, pattern)
                 for figure in figures if (ratio := results.ratio(row.name, OURS, figure))]
        if found:
            worst, name = max(found)
            yield Goal(f"{pattern}: {what} over the best peer's at most {most}",
                       f"worst {worst:.2f} ({name})", worst <= most)


def _call_goals(results):
    for row in ("longest-pair-2g", "longest-pair-8g", "longest-free-1g"):
        own, best = results.median(row, OURS, "longest_us"), results.best_peer(row, "longest_us")
        if own and best:
            yield Goal(f"{row}: longest call at most {LONGEST_US_MORE} us above the best peer's",
                       f"{own:,.0f} us; best peer {best[0]:,.0f} ({best[1]})",
                       own <= best[0] + LONGEST_US_MORE)
    for case in ("in-order", "at-random", "1000-bytes"):
        ended, alive = (results.median(f"{state}-{case}", OURS, TIME_OF_ROW)
                        for state in ("ended", "alive"))
        if ended and alive:
            yield Goal(f"ended-{case}: time over alive-{case} at most {ENDED_MOST}",
                       f"{ended / alive:.2f}", ended / alive <= ENDED_MOST)
    faults = [(now / before, row) for row, before in FAULTS_BEFORE.items()
              if (now := results.median(row, OURS, "faults"))]
    if faults:
        worst, name = max(faults)
        yield Goal(f"{', '.join(FAULTS_BEFORE)}: page faults over those of commit 533f6f2 at most "
                   f"{FAULTS_MOST}", f"worst {worst:.2f} ({name})", worst <= FAULTS_MOST)


def _over_best_of_all(results, group, aspect):
    """{allocator: {row: its median over the least of all}}, of Cairn and the peers."""
    names = [OURS, *results.names(ours=False)]
    over = {name: {} for name in names}
    for row in results.rows:
        figure = results.figure_of(row, aspect)
        if row.group == group:
            medians = [results.median(row.name, name, figure) for name in names]
            if all(medians):
                for name, median in zip(names, medians):
                    over[name][row.name] = median / min(medians)
    return over


def _best_of_all_goals(results):
    for group, what, time_most, row_most, memory_most, leaner in OVER_BEST_OF_ALL:
        for aspect, most in ((TIME, time_most), (MEMORY, memory_most)):
            over = _over_best_of_all(results, group, aspect)
            if not over[OURS]:
                continue
            means = {name: math.exp(statistics.fmean(map(math.log, rows.values())))
                     for name, rows in over.items()}
            peers = [(mean, name) for name, mean in means.items()
                     if name != OURS and (aspect == TIME or name not in leaner)]
            if peers:
                best, name = min(peers)
                but = " but glibc" if aspect == MEMORY and leaner else ""
                yield Goal(f"{what}: geomean of {aspect} over the best of all at most {most}, and "
                           f"below every peer{but}", f"{means[OURS]:.3f}; best peer {best:.3f} "
                           f"({name}), {len(over[OURS])} rows",
                           means[OURS] <= most and means[OURS] < best)
            if aspect == TIME:
                worst, name = max((ratio, row) for row, ratio in over[OURS].items())
                yield Goal(f"{what}: time of each row over the best of all at most {row_most}",
                           f"worst {worst:.2f} ({name})", worst <= row_most)


def _service_goals(results):
    rows = [row.name for row in results.rows if row.group == SERVICES]
    for figure, what, most in SERVICE_RATIOS:
        found = []
        for row in rows:
            medians = {name: results.median(row, name, figure) for name in results.names()}
            ours = medians[OURS_FOR_SERVICES] if OURS_FOR_SERVICES in medians else None
            if ours:
                found.append((ours / min(filter(None, medians.values())), row))
        if found:
            worst, name = max(found)
            yield Goal(f"services, background:on: {what} over the best of all at most {most}",
                       f"worst {worst:.2f} ({name})", worst <= most)
    growths = [(growth, row) for row in rows
               if (growth := results.median(row, OURS_FOR_SERVICES, "growth")) is not None]
    if growths:
        worst, name = max(growths)
        yield Goal("services, background:on: growth from the first to the last equal burst at most "
                   f"{SERVICE_GROWTH_MOST} %", f"worst {worst:.1f} % ({name})",
                   worst <= SERVICE_GROWTH_MOST)


def _program_goals(results):
    for aspect, what in ((TIME, "CPU time"), (MEMORY, "memory")):
        peers = [(mean[0], name) for name in results.names(ours=False)
                 if (mean := results.geomean(name, aspect, PROGRAMS))]
        ours = results.geomean(OURS, aspect, PROGRAMS)
        if ours and peers:
            best, name = min(peers)
            yield Goal(f"real programs: geomean of {what} at most that of the best single peer",
                       f"{ours[0]:.3f}; best single peer {best:.3f} ({name})", ours[0] <= best)
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
        yield Goal(f"all rows: geomean of {aspect} at most that of the best single peer",
                   f"{ours[0]:.3f}; best single peer {best:.3f} ({name}), {ours[1]} rows",
                   ours[0] <= best)
        if aspect == TIME:
            yield Goal(f"all rows: geomean of time over the best peer's at most {GEOMEAN_MOST}",
                       f"{ours[0]:.3f}", ours[0] <= GEOMEAN_MOST)
    worst = _worst(results, lambda row: results.ratio(row.name, OURS, row.time), groups)
    if worst:
        yield Goal(f"every row: time over the best peer's at most {ROW_MOST}",
                   f"worst {worst[0]:.2f} ({worst[1]})", worst[0] <= ROW_MOST)


def check(results):
    """The goals that these results decide."""
    if OURS not in results.names():
        return []
    return [*_all_goals(results), *_time_goals(results), *_limit_goals(results),
            *_scaling_goals(results), *_process_goals(results), *_ratio_goals(results),
            *_call_goals(results), *_best_of_all_goals(results), *_program_goals(results),
            *_service_goals(results)]


def written(page, results):
    """The page with what these results measured in its tables: a line has a goal's text, its rows,
    what was measured, and whether the goal is met."""
    goals = {goal.text: goal for goal in check(results)}
    lines = page.splitlines()
    for at, line in enumerate(lines):
        goal, rows, *_ = [*line.strip("| ").split(" | "), ""]
        if goal in goals:
            lines[at] = (f"| {goal} | {rows} | {goals[goal].measured} | "
                         f"{'yes' if goals[goal].met else 'no'} |")
    return "\n".join(lines) + "\n"
