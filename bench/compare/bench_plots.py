"""The results as plots, by matplotlib: PNG files."""

from bench_results import MEMORY, TIME
from cairn.errors import UserError

COLOURS = {"system": "#7f7f7f", "cairn": "#c1272d", "cairn-hardened": "#e8903a",
           "cairn-api": "#7a1c20", "jemalloc": "#1f77b4", "mimalloc": "#2ca02c",
           "tcmalloc": "#9467bd"}
OTHER_COLOURS = ("#17becf", "#bcbd22", "#8c564b", "#e377c2", "#393b79", "#637939")
ROW_HEIGHT_INCHES = 0.24
WIDTH_INCHES = 9.5
DPI = 120


def _pyplot():
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise UserError("matplotlib is not installed (Debian package python3-matplotlib)") from None
    pyplot.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
                            "axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True})
    return pyplot


def _colour(results, name):
    if name in COLOURS:
        return COLOURS[name]
    others = [other for other in results.names() if other not in COLOURS]
    return OTHER_COLOURS[others.index(name) % len(OTHER_COLOURS)]


def _marker(results, name):
    ours = any(one.name == name and one.is_ours for one in results.allocators)
    return {"marker": "D" if ours else "o", "s": 46 if ours else 28, "zorder": 4 if ours else 3,
            "color": _colour(results, name), "edgecolors": "white", "linewidths": 0.6}


def _save(pyplot, figure, path):
    figure.savefig(path, dpi=DPI, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)


def overview(pyplot, results, path):
    """Time against memory, one point an allocator."""
    points = []
    for name in results.names():
        time, memory = (results.geomean(name, aspect) for aspect in (TIME, MEMORY))
        if time and memory:
            points.append((name, time[0], memory[0]))
    if not points:
        return
    figure, axes = pyplot.subplots(figsize=(6.5, 5))
    for name, time, memory in points:
        axes.scatter([time], [memory], **{**_marker(results, name), "s": 80})
        axes.annotate(name, (time, memory), xytext=(7, 4), textcoords="offset points")
    axes.margins(0.18)
    axes.set_xlabel("time, geomean over the best peer of each row")
    axes.set_ylabel("memory, geomean over the best peer of each row")
    axes.set_title("Time and memory together: lower left is better", loc="left")
    _save(pyplot, figure, path)


def ratios(pyplot, results, aspect, path):
    """Every row's ratio to its best peer; the rows that Cairn loses are on top."""
    rows = results.sorted_rows(aspect)
    if not rows:
        return
    figure, axes = pyplot.subplots(figsize=(WIDTH_INCHES, 1.2 + ROW_HEIGHT_INCHES * len(rows)))
    heights = {row.name: len(rows) - index for index, row in enumerate(rows)}
    for name in results.names():
        found = results.ratios(name, aspect)
        if found:
            axes.scatter(list(found.values()), [heights[row] for row in found], label=name,
                         **_marker(results, name))
    axes.axvline(1, color="#444444", linewidth=0.9)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000])
    axes.get_xaxis().set_major_formatter(lambda value, _: f"{value:g}")
    axes.get_xaxis().set_minor_formatter(lambda value, _: "")
    every = [value for name in results.names() for value in results.ratios(name, aspect).values()]
    if every:
        axes.set_xlim(min(0.45, min(every) / 1.15), max(2.2, max(every) * 1.15))
    axes.set_yticks(list(heights.values()), list(heights))
    axes.set_ylim(0.3, len(rows) + 0.7)
    axes.set_xlabel(f"{aspect} over that of the best peer of the row")
    axes.set_title(f"{aspect.capitalize()}, row by row", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    _save(pyplot, figure, path)


def growth(pyplot, results, prefix, label, title, path):
    """Time per operation over the rows with this prefix: threads or heap sizes."""
    rows = [row for row in results.rows if row.name.startswith(prefix)]
    if len(rows) < 2:
        return
    figure, axes = pyplot.subplots(figsize=(7.5, 4))
    for name in results.names():
        medians = [(index, results.median(row.name, name, row.time))
                   for index, row in enumerate(rows)]
        points = [(index, value) for index, value in medians if value is not None]
        if points:
            axes.plot(*zip(*points), marker="o", markersize=4, label=name,
                      color=_colour(results, name))
    axes.set_xticks(range(len(rows)), [row.name.removeprefix(prefix) for row in rows])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel("ns an operation, of one processor")
    axes.set_title(title, loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    _save(pyplot, figure, path)


def write(results, directory):
    """Writes the plots for which the results suffice."""
    pyplot = _pyplot()
    plots = (
        ("overview.png", overview, ()),
        ("time.png", ratios, (TIME,)),
        ("memory.png", ratios, (MEMORY,)),
        ("threads.png", growth, ("threads-", "threads",
                                 "The same work by more threads: level is better")),
        ("heap.png", growth, ("heap-", "live heap", "The same work in larger heaps")),
    )
    for name, draw, arguments in plots:
        draw(pyplot, results, *arguments, directory / name)
