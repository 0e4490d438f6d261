"""Measures what a verdict's change saves: the trace is replayed with exactly these sites on the
proposed allocator, and with them on malloc.

A trace does not show how much time a program gains from instructions that it no longer runs. A
processor executes some of them in parallel with the program's own work, depending on the
dependencies between the two. So both extremes are replayed, with as much work between the calls as
the program has (tools/replay/work.h): allocator and work never wait for each other, or they always
do. The saving is the middle of the two, and its ± includes both.

Memory is measured in further runs, without huge pages: otherwise the peak grows by 2 MiB at a time,
which would hide smaller savings.

The player takes longer for a trace than the program, because its records go through the caches too.
So each avoided wait for memory may count for more than in the program: at most for as much more as
the player is slower.
"""

import dataclasses
import math
import pathlib
import statistics
import tempfile

from cairn.replay_play import WORKS, Side, play_once, prepared

TOUCH = "filled"
# No processor looks ahead by more than some hundred instructions, so longer work hides no more. And
# a trace of 100 million calls should take only seconds to play.
WORK_NS_MOST = 50
POLICY_FIRST = "site-policy 1"
# The kernel's count of a process's pages differs by this between runs of one program, because each
# processor keeps up to 32 pages. It also includes the code of an allocator that only the changed
# program uses, mapped 16 pages at once.
MEMORY_NOISE_BYTES = 384 << 10
BATCHES_MOST = 3  # batches of rounds, while it is uncertain whether the saving is large enough


@dataclasses.dataclass(frozen=True)
class Program:
    """The whole that shares refer to: the program without a trace, as far as known."""

    time_ns: float  # CPU time of its threads, or from the first event of the trace to the last
    peak_bytes: float  # resident; 0: unknown, so that of the replay counts
    is_measured: bool  # not taken from its trace, which slows it down


@dataclasses.dataclass(frozen=True)
class Figure:
    """The saving of time or memory by a change; negative: a cost."""

    value: float
    noise: float  # the ±: a smaller value is no difference
    whole: float  # of the program

    @property
    def share(self):
        """At most 1: on a busy machine the replay may save more time than the program took."""
        return min(1.0, self.value / self.whole)

    @property
    def sure_share(self):
        """The lower limit of the share."""
        return self.share - self.noise / self.whole

    @property
    def is_gain(self):
        return self.value > self.noise

    @property
    def is_cost(self):
        return self.value < -self.noise

    def is_open(self, least):
        """Whether more rounds could still decide if it reaches this share."""
        return abs(self.value - least * self.whole) <= self.noise


@dataclasses.dataclass(frozen=True)
class Saving:
    """The measured saving of a change."""

    time: Figure  # nanoseconds of CPU time
    memory: Figure  # bytes of the resident peak

    @property
    def is_cost(self):
        return self.time.is_cost or self.memory.is_cost

    @property
    def share(self):
        """The share of the program's time or memory, whichever is larger; 0 when neither is
        certain."""
        return max((each.share for each in (self.time, self.memory) if each.is_gain), default=0.0)

    @property
    def sure_share(self):
        return 0.0 if self.is_cost else max(self.time.sure_share, self.memory.sure_share)


def ranges(numbers):
    """The words of a policy for stack numbers: "3 5-9"."""
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
    """A file of site policies with one line for each verdict."""
    lines = [POLICY_FIRST]
    for number, verdict in enumerate(verdicts, 1):
        stacks = [stack for site in verdict.sites for stack in site["stacks"]]
        lines.append(f"{verdict.kind.replace(' ', '-')}-{number} {verdict.policy} "
                     + " ".join(ranges(stacks)))
    return "\n".join(lines) + "\n"


def _time_ns(run):
    return run["cpu_ns"] - run["wait_ns"]


def _saved(base, proposed, figure):
    """How much smaller the figure was in each pair of runs; one side may have more runs."""
    return [figure(before) - figure(after) for before, after in zip(base.runs, proposed.runs)]


def _spread(values):
    """The width of the middle half of the values; for three values, the width of all."""
    values = sorted(values)
    return values[3 * len(values) // 4] - values[len(values) // 4]


def _time_figure(ends, whole, player_ns):
    """The middle of the savings measured at both extremes, scaled by the slowness of the player.
    Its ± is half the difference of the extremes plus twice the standard error of a median, which is
    1.25 of the mean's. The middle half of a normal distribution is 1.35 standard deviations wide.
    """
    medians = [statistics.median(end) for end in ends]
    least = min(1.0, whole / max(player_ns, 1))
    rest = [value - median for end, median in zip(ends, medians) for value in end]
    error = 1.25 * _spread(rest) / 1.35 / math.sqrt(len(rest))
    middle = statistics.mean(medians)
    return Figure(middle * (1 + least) / 2,
                  (max(medians) - min(medians)) / 2 + 2 * error + abs(middle) * (1 - least) / 2,
                  whole)


def work_ns(program, player_ns, events):
    """The program's own time between two of its calls, as far as a processor looks ahead."""
    return round(min(WORK_NS_MOST, max(0.0, program.time_ns - player_ns) / max(1, events)))


def _saving(program, player_ns, base, proposed):
    """The Saving of a change, from its sides and the sides on malloc: one for each kind of work,
    and one for memory."""
    *pairs, of_memory = zip(base, proposed)
    memory = _saved(*of_memory, lambda run: run["peak_bytes"])
    # The program has code, files and stacks in addition to its blocks; the replay does not.
    held = max(program.peak_bytes,
               statistics.median(run["peak_bytes"] for side in base for run in side.runs))
    return Saving(
        _time_figure([_saved(*pair, _time_ns) for pair in pairs], max(program.time_ns, 1),
                     player_ns),
        Figure(statistics.median(memory), max(_spread(memory), MEMORY_NOISE_BYTES), max(held, 1)))


def measured(trace, program, library, rounds, least, verdicts):
    """Returns the Saving of each of these verdicts, which have policies. All share one replay
    program, and are played in turn with the sides on malloc, so that all see the machine in equal
    states. While it is uncertain whether a change saves `least`, it is played in more rounds.

    The sides differ only by the allocator of one verdict's sites: all include the player's own work
    for sites, which a program does not have.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-advise-") as folder:
        policies = pathlib.Path(folder) / "policies"
        policies.write_text(policy_text(verdicts), encoding="utf-8", errors="surrogateescape")
        with prepared(trace, policies) as made:
            first = Side("malloc", library, made, sites_player=True, sites_by_malloc=True)
            player_ns = _time_ns(play_once(first, TOUCH))
            between = work_ns(program, player_ns, made.events)

            kinds = [{"work": (work, between)} for work in WORKS] + [{"options": "huge_pages:off"}]

            def sides(number):
                return [Side(f"{number}", library, made, sites_player=True,
                             sites_by_malloc=not number, site=number, **kind) for kind in kinds]
            base = sides(0)
            proposed = [sides(number) for number in range(1, len(verdicts) + 1)]
            savings, is_open = [None] * len(verdicts), [True] * len(verdicts)
            for _ in range(BATCHES_MOST):
                played = base + [side for each, wanted in zip(proposed, is_open) if wanted
                                 for side in each]
                for number in range(rounds):
                    for side in played if number % 2 else reversed(played):
                        side.runs.append(play_once(side, TOUCH))
                for at, each in enumerate(proposed):
                    if is_open[at]:
                        savings[at] = _saving(program, player_ns, base, each)
                        is_open[at] = not savings[at].is_cost and savings[at].time.is_open(least)
                if not any(is_open):
                    break
    return savings
