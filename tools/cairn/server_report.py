"""Prints the measurements of a server under several allocators: a table, curves of the memory in
the terminal, sentences, and files for other programs."""

import csv
import io
import json
import shlex

from rich.table import Table
from rich.text import Text

from cairn import html_page, probe
from cairn.server_memory import INTERVAL_S

BARS = " ▁▂▃▄▅▆▇█"
CURVE_ROWS = 4
CURVE_COLUMNS_MAX = 100
LABEL_COLUMNS = 18
MIB = 1 << 20


def _rows(job, results):
    """(title, unit, decimals, values) of each quantity, in the order of the results. A value is
    None where the load command did not report it."""
    yield "peak", "MiB", 1, [result.peak() / MIB for result in results]
    for place in range(job.bursts):
        yield (f"after burst {place + 1}", "MiB", 1,
               [result.after[place].bytes / MIB for result in results])
    yield (f"after {job.idle_s:g} s silent", "MiB", 1,
           [result.silent.bytes / MIB for result in results])
    lazy = [result.silent.lazy_bytes / MIB for result in results]
    if max(lazy) >= 1:
        yield "and lazily free", "MiB", 1, lazy
    yield "CPU time", "s", 2, [result.cpu_s for result in results]
    yield "time of bursts", "s", 2, [result.load_s() for result in results]
    for percentile, title in ((50, "median request"), (99, "99 % of requests")):
        values = [result.latency(percentile) for result in results]
        if any(value is not None for value in values):
            yield title, "ms", 1, values


def _cell(value, decimals):
    return "-" if value is None else f"{value:,.{decimals}f}"


