"""Runs a server under one allocator: starts it, waits until it answers, runs a load command in
bursts, leaves it silent, and ends it. Its memory is sampled all the time."""

import re
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from typing import Callable, List, NamedTuple, Optional, Sequence

from cairn import measure, probe, report, server_memory, server_ready
from cairn.errors import UserError, signal_name

NO_LIMIT_S = 1e9
READY_S = 60
POLL_S = 0.05
CRASH_S = 1  # from the failure of the load to the report of the server's end
PAUSE_S = 1  # after each burst but the last
# Lines of a load command, as wrk --latency, ab and hey print them; a number alone is milliseconds.
LATENCY = re.compile(r"^\s*(50|99)%+(?:\s+in)?\s+(\d+(?:\.\d+)?)\s*(us|ms|s|secs)?\s*$", re.M)
MILLISECONDS = {"us": 1e-3, "ms": 1, "": 1, "s": 1e3, "secs": 1e3}


@dataclass(frozen=True)
class Job:
    """The parameters, equal under each allocator."""

    command: List[str]
    load: str
    bursts: int
    idle_s: float
    ready: Optional[str] = None  # port or command
    stdin: object = None
    show_output: bool = False
    prepare: Callable = lambda: None
    loads: Sequence[str] = ()  # the load of each burst, if they differ

    def load_of(self, number):
        return self.loads[number - 1] if self.loads else self.load


class Burst(NamedTuple):
    """One run of the load command, in seconds since the first sample."""

    start: float
    end: float
    latencies: dict  # milliseconds by percentile


@dataclass
class Result:
    """The measurements of a server under one allocator."""

    side: object  # compare.Side
    samples: list = field(default_factory=list)
    bursts: List[Burst] = field(default_factory=list)
    after: list = field(default_factory=list)  # a Sample at the end of each burst
    silent: object = None  # the Sample at the end of the silence
    cpu_s: float = 0
    unreadable: int = 0  # processes whose memory could not be read

    def peak(self):
        return max(sample.bytes for sample in self.samples)

    def latency(self, percentile):
        """The median of all bursts, or None."""
        values = [burst.latencies[percentile] for burst in self.bursts
                  if percentile in burst.latencies]
        return statistics.median(values) if values else None

    def load_s(self):
        return sum(burst.end - burst.start for burst in self.bursts)

    def phase(self, seconds):
        for number, burst in enumerate(self.bursts, 1):
            if burst.start <= seconds <= burst.end:
                return f"burst {number}"
        return "silence" if seconds > self.bursts[-1].end else "pause"


class ServerEnded(UserError):
    """The server ended before it should. The exit status is 128 + N after signal N."""

    def __init__(self, job, side, server, when):
        run = server.run()
        words = run.stderr_tail.strip().splitlines()
        super().__init__(f"{job.command[0]} under {side.name} ended {when}: "
                         + report.describe_end(run) + (f": {words[-1]}" if words else ""))
        if run.failed_signal:
            self.status = 128 + run.failed_signal


def latencies(text):
    """Milliseconds by percentile, of what a load command printed; a later line counts."""
    return {int(percentile): float(value) * MILLISECONDS[unit]
            for percentile, value, unit in LATENCY.findall(text)}


def _await_ready(job, side, server, tree):
    end = time.monotonic() + READY_S
    while not server_ready.answers(job.ready, tree):
        if server.has_ended(POLL_S):
            raise ServerEnded(job, side, server, "before it answered (a server has to stay in the "
                              "foreground)")
        if time.monotonic() > end:
            how = (f"--ready {job.ready}" if job.ready else "no process of it listens on a TCP "
                   "port or Unix socket; --ready COMMAND tests it in another way")
            raise UserError(f"{job.command[0]} under {side.name} did not answer within "
                            f"{READY_S} s: {how}")


def _check_served(side, path):
    """The library serves the server, whose first process may still start another program."""
    side.processes = probe.read(path)
    if side.library and not any(probe.serves(process, side.library)
                                for process in side.processes):
        probe.check_served(side.name, [side.name], side.library, side.processes)


def _run_load(job, side, server, number):
    """Runs the load command once. Returns its output."""
    with tempfile.TemporaryFile() as output, measure.started(
            ["/bin/sh", "-c", job.load_of(number)], limit_s=NO_LIMIT_S, output=output,
            session=True) as load:
        while not load.has_ended(POLL_S):
            if server.has_ended():
                raise ServerEnded(job, side, server, f"during burst {number}")
        run = load.run()
        # The load may notice the end of the server first.
        if server.has_ended(POLL_S if run.status == 0 else CRASH_S):
            raise ServerEnded(job, side, server, f"during burst {number}")
        if run.status:
            end = (f"killed by {signal_name(run.failed_signal)}" if run.failed_signal else
                   f"exit status {run.exit_code}")
            words = run.stderr_tail.strip().splitlines()
            raise UserError(f"--load failed in burst {number} under {side.name}: {end}"
                            + (f": {words[-1]}" if words else ""))
        output.seek(0)
        return output.read().decode(errors="surrogateescape")


def _measure(job, side, server, tree, on_phase):
    result = Result(side)
    cpu_before_s = tree.cpu_s()
    with server_memory.Sampler(tree) as sampler:
        result.samples = sampler.samples
        for number in range(1, job.bursts + 1):
            if number > 1 and server.has_ended(PAUSE_S):
                raise ServerEnded(job, side, server, f"after burst {number - 1}")
            on_phase(f"burst {number}")
            start = sampler.now()
            text = _run_load(job, side, server, number)
            result.after.append(sampler.sample())
            result.bursts.append(Burst(start, sampler.now(), latencies(text)))
        on_phase("silence")
        if server.has_ended(job.idle_s):
            raise ServerEnded(job, side, server, "during the silence")
        result.silent = sampler.sample()
    result.cpu_s = tree.cpu_s() - cpu_before_s
    result.unreadable = len(tree.unreadable)
    return result


def run(job, side, on_phase=lambda words: None):
    """Returns the Result of one allocator."""
    on_phase("start")
    server_ready.check_nothing_answers(job.ready)
    job.prepare()
    with probe.probe_file() as path, measure.started(
            job.command, side.library, stdin=job.stdin, show_output=job.show_output,
            limit_s=NO_LIMIT_S, probe_file=path, options=side.options, session=True) as server:
        tree = server_memory.Tree(server.process.pid)
        _await_ready(job, side, server, tree)
        _check_served(side, path)
        result = _measure(job, side, server, tree, on_phase)
        server.stop()
        end = server.run()
    if end.failed_signal:
        raise UserError(f"{job.command[0]} under {side.name} was killed by "
                        f"{signal_name(end.failed_signal)} when it was ended by SIGTERM")
    return result
