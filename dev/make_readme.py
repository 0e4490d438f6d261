#!/usr/bin/env python3
"""Writes the comparison of README.md, and its picture, from what was measured.

usage: make_readme.py            writes README.md between its markers, and the picture
       make_readme.py --check    says what differs from what it would write; exit status 1 then

The figures come from bench/results/full and rows (`cairn bench`), bench/results/mimalloc-bench.md
and the matrix in docs/SECURITY.md (`cairn matrix`). A cell that none of them has stays empty. The
real programs come from bench/results/programs where they were measured apart (`--rows programs`).
"""
import csv
import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN = "<!-- made by dev/make_readme.py from what was measured: do not edit -->"
END = "<!-- end of what is made -->"
PICTURE = "bench/results/overview.svg"
COLUMNS = ("Cairn", "Cairn hardened", "glibc", "mimalloc", "jemalloc", "tcmalloc", "snmalloc",
           "hardened_malloc")
BENCH_NAMES = {"cairn": "Cairn", "cairn-hardened": "Cairn hardened", "system": "glibc"}
LOST = 1.02
LOST_MIB = 1
WEIGHT = ' font-weight="bold"'
COLOURS = {"Cairn": "#c1272d", "Cairn hardened": "#e8903a", "glibc": "#7f7f7f",
           "jemalloc": "#1f77b4", "mimalloc": "#2ca02c", "mimalloc 2": "#7fc97f",
           "mimalloc 3": "#2ca02c", "tcmalloc": "#9467bd", "snmalloc": "#17becf",
           "rpmalloc": "#bcbd22"}


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
        apart = (self.results / "programs" / "report.md").exists()
        self.programs_run = "programs" if apart else "full"

    def geomeans(self, name, aspect, group):
        """(figure by allocator, number of rows) of a run of `cairn bench`."""
        head, *rows = table_after((self.results / name / "report.md").read_text(), "## Geomeans")
        for row in rows:
            if row[:2] == [aspect, group]:
                return {BENCH_NAMES.get(allocator, allocator): float(cell)
                        for allocator, cell in zip(head[3:], row[3:]) if cell != "-"}, int(row[2])
        raise KeyError(f"{name}: no geomean of {aspect}, {group}")

    def facts(self, name):
        lines = (self.results / name / "results.csv").read_text().splitlines()
        return dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))

    def rows(self, name):
        with (self.results / name / "results.csv").open() as file:
            return list(csv.DictReader(line for line in file if not line.startswith("#")))

    def lost(self, name, aspect):
        """(row, ratio) of those that Cairn loses, the worst first; and the number of all rows."""
        rows = [row for row in self.rows(name) if row["aspect"] == aspect
                and row["allocator"] == "cairn" and row["ratio_to_best_peer"]]
        found = []
        for row in rows:
            ratio = float(row["ratio_to_best_peer"])
            behind = float(row["median"]) * (1 - 1 / ratio)
            if ratio > LOST and (row["figure"] != "peak_rss" or behind >= LOST_MIB):
                found.append((row["row"], ratio))
        return sorted(found, key=lambda row: -row[1]), len(rows)

    def real_programs(self):
        """(names of the real programs that all allocators ran, what their time is)"""
        rows = [row for row in self.rows(self.programs_run) if row["group"] == "programs"
                and row["aspect"] == "time" and row["ratio_to_best_peer"]]
        every = {row["allocator"] for row in rows}
        ran = {row["row"]: set() for row in rows}
        for row in rows:
            ran[row["row"]].add(row["allocator"])
        by_processor = {row["figure"] for row in rows} == {"cpu_s"}
        return (sorted(name for name, allocators in ran.items() if allocators == every),
                "CPU time" if by_processor else "time")

    def programs(self, heading):
        """(figure by allocator, number of programs) of mimalloc-bench: the last row of a table."""
        text = (self.results / "mimalloc-bench.md").read_text()
        head, *rows = table_after(text, heading)
        if not rows[-1][0].startswith("geometric mean"):
            raise KeyError(f"mimalloc-bench.md: the last row is {rows[-1][0]}")
        return {name: float(cell) for name, cell in zip(head[1:9], rows[-1][1:9])}, len(rows) - 1

    def programs_of(self, aspect):
        return self.programs("| seconds |" if aspect == "time" else "| peak RSS, MiB |")

    def lists(self):
        """(allocator, seconds, seconds of mimalloc) of the lists on a stack and a ring."""
        head, *rows = table_after((self.results / "lists.md").read_text(), "| row |")
        for row in rows:
            cells = dict(zip(head, row))
            if cells["row"] == "`b-stack`":
                yield "stack", cells["Cairn"], cells["mimalloc"]

    def matrix(self, sections=None):
        """The outcomes of the misuse matrix by allocator, in all or some sections."""
        text = (self.root / "docs" / "SECURITY.md").read_text()
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


