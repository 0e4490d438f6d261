"""The map of a heap as one HTML file, with the slabs that few blocks hold."""

from cairn import html_page
from cairn.texts import target_text

CELLS_MOST = 6000  # of the map; each stands for a power of two of bytes
GAP_BYTES = 4 << 20  # a larger gap in the address space begins a new part
SPARSE_MOST = 1000  # slabs held by few blocks, those that hold most first
RUNS_MOST = 200  # for large blocks and for free runs
KINDS = ("slab", "large", "huge", "free", "kept", "run", "revoked")


def _groups(spans):
    """Slabs of one size and heap, summed: [size, packed, heap, slabs, bytes, live bytes, live,
    slots, bytes of pages without a block]."""
    sums = {}
    for span in spans:
        if span["kind"] != "slab" or "slots" not in span:
            continue
        key = (span["size_bytes"], span["packed"], span.get("heap", 0))
        row = sums.setdefault(key, [0] * 6)
        for place, name in enumerate(("bytes", "live_bytes", "live", "slots", "idle_bytes"), 1):
            row[place] += span[name]
        row[0] += 1
    return [[size, packed, f"{heap:x}", *row] for (size, packed, heap), row in sums.items()]


def _sparse(spans):
    """Slabs at most one eighth full: [address, size, live, slots, bytes, bytes of pages without a
    block, heap]."""
    rows = [[f"{span['start']:#x}", span["size_bytes"], span["live"], span["slots"], span["bytes"],
             span["idle_bytes"], f"{span['heap']:x}"] for span in spans
            if "heap" in span and 0 < span.get("live", 0) * 8 <= span["slots"]]
    rows.sort(key=lambda row: row[6])
    return sorted(rows, key=lambda row: row[2] * row[1] - row[4])[:SPARSE_MOST]


def _runs(spans):
    """The longest spans of each kind except slabs: [kind, address, bytes, bytes with memory in
    use]. The others of a kind are summed, with a number in place of the address."""
    found = []
    for kind in KINDS[1:]:
        rows = sorted((span for span in spans if span["kind"] == kind),
                      key=lambda span: -span["bytes"])
        used = "dirty_bytes" if kind == "free" else "bytes"
        found += [[kind, f"{span['start']:#x}", span["bytes"], span[used]]
                  for span in rows[:RUNS_MOST]]
        rest = rows[RUNS_MOST:]
        if rest:
            found.append([kind, f"{len(rest)} more", sum(span["bytes"] for span in rest),
                          sum(span[used] for span in rest)])
    return found


def _parts(spans):
    """Lists of spans without a gap above GAP_BYTES between them."""
    part = []
    for span in sorted(spans, key=lambda span: span["start"]):
        if part and span["start"] > part[-1]["start"] + part[-1]["bytes"] + GAP_BYTES:
            yield part
            part = []
        part.append(span)
    if part:
        yield part


def _cell(pieces, cell_bytes):
    """[kind of most of the cell, hundredths in use, size of its blocks]"""
    by_kind = {}
    for span, size in pieces:
        by_kind[span["kind"]] = by_kind.get(span["kind"], 0) + size
    kind = max(by_kind, key=by_kind.get)
    used = 0
    for span, size in pieces:
        if span["kind"] == "slab":
            used += size * span.get("live_bytes", 0) / span["bytes"]
        elif span["kind"] == "free":
            used += size * span["dirty_bytes"] / span["bytes"] if kind == "free" else 0
        else:
            used += size
    most = max(pieces, key=lambda piece: piece[1] if piece[0]["kind"] == kind else 0)[0]
    return [KINDS.index(kind), round(100 * used / cell_bytes), most.get("size_bytes", 0)]


def _cells(part, cell_bytes):
    """The part divided into cells; null for an empty cell."""
    start = part[0]["start"] // cell_bytes
    end = -(-(part[-1]["start"] + part[-1]["bytes"]) // cell_bytes)
    pieces = [[] for _ in range(end - start)]
    for span in part:
        first, last = span["start"], span["start"] + span["bytes"]
        for number in range(first // cell_bytes, -(-last // cell_bytes)):
            size = min(last, (number + 1) * cell_bytes) - max(first, number * cell_bytes)
            pieces[number - start].append((span, size))
    return {"start": f"{start * cell_bytes:x}",
            "cells": [_cell(cell, cell_bytes) if cell else None for cell in pieces]}


def address_map(spans):
    """{"cell": bytes of each cell, "parts": [{"start": address, "cells": [cell or null]}]}"""
    spans = [span for span in spans if span["bytes"]]
    cell_bytes = 4096
    while sum(span["bytes"] for span in spans) > cell_bytes * CELLS_MOST:
        cell_bytes *= 2
    return {"cell": cell_bytes, "kinds": KINDS,
            "parts": [_cells(part, cell_bytes) for part in _parts(spans)]}


def page(census):
    """The text of the file. The census must have its spans."""
    target = census.target
    data = {
        "words": census.words(), "heaps": [
            [f"{row['address']:x}", row["owner"], row["slabs"], row["live"], row["live_bytes"],
             row["slab_bytes"], row["remote_bytes"], row["kept_bytes"], row["large_bytes"]]
            for row in census.heaps],
        "groups": _groups(census.spans), "runs": _runs(census.spans),
        "sparse": _sparse(census.spans), "map": address_map(census.spans)}
    return html_page.page(
        f"{target['program'] or 'core file'}: where the memory is",
        [target_text(target), *census.remarks()], data,
        ("table.js", "treemap.js", "cells.js", "inspect.js"),
        "Arrow keys move between parts, Enter descends, Backspace ascends, Escape shows all; / "
        "searches.", "search: 48-byte, large, a heap (/)")
