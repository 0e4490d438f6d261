"""What is printed of a profile: the sites that hold most, and what changed between two."""

import json

from rich.table import Table

from cairn.console import out, say
from cairn.inspect_command import bytes_text, share
from cairn.profile_file import Sums
from cairn.profile_symbols import Symbols

REASONS = {"end": "at its end", "growth": "after it grew", "call": "when it asked for it",
           "memory": "read from its memory", "core": "read from its core file"}


def opening(profile):
    """The sentence that says what was read."""
    return (f"process {profile.pid} ({profile.program}), "
            f"{REASONS.get(profile.reason, profile.reason)}: Cairn {profile.version}, "
            f"a sample in {bytes_text(profile.interval)}")


def remarks(profile, symbols):
    """Sentences about what is missing."""
    if profile.unreadable:
        yield (f"{profile.unreadable} pieces of the profiler's tables could not be read: what they "
               "tell of is not counted")
    elif not profile.is_whole:
        yield "the dump was cut: what is there is counted"
    if profile.torn:
        yield (f"{profile.torn} samples were changing while they were read: they are not among "
               "those that are listed one by one")
    if profile.others:
        yield (f"{profile.others} more Cairn libraries are loaded, each with a heap of its own; "
               "this is the profile of the largest")
    if profile.lost_stacks:
        yield f"{profile.lost_stacks} samples found no room for their stacks: (no stack)"
    if profile.lost_blocks:
        yield (f"{profile.lost_blocks} samples found no room among those in use, which is too low "
               "by them: a longer interval helps")
    yield from symbols.remarks


def _stack_text(symbols, frames, depth):
    shown = [str(frame) for frame in symbols.stack(frames)]
    more = len(shown) - depth
    return "\n".join(shown[:depth] + ([f"… {more} more"] if more > 1 else shown[depth:]))


def _table(*columns):
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    return table


def _sums_text(total):
    return f"{bytes_text(total.bytes)} in some {total.objects:.0f} blocks, {total.samples} samples"


def print_top(profile, symbols, live, count, depth):
    """The sites with the most bytes."""
    say(opening(profile))
    for remark in remarks(profile, symbols):
        say(remark)
    say("in use:    " + _sums_text(profile.sum(True)))
    say("allocated: " + _sums_text(profile.sum(False)))
    if live and not profile.sum(True).samples:
        say("nothing is in use: the sites of what was allocated")
        live = False
    total = profile.sum(live).bytes
    rows = sorted((site for site in profile.sites if (site.live if live else site.allocated).bytes),
                  key=lambda site: -(site.live if live else site.allocated).bytes)
    out.print()
    table = _table("in use" if live else "allocated", "share", "blocks", "samples", "site")
    for site in rows[:count]:
        sums = site.live if live else site.allocated
        table.add_row(bytes_text(sums.bytes), share(sums.bytes, total), f"{sums.objects:.0f}",
                      str(sums.samples), _stack_text(symbols, site.frames, depth))
    out.print(table)
    if len(rows) > count:
        rest = sum((site.live if live else site.allocated).bytes for site in rows[count:])
        say(f"and {len(rows) - count} more sites with {bytes_text(rest)} (--top)")


def _sums_json(sums):
    return {"samples": sums.samples, "objects": round(sums.objects, 3), "bytes": sums.bytes}


def to_json(profile, symbols):
    """Everything, as numbers of bytes."""
    return json.dumps({
        "process": {"pid": profile.pid, "program": profile.program, "version": profile.version},
        "reason": profile.reason, "interval_bytes": profile.interval, "whole": profile.is_whole,
        "lost": {"stacks": profile.lost_stacks, "blocks": profile.lost_blocks},
        "torn": profile.torn, "unreadable": profile.unreadable,
        "live": _sums_json(profile.sum(True)), "allocated": _sums_json(profile.sum(False)),
        "remarks": list(remarks(profile, symbols)),
        "sites": [{
            "stack": [{"function": frame.function, "file": frame.file, "line": frame.line,
                       "module": frame.module} for frame in symbols.stack(site.frames)],
            "live": _sums_json(site.live), "allocated": _sums_json(site.allocated),
        } for site in sorted(profile.sites, key=lambda site: -site.live.bytes)],
        "blocks": [{"address": block.address, "asked_bytes": block.asked,
                    "objects": round(block.objects, 3), "bytes": block.bytes,
                    "thread": block.thread, "age_ms": profile.time_ms - block.time_ms,
                    "stack": [str(frame) for frame in symbols.stack(block.frames)]}
                   for block in profile.blocks],
    }, indent=2) + "\n"


def by_names(profile, symbols, live):
    """{stack as functions, so that it survives a rebuild: Sums}."""
    found = {}
    for site in profile.sites:
        key = tuple(frame.function for frame in symbols.stack(site.frames))
        found.setdefault(key, Sums()).add(site.live if live else site.allocated)
    return found


def differences(before, after, live, folders=()):
    """[(stack, Sums before, Sums after)], the largest change of bytes first."""
    old = by_names(before, Symbols(before, folders), live)
    new = by_names(after, Symbols(after, folders), live)
    rows = [(key, old.get(key, Sums()), new.get(key, Sums())) for key in {**old, **new}]
    rows = [row for row in rows if row[1].bytes != row[2].bytes]
    return sorted(rows, key=lambda row: (-abs(row[2].bytes - row[1].bytes), row[0]))


def _signed(size):
    return ("+" if size >= 0 else "-") + bytes_text(abs(size))


def print_differences(before, after, rows, count, depth):
    """What grew and what shrank."""
    say("from: " + opening(before))
    say("to:   " + opening(after))
    total = sum(new.bytes - old.bytes for _, old, new in rows)
    say(f"change: {_signed(total)}")
    out.print()
    table = _table("change", "before", "after", "site")
    for key, old, new in rows[:count]:
        shown = list(key[:depth]) + ([f"… {len(key) - depth} more"] if len(key) > depth else [])
        table.add_row(_signed(new.bytes - old.bytes), bytes_text(old.bytes),
                      bytes_text(new.bytes), "\n".join(shown))
    out.print(table)
    if len(rows) > count:
        say(f"and {len(rows) - count} more sites (--top)")
