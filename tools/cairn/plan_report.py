"""Prints a plan: the memory that a purge returns, the memory that remains, and the blocks that pin
it."""

import math

from rich.table import Table

from cairn import profile_names
from cairn.console import out, print_json, print_sites, say
from cairn.plan import GIVES, STAYS, Plan
from cairn.texts import bytes_text, share, target_text

ROWS_SHOWN = 8
CHANCE_ERRORS = 4  # standard errors that chance alone does not explain


def _table(title, *columns):
    out.print()
    out.print(title, style="bold")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=justify == "right",
                         overflow="fold" if justify == "left" else None)
    return table


def _print_classes(pins, every):
    rows = pins.classes if every else pins.classes[:ROWS_SHOWN]
    table = _table("Pinned, by size of the blocks", *((name, "right") for name in
                   ("size", "pages", "live bytes", "pinned", "share")))
    for row in rows:
        table.add_row(str(row["size_bytes"]), str(row["pages"]), bytes_text(row["live_bytes"]),
                      bytes_text(row["pinned_bytes"]),
                      share(row["pinned_bytes"], pins.pinned_bytes))
    out.print(table)
    if len(rows) < len(pins.classes):
        rest = sum(row["pinned_bytes"] for row in pins.classes[len(rows):])
        say(f"and {len(pins.classes) - len(rows)} more sizes with {bytes_text(rest)} (--all)")


def _sampling_lines(pins):
    """Sentences on the coverage of the samples."""
    interval = pins.samples["interval_bytes"]
    estimated, error = pins.estimate()
    if not pins.sites:
        yield ("Which sites pin it is not known: no sample of the profiler is among these blocks"
               + (f" (it takes one in {bytes_text(interval)})." if interval else
                  " (it is off: CAIRN_OPTIONS=profile:on)."))
        return
    one_in = f", one in {bytes_text(interval)}" if interval else ", and the profiler is off now"
    yield (f"{pins.samples['in_slabs']} samples{one_in}, stand for {bytes_text(round(estimated))} "
           f"± {bytes_text(round(error))} of the {bytes_text(pins.pinned_bytes)} pinned.")
    missing = pins.pinned_bytes - estimated
    # the error if each block had a site: few samples understate it
    error_of_all = error * math.sqrt(pins.pinned_bytes / max(estimated, 1))
    if missing > CHANCE_ERRORS * error_of_all:
        yield (f"Of some {bytes_text(round(missing))} no site is known: their blocks are from "
               "before the profiler was on, or from while it was off.")
    for name, what in (("stacks_lost", "stacks: (no stack)"), ("blocks_lost", "themselves")):
        if pins.samples[name]:
            yield f"{pins.samples[name]} samples found no room for {what}."
    yield from pins.symbols.remarks


def _print_sites(pins, every):
    if pins.sites:
        rows = pins.sites if every else pins.sites[:ROWS_SHOWN]
        out.print()
        out.print("Pinned, by site, estimated", style="bold")
        print_sites(("pinned", "±", "share", "pages", "live bytes", "blocks", "samples"), [
            ((bytes_text(round(site.pinned_bytes)), bytes_text(round(site.error_bytes)),
              share(site.pinned_bytes, pins.pinned_bytes), f"{site.pages:.0f}",
              bytes_text(round(site.block_bytes)), f"{site.blocks:.0f}", str(site.samples)),
             lambda room, frames=pins.symbols.stack(site.frames): profile_names.lines(
                 frames, len(frames) if every else None, room)) for site in rows])
        if len(rows) < len(pins.sites):
            rest = sum(site.pinned_bytes for site in pins.sites[len(rows):])
            say(f"and {len(pins.sites) - len(rows)} more sites with {bytes_text(round(rest))} "
                "(--all)")
    else:
        out.print()
    for line in _sampling_lines(pins):
        say(line)


def print_pins(pins, every):
    """Prints which blocks keep pages that are otherwise free."""
    if not pins.classes:
        return
    say(f"{pins.pages} pages with live blocks contain {bytes_text(pins.pinned_bytes)} of free "
        "memory, which these blocks pin.")
    _print_classes(pins, every)
    _print_sites(pins, every)


def print_heading(plan):
    say(target_text(plan.target))
    for remark in plan.remarks():
        say(remark)


def _print_rows(title, rows, words):
    table = _table(title, ("", "left"), ("pieces", "right"), ("bytes", "right"))
    for name, text in words.items():
        row = rows.get(name)
        if row and row["bytes"]:
            table.add_row(text, str(row.get("count", "")), bytes_text(row["bytes"]))
    out.print(table)


def _print_heaps(plan, every):
    rows = sorted((row for row in plan.heaps if row["kept_bytes"] + row["gives_bytes"]),
                  key=lambda row: -row["kept_bytes"] - row["gives_bytes"])
    if not rows:
        return
    shown = rows if every else rows[:ROWS_SHOWN]
    table = _table("By thread heap", ("heap", "left"), ("thread", "left"), ("keeps", "right"),
                   ("free pages", "right"), ("stays free", "right"))
    for row in shown:
        table.add_row(f"{row['address']:x}", row["owner"], bytes_text(row["kept_bytes"]),
                      bytes_text(row["gives_bytes"]), bytes_text(row["idle_bytes"]))
    out.print(table)
    if len(shown) < len(rows):
        rest = sum(row["kept_bytes"] + row["gives_bytes"] for row in rows[len(shown):])
        say(f"and {len(rows) - len(shown)} more heaps with {bytes_text(rest)} (--all)")


def print_plan(plan, every):
    """Prints the whole plan."""
    print_heading(plan)
    if plan.is_measured:
        say(f"{bytes_text(plan.rss_bytes)} in memory; a purge gives back "
            f"{bytes_text(plan.gives_bytes)}, and {bytes_text(plan.forecast_bytes)} stay")
    else:
        say(f"a purge would give back {bytes_text(plan.gives_bytes)} at most")
    _print_rows("A purge gives back", plan.gives, GIVES)
    _print_heaps(plan, every)
    _print_rows("What stays", plan.stays, STAYS)
    print_pins(plan.pins, every)


def print_pinned(target, every, as_json):
    """The command `cairn inspect --pinned`."""
    plan = Plan(target)
    if as_json:
        print_json({"target": plan.target, **plan.pins.to_json(), "doubts": plan.doubts})
        return
    print_heading(plan)
    if not plan.pins.classes:
        say("No slab has a live block.")
    print_pins(plan.pins, every)
