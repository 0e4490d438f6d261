#!/usr/bin/env python3
"""Writes the table of README.md, and its pictures, from what was measured.

usage: make_readme.py            writes README.md between its markers, and the pictures
       make_readme.py --check    prints what differs from what it would write; exit status 1 then

The figures come from bench/results/services, bench/results/programs and
bench/results/mimalloc-bench (`bench/cairn-bench`), from bench/results/matrix.md
(`bench/cairn-matrix`), and the curves of a service from bench/results/services/memory.csv
(`cairn run --load --csv`). Times and memory have one normalisation: the geometric mean over the
rows of (median of this allocator / best median of all, Cairn included).
"""
import csv
import dataclasses
import difflib
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN = "<!-- made by dev/make_readme.py from what was measured: do not edit -->"
END = "<!-- end of what is made -->"
PICTURE = "bench/results/overview.svg"
SERVICE_PICTURE = "bench/results/services/memory.svg"
COLUMNS = ("Cairn", "glibc", "mimalloc", "snmalloc", "rpmalloc", "jemalloc",
           "gperftools tcmalloc")
BENCH_NAMES = {"cairn": "Cairn", "cairn-hardened": "Cairn hardened", "system": "glibc",
               "cairn-background": "Cairn, background:on",
               "system-two-arenas": "glibc, two arenas",
               "jemalloc-background": "jemalloc, background_thread",
               "mimalloc2": "mimalloc 2", "mimalloc3": "mimalloc 3",
               "tcmalloc": "gperftools tcmalloc", "google-tcmalloc": "google/tcmalloc"}
# The column and the label of those that share one with others.
VARIANTS = {"mimalloc 2": ("mimalloc", "v2"), "mimalloc 3": ("mimalloc", "v3"),
            "google/tcmalloc": ("gperftools tcmalloc", "google/tcmalloc"),
            **{name: tuple(name.split(", ")) for name in BENCH_NAMES.values() if ", " in name}}
WEIGHT = ' font-weight="bold"'
COLOURS = {"Cairn": "#c1272d", "Cairn, background:on": "#c1272d", "Cairn hardened": "#e8903a",
           "glibc": "#7f7f7f", "jemalloc": "#1f77b4", "mimalloc": "#2ca02c",
           "mimalloc 2": "#7fc97f", "mimalloc 3": "#2ca02c", "gperftools tcmalloc": "#9467bd",
           "snmalloc": "#17becf", "google/tcmalloc": "#8c564b", "rpmalloc": "#bcbd22"}


def table_after(text, heading):
    """The rows of the first table from a heading, or its first cell, on, as lists of cells."""
    rows = []
    for line in text[text.index(heading):].splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not set("".join(cells)) <= set("-: "):
                rows.append(cells)
        elif rows:
            break
    return rows


class Measured:
    """Everything that is shown, by its file."""

    def __init__(self, root):
        self.root = root
        self.results = root / "bench" / "results"

    def facts(self, group):
        lines = (self.results / group / "results.csv").read_text().splitlines()
        return dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))

    def rows(self, group):
        with (self.results / group / "results.csv").open() as file:
            return [row for row in csv.DictReader(line for line in file if line[0] != "#")
                    if row["group"] == group]

    def programs(self, group, aspect):
        """(figure by allocator, names of the programs) of those that all allocators ran."""
        medians = {}
        for row in self.rows(group):
            if row["aspect"] == aspect and row["ratio_to_best_peer"]:
                name = BENCH_NAMES.get(row["allocator"], row["allocator"])
                medians.setdefault(row["row"], {})[name] = float(row["median"])
        every = set().union(*medians.values())
        ran = {row: figures for row, figures in medians.items() if set(figures) == every}
        best = {row: min(figures[name] for name in figures if name != "Cairn hardened")
                for row, figures in ran.items()}
        return ({name: math.exp(sum(math.log(ran[row][name] / best[row]) for row in ran) / len(ran))
                 for name in every}, sorted(ran))

    def curves(self):
        """({allocator: [(seconds, MiB)]}, [(start, end) of a burst]) of a service over time. The
        bursts are those of the allocator that is measured first."""
        sides, bursts = {}, {}
        with (self.results / "services" / "memory.csv").open() as file:
            for row in csv.DictReader(file):
                name = row["side"].replace(" background:on", ", background:on")
                at = float(row["seconds"])
                sides.setdefault(BENCH_NAMES.get(name, name), []).append(
                    (at, int(row["bytes"]) / (1 << 20)))
                if len(sides) == 1 and row["phase"].startswith("burst"):
                    first, _ = bursts.get(row["phase"], (at, at))
                    bursts[row["phase"]] = first, at
        return sides, list(bursts.values())

    def matrix(self, sections=None):
        """The outcomes of the misuse matrix by allocator, in all or some sections."""
        text = (self.results / "matrix.md").read_text()
        counts = {}
        for section in sections or re.findall(r"^### (.*)$", text, re.M):
            head, *rows = table_after(text, f"### {section}\n")
            for row in rows:
                for name, cell in zip(head[1:], row[1:]):
                    name = BENCH_NAMES.get(name, name)
                    counts.setdefault(name, []).append(cell.strip("*"))
        return counts