def two(figures):
    return {name: f"{value:.2f}" for name, value in figures.items()}


def newest(figures):
    """mimalloc's two versions share a column, the better one first."""
    shown = two(figures)
    older, newer = shown.pop("mimalloc 2"), shown.pop("mimalloc 3")
    versions = sorted([(older, "v2"), (newer, "v3")])
    shown["mimalloc"] = ", ".join(f"{value} ({version})" for value, version in versions)
    return shown


def table(measured):
    yield "| | " + " | ".join(COLUMNS) + " |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for aspect, what in (("time", measured.real_programs()[1]), ("memory", "peak memory")):
        figures, rows = measured.geomeans(measured.programs_run, aspect, "programs")
        yield line_of(f"{what}, {rows} real programs [a]", two(figures))
    for aspect in ("time", "memory"):
        figures, rows = measured.programs_of(aspect)
        yield line_of(f"{aspect}, {rows} programs, newest peers [b]", newest(figures))
    for aspect in ("time", "memory"):
        figures, rows = measured.geomeans("rows", aspect, "all")
        yield line_of(f"{aspect}, {rows} benchmark rows [c]", two(figures))
    wrong = measured.matrix(("Double free", "Free of no block"))
    yield line_of(f"of {len(wrong['Cairn'])} wrong frees, ended at once [d]",
                  {name: cells.count("at once") for name, cells in wrong.items()}, lowest=False)
    faults = measured.matrix()
    yield line_of(f"of {len(faults['Cairn'])} faults, harm unseen [d]",
                  {name: cells.count("silent") for name, cells in faults.items()})


def claims(measured):
    time, rows = measured.geomeans("rows", "time", "all")
    memory, _ = measured.geomeans("rows", "memory", "all")
    names = ("mimalloc", "tcmalloc", "glibc")
    yield (f"- **Fast in the small.** Over {rows} benchmark rows Cairn takes {time['Cairn']:.2f} "
           f"times the best peer of each row ({others(time, names)}); in memory "
           f"{memory['Cairn']:.2f} ({others(memory, names)}). `make bench`")
    yield what_it_loses(measured)
    plain, _ = measured.geomeans(measured.programs_run, "time", "programs")
    faults = measured.matrix()
    unseen = {name: cells.count("silent") for name, cells in faults.items()}
    in_rows = (f", {time['Cairn hardened'] / time['Cairn']:.1f} in the benchmark rows"
               if "Cairn hardened" in time else "")
    yield (f"- **What hardening costs.** {unseen['Cairn hardened']} of {len(faults['Cairn'])} "
           f"faults stay unseen ({unseen['mimalloc-secure']} in mimalloc's secure build), for "
           f"{plain['Cairn hardened'] / plain['Cairn']:.2f} times the plain library's time on "
           f"real programs{in_rows}. `cairn run --hardened`")
    for name, seconds, peer in measured.lists():
        yield (f"- **Where lifetimes are known.** A list of 100 million nodes on Cairn's {name}: "
               f"{seconds} s; on mimalloc's malloc {peer} s ([lists](bench/results/lists.md)).")


def others(figures, names):
    return ", ".join(f"{name} {figures[name]:.2f}" for name in names)


