"""The rules of `cairn advise` on sums that a test makes, its policies, the savings of replays that
a test simulates, and the compilation of its snippets."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import types
import unittest
from unittest import mock

from tool_path import TOOLS

# pylint: disable=wrong-import-position
from cairn import advise_command, advise_savings
from cairn.advise_report import Advice, saving_text
from cairn.advise_savings import Figure, Program, Saving, policy_text, ranges
from cairn.advise_snippets import SNIPPETS, snippet
from cairn.advise_verdicts import RULES, Verdict, merged, verdicts

INCLUDE = TOOLS.parent / "include"
POINTS = [[i, 100 * i, 1000 * i] for i in range(1, 101)]
WHOLE = {"events": 200000, "allocations": 100000, "allocated_bytes": 100000, "peak_bytes": 1000000,
         "peak_lost_bytes": 50000, "has_free_stacks": True, "points": POINTS, "state": 1}
# Blocks of many sizes with any lifetime, freed in any order: no verdict.
PLAIN = {"site": 1, "allocations": 20000, "frees": 20000, "allocated_bytes": 20000, "live": 0,
         "resizes": 0, "live_bytes": 0, "live_most": 2000, "live_bytes_most": 200000,
         "peak_bytes": 200000, "peak_lost": 5000, "peak_live": 2000, "size_most": 200,
         "ascending": 10000, "last_in": 100, "drains": 1, "grouped": 10, "groups": 5,
         "runs": 15000, "other_thread": 0, "at_once": 100, "same_function": 0, "in_ancestor": 500,
         "ancestor_depth": 1000, "grown_blocks": 0, "grown_steps": 0, "grown_final_bytes": 0,
         "grown_final_most": 0, "copied_bytes": 0, "pinned_bytes": 0, "stacks": [4, 5, 6, 9],
         "sizes": [[40, 900], [48, 800]], "points_allocated": [200 * i for i in range(1, 101)]}
TEMPORARY = {"at_once": 20000, "same_function": 20000, "live_most": 1, "last_in": 20000,
             "ascending": 20000, "drains": 20000, "in_ancestor": 20000, "ancestor_depth": 0}
SCOPE = {"in_ancestor": 20000, "ancestor_depth": 20000, "drains": 2000, "runs": 2000,
         "live_most": 10, "live_bytes_most": 1000, "ascending": 2000, "last_in": 20000}
FIFO = {"ascending": 20000, "live_most": 500, "grouped": 5000, "groups": 2500}
RING = {"grouped": 20000, "groups": 1000, "runs": 1000, "live_most": 200}
ONE = {"live_most": 1, "drains": 20000, "last_in": 20000, "ascending": 20000}
HAND_OVER = {"other_thread": 20000}
RESERVE = {"grown_blocks": 20000, "grown_steps": 160000, "resizes": 160000,
           "grown_final_bytes": 20000 * 1000, "grown_final_most": 1500, "grown_half": 1024,
           "grown_most": 1500}
PINS = {"pinned_bytes": 100000, "allocated_bytes": 2000, "frees": 0}
LEAK = {"live": 20000, "frees": 0, "live_bytes": 200000}
ROUNDING = {"peak_lost": 60000, "sizes": [[257, 20000]]}
POOL = {"sizes": [[48, 20000]], "peak_lost": 0}


def kinds(whole=None, **changes):
    """The verdicts on a program with one site."""
    found = verdicts({**WHOLE, **(whole or {}), "sites": [{**PLAIN, **changes}]})
    return [(verdict.kind, verdict.policy) for verdict in found]


class VerdictsTest(unittest.TestCase):
    def test_each_verdict(self):
        for expected, policy, sums in (
                ("temporary", "temporary", TEMPORARY), ("one at a time", "temporary", ONE),
                ("scope", "scope", SCOPE),
                ("FIFO", "fifo", FIFO), ("ring frame", "ring:20", RING),
                ("hand-over", "ring:64", HAND_OVER), ("reserve", "reserve:1536", RESERVE),
                ("pins pages", "heap", PINS), ("leak", None, LEAK),
                ("rounding", "pool:264", ROUNDING), ("pool", "pool:48", POOL)):
            self.assertEqual(kinds(**sums), [(expected, policy)])
        self.assertEqual(len(RULES), 11)

    def test_nothing(self):
        self.assertEqual(kinds(), [])
        self.assertEqual(kinds(site=0, **TEMPORARY), [], "no stack is no place")

    def test_what_looks_like_a_temporary(self):
        two = {**TEMPORARY, "live_most": 2, "in_ancestor": 0}
        self.assertEqual(kinds(**{**two, "at_once": 15000}), [])
        self.assertEqual(kinds(**{**two, "same_function": 0}), [])
        self.assertEqual(kinds(**{**TEMPORARY, "allocations": 500, "frees": 500}), [])
        # Without stacks of frees the function is not known.
        self.assertEqual(kinds({"has_free_stacks": False}, **{**TEMPORARY, "same_function": 0}),
                         [("temporary", "temporary")])

    def test_what_looks_like_one_at_a_time(self):
        for change in ({"live_most": 2}, {"other_thread": 1}, {"frees": 15000},
                       {"size_most": 200000}, {"allocations": 500, "frees": 500}):
            self.assertEqual(kinds(**{**ONE, **change}), [], change)

    def test_what_looks_like_a_scope(self):
        for change in ({"in_ancestor": 15000}, {"drains": 3}, {"other_thread": 1},
                       {"runs": 19000, "drains": 76}, {"live_bytes_most": 2000000}):
            self.assertEqual(kinds(**{**SCOPE, **change}), [], change)
        self.assertEqual(kinds({"has_free_stacks": False}, **SCOPE), [])

    def test_what_looks_like_a_fifo_or_a_ring(self):
        for change in ({"ascending": 15000}, {"runs": 5}, {"live_most": 8}, {"live_most": 10000},
                       {"frees": 12000}):
            self.assertEqual(kinds(**{**FIFO, **change}), [], change)
        for change in ({"grouped": 12000}, {"groups": 8000}, {"groups": 2}, {"last_in": 15000}):
            self.assertEqual(kinds(**{**RING, **change}), [], change)

    def test_what_is_not_always_freed_has_no_known_end(self):
        for sums, kind in (({**TEMPORARY, "live_most": 2}, "temporary"), (SCOPE, "scope"),
                           (FIFO, "FIFO"), (RING, "ring frame"), (HAND_OVER, "hand-over")):
            some = {**sums, **{name: 19700 for name in ("frees", *sums)
                               if {"frees": 20000, **sums}[name] == 20000}}
            self.assertEqual(kinds(**some), [], kind)
            # A trace that was cut lacks the end of some blocks.
            self.assertEqual([found for found, _ in kinds({"state": 2}, **some)], [kind])

    def test_what_looks_like_a_leak(self):
        early = [min(100 * i * 20, 20000) for i in range(1, 101)]  # all at the start
        self.assertEqual(kinds(**LEAK, points_allocated=early), [])
        self.assertEqual(kinds(**{**LEAK, "live": 15000}), [])
        self.assertEqual(kinds(**{**LEAK, "live_bytes": 20000}), [])

    def test_what_is_kept_may_gain_too(self):
        self.assertEqual(kinds(**{**LEAK, **ROUNDING}), [("leak", None), ("rounding", "pool:264")])
        # A group of `sites` lists it once.
        self.assertEqual(kinds(**{**PINS, **LEAK}), [("leak", None)])

    def test_chunks_of_another_allocator_are_named(self):
        chunks = {"live": 400, "allocations": 400, "live_bytes": 400 * 4080, "frees": 0,
                  "sizes": [[4080, 390], [2048, 10]]}
        for change, are_chunks in (({}, True), ({"live_bytes": 400 * 900}, False),
                                   ({"sizes": [[4080, 200]]}, False)):
            site = {**PLAIN, **LEAK, **chunks, **change, "site": 1}
            verdict, = merged([Verdict("leak", None, [site], "", {"live_bytes": 1})],
                              lambda site: site["site"])
            self.assertEqual("allocator of the program's own" in verdict.evidence, are_chunks)

    def test_leaks_of_one_place_are_one(self):
        sites = [{**PLAIN, **LEAK, **ROUNDING, "site": number} for number in (1, 2, 3)]
        found = merged(verdicts({**WHOLE, "sites": sites}), lambda site: site["site"] > 1)
        self.assertEqual(sorted((verdict.kind, len(verdict.sites)) for verdict in found),
                         [("leak", 1), ("leak", 2), *[("rounding", 1)] * 3])
        both = next(verdict for verdict in found if len(verdict.sites) == 2)
        self.assertEqual(both.numbers["live_bytes"], 400000)
        self.assertIn("40000 of 40000 blocks are never freed", both.evidence)
        self.assertIn("by 2 ways", both.evidence)

    def test_what_looks_like_growth(self):
        self.assertEqual(kinds(**{**RESERVE, "grown_blocks": 2000}), [])
        # Very different lengths: the longest one is no advice for all.
        self.assertEqual(kinds(**{**RESERVE, "grown_most": 100000}), [("reserve", "reserve:1024")])

    def test_what_looks_like_rounding_or_a_pool(self):
        self.assertEqual(kinds(**{**ROUNDING, "sizes": [[257, 2000], [300, 2000]]}), [])
        few = {"allocations": 20, "frees": 20, "peak_live": 20, "sizes": [[100, 20]],
               "peak_bytes": 2000, "peak_lost": 240}
        self.assertEqual(kinds({"peak_bytes": 2000, "peak_lost_bytes": 240}, **{**ROUNDING, **few}),
                         [], "less than a page")
        self.assertEqual(kinds(**{**ROUNDING, "peak_lost": 19000}), [("pool", "pool:257")])
        for change in ({"runs": 2}, {"live_most": 100}, {"sizes": [[48, 12000]]},
                       {"last_in": 20000}, {"live_most": 15000}):
            self.assertEqual(kinds(**{**POOL, **change}), [], change)

    def test_those_that_hold_much_do_not_pin(self):
        self.assertEqual(kinds(**{**PINS, "allocated_bytes": 50000}), [])
        self.assertEqual(kinds(**{**PINS, "pinned_bytes": 20000}), [])

    def test_policies(self):
        self.assertEqual(ranges([7, 1, 2, 3, 9]), ["1-3", "7", "9"])
        verdict = Verdict("ring frame", "ring:20", [PLAIN], "", {})
        self.assertEqual(policy_text([verdict]), "site-policy 1\nring-frame-1 ring:20 4-6 9\n")


PRELUDE = {"c": """#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
struct item { char *name; int number; };
struct list { int *values; size_t room; };
void work_on(void *object);
""", "cc": """#include <cstring>
#include <memory>
#include <vector>
struct item { int number; };
void work_on(void *object);
"""}


class SavingTest(unittest.TestCase):
    """A replay takes 10 ms; the saving depends on the way in which the program's work is played."""

    def measured(self, *saved, program_ms=30, events=1000000, less_bytes=0, least=0.03):
        """The savings of one verdict for each pair of rows of milliseconds: with work next to the
        allocator, and in line with it. A row starts again after its end. Memory is saved in the
        runs with options."""
        self.plays, self.works = 0, set()

        def play(side, touch):
            self.assertEqual(touch, "filled")
            self.plays += 1
            self.works.add(side.work)
            is_timed = side.site and side.work
            row = saved[side.site - 1][side.work[0] == "in-line"] if is_timed else [0]
            wait_ns = 3e6 if side.sites_by_malloc else 5
            return {"cpu_ns": 1e7 + wait_ns - 1e6 * row[len(side.runs) % len(row)],
                    "wait_ns": wait_ns,
                    "peak_bytes": (4 << 20) - (less_bytes if side.site and side.options else 0)}

        made = contextlib.nullcontext(types.SimpleNamespace(events=events))
        with mock.patch.object(advise_savings, "prepared", lambda *_: made), \
                mock.patch.object(advise_savings, "play_once", play):
            verdicts_of = [Verdict("pool", "pool:48", [{"stacks": [number]}], "", {})
                           for number in range(1, len(saved) + 1)]
            return advise_savings.measured("trace", Program(1e6 * program_ms, 8 << 20, True),
                                           "library", 3, least, verdicts_of)

    def saving(self, beside, in_line, **given):
        saving, = self.measured((beside, in_line), **given)
        return saving

    def words(self, saving):
        return saving_text(Advice(Verdict("pool", "pool:48", [], "", {}), saving, 0, 0))

    def test_time_is_the_middle_of_both_ends(self):
        saving = self.saving([2], [3])
        self.assertEqual((round(saving.time.value), round(saving.time.noise)), (2500000, 500000))
        self.assertEqual([round(each, 3) for each in (saving.share, saving.sure_share)],
                         [0.083, 0.067])
        self.assertEqual(self.words(saving), "time: saves 2.50 ms ± 0.50 ms, 8.3 ± 1.7 % of the "
                         "program's; peak memory: no difference beyond ± 384.0 KiB")
        self.assertEqual(self.plays, 1 + 3 * 6, "it is decided at once")

    def test_what_differs_by_round_is_in_the_noise(self):
        saving = self.saving([1, 2, 3], [1, 2, 3])
        self.assertEqual(saving.time.value, 2e6)
        self.assertGreater(saving.time.noise, 0.5e6)
        self.assertLess(saving.time.noise, 2e6)
        self.assertFalse(self.saving([-3, 0, 3], [-3, 0.3, 3]).time.is_gain)

    def test_a_program_saves_at_most_what_it_took(self):
        saving = self.saving([9], [9], program_ms=5)
        self.assertGreater(saving.time.value, 5e6, "the replay is slower than the program")
        self.assertEqual(saving.share, 1)
        self.assertLess(saving.sure_share, 0.6)

    def test_what_is_open_is_played_more_often(self):
        self.measured(([2], [3]), ([0.5], [1.5]))
        self.assertEqual(self.plays, 1 + 3 * 3 * (1 + 2) + 2 * 3 * 3 * (1 + 1))

    def test_memory_is_the_peak_beyond_what_runs_differ_by(self):
        saving = self.saving([0], [0], less_bytes=1 << 20)
        self.assertEqual((saving.memory.value, saving.memory.noise), (1 << 20, 384 << 10))
        self.assertEqual((saving.share, saving.sure_share), (0.125, 0.078125))
        self.assertIn("peak memory: saves 1.0 MiB ± 384.0 KiB, 12.5 ± 4.7 % of the program's",
                      self.words(saving))
        self.assertFalse(self.saving([0], [0], less_bytes=350 << 10).memory.is_gain)
        self.assertIn("peak memory: costs 1.0 MiB", self.words(self.saving([0], [0],
                                                                           less_bytes=-1 << 20)))

    def test_what_costs_is_not_proposed(self):
        for saving, is_worth in ((self.saving([3], [3]), True), (self.saving([-3], [-3]), False),
                                 (self.saving([3], [3], less_bytes=-1 << 20), False),
                                 (self.saving([-3], [-3], less_bytes=1 << 20), False),
                                 (self.saving([0.5], [0.5]), False)):
            with mock.patch.object(advise_command, "_own_share", return_value=0):
                site = {"allocations": 1, "frees": 1, "resizes": 0, "peak_bytes": 1}
                advice, = advise_command.judged(
                    [Verdict("pool", "pool:48", [site], "", {})], WHOLE, lambda _: [saving])
            self.assertEqual(advice.is_worth(0.03), is_worth, saving)
        self.assertEqual(self.saving([9], [9], less_bytes=-1 << 20).sure_share, 0)

    def test_the_order_is_that_of_the_trace(self):
        sites = [{"allocations": count, "frees": 0, "resizes": 0, "peak_bytes": size}
                 for count, size in ((1000, 0), (50000, 0), (10, 900000))]
        found = [Verdict("pool", "pool:48", [site], "", {}) for site in sites]
        none = Figure(0, 1, 1)
        advice = advise_command.judged(found, WHOLE, lambda each: [Saving(none, none)] * len(each))
        self.assertEqual([each.verdict.sites[0]["allocations"] for each in advice],
                         [10, 50000, 1000])

    def test_what_is_too_much_to_measure_is_not_proposed(self):
        found = [Verdict("pool", "pool:48", [{"allocations": count, "frees": 0, "resizes": 0,
                                              "peak_bytes": 0}], "", {}) for count in range(20)]
        gain = Figure(9, 1, 10)
        with mock.patch.object(advise_command, "note") as note:
            advice = advise_command.judged(found, WHOLE, lambda each: [Saving(gain, gain)
                                                                       for _ in each])
        self.assertEqual([each.verdict.sites[0]["allocations"] for each in advice],
                         list(range(19, 7, -1)))
        self.assertTrue(note.call_args.args[0].startswith("8 more sites"))

    def test_a_player_that_is_slower_than_the_program(self):
        """The player takes 10 ms for 5 ms of the program: between 1 and 2 ms are saved."""
        saving = self.saving([2], [2], program_ms=5)
        self.assertEqual((round(saving.time.value), round(saving.time.noise)), (1500000, 500000))

    def test_a_trace_of_no_time(self):
        """The share of a program that ended within one step of the times in its trace."""
        header = (TOOLS.parent / "src" / "watch" / "trace_file.h").read_text()
        self.assertIn("TRACE_TIME_STEP_NS = 1 << 17 ", header)
        self.assertEqual([advise_command.traced({"time_ns": ns}).time_ns for ns in (0, 1 << 20)],
                         [2 << 17, 1 << 20])

    def test_the_work_is_the_program_s_own(self):
        for program_ms, events, work_ns in ((30, 1000000, 20), (30, 1000, 50), (5, 1000, 0)):
            self.saving([1], [1], program_ms=program_ms, events=events)
            self.assertEqual(self.works, {None, ("parallel", work_ns), ("in-line", work_ns)})


