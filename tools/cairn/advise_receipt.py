"""The receipt of a verdict: the trace replayed with exactly these sites on the allocator proposed,
beside the trace replayed as it was.

How much time a program gains from instructions that it no longer runs, a trace does not tell: a
processor runs some of them beside the program's own work, and how many, depends on what waits for
what. So both ends are played, each with as much work between the calls as the program has
(tools/replay/work.h): one where the allocator and the work never wait for each other, and one where
they always do. A receipt says what was saved in the one and in the other."""

import dataclasses
import pathlib
import statistics
import tempfile

from cairn.replay_play import WORKS, Side, play_all, prepared

SAMPLES = 200
TOUCH = "filled"
# Further than some hundred instructions no processor works ahead: longer work hides no more, and
# a trace of 100 million calls is to be played in seconds.
WORK_NS_MOST = 50
POLICY_FIRST = "site-policy 1"


@dataclasses.dataclass(frozen=True)
class Program:
    """What the shares are of: the program without a trace, as far as known."""

    time_ns: float  # of its threads, or from the trace's first event to its last
    peak_bytes: float  # resident; 0: not known, then that of the replay counts
    is_measured: bool  # not by its trace, which makes it slower


@dataclasses.dataclass(frozen=True)
class Receipt:
    """What a change would have saved; negative: cost."""

    time_ns: float  # the middle of what follows
    time_low_ns: float
    time_high_ns: float
    time_share: float  # of the program's time
    time_low_share: float
    time_high_share: float
    peak_bytes: float
    mean_bytes: float
    memory_share: float  # of the program's memory: the larger one of peak and mean
    is_within_noise: bool  # the time


def ranges(numbers):
    """The words of a policy for numbers of stacks: "3 5-9"."""
    words, numbers = [], sorted(numbers)
    at = 0
    while at < len(numbers):
        last = at
        while last + 1 < len(numbers) and numbers[last + 1] == numbers[last] + 1:
            last += 1
        words.append(str(numbers[at]) if last == at else f"{numbers[at]}-{numbers[last]}")
        at = last + 1
    return words


def policy_text(verdicts):
    """A file of site policies, a line a verdict."""
    lines = [POLICY_FIRST]
    for number, verdict in enumerate(verdicts, 1):
        stacks = [stack for site in verdict.sites for stack in site["stacks"]]
        lines.append(f"{verdict.kind.replace(' ', '-')}-{number} {verdict.policy} "
                     + " ".join(ranges(stacks)))
    return "\n".join(lines) + "\n"


def _time_ns(run):
    return run["cpu_ns"] - run["wait_ns"]


def _saved(pair, figure):
    """How much smaller the figure was, of each pair of runs, sorted."""
    base, proposed = pair
    return sorted(figure(before) - figure(after)
                  for before, after in zip(base.runs, proposed.runs))


def _middle_half(values):
    return values[len(values) // 4], values[3 * len(values) // 4]


def work_ns(program, player_ns, events):
    """The program's own time between two of its calls, as far as a processor looks ahead."""
    return round(min(WORK_NS_MOST, max(0.0, program.time_ns - player_ns) / max(1, events)))


def receipt(trace, verdict, program, library, rounds):
    """The Receipt of a verdict that has a policy: pairs of replays, one after the other, so that
    both see the same machine. They differ by the allocator alone: the player's own work for the
    sites, which a program does not have, is in both. The first pair, which has no work of the
    program's, is for memory over time, and for how long that work is."""
    with tempfile.TemporaryDirectory(prefix="cairn-advise-") as folder:
        policies = pathlib.Path(folder) / "policies"
        policies.write_text(policy_text([verdict]), encoding="utf-8")
        with prepared(trace, policies) as made:
            def pair(work=None):
                return [Side(name, library, made, sites_player=True, sites_by_malloc=by_malloc,
                             work=work) for name, by_malloc in (("as it was", True),
                                                                ("proposed", False))]
            first = pair()
            play_all(first, 1, touch=TOUCH, samples=SAMPLES)
            between = work_ns(program, _time_ns(first[0].runs[0]), made.events)
            pairs = [pair((work, between)) for work in WORKS]
            play_all([side for each in pairs for side in each], rounds, touch=TOUCH, samples=0)
    times = [_saved(each, _time_ns) for each in pairs]
    ends = [end for each in times for end in _middle_half(each)]
    low, high = min(ends), max(ends)
    time_ns = statistics.mean(statistics.median(each) for each in times)
    noise = max((end - start) / 2 for start, end in map(_middle_half, times))
    peak = statistics.median(saved for each in pairs
                             for saved in _saved(each, lambda run: run["peak_bytes"]))
    mean = [statistics.mean(size for _, _, size in side.samples) if side.samples else 0
                for side in first]
    replayed = statistics.median(run["peak_bytes"] for each in pairs for run in each[0].runs)
    # What the program holds beside its blocks, the replay does not: code, files, stacks.
    whole = max(program.peak_bytes, replayed)
    span = max(program.time_ns, 1)
    return Receipt(
        time_ns=time_ns, time_low_ns=low, time_high_ns=high,
        time_share=time_ns / span, time_low_share=low / span, time_high_share=high / span,
        peak_bytes=peak, mean_bytes=mean[0] - mean[1],
        memory_share=max(peak / whole, (mean[0] - mean[1]) / max(1, mean[0] + whole - replayed)),
        is_within_noise=abs(time_ns) <= noise)