def table(job, results):
    """A rich table, a column for each allocator. The options of a column are on a second line."""
    shown = Table(title=Text(shlex.join(job.command), overflow="fold"), title_justify="left",
                  box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    shown.add_column("", no_wrap=True)
    for result in results:
        shown.add_column(Text(result.side.name.replace(" ", "\n")), justify="right", no_wrap=True)
    for title, unit, decimals, values in _rows(job, results):
        shown.add_row(f"{title} {unit}", *(_cell(value, decimals) for value in values))
    return shown


def _levels(result, columns, column_s):
    """The highest memory in each column of a curve; None after the end."""
    found = [None] * columns
    for sample in result.samples:
        place = min(columns - 1, int(sample.seconds / column_s))
        found[place] = max(found[place] or 0, sample.bytes)
    last = max(place for place, value in enumerate(found) if value is not None)
    for place in range(1, last):
        if found[place] is None:
            found[place] = found[place - 1]
    return found


def _phase_marks(result, columns, column_s):
    """A line under a curve: the number of the burst, or a dot during the silence."""
    marks = {"pause": " ", "silence": "·"}
    phases = [result.phase((place + 0.5) * column_s) for place in range(columns)]
    last = result.samples[-1].seconds
    return "".join(marks.get(phase, phase[-1]) if (place + 0.5) * column_s <= last else " "
                   for place, phase in enumerate(phases)).rstrip()


def curves(results, width):
    """Lines of text: for each allocator the memory over time, all in one scale."""
    columns = max(20, min(width, CURVE_COLUMNS_MAX) - LABEL_COLUMNS - 1)
    span_s = max(result.samples[-1].seconds for result in results)
    column_s = max(span_s, INTERVAL_S) / columns
    most = max(max(result.peak() for result in results), 1)
    steps = len(BARS) - 1
    for result in results:
        levels = [None if value is None else max(1, round(value / most * CURVE_ROWS * steps))
                  for value in _levels(result, columns, column_s)]
        labels = [*result.side.name.split(" ", 1), f"peak {result.peak() / MIB:,.0f} MiB",
                  f"end {result.silent.bytes / MIB:,.0f} MiB"]
        for row in range(CURVE_ROWS):
            below = (CURVE_ROWS - 1 - row) * steps
            bars = "".join(" " if level is None else BARS[min(steps, max(0, level - below))]
                           for level in levels)
            label = labels[row] if row < len(labels) else ""
            yield f"{label[:LABEL_COLUMNS]:{LABEL_COLUMNS}} {bars}".rstrip()
        yield " " * (LABEL_COLUMNS + 1) + _phase_marks(result, columns, column_s)
    end = f"{span_s:.0f} s"
    yield " " * (LABEL_COLUMNS + 1) + "0 s" + end.rjust(columns - 3)


def _difference(results):
    """Sentences with the ratios to the first allocator."""
    base, *others = results
    for result in others:
        pairs = ((result.peak(), base.peak(), "peak"),
                 (result.silent.bytes, base.silent.bytes, "memory after the silence"),
                 (result.cpu_s, base.cpu_s, "CPU time"))
        *parts, last = [f"{ours / theirs:.2f} of the {what}" for ours, theirs, what in pairs
                        if theirs]
        yield f"Next to {base.side.name}, {result.side.name} has {', '.join(parts)} and {last}."


def remarks(job, results):
    """Sentences under the table."""
    yield ("Memory is the proportional set size (Pss) of the server and its children, without "
           "lazily free pages. One run under each allocator: small differences may be chance.")
    yield from _difference(results)
    if any("background:on" in result.side.options for result in results):
        yield ("Use background:on for services: a thread of Cairn returns free memory to the "
               "system, even while the program sleeps. Without it the program's own calls of "
               "malloc and free do.")
    for result in results:
        if result.side.library:
            yield from probe.remarks(result.side.name, result.side.library, result.side.processes)
        if result.unreadable:
            yield (f"{result.side.name}: the memory of {result.unreadable} processes could not be "
                   "read and is not counted")
    if not results[0].side.library:
        yield from probe.system_remarks(results[0].side.name, results[0].side.processes or [])
    if all(result.latency(50) is None for result in results):
        yield ("The load command printed no line such as `50% 1.8ms`, so the time of requests is "
               "not known.")
    if job.idle_s < 3:
        yield ("Cairn returns memory that stayed free for two seconds (decay_ms): the silence is "
               "short.")


def as_json(job, results, sentences):
    """All measurements, for programs."""
    return json.dumps({
        "command": list(job.command), "load": job.load, "idle_s": job.idle_s,
        "sides": [{
            "name": result.side.name,
            "library": str(result.side.library) if result.side.library else None,
            "options": result.side.options,
            "processes": [process._asdict() for process in result.side.processes or []],
            "peak_bytes": result.peak(),
            "after_burst_bytes": [sample.bytes for sample in result.after],
            "after_silence_bytes": result.silent.bytes,
            "after_silence_lazy_bytes": result.silent.lazy_bytes,
            "cpu_s": round(result.cpu_s, 3),
            "median_ms": result.latency(50), "p99_ms": result.latency(99),
            "bursts": [{"start_s": round(burst.start, 3), "end_s": round(burst.end, 3),
                        "latency_ms": burst.latencies} for burst in result.bursts],
            "samples": [sample._asdict() for sample in result.samples]} for result in results],
        "remarks": list(sentences)}, indent=1) + "\n"


def as_csv(results):
    """One line for each sample."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["side", "seconds", "phase", "bytes", "lazy_bytes"])
    for result in results:
        for sample in result.samples:
            writer.writerow([result.side.name, sample.seconds, result.phase(sample.seconds),
                             sample.bytes, sample.lazy_bytes])
    return text.getvalue()


def as_markdown(job, results, sentences):
    """The table and the sentences."""
    names = " | ".join(result.side.name.replace("|", "\\|") for result in results)
    lines = [f"`{shlex.join(job.command)}`, load `{job.load}`", "", f"| | {names} |",
             "|---|" + "---:|" * len(results)]
    for title, unit, decimals, values in _rows(job, results):
        cells = " | ".join(_cell(value, decimals) for value in values)
        lines.append(f"| {title} {unit} | {cells} |")
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in sentences)]) + "\n"


def _on_grid(result, times):
    """The memory at these times: of the last sample before each; None after the end."""
    values, place = [], 0
    for at in times:
        while place + 1 < len(result.samples) and result.samples[place + 1].seconds <= at:
            place += 1
        is_over = at > result.samples[-1].seconds + INTERVAL_S
        values.append(None if is_over else result.samples[place].bytes)
    return values


def page(job, results, sentences):
    """The text of the HTML file."""
    count = int(max(result.samples[-1].seconds for result in results) / INTERVAL_S) + 2
    times = [number * INTERVAL_S for number in range(count)]
    data = {
        "times": times,
        "sides": [[result.side.name, _on_grid(result, times)] for result in results],
        "rows": [[f"{title} {unit}", *(_cell(value, decimals) for value in values)]
                 for title, unit, decimals, values in _rows(job, results)]}
    return html_page.page(
        f"{shlex.join(job.command)}: memory over time",
        [f"Load: {job.load}, {job.bursts} times, then {job.idle_s:g} s of silence.", *sentences],
        data, ("timeline.js", "server.js"),
        "Arrow keys move along a line, plus, minus and dragging zoom; Escape shows all.", "")
