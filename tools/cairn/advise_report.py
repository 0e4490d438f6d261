"""Prints advice as text, as JSON and as a page."""

import dataclasses
from typing import List, Optional

from cairn import html_page, profile_names
from cairn.advise_savings import Saving
from cairn.advise_snippets import snippet
from cairn.advise_verdicts import Verdict, share
from cairn.console import columns, out, say
from cairn.texts import bytes_text, json_text

TITLES = {
    "scope": "a scope: all blocks are freed before a function returns",
    "FIFO": "a FIFO: the blocks are freed in the order of their allocation",
    "ring frame": "a frame of a ring: blocks that are allocated together are freed together",
    "pool": "a pool: many blocks of one size",
    "reserve": "reserve the final size: the blocks grow step by step",
    "temporary": "a buffer of the function: the blocks are freed at once",
    "one at a time": "a buffer that is kept for the next time: there are never two blocks",
    "pins pages": "a heap of their own: a few blocks hold many pages",
    "leak": "a leak, or data that is kept to the end: nothing frees the blocks",
    "rounding": "another size: much of each block is lost to its size class",
    "hand-over": "an allocator for hand-over: another thread frees the blocks",
}
INDENTED, FRAME_INDENT = " " * 3, " " * 5
SITES_SHOWN = 400  # on the page
LINES = 7  # in the page's time line, next to the sum
OTHERS_HINT = "Measured and not proposed, since the change saves too little or costs something:"
SNIPPETS_HINT = "--snippets shows each change in C and in C++."
LINES_HINT = "Where no line is named, the program was built without -g, or stripped."
BUILD_HINT = ("Build with $(pkg-config --cflags --libs cairn-malloc); then `cairn run` on the "
              "program before and after shows the gain in its Cairn columns.")


@dataclasses.dataclass
class Advice:
    """A verdict with its measured saving."""

    verdict: Verdict
    saving: Optional[Saving]  # None: not measured
    saved_share: float  # of time or memory, the larger one; for a leak, of the memory at the end
    sure_share: float  # its lower limit

    @property
    def is_measured(self):
        return self.saving is not None or self.verdict.policy is None

    def is_worth(self, least):
        """Whether the advice is proposed: it saves enough and costs nothing, or it was not
        measured."""
        if not self.is_measured:
            return True
        return self.saved_share >= least and not (self.saving and self.saving.is_cost)


@dataclasses.dataclass
class Findings:
    """The advice on a program, ordered by the sites' shares of its calls and memory."""

    named: List[Advice]
    others: List[Advice]  # measured, but the change saves too little or costs something


def _percent(value):
    return f"{100 * value:.1f} %"


def _figure_text(name, figure, text):
    """A saving with its ±, or the limit below which there is no difference."""
    if not (figure.is_gain or figure.is_cost):
        return f"{name}: no difference beyond ± {text(figure.noise)}"
    word = "saves" if figure.is_gain else "costs"
    return (f"{name}: {word} {text(abs(figure.value))} ± {text(figure.noise)}, "
            f"{100 * abs(figure.share):.1f} ± {100 * figure.noise / figure.whole:.1f} % of the "
            "program's")


def saving_text(advice):
    """The measured saving in a sentence."""
    saving, verdict = advice.saving, advice.verdict
    if verdict.kind == "leak":
        return (f"{bytes_text(verdict.numbers['live_bytes'])} live at the end, "
                f"{_percent(advice.saved_share)} of the peak")
    if saving is None:
        if verdict.policy is None:
            return f"not measured; {_percent(advice.saved_share)} of the peak by the trace's sums"
        return "not measured"
    return "; ".join((
        _figure_text("time", saving.time, lambda ns: f"{ns / 1e6:.2f} ms"),
        _figure_text("peak memory", saving.memory, lambda size: bytes_text(int(size)))))


def evidence_text(verdict, summary):
    """The evidence of a verdict, and for a scope, the function that it belongs into."""
    frame = summary.frame_of_scope(verdict.sites[0]) if verdict.kind == "scope" else None
    return verdict.evidence + (f"; the scope belongs into {frame}" if frame else "")


def _place_text(summary, site):
    return profile_names.fitted(summary.place(site), None)


def _print_one(number, advice, summary, frames_shown):
    verdict, site = advice.verdict, advice.verdict.sites[0]
    whole = summary.data
    out.print()
    say(f"{number}. {_place_text(summary, site)}: {TITLES[verdict.kind]}", indent=INDENTED,
        style="bold")
    calls = sum(each["allocations"] for each in verdict.sites)
    held = sum(each["peak_bytes"] for each in verdict.sites)
    for sentence in (f"{calls} blocks, {_percent(share(calls, whole['allocations']))} of all; "
                     f"{_percent(share(held, whole['peak_bytes']))} of the peak's memory",
                     evidence_text(verdict, summary), saving_text(advice)):
        say(sentence, INDENTED, INDENTED)
    room = columns() and columns() - len(FRAME_INDENT)
    for frame in summary.frames(site)[:frames_shown]:
        say(profile_names.fitted(frame, room), FRAME_INDENT, FRAME_INDENT)


