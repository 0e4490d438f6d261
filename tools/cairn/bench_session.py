"""The runs of a benchmark: rounds, in each of which every unit meets all allocators in a new order.

Neighbouring runs of a row are those of different allocators, so a drift of the machine meets all
alike, and the order within is shuffled, so that no allocator always follows the same one. The first
round is a warm-up (page cache, clock of the processor) and is not recorded.
"""

import random
import time

from cairn.bench_results import Results
from cairn.bench_rows import RunFailed


class Session:
    def __init__(self, units, allocators, settings, seed):
        self.settings = settings
        self.random = random.Random(seed)
        self.allocators = allocators
        self.skipped = {}  # row name -> reason
        self.units = []
        for unit in units:
            reason = unit.skip_reason(settings)
            if reason is None:
                self.units.append(unit)
            else:
                self.skipped.update({row.name: reason for row in unit.rows})
        extra = [one for unit in self.units for one in unit.extra_allocators]
        self.results = Results([row for unit in self.units for row in unit.rows],
                               [*allocators, *extra])
        self.rounds_done = 0
        self.interrupted = False

    def remarks(self):
        """Sentences on units that do less than was asked for."""
        for unit in self.units:
            sentence = unit.remark(self.settings) if hasattr(unit, "remark") else None
            if sentence:
                yield sentence

    def runs_a_round(self):
        return sum(len(self.allocators) + len(unit.extra_allocators) for unit in self.units)

    def _run_one(self, unit, allocator, round_number):
        if all((row.name, allocator.name) in self.results.failures for row in unit.rows):
            return  # it failed before and is not compared any more
        try:
            figures = unit.run(allocator, self.settings)
        except RunFailed as failure:
            for row in unit.rows:
                self.results.fail(row.name, allocator.name, str(failure))
            return
        if round_number > 0:
            for row in unit.rows:
                self.results.add(round_number, row.name, allocator.name, figures[row.name])

    def _round(self, number, on_run):
        for unit in self.units:
            order = [*self.allocators, *unit.extra_allocators]
            self.random.shuffle(order)
            for allocator in order:
                on_run(unit, allocator)
                self._run_one(unit, allocator, number)

    def run(self, rounds, deadline_s=None, on_run=lambda unit, allocator: None,
            on_round=lambda done: None):
        """One warm-up round and then as many as asked for, but with a deadline no round that would
        end after it, unless it is the first. An interrupt keeps the rounds that were done."""
        start = time.monotonic()
        try:
            for number in range(rounds + 1):
                round_start = time.monotonic()
                self._round(number, on_run)
                now = time.monotonic()
                self.rounds_done = number
                on_round(number)
                if deadline_s and number > 0 and now + (now - round_start) > start + deadline_s:
                    break
        except KeyboardInterrupt:
            self.interrupted = True
