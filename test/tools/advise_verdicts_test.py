"""The rules of `cairn advise` on sums of a test's own, its policies, its receipts of replays that a
test makes up, and its snippets compiled."""

import contextlib
import dataclasses
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
from cairn import advise_command, advise_receipt
from cairn.advise_receipt import Program, policy_text, ranges
from cairn.advise_report import Advice, gain_text
from cairn.advise_snippets import SNIPPETS, snippet
from cairn.advise_verdicts import RULES, Verdict, merged, verdicts

INCLUDE = TOOLS.parent / "include"
POINTS = [[i, 100 * i, 1000 * i] for i in range(1, 101)]
WHOLE = {"events": 200000, "allocations": 100000, "allocated_bytes": 100000, "peak_bytes": 1000000,
         "peak_lost_bytes": 50000, "has_free_stacks": True, "points": POINTS}
# Blocks of many sizes that live for any time and end in any order: no verdict.
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

    def test_what_looks_like_a_leak(self):
        early = [min(100 * i * 20, 20000) for i in range(1, 101)]  # all at the start
        self.assertEqual(kinds(**LEAK, points_allocated=early), [])
        self.assertEqual(kinds(**{**LEAK, "live": 15000}), [])
        self.assertEqual(kinds(**{**LEAK, "live_bytes": 20000}), [])

    def test_what_is_kept_may_gain_too(self):
        self.assertEqual(kinds(**{**LEAK, **ROUNDING}), [("leak", None), ("rounding", "pool:264")])
        # A group of `sites` has it once.
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
        # Lengths that differ much: not the longest one for all.
        self.assertEqual(kinds(**{**RESERVE, "grown_most": 100000}), [("reserve", "reserve:1024")])

    def test_what_looks_like_rounding_or_a_pool(self):
        self.assertEqual(kinds(**{**ROUNDING, "sizes": [[257, 2000], [300, 2000]]}), [])
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


class ReceiptTest(unittest.TestCase):
    """A replay takes 10 ms; what is saved depends on how the program's work is played."""

    def receipt(self, beside, in_line, program_ms=30, events=1000000):
        self.works = set()
        saved = {"beside": beside, "in-line": in_line}

        def play(sides, rounds, **_):
            for side in sides:
                side.samples = [(0, 0, (1 << 20) - (1 << 18) * (side.name == "proposed"))]
                self.works.add(side.work)
                less = [0] * rounds if side.sites_by_malloc or not side.work else \
                    saved[side.work[0]]
                wait_ns = 3e6 if side.sites_by_malloc else 5
                side.runs = [{"cpu_ns": 1e7 + wait_ns - 1e6 * ms, "wait_ns": wait_ns,
                              "peak_bytes": 1 << 20} for ms in less]

        made = contextlib.nullcontext(types.SimpleNamespace(events=events))
        with mock.patch.object(advise_receipt, "prepared", lambda *_: made), \
                mock.patch.object(advise_receipt, "play_all", play):
            verdict = Verdict("pool", "pool:48", [{"stacks": [1]}], "", {})
            program = Program(1e6 * program_ms, 1 << 21, True)
            return advise_receipt.receipt("trace", verdict, program, "library", len(beside))

    def words(self, receipt):
        return gain_text(Advice(Verdict("pool", "pool:48", [], "", {}), receipt, 0, 0))

    def test_time_is_an_interval(self):
        receipt = self.receipt([1, 1.1, 1.2, 1.3, 9], [3, 3, 3, 3.1, 3])
        self.assertEqual([round(value / 1e6, 3) for value in (
            receipt.time_low_ns, receipt.time_ns, receipt.time_high_ns)], [1.1, 2.1, 3.0])
        self.assertEqual([round(value, 3) for value in (
            receipt.time_low_share, receipt.time_share, receipt.time_high_share)],
            [0.037, 0.07, 0.1])
        self.assertFalse(receipt.is_within_noise)
        self.assertRegex(self.words(receipt),
                         "time: saves 1.10 to 3.00 ms, 3.7 to 10.0 % of the program's; "
                         "memory: saves 0 B at the peak, 256.0 KiB on average$")
        # The program holds twice what the replay does.
        self.assertEqual(receipt.memory_share, 0.125)

    def test_what_may_be_nothing_says_so(self):
        receipt = self.receipt([-0.6] * 3, [1.2] * 3)
        self.assertIn("time: nothing that is sure, between 0.60 ms lost and 1.20 ms saved, -2.0 to "
                      "4.0 % of", self.words(receipt))
        self.assertIn("time: costs 0.30 to 0.60 ms, 1.0 to 2.0 % of",
                      self.words(self.receipt([-0.6] * 3, [-0.3] * 3)))
        self.assertTrue(self.receipt([-3, 0.1, 3, 0.1, 3], [0.1] * 5).is_within_noise)

    def test_what_is_sure_is_the_least(self):
        proof = dataclasses.replace(self.receipt([1] * 3, [3] * 3), memory_share=0.01)
        verdict = Verdict("pool", "pool:48", [], "", {})
        with mock.patch.object(advise_command, "receipt", return_value=proof):
            advice, = advise_command.measured([verdict], "trace", {"peak_bytes": 1}, None, "", 3)
        self.assertEqual([round(share, 3) for share in (advice.saved_share, advice.sure_share)],
                         [0.067, 0.033])

    def test_a_trace_of_no_time(self):
        """The share of a program that has ended within a step of its trace's times."""
        header = (TOOLS.parent / "src" / "watch" / "trace_file.h").read_text()
        self.assertIn("TRACE_TIME_STEP_NS = 1 << 17 ", header)
        self.assertEqual([advise_command.traced({"time_ns": ns}).time_ns for ns in (0, 1 << 20)],
                         [2 << 17, 1 << 20])

    def test_memory_may_cost_here_and_save_there(self):
        receipt = dataclasses.replace(self.receipt([1], [1]), peak_bytes=-2048, mean_bytes=1024)
        self.assertRegex(self.words(receipt), "memory: costs 2.0 KiB at the peak, saves 1.0 KiB on")

    def test_the_work_is_the_program_s_own(self):
        for program_ms, events, work_ns in ((30, 1000000, 20), (30, 1000, 50), (5, 1000, 0)):
            self.receipt([1], [1], program_ms, events)
            self.assertEqual(self.works, {None, ("beside", work_ns), ("in-line", work_ns)})


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
