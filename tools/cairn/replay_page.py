"""A replay as one HTML file: the allocators in a table, and their memory over time."""

from cairn import html_page


def page(trace, sentences, costs, program):
    """The text of the file."""
    rows = [[cost.name, cost.allocator_s, cost.allocator_s * 1e9 / max(1, program.events),
             cost.wall_s, cost.peak_bytes, cost.held_over_live, cost.faults] for cost in costs]
    # All took their samples at the ends of the same windows.
    samples = costs[0].samples
    data = {
        "rows": rows,
        "times": [seconds for seconds, _, _ in samples],
        "live": [live for _, live, _ in samples],
        "held": [{"name": cost.name, "values": [held for _, _, held in cost.samples]}
                 for cost in costs],
    }
    return html_page.page(
        f"{trace.name}: replayed", sentences, data, ("table.js", "timeline.js", "replay.js"),
        "In the time line arrow keys go along, plus and minus zoom, Escape shows all.",
        search="search allocators (/)")
