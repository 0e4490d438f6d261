"""Advice as text and as JSON."""

import dataclasses
import json
from typing import Optional

from rich.markup import escape

from cairn.advise_receipt import Receipt
from cairn.advise_snippets import snippet
from cairn.advise_verdicts import Verdict, share
from cairn.console import out
from cairn.inspect_command import bytes_text

TITLES = {
    "scope": "a scope: all end when a function returns",
    "FIFO": "a FIFO: they end in the order of their making",
    "ring frame": "a frame of a ring: made together, they end together",
    "pool": "a pool: many of one size",
    "reserve": "reserve what is known to come: they grow step by step",
    "temporary": "a buffer of the function: they end at once",
    "one at a time": "a buffer that is kept for the next time: there are never two",
    "pins pages": "a heap of their own: few of them hold many pages",
    "leak": "a leak, or kept to the end: they come all the time, and nobody frees them",
    "rounding": "another size: much of each is lost to its size class",
    "hand-over": "an allocator for hand-over: another thread frees them",
}


SNIPPETS_HINT = "--snippets shows each change in C and in C++."
LINES_HINT = "Where no line is named, the program was built without -g, or stripped."
BUILD_HINT = ("Build with $(pkg-config --cflags --libs cairn-malloc); then `cairn run` on the "
              "program before and after says in its column of Cairn what came of it.")


@dataclasses.dataclass
class Advice:
    """A verdict with its receipt."""

    verdict: Verdict
    receipt: Optional[Receipt]  # None: not measured
    saved_share: float  # the larger one of time and memory; of a leak, of the memory at the end
    sure_share: float  # likewise, with the least time that it may be

    @property
    def is_measured(self):
        return self.receipt is not None or self.verdict.policy is None


def _percent(value):
    return f"{100 * value:.1f} %"


def _memory_text(receipt):
    peak, mean = receipt.peak_bytes, receipt.mean_bytes
    words = ["saves" if saved >= 0 else "costs" for saved in (peak, mean)]
    again = "" if words[0] == words[1] else words[1] + " "
    return (f"{words[0]} {bytes_text(int(abs(peak)))} at the peak, "
            f"{again}{bytes_text(int(abs(mean)))} on average")


def _time_text(receipt):
    """Between what and what the time is that a change saves."""
    low, high = receipt.time_low_ns / 1e6, receipt.time_high_ns / 1e6
    shares = 100 * receipt.time_low_share, 100 * receipt.time_high_share
    if low < 0 < high:
        return (f"nothing that is sure, between {-low:.2f} ms lost and {high:.2f} ms saved, "
                f"{shares[0]:.1f} to {shares[1]:.1f} % of the program's")
    word = "saves"
    if high <= 0:
        word, low, high, shares = "costs", -high, -low, (-shares[1], -shares[0])
    return (f"{word} {low:.2f} to {high:.2f} ms, {shares[0]:.1f} to {shares[1]:.1f} % of the "
            "program's")


def gain_text(advice):
    """What a receipt says, in a sentence."""
    receipt, verdict = advice.receipt, advice.verdict
    if verdict.kind == "leak":
        return (f"{bytes_text(verdict.numbers['live_bytes'])} live at the end, "
                f"{_percent(advice.saved_share)} of the peak")
    if receipt is None:
        if verdict.policy is None:
            return f"{_percent(advice.saved_share)} of the peak by its own figures"
        return "not measured"
    return f"time: {_time_text(receipt)}; memory: {_memory_text(receipt)}"


def evidence_text(verdict, summary):
    """Why, and for a scope, where it belongs."""
    frame = summary.frame_of_scope(verdict.sites[0]) if verdict.kind == "scope" else None
    return verdict.evidence + (f"; the scope belongs into {frame}" if frame else "")


