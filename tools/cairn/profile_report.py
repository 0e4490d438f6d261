"""Prints the sites of a profile that hold most memory."""

import math

from cairn import profile_names
from cairn.console import out, print_sites, say
from cairn.profile_file import Sums
from cairn.texts import bytes_text, json_text, share

REASONS = {"end": "at its end", "growth": "after it grew", "call": "when it asked for it",
           "memory": "read from its memory", "core": "read from its core file"}
FEW_SAMPLES = 100  # with fewer, the error of an average site exceeds a tenth
GOOD_SAMPLES = 400
NOISE = 2  # standard errors; chance causes a larger change in one case of twenty


def opening(profile):
    """The sentence that identifies the profile."""
    if not profile.version:
        return f"{profile.path}: a dump without its first lines"
    process = f"process {profile.pid} ({profile.program})"
    reason = REASONS.get(profile.reason, profile.reason)
    if profile.processes > 1:
        process, reason = f"{profile.processes} processes of {profile.program}", "merged"
    return (f"{process}, {reason}: Cairn {profile.version}, "
            f"a sample in {bytes_text(profile.interval)}")


def _interval_text(size):
    for unit in ("", "K", "M"):
        if size < 1024 or unit == "M":
            return f"{size}{unit}"
        size //= 1024
    return ""


def _few_samples(profile, live):
    """A sentence on the interval that would give enough samples."""
    total = profile.sum(live)
    if not 0 < total.samples < FEW_SAMPLES:
        return
    wanted = 1 << max(6, int(math.log2(max(1, total.bytes / GOOD_SAMPLES))))
    if wanted < profile.interval:
        text = _interval_text(wanted)
        yield (f"{total.samples} sample{'s are' if total.samples != 1 else ' is'} too few to "
               f"compare sites: an interval of {text} gives about {round(total.bytes / wanted)} "
               f"(--interval {text}, or profile:{text} in CAIRN_OPTIONS)")


def remarks(profile, symbols):
    """Sentences about missing parts."""
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


def variance(sums):
    """The variance of an estimate of bytes: each of n samples stands for an equal number of blocks;
    without unsampled blocks there is no error."""
    if not sums.samples or not sums.objects:
        return 0
    return sums.bytes ** 2 / sums.samples * max(0, 1 - sums.samples / sums.objects)


def _error_text(sums):
    return f"±{100 * math.sqrt(variance(sums)) / sums.bytes:.0f} %" if sums.bytes else ""


def _sums_text(total):
    return (f"{bytes_text(total.bytes)} {_error_text(total)} in about {total.objects:.0f} blocks, "
            f"{total.samples} sample{'s' if total.samples != 1 else ''}")


def _by_look(profile, symbols, live, depth):
    """[(frames, Sums)], the largest first, summed over stacks whose printed frames are equal."""
    found = {}
    for site in profile.sites:
        sums = site.live if live else site.allocated
        if sums.bytes:
            frames = symbols.stack(site.frames)
            look = tuple(profile_names.lines(frames, depth, None))
            found.setdefault(look, (frames, Sums()))[1].add(sums)
    return sorted(found.values(), key=lambda row: -row[1].bytes)


def print_top(profile, symbols, live, count, depth):
    """Prints the sites with the most bytes."""
    say(opening(profile))
    for remark in remarks(profile, symbols):
        say(remark)
    say("in use:    " + _sums_text(profile.sum(True)))
    say("allocated: " + _sums_text(profile.sum(False)))
    if live and not profile.sum(True).samples:
        say("nothing is in use: these sites have allocated since the start")
        live = False
    for remark in _few_samples(profile, live):
        say(remark)
    total = profile.sum(live).bytes
    sites = _by_look(profile, symbols, live, depth)
    rows = [((bytes_text(sums.bytes), _error_text(sums), share(sums.bytes, total),
              f"{sums.objects:.0f}"),
             lambda room, frames=frames: profile_names.lines(frames, depth, room))
            for frames, sums in sites[:count]]
    if rows:
        out.print()
        print_sites(("in use" if live else "allocated", "±", "share", "blocks"), rows)
    if len(sites) > count:
        rest = sum(sums.bytes for _, sums in sites[count:])
        say(f"and {len(sites) - count} more sites with {bytes_text(rest)} (--top)")


def _sums_json(sums):
    return {"samples": sums.samples, "objects": round(sums.objects, 3), "bytes": sums.bytes,
            "standard_error_bytes": round(math.sqrt(variance(sums)))}


def to_json(profile, symbols):
    """All figures, in bytes, as JSON."""
    return json_text({
        "process": {"pid": profile.pid, "program": profile.program, "version": profile.version},
        "processes": profile.processes,
        "reason": profile.reason, "interval_bytes": profile.interval, "whole": profile.is_whole,
        "lost": {"stacks": profile.lost_stacks, "blocks": profile.lost_blocks},
        "torn": profile.torn, "unreadable": profile.unreadable,
        "live": _sums_json(profile.sum(True)), "allocated": _sums_json(profile.sum(False)),
        "remarks": [*remarks(profile, symbols), *_few_samples(profile, True)],
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