class SnippetsTest(unittest.TestCase):
    def test_each_verdict_has_both(self):
        self.assertEqual(set(SNIPPETS), set(RULES))

    def test_numbers_are_filled_in(self):
        self.assertIn("char small[163];", snippet("temporary", {"most_bytes": 163})[0])
        self.assertIn("values.reserve(5632 / sizeof", snippet("reserve", {"room_bytes": 5632})[1])
        self.assertIn("char small[4096];", snippet("temporary", {"most_bytes": 70000})[0])

    def compile(self, text, end, *words):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / f"snippets.{end}"
            source.write_text(PRELUDE[end] + text)
            done = subprocess.run(
                [*words, "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-fsyntax-only",
                 f"-I{INCLUDE}", str(source)], capture_output=True, text=True, check=False,
                env={**os.environ, "LC_ALL": "C"})
            self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(shutil.which("cc") and shutil.which("c++"), "no compiler is installed")
    def test_they_compile(self):
        includes, rest = [], ""
        for number, kind in enumerate(SNIPPETS):
            c_text, cpp_text = snippet(kind, {})
            self.compile(c_text, "c", "cc", "-std=gnu17")
            lines = cpp_text.splitlines()
            includes += [line for line in lines if line.startswith("#")]
            rest += f"namespace kind_{number} {{\n"
            rest += "\n".join(line for line in lines if not line.startswith("#")) + "\n}\n"
        # One file: the headers take most of the time.
        self.compile("\n".join(includes) + "\n" + rest, "cc", "c++", "-std=c++17")


if __name__ == "__main__":
    unittest.main()
