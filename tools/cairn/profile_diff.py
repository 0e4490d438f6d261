"""The changes between two profiles, with their standard errors."""

import dataclasses
import math

from cairn import profile_names
from cairn.console import out, print_sites, say
from cairn.profile_file import Sums
from cairn.profile_report import NOISE, opening, variance
from cairn.profile_symbols import Symbols
from cairn.texts import bytes_text

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclasses.dataclass
class Change:
    """The change of all stacks with equal functions."""

    stack: tuple  # frames of one of them, innermost first
    before: Sums = dataclasses.field(default_factory=Sums)
    after: Sums = dataclasses.field(default_factory=Sums)
    variance: float = 0  # of the difference of bytes

    @property
    def bytes(self):
        return self.after.bytes - self.before.bytes

    @property
    def error(self):
        return math.sqrt(self.variance)

    @property
    def is_noise(self):
        return abs(self.bytes) <= NOISE * self.error


def _block(block):
    return block.address, block.time_ms, block.thread, block.asked


def _has_all_blocks(profile):
    return not (profile.lost_blocks or profile.torn or profile.unreadable) and profile.is_whole


def _is_later(before, after):
    """Whether both profiles are of one process, so that the later one contains the samples of the
    other."""
    def place(profile):
        return [(each.start, each.path) for each in profile.maps[:1]]
    return before.pid == after.pid and place(before) == place(after) != [] and \
        before.time_ms <= after.time_ms


def _variances(change, before, after, live, common, blocks):
    """The variance of a change. Samples in both profiles cancel out: of the bytes in use, the
    blocks in `common`; within one process, all that it had allocated before."""
    if live and blocks is not None:
        return sum(block.bytes ** 2 * max(0, 1 - 1 / max(1, block.objects))
                   for block in blocks if _block(block) not in common)
    if not live and _is_later(before, after):
        between = Sums()
        between.add(change.after)
        between.add(change.before, -1)
        return variance(between) if between.samples > 0 else 0
    return variance(change.before) + variance(change.after)


def _sorted(changes):
    return sorted(changes, key=lambda change: (change.is_noise, -abs(change.bytes),
                                               [frame.function for frame in change.stack]))


def differences(before, after, live, folders=()):
    """[Change], the largest change of bytes first, those within the noise last. Stacks are compared
    by the names of their functions, because a rebuild moves lines."""
    found, blocks = {}, {}
    for profile, name in ((before, "before"), (after, "after")):
        symbols, keys = Symbols(profile, folders), {}
        for site in profile.sites:
            frames = symbols.stack(site.frames)
            key = keys[site.frames] = tuple(frame.function for frame in frames)
            change = found.setdefault(key, Change(tuple(frames)))
            getattr(change, name).add(site.live if live else site.allocated)
        for block in profile.blocks:
            blocks.setdefault(keys.get(block.frames), []).append(block)
    common = set(map(_block, before.blocks)) & set(map(_block, after.blocks))
    are_listed = _has_all_blocks(before) and _has_all_blocks(after)
    for key, change in found.items():
        change.variance = _variances(change, before, after, live, common,
                                     blocks.get(key, []) if are_listed else None)
    return _sorted([change for change in found.values() if change.bytes])


def to_values(rows):
    """The changes, for JSON."""
    return [{"stack": [frame.function for frame in change.stack],
             "before_bytes": change.before.bytes, "after_bytes": change.after.bytes,
             "change_bytes": change.bytes, "standard_error_bytes": round(change.error),
             "is_noise": change.is_noise} for change in rows]


def _with_error(size, error):
    """Both values in the unit of the larger one: +24.0 ± 1.2 MiB."""
    step = 0
    while max(abs(size), error) >= 1024 and step < len(UNITS) - 1:
        size, error, step = size / 1024, error / 1024, step + 1
    digits = 1 if step else 0
    return f"{size:+.{digits}f} ± {error:.{digits}f} {UNITS[step]}"


def _by_look(rows, depth):
    """The changes, summed over stacks whose printed frames are equal."""
    found = {}
    for row in rows:
        look = tuple(profile_names.lines([dataclasses.replace(frame, line=0)
                                          for frame in row.stack], depth, None))
        known = found.setdefault(look, Change(row.stack))
        known.before.add(row.before)
        known.after.add(row.after)
        known.variance += row.variance
    return _sorted([change for change in found.values() if change.bytes])


def _print_changes(rows, depth):
    print_sites(("change", "before", "after"), [
        ((_with_error(change.bytes, change.error), bytes_text(change.before.bytes),
          bytes_text(change.after.bytes)),
         lambda room, frames=change.stack: profile_names.lines(frames, depth, room))
        for change in rows])


def print_differences(before, after, rows, count, depth):
    """Prints the changes."""
    say("from: " + opening(before))
    say("to:   " + opening(after))
    total = sum(change.bytes for change in rows)
    error = math.sqrt(sum(change.variance for change in rows))
    say(f"change: {_with_error(total, error)}"
        + (", within the noise" if rows and abs(total) <= NOISE * error else ""))
    rows = _by_look(rows, depth)
    real = [change for change in rows if not change.is_noise]
    if real:
        out.print()
        _print_changes(real[:count], depth)
    noise = rows[len(real):][:max(0, count - len(real))]
    if noise:
        out.print()
        say(f"Within the noise: changes of at most {NOISE} standard errors (±), which the choice "
            "of samples explains.")
        _print_changes(noise, depth)
    left = len(rows) - min(count, len(real)) - len(noise)
    if left:
        say(f"and {left} more sites (--top)")