def _print_others(others, summary):
    if others:
        names = "; ".join(dict.fromkeys(
            f"{_place_text(summary, advice.verdict.sites[0])} ({advice.verdict.kind})"
            for advice in others))
        out.print()
        say(f"{OTHERS_HINT} {names}.")


def print_advice(findings, summary, cost, least, frames_shown, with_snippets):
    """Prints all advice as text."""
    whole, found = summary.data, findings.named
    say(f"{whole['allocations']} allocations, {whole['frees']} frees, {whole['resizes']} "
        f"resizes by {whole['threads']} threads; peak {bytes_text(whole['peak_bytes'])}")
    if cost.is_measured:
        say(f"without a trace: {cost.time_ns / 1e6:.1f} ms of processors, "
            f"{bytes_text(int(cost.peak_bytes))} resident")
    elif any(advice.saving for advice in found):
        say("shares refer to the program's time with its trace, so they are too small")
    for remark in summary.remarks:
        say(remark)
    if not found:
        say(f"Nothing to gain: no site's change saves {100 * least:g} % of the time or the "
            "memory.")
    for number, advice in enumerate(found, 1):
        _print_one(number, advice, summary, frames_shown)
        if with_snippets:
            for text in snippet(advice.verdict.kind, advice.verdict.numbers):
                out.print("\n" + "\n".join("   | " + line for line in text.splitlines()),
                          markup=False, soft_wrap=True)
    _print_others(findings.others, summary)
    hints = []
    if not all(summary.place(advice.verdict.sites[0]).line for advice in found):
        hints.append(LINES_HINT)
    if any(advice.verdict.kind != "leak" for advice in found):
        hints.append(BUILD_HINT if with_snippets else SNIPPETS_HINT)
    for hint in hints:
        out.print()
        say(hint)


def _site_json(summary, site):
    return {"stacks": site["stacks"],
            "allocations": site["allocations"], "frees": site["frees"],
            "peak_bytes": site["peak_bytes"], "live_bytes": site["live_bytes"],
            "stack": [dataclasses.asdict(frame) for frame in summary.frames(site)]}


def _figure_json(figure):
    return {"value": figure.value, "noise": figure.noise, "share": figure.share,
            "sure_share": figure.sure_share}


def _advice_json(advice, summary):
    verdict, saving = advice.verdict, advice.saving
    return {
        "verdict": verdict.kind,
        "place": dataclasses.asdict(summary.place(verdict.sites[0])),
        "evidence": evidence_text(verdict, summary),
        "numbers": verdict.numbers,
        "policy": verdict.policy,
        "is_measured": advice.is_measured,
        "saved_share": advice.saved_share,
        "sure_share": advice.sure_share,
        "saving": {"time_ns": _figure_json(saving.time),
                   "peak_bytes": _figure_json(saving.memory)} if saving else None,
        "sites": [_site_json(summary, site) for site in verdict.sites],
        **dict(zip(("c", "cpp"), snippet(verdict.kind, verdict.numbers))),
    }


def as_json(findings, summary):
    """The advice with its evidence, without the histograms."""
    whole = summary.data
    return {
        "program": {name: whole[name] for name in (
            "events", "allocations", "frees", "resizes", "threads", "peak_bytes", "time_ns",
            "has_free_stacks", "untracked")},
        "remarks": summary.remarks,
        "advice": [_advice_json(advice, summary) for advice in findings.named],
        "not_proposed": [_advice_json(advice, summary) for advice in findings.others]}


def findings_json(findings, summary):
    return json_text(as_json(findings, summary), indent=2) + "\n"


# ---- the page ----------------------------------------------------------------------------------

def _advice(advice, summary):
    site = advice.verdict.sites[0]
    return {"kind": advice.verdict.kind, "title": TITLES[advice.verdict.kind],
            "place": str(summary.place(site)), "evidence": evidence_text(advice.verdict, summary),
            "gain": saving_text(advice), "stack": [str(frame) for frame in summary.frames(site)],
            "snippets": snippet(advice.verdict.kind, advice.verdict.numbers)}


def _median(histogram):
    """The middle of a histogram in powers of two; 0 when it is empty."""
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
    """The text of the page: the advice, memory over time, a treemap and a table."""
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
                          "Arrow keys move, Enter descends, Escape ascends, / searches.")