def _print_one(number, advice, summary, frames_shown):
    verdict, site = advice.verdict, advice.verdict.sites[0]
    whole = summary.data
    out.print(f"\n[bold]{number}. {escape(str(summary.place(site)))}[/bold]: "
              f"{escape(TITLES[verdict.kind])}", soft_wrap=True)
    calls = sum(each["allocations"] for each in verdict.sites)
    held = sum(each["peak_bytes"] for each in verdict.sites)
    out.print(f"   {calls} blocks, {_percent(share(calls, whole['allocations']))} of all; "
              f"{_percent(share(held, whole['peak_bytes']))} of the peak's memory",
              soft_wrap=True, markup=False)
    out.print(f"   {evidence_text(verdict, summary)}", soft_wrap=True, markup=False)
    out.print(f"   {gain_text(advice)}", soft_wrap=True, markup=False)
    for frame in summary.frames(site)[:frames_shown]:
        out.print(f"     {frame}", soft_wrap=True, markup=False)


def print_advice(found, summary, cost, least, frames_shown, with_snippets):
    """All of it, as text."""
    whole = summary.data
    out.print(f"{whole['allocations']} allocations, {whole['frees']} frees, {whole['resizes']} "
              f"resizes by {whole['threads']} threads; peak {bytes_text(whole['peak_bytes'])}",
              soft_wrap=True, markup=False)
    if cost.is_measured:
        out.print(f"without a trace: {cost.time_ns / 1e6:.1f} ms of processors, "
                  f"{bytes_text(int(cost.peak_bytes))} resident", soft_wrap=True, markup=False)
    elif any(advice.receipt for advice in found):
        out.print("shares are of the time that the program took with its trace, so they are too "
                  "small", soft_wrap=True, markup=False)
    for remark in summary.remarks:
        out.print(remark, soft_wrap=True, markup=False)
    if not found:
        out.print(f"Nothing to gain: no site's change saves {100 * least:g} % of the time or the "
                  "memory.", soft_wrap=True, markup=False)
    for number, advice in enumerate(found, 1):
        _print_one(number, advice, summary, frames_shown)
        if with_snippets:
            for text in snippet(advice.verdict.kind, advice.verdict.numbers):
                out.print("\n" + "\n".join("   | " + line for line in text.splitlines()),
                          markup=False, soft_wrap=True)
    if not all(summary.place(advice.verdict.sites[0]).line for advice in found):
        out.print(f"\n{LINES_HINT}", markup=False, soft_wrap=True)
    if any(advice.verdict.kind != "leak" for advice in found):
        out.print("\n" + (BUILD_HINT if with_snippets else SNIPPETS_HINT), markup=False,
                  soft_wrap=True)


def _site_json(summary, site):
    return {"stacks": site["stacks"],
            "allocations": site["allocations"], "frees": site["frees"],
            "peak_bytes": site["peak_bytes"], "live_bytes": site["live_bytes"],
            "stack": [dataclasses.asdict(frame) for frame in summary.frames(site)]}


def as_json(found, summary):
    """The advice with all that it rests on but the histograms."""
    whole = summary.data
    return {
        "program": {name: whole[name] for name in (
            "events", "allocations", "frees", "resizes", "threads", "peak_bytes", "time_ns",
            "has_free_stacks", "untracked")},
        "remarks": summary.remarks,
        "advice": [{
            "verdict": advice.verdict.kind,
            "place": dataclasses.asdict(summary.place(advice.verdict.sites[0])),
            "evidence": evidence_text(advice.verdict, summary),
            "numbers": advice.verdict.numbers,
            "policy": advice.verdict.policy,
            "is_measured": advice.is_measured,
            "saved_share": advice.saved_share,
            "sure_share": advice.sure_share,
            "receipt": dataclasses.asdict(advice.receipt) if advice.receipt else None,
            "sites": [_site_json(summary, site) for site in advice.verdict.sites],
            **dict(zip(("c", "cpp"), snippet(advice.verdict.kind, advice.verdict.numbers))),
        } for advice in found]}


def json_text(found, summary):
    return json.dumps(as_json(found, summary), indent=2) + "\n"
