"""The page of `cairn advise --html`: advice with receipts, memory over time, a treemap, a table."""

from cairn import html_page
from cairn.advise_report import TITLES, evidence_text, gain_text
from cairn.advise_snippets import snippet
from cairn.inspect_command import bytes_text

SITES_SHOWN = 400
LINES = 7  # of the time line, beside the sum of all


def _advice(advice, summary):
    site = advice.verdict.sites[0]
    return {"kind": advice.verdict.kind, "title": TITLES[advice.verdict.kind],
            "place": str(summary.place(site)), "evidence": evidence_text(advice.verdict, summary),
            "gain": gain_text(advice), "stack": [str(frame) for frame in summary.frames(site)],
            "snippets": snippet(advice.verdict.kind, advice.verdict.numbers)}


def _median(histogram):
    """The middle of a histogram in powers of two, 0 of an empty one."""
    half, sum_ = sum(histogram) / 2, 0
    for step, count in enumerate(histogram):
        sum_ += count
        if count and sum_ >= half:
            return 1 << step
    return 0


def _site(site, summary, kinds):
    return {"name": str(summary.place(site)), "verdict": kinds.get(site["site"], ""),
            "allocations": site["allocations"], "allocated": site["allocated_bytes"],
            "peak": site["peak_bytes"], "end": site["live_bytes"], "live": site["points_live"],
            "life_ns": _median(site["life_ns"]), "life_bytes": _median(site["life_bytes"]),
            "lives": site["life_ns"],
            "stack": [str(frame) for frame in summary.frames(site)[:12]]}


def page(found, summary, title):
    """The text of the file."""
    whole = summary.data
    kinds = {site["site"]: advice.verdict.kind
             for advice in found for site in advice.verdict.sites}
    sites = sorted(whole["sites"], key=lambda site: -site["peak_bytes"])[:SITES_SHOWN]
    data = {
        "advice": [_advice(advice, summary) for advice in found],
        "times": [point[0] / 1e9 for point in whole["points"]],
        "all": [point[1] for point in whole["points"]], "lines": LINES,
        "peak": whole["peak_bytes"],
        "sites": [_site(site, summary, kinds) for site in sites]}
    sentences = (
        f"{whole['allocations']} allocations, {whole['frees']} frees, {whole['resizes']} resizes; "
        f"peak {bytes_text(whole['peak_bytes'])}, at the end {bytes_text(whole['live_bytes'])}",
        *summary.remarks)
    return html_page.page(title, sentences, data,
                          ("timeline.js", "treemap.js", "table.js", "advise.js"),
                          "Arrow keys go on, Enter goes in, Escape goes back, / searches.")
