"""The receipt of a verdict: the trace replayed with exactly these sites on the allocator proposed,
beside the trace replayed as it was."""

import dataclasses
import pathlib
import statistics
import tempfile

from cairn.replay_play import Side, play_all, prepared

SAMPLES = 200
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

    time_ns: float
    time_share: float  # of the program's time
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


def _saved(base, proposed, name, less=None):
    """How much smaller the figure was, of each pair of runs, sorted."""
    def figure(run):
        return run[name] - (run[less] if less else 0)
    return sorted(figure(before) - figure(after)
                  for before, after in zip(base.runs, proposed.runs))


def receipt(trace, verdict, program, library, rounds):
    """The Receipt of a verdict that has a policy: pairs of replays, one after the other, so that
    both see the same machine. They differ by the allocator alone: the player's own work for the
    sites, which a program does not have, is in both."""
    with tempfile.TemporaryDirectory(prefix="cairn-advise-") as folder:
        policies = pathlib.Path(folder) / "policies"
        policies.write_text(policy_text([verdict]), encoding="utf-8")
        with prepared(trace, policies) as made:
            base = Side("as it was", library, made, sites_player=True, sites_by_malloc=True)
            proposed = Side("proposed", library, made, sites_player=True)
            play_all([base, proposed], rounds, touch="filled", samples=SAMPLES)
    times = _saved(base, proposed, "cpu_ns", "wait_ns")
    noise = (times[3 * len(times) // 4] - times[len(times) // 4]) / 2
    time_ns = statistics.median(times)
    peak = statistics.median(_saved(base, proposed, "peak_bytes"))
    resident = [statistics.mean(size for _, _, size in side.samples) if side.samples else 0
                for side in (base, proposed)]
    whole = program.peak_bytes or statistics.median(run["peak_bytes"] for run in base.runs)
    return Receipt(time_ns, time_ns / max(program.time_ns, 1), peak, resident[0] - resident[1],
                   max(peak / max(whole, 1), (resident[0] - resident[1]) / max(resident[0], 1)),
                   abs(time_ns) <= noise)