def line_of(label, figures, lowest=True):
    """A row of the table; the best figure in bold. Figures are numbers, or texts with one first."""
    value = {name: float(re.match(r"[\d.]+", str(figure)).group(0))
             for name, figure in figures.items() if name in COLUMNS}
    best = (min if lowest else max)(value.values())
    cells = []
    for name in COLUMNS:
        text = str(figures.get(name, ""))
        cells.append(f"**{text}**" if text and value[name] == best else text)
    return f"| {label} | " + " | ".join(cells) + " |"


def shared(figures):
    """The figures of each column. The settings and versions of an allocator share one, the best
    first."""
    columns = {}
    for name, value in figures.items():
        column, label = VARIANTS.get(name, (name, ""))
        columns.setdefault(column, []).append((value, f"{value:.2f}" + (label and f" ({label})")))
    return {column: ", ".join(text for _, text in sorted(kinds))
            for column, kinds in columns.items()}


def table(measured):
    yield "| | " + " | ".join(COLUMNS) + " |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for group, kind, time, memory in (
            ("services", "services", "CPU time", "memory 30 s after the load"),
            ("programs", "real programs", "CPU time", "peak memory")):
        for aspect, what in (("memory", memory), ("time", time)):
            figures, names = measured.programs(group, aspect)
            yield line_of(f"{what}, {len(names)} {kind}", shared(figures))
    wrong = measured.matrix(("Double free", "Free of no block"))
    yield line_of(f"invalid frees stopped at once, of {len(wrong['Cairn'])}",
                  {name: cells.count("at once") for name, cells in wrong.items()}, lowest=False)
    faults = measured.matrix()
    yield line_of(f"memory errors with unnoticed harm, of {len(faults['Cairn'])}",
                  {name: cells.count("silent") for name, cells in faults.items()})


def machine(facts):
    return re.sub(r"\(R\)| Processor", "", facts["processor"])


def sources(measured):
    facts, of_services = measured.facts("programs"), measured.facts("services")
    _, names = measured.programs("programs", "time")
    yield ("Times and memory are geometric means of (this allocator / best of all), newest "
           "versions; lower is better. "
           f"Sources ({machine(facts)}, {facts['libc']}): "
           f"[services](bench/results/services/report.md) at {of_services['commit'][:7]} "
           f"({machine(of_services)}), "
           f"[mimalloc-bench](bench/results/mimalloc-bench/report.md) at "
           f"{measured.facts('mimalloc-bench')['commit'][:7]}, "
           f"[{len(names)} programs](bench/results/programs/report.md) at "
           f"{facts['commit'][:7]}, "
           f"[memory errors](bench/results/matrix.md) with Debian's versions.")


class Axis:
    """Figures from low to high, on a stretch of the picture from start to end."""

    def __init__(self, values, start, end, room=0.15):
        room = (max(values) - min(values)) * room or 0.1
        self.low, self.high = min(values) - room, max(values) + room
        self.start, self.end = start, end

    def place(self, value):
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    def ticks(self):
        step = next(step for step in (0.05, 0.1, 0.2, 0.5, 1, 5, 10, 20, 50, 100, 200)
                    if (self.high - self.low) / step <= 7)
        number = math.ceil(self.low / step)
        while number * step < self.high:
            yield number * step
            number += 1


@dataclasses.dataclass(frozen=True)
class Box:
    """A rectangle that a label or a point takes."""

    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other):
        return (self.left < other.right and other.left < self.right and
                self.top < other.bottom and other.top < self.bottom)


def label_places(name, x, y):
    """(x, y, anchor, Box) of the places of a point's label: next to it, above and below."""
    width, height = 6.2 * len(name), 11
    for at, line, anchor, share in ((x + 10, y + 4, "start", 0), (x - 10, y + 4, "end", 1),
                                    (x, y - 10, "middle", 0.5), (x, y + 18, "middle", 0.5),
                                    (x + 6, y - 8, "start", 0), (x + 6, y + 16, "start", 0),
                                    (x - 6, y - 8, "end", 1), (x - 6, y + 16, "end", 1)):
        left = at - share * width
        yield at, line, anchor, Box(left, line - height + 2, left + width, line + 3)


def labels(points):
    """{name: (x, y, anchor)}, each in the first place that is free of points and other labels."""
    taken = [Box(x - 7, y - 7, x + 7, y + 7) for x, y in points.values()]
    found = {}
    for name, (x, y) in points.items():
        places = list(label_places(name, x, y))
        inside = [place for place in places if place[3].left > 56 and place[3].right < 372]
        at, line, anchor, box = min(inside or places, key=lambda place: sum(
            place[3].covers(other) for other in taken))
        taken.append(box)
        found[name] = (at, line, anchor)
    return found


def ticks(across, line, upwards, end, form=""):
    """The figures of both axes: those across at the height `line`, the others left of `end`."""
    for value in across.ticks():
        yield (f'<text x="{across.place(value):.0f}" y="{line}" text-anchor="middle" '
               f'fill="#888">{value:{form}}</text>')
    for value in upwards.ticks():
        yield (f'<text x="{end}" y="{upwards.place(value) + 4:.0f}" text-anchor="end" '
               f'fill="#888">{value:{form}}</text>')


