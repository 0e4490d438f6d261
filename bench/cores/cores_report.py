"""The results of the simulator, their goals, and the tables."""

import collections
import pathlib

PROGRAMS = ["local", "growing", "larson", "pairs", "many", "medium", "large", "shorts", "bursts",
            "resizing", "aligned", "purging", "forking"]
BASELINE = "baseline"
OURS = "cairn"
KINDS = ["read_dirty", "read_clean", "write_dirty", "write_shared"]
OWNERS = ["program", "allocator", "other"]
MEMORY_CALLS = {"mmap": 9, "mprotect": 10, "munmap": 11, "mremap": 25, "madvise": 28}

# The goals, for 16 threads and more, per 1,000 pairs of malloc and free.
GOAL_THREADS = 16
GOAL_PEERS = ["mimalloc2", "mimalloc3", "snmalloc", "rpmalloc", "jemalloc"]
LINES_TIMES, LINES_ENOUGH = 1.2, 50
HOTTEST_MAX = collections.defaultdict(lambda: 20, {"larson": 100, "shorts": 100})
LOCKED_MAX = {"growing": 50, "medium": 50, "large": 1000, "shorts": 2500, "pairs": 300}

BEGIN = "<!-- written by bench/cores/cores.py report -->"
END = "<!-- end of the tables -->"


class Result:
    """A result file."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.totals = collections.Counter()
        self.calls = collections.Counter()
        self.lines, self.pairs, self.code, self.holds, self.maps = [], [], [], [], []
        self.blocks = collections.Counter()
        for text in self.path.read_text().splitlines():
            self._read(text.split())
        self.operations = (self.totals["mallocs"] + self.totals["frees"]) / 2

    def _read(self, words):
        kind, rest = words[0], words[1:]
        if kind == "line":
            self.lines.append((int(rest[0], 16), [int(word) for word in rest[1:]], []))
        elif kind == "site":
            self.lines[-1][2].append((int(rest[0], 16), [int(word) for word in rest[1:]]))
        elif kind == "pair":
            self.pairs.append((int(rest[0], 16), int(rest[1], 16),
                               [int(word) for word in rest[2:]]))
        elif kind == "code":
            self.code.append((int(rest[0], 16), int(rest[1])))
        elif kind == "block":
            self.blocks[int(rest[0], 16)] += int(rest[1])
        elif kind == "hold":
            self.holds.append((int(rest[0], 16), *(int(word) for word in rest[1:])))
        elif kind == "map":
            low, high = (int(word, 16) for word in rest[0].split("-"))
            self.maps.append((low, high, rest[5] if len(rest) > 5 else ""))
        elif kind == "call":
            self.calls[int(rest[0])] = int(rest[1])
        else:
            self.totals[kind] = int(rest[0])

    def count(self, figure):
        """The sum of a figure over the run."""
        if figure == "lines":
            return sum(self.totals[f"{kind}_{owner}"] for kind in KINDS for owner in OWNERS)
        if figure == "hottest":
            return sum(self.lines[0][1]) if self.lines else 0
        if figure == "calls":
            return sum(self.calls[number] for number in MEMORY_CALLS.values())
        if figure in ("locked", "instructions"):
            return sum(self.totals[f"{figure}_{owner}"] for owner in OWNERS)
        return self.totals[figure]

    def per_thousand(self, figure):
        """The figure per 1,000 pairs of malloc and free."""
        return 1000 * self.count(figure) / self.operations


# Figure, its title, and whether the baseline's is subtracted.
FIGURES = (("lines", "Lines", True), ("hottest", "Hottest line", False),
           ("locked", "Locked instructions", True),
           ("calls", "mmap, mprotect, munmap, mremap and madvise", True),
           ("futex_waits", "Waits on futexes", True), ("instructions", "Instructions", True))


class Results:
    """All result files of a folder."""

    def __init__(self, folder):
        self.runs = {}
        for path in folder.iterdir():
            words = path.name.split(".")
            if len(words) == 3 and words[0] in PROGRAMS:
                self.runs[words[0], words[1], int(words[2])] = Result(path)
        names = {name for _, name, _ in self.runs} - {BASELINE}
        self.names = sorted(names, key=lambda name: (name != OURS, name))

    def rows(self):
        """(program, threads) with a baseline."""
        threads = sorted({count for _, _, count in self.runs})
        return [(program, count) for program in PROGRAMS for count in threads
                if (program, BASELINE, count) in self.runs]

    def figure(self, program, name, threads, figure, subtracts):
        """A figure per 1,000 pairs; None where the run is missing."""
        run = self.runs.get((program, name, threads))
        if run is None:
            return None
        base = self.runs[program, BASELINE, threads] if subtracts else None
        return run.per_thousand(figure) - (base.per_thousand(figure) if base else 0)


def shown(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 9.95 else f"{value:.1f}"


def goal_row(results, program, threads):
    """The cells of the row of a program in the table of goals."""
    def ours(figure, subtracts):
        return results.figure(program, OURS, threads, figure, subtracts)

    peers = [figure for figure in (results.figure(program, name, threads, "lines", True)
                                   for name in GOAL_PEERS) if figure is not None]
    most = max(LINES_ENOUGH, LINES_TIMES * min(peers)) if peers else LINES_ENOUGH
    goals = [(ours("lines", True), most), (ours("hottest", False), HOTTEST_MAX[program]),
             (ours("locked", True), LOCKED_MAX.get(program))]
    met = all(most is None or measured <= most for measured, most in goals)
    cells = [shown(value) for pair in goals for value in pair]
    return [program, str(threads), *cells, "yes" if met else "no"]


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|",
            *("| " + " | ".join(row) + " |" for row in rows)]


def write_tables(results):
    """The lines of the document."""
    rows = results.rows()
    lines = ["## Goals", ""]
    lines += table(["program", "threads", "lines", "at most", "hottest line", "at most", "locked",
                    "at most", "met"],
                   [goal_row(results, program, threads) for program, threads in rows
                    if threads >= GOAL_THREADS and (program, OURS, threads) in results.runs])
    for figure, title, subtracts in FIGURES:
        lines += ["", f"## {title}", ""]
        lines += table(["program", "threads", BASELINE, *results.names],
                       [[program, str(threads),
                         *(shown(results.figure(program, name, threads, figure,
                                                subtracts and name != BASELINE))
                           for name in (BASELINE, *results.names))] for program, threads in rows])
    return lines


def report(options):
    lines = write_tables(Results(options.results))
    if options.write is None:
        print("\n".join(lines))
        return
    text = options.write.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    options.write.write_text(before + "\n".join([BEGIN, "", *lines, "", END]) + after)
