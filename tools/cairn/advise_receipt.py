"""The receipt of a verdict: the trace replayed with exactly these sites on the allocator proposed,
beside the trace replayed as it was."""

import dataclasses
import pathlib
import statistics
import tempfile
from contextlib import ExitStack

from cairn.replay_play import Side, play_all, prepared

SAMPLES = 200
AS_IT_WAS = "reserve:1"  # malloc, by the same way through the player as the other policies
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
    both see the same machine."""
    with tempfile.TemporaryDirectory(prefix="cairn-advise-") as folder, ExitStack() as stack:
        sides = []
        for name, policy in (("as it was", AS_IT_WAS), ("proposed", verdict.policy)):
            file = pathlib.Path(folder) / name
            file.write_text(policy_text([dataclasses.replace(verdict, policy=policy)]),
                            encoding="utf-8")
            made = stack.enter_context(prepared(trace, file))
            sides.append(Side(name, library, made, False, True))
        play_all(sides, rounds, samples=SAMPLES)
    base, proposed = sides
    times = _saved(base, proposed, "cpu_ns", "wait_ns")
    noise = (times[3 * len(times) // 4] - times[len(times) // 4]) / 2
    time_ns = statistics.median(times)
    peak = statistics.median(_saved(base, proposed, "peak_bytes"))
    resident = [statistics.mean(size for _, _, size in side.samples) if side.samples else 0
                for side in sides]
    whole = program.peak_bytes or statistics.median(run["peak_bytes"] for run in base.runs)
    return Receipt(time_ns, time_ns / max(program.time_ns, 1), peak, resident[0] - resident[1],
                   max(peak / max(whole, 1), (resident[0] - resident[1]) / max(resident[0], 1)),
                   abs(time_ns) <= noise)