def panel(left, title, times, memories):
    """One scatter of the picture, 330 pixels wide."""
    names = [name for name in times if name in memories]
    across = Axis([times[name] for name in names], 55, 335)
    upwards = Axis([memories[name] for name in names], 260, 35)
    yield f'<g transform="translate({left},0)">'
    yield f'<text x="55" y="20" font-weight="bold">{title}</text>'
    yield '<path d="M55 35V260H335" fill="none" stroke="#888"/>'
    yield '<text x="195" y="298" text-anchor="middle">time, less is better</text>'
    yield ('<text x="15" y="150" text-anchor="middle" transform="rotate(-90 15 150)">'
           'peak memory, less is better</text>')
    yield from ticks(across, 275, upwards, 50, ".2f")
    points = {name: (across.place(times[name]), upwards.place(memories[name]))
              for name in sorted(names, key=lambda name: (memories[name], name))}
    places = labels(points)
    for name, (x, y) in points.items():
        own = name == "Cairn"
        yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{7 if own else 5}" fill="{COLOURS[name]}"/>'
        at, line, anchor = places[name]
        yield (f'<text x="{at:.0f}" y="{line:.0f}" text-anchor="{anchor}"{WEIGHT if own else ""}>'
               f'{name}</text>')
    yield "</g>"


def svg(height, parts):
    """A picture, 760 pixels wide."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="760" height="{height}" fill="#fff"/>', *parts, "</svg>", ""])


def picture(measured):
    times, names = measured.programs("programs", "time")
    memories, _ = measured.programs("programs", "memory")
    bench_times, bench_names = measured.programs("mimalloc-bench", "time")
    bench_memories, _ = measured.programs("mimalloc-bench", "memory")
    times = {name: value for name, value in times.items() if name != "Cairn hardened"}
    return svg(310, [*panel(0, f"{len(names)} real programs", times, memories),
                     *panel(385, f"{len(bench_names)} programs of mimalloc-bench", bench_times,
                            bench_memories)])


def apart(places, least):
    """Numbers in their order, raised so that each is at least so far from the one before."""
    moved = []
    for place in sorted(places):
        moved.append(max(place, moved[-1] + least) if moved else place)
    return dict(zip(sorted(places), moved))


def service_picture(measured):
    """The memory of one service over time, a line for each allocator."""
    sides, phases = measured.curves()
    end_s = max(points[-1][0] for points in sides.values())
    most = max(mib for points in sides.values() for _, mib in points)
    across = Axis([0, end_s], 50, 560, room=0)
    upwards = Axis([0, most], 225, 30, room=0)
    yield ('<text x="50" y="18" font-weight="bold">Memory of a Python service of threads, MiB: '
           'three bursts of requests, then silence</text>')
    for start, end in phases:
        left, right = across.place(start), across.place(end)
        yield (f'<rect x="{left:.0f}" y="30" width="{right - left:.0f}" height="195" '
               'fill="#f0f0f0"/>')
    yield '<path d="M50 30V225H560" fill="none" stroke="#888"/>'
    yield from ticks(across, 241, upwards, 44)
    yield '<text x="305" y="261" text-anchor="middle">seconds; grey: requests</text>'
    ends = {name: upwards.place(points[-1][1]) for name, points in sides.items()}
    lines = apart(ends.values(), 15)
    for name, points in sides.items():
        path = " ".join(f"{across.place(at):.1f},{upwards.place(mib):.1f}" for at, mib in points)
        own = name == "Cairn, background:on"
        colour = COLOURS[name]
        yield (f'<polyline points="{path}" fill="none" stroke="{colour}" '
               f'stroke-width="{2.5 if own else 1.5}"/>')
        yield (f'<text x="568" y="{lines[ends[name]] + 4:.0f}" fill="{colour}"'
               f'{WEIGHT if own else ""}>{name}: {points[-1][1]:.0f}</text>')


def made(measured):
    """README's part between the markers."""
    parts = (table(measured), sources(measured))
    return "\n\n".join([BEGIN, *("\n".join(part) for part in parts), END])


def files(root):
    """(path, text) of what is written."""
    measured = Measured(root)
    readme = root / "README.md"
    text = readme.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit("make_readme: README.md has not its two markers")
    yield readme, text[:text.index(BEGIN)] + made(measured) + text[text.index(END) + len(END):]
    yield root / PICTURE, picture(measured)
    yield root / SERVICE_PICTURE, svg(275, service_picture(measured))


def check(root):
    for path, text in files(root):
        old = path.read_text() if path.exists() else ""
        yield from difflib.unified_diff(old.splitlines(), text.splitlines(),
                                        str(path.relative_to(root)), "as it was measured",
                                        lineterm="", n=0)


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    if sys.argv[1:]:
        found = list(check(ROOT))
        print("\n".join(found) or "make_readme: README.md is as it was measured")
        sys.exit(1 if found else 0)
    for path, text in files(ROOT):
        path.write_text(text)


if __name__ == "__main__":
    main()
