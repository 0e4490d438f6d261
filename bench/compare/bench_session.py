"""The runs of a benchmark: in each round every unit runs on all allocators, in a new order.

Neighbouring runs of a row are on different allocators, so a drift of the machine affects all alike,
and the order is shuffled, so that no allocator always follows one other. The first round is a
warm-up (page cache, clock of the processor) and is not recorded. Before each run this tool touches
and frees as much memory as the run may need: on a virtual machine the first touch of memory that
the host does not back costs thirty times a later one.

After an early end the results so far are in `results`: a run that fails is a failure of its rows
under its allocator; an interrupt or an error of the system ends the session.
"""

import random
import subprocess
import time

from bench_machine import touch_memory
from bench_results import Results
from bench_rows import Figure, RunFailed
from cairn.errors import UserError, os_sentence, status_of


def _attempt(unit, allocator, settings):
    """An entry of the journal: figures by row, or the reason that there are none."""
    try:
        if not settings.cold:
            touch_memory(min(settings.memory_mib, int(max(row.need_mib for row in unit.rows)
                                                      * settings.scale)))
        figures = unit.run(allocator, settings)
    except (RunFailed, UserError) as failure:
        return {"failed": str(failure)}
    except (ValueError, LookupError, subprocess.SubprocessError) as error:
        return {"failed": f"its report is unreadable: {type(error).__name__}: {error}"}
    return {"figures": {name: {figure: list(value) for figure, value in of_row.items()}
                        for name, of_row in figures.items()},
            "output": unit.output}


class Session:
    def __init__(self, units, allocators, settings, seed, journal=None, warm_up=True):
        self.settings = settings
        self.random = random.Random(seed)
        self.allocators = allocators
        self.journal = journal
        self.warm_up = warm_up
        self.skipped = {}  # row name -> reason
        self.units = []
        for unit in units:
            reason = unit.skip_reason(settings)
            if reason is None:
                self.units.append(unit)
            else:
                self.skipped.update({row.name: reason for row in unit.rows})
        extra = dict.fromkeys(one for unit in self.units
                              for one in unit.more_allocators(allocators))
        self.results = Results([row for unit in self.units for row in unit.rows],
                               [*allocators, *extra])
        self.rounds_done = 0
        self.interrupted = False
        self.stopped = ""  # what ended the session early, in words
        self.status = 0  # and the exit status for it

    def remarks(self):
        """Sentences on units that do less than requested."""
        for unit in self.units:
            sentence = unit.remark(self.settings) if hasattr(unit, "remark") else None
            if sentence:
                yield sentence

    def runs_a_round(self):
        return sum(len(self._allocators_of(unit)) for unit in self.units)

    def _allocators_of(self, unit):
        return [*self.allocators, *unit.more_allocators(self.allocators)]

    def _entry(self, unit, allocator, round_number):
        """The entry from the journal, or else measured and written there."""
        entry = self.journal.find(round_number, unit, allocator) if self.journal else None
        if entry is None:
            entry = _attempt(unit, allocator, self.settings)
            if self.journal:
                self.journal.add(round_number, unit, allocator, entry)
        elif unit.output is None:
            unit.output = entry.get("output")
        return entry

    def _run_one(self, unit, allocator, round_number):
        if all((row.name, allocator.name) in self.results.failures for row in unit.rows):
            return  # it failed before and is no longer compared
        entry = self._entry(unit, allocator, round_number)
        for row in unit.rows:
            figures = entry.get("figures", {}).get(row.name)
            if figures is None:
                self.results.fail(row.name, allocator.name,
                                  entry.get("failed", "it reported nothing of this row"))
            elif round_number > 0:
                self.results.add(round_number, row.name, allocator.name,
                                 {name: Figure(*value) for name, value in figures.items()})

    def _round(self, number, on_run):
        for unit in self.units:
            order = self._allocators_of(unit)
            self.random.shuffle(order)
            for allocator in order:
                on_run(unit, allocator)
                self._run_one(unit, allocator, number)

    def run(self, rounds, deadline_s=None, on_run=lambda unit, allocator: None,
            on_round=lambda done: None):
        """Runs a warm-up round and then the requested number of rounds. With a deadline, no round
        but the first runs that would end after it. An early end keeps the results so far."""
        start = time.monotonic()
        try:
            for number in range(0 if self.warm_up else 1, rounds + 1):
                round_start = time.monotonic()
                self._round(number, on_run)
                now = time.monotonic()
                self.rounds_done = number
                on_round(number)
                if deadline_s and number > 0 and now + (now - round_start) > start + deadline_s:
                    break
        except KeyboardInterrupt as interrupt:
            self.interrupted, self.stopped = True, "interrupted"
            self.status = status_of(interrupt)
        except OSError as error:
            self.stopped, self.status = os_sentence(error), UserError.status