def what_it_loses(measured):
    lost, of = measured.lost("rows", "time")
    lost_memory, of_memory = measured.lost("rows", "memory")
    worst = ", ".join(f"`{name}` {ratio:.1f} times" for name, ratio in lost[:3])
    times, programs = measured.programs_of("time")
    first = min(times, key=times.get)
    lean, _ = measured.geomeans(measured.programs_run, "memory", "programs")
    return (f"- **What it loses.** To the best peer of the row {len(lost)} of {of} rows in time "
            f"and {len(lost_memory)} of {of_memory} in memory, most in {worst}. Of {programs} "
            f"programs with the newest peers {first} is ahead in time, {times[first]:.2f} to "
            f"{times['Cairn']:.2f}; on real programs {min(lean, key=lean.get)} takes the least "
            "memory.")


def sources(measured):
    run = measured.programs_run
    programs, rows = measured.facts(run), measured.facts("rows")
    names, _ = measured.real_programs()
    versions = [f"{name} {re.match('[0-9.]+', programs['allocator ' + name]).group(0)}"
                for name in ("mimalloc", "jemalloc", "tcmalloc")]
    processor = rows["processor"].replace("(R)", "")
    yield ("Time and memory are geometric means over the best of each row, so 1.00 would be best "
           "in all; the best of a line is bold. An empty cell was not measured.")
    yield ""
    yield (f"- [a] {', '.join(names)}; {programs['processor']}, {programs['libc']}, "
           f"Debian's {', '.join(versions)}; commit {programs['commit']}: "
           f"[report](bench/results/{run}/report.md)")
    yield ("- [b] mimalloc-bench, every library built from its newest sources for the machine: "
           "[table and versions](bench/results/mimalloc-bench.md)")
    yield (f"- [c] {processor}, the same versions as [a]; commit {rows['commit']}: "
           "[report](bench/results/rows/report.md)")
    yield "- [d] `cairn matrix`: [each fault, and the versions](docs/SECURITY.md#the-matrix)"


class Axis:
    """Figures from low to high, on a stretch of the picture from start to end."""

    def __init__(self, values, start, end):
        room = (max(values) - min(values)) * 0.15 or 0.1
        self.low, self.high = min(values) - room, max(values) + room
        self.start, self.end = start, end

    def place(self, value):
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    def ticks(self):
        step = next(step for step in (0.05, 0.1, 0.2, 0.5, 1, 5)
                    if (self.high - self.low) / step <= 7)
        number = int(self.low / step) + 1
        while number * step < self.high:
            yield number * step
            number += 1


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
    for value in across.ticks():
        yield (f'<text x="{across.place(value):.0f}" y="275" text-anchor="middle" '
               f'fill="#888">{value:.2f}</text>')
    for value in upwards.ticks():
        yield (f'<text x="50" y="{upwards.place(value) + 4:.0f}" text-anchor="end" '
               f'fill="#888">{value:.2f}</text>')
    for name in sorted(names, key=lambda name: (memories[name], name)):
        x, y = across.place(times[name]), upwards.place(memories[name])
        own = name == "Cairn"
        yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{7 if own else 5}" fill="{COLOURS[name]}"/>'
        yield (f'<text x="{x + 10:.0f}" y="{y + 4:.0f}"{WEIGHT if own else ""}>{name}</text>')
    yield "</g>"


def picture(measured):
    (times, rows), (memories, _) = (measured.geomeans(measured.programs_run, aspect, "programs")
                                    for aspect in ("time", "memory"))
    newest_times, programs = measured.programs_of("time")
    newest_memories, _ = measured.programs_of("memory")
    times = {name: value for name, value in times.items() if name != "Cairn hardened"}
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" width="760" height="310" '
             'font-family="sans-serif" font-size="11">',
             '<rect width="760" height="310" fill="#fff"/>',
             *panel(0, f"{rows} real programs, Debian 12's libraries", times, memories),
             *panel(385, f"{programs} programs of mimalloc-bench, newest libraries", newest_times,
                    newest_memories), "</svg>", ""]
    return "\n".join(lines)


def made(measured):
    """README's part between the markers."""
    parts = (table(measured), sources(measured), claims(measured))
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
