"""bench_results, bench_report and bench_goals: the evaluation of samples."""

import math
import types
import unittest
from unittest import mock

import bench_path
import bench_goals
import bench_programs
import bench_report
from bench_results import MEMORY, TIME, Results
from bench_rows import Figure, Row, Settings
from cairn.allocator_libraries import Allocator, choose
from cairn.errors import UserError

FAST = Row("fast", "A", "title", "warm_ns", "peak_rss")
SLOW = Row("slow", "D", "title", "warm_ns", "peak_rss")
FACT = Row("fact", "D", "title", "", "")
ALLOCATORS = [Allocator("system", None), Allocator("cairn", None), Allocator("other", None)]


def results_of(samples, rows=(FAST, SLOW, FACT)):
    """`samples`: {(row, allocator): [(time, memory)…]}"""
    results = Results(rows, ALLOCATORS)
    for (row, allocator), values in samples.items():
        for number, (time, memory) in enumerate(values, 1):
            results.add(number, row, allocator, {"warm_ns": Figure(time, "ns"),
                                                 "peak_rss": Figure(memory, "MiB")})
    return results


class ResultsTest(unittest.TestCase):
    def setUp(self):
        self.results = results_of({
            ("fast", "system"): [(10, 5), (30, 5), (20, 5)],
            ("fast", "other"): [(40, 4)] * 3,
            ("fast", "cairn"): [(10, 8)] * 3,
            ("slow", "system"): [(100, 5)] * 3,
            ("slow", "other"): [(50, 5)] * 3,
            ("slow", "cairn"): [(100, 5.5)] * 3})

    def test_median_and_quartiles(self):
        self.assertEqual(self.results.median("fast", "system", "warm_ns"), 20)
        self.assertEqual(self.results.quartiles("fast", "system", "warm_ns"), (15, 25))
        self.assertIsNone(self.results.median("fact", "system", "warm_ns"))

    def test_best_peer_is_never_ours(self):
        self.assertEqual(self.results.best_peer("fast", "warm_ns"), (20, "system"))
        self.assertEqual(self.results.ratio("fast", "cairn", "warm_ns"), 0.5)
        self.assertEqual(self.results.ratio("slow", "cairn", "warm_ns"), 2)

    def test_little_more_of_a_small_process_is_no_loss(self):
        for figure in ("peak_rss", "peak_pss"):
            row = Row("server", "programs", "", "cpu_s", figure)
            for more_mib, is_lost in ((0.5, False), (1.5, True)):
                results = Results([row], ALLOCATORS)
                for name, memory in (("system", 4), ("other", 9), ("cairn", 4 + more_mib)):
                    results.add(1, "server", name, {figure: Figure(memory, "MiB")})
                self.assertEqual(results.is_lost(row, MEMORY), is_lost, (figure, more_mib))

    def test_geomean(self):
        value, rows = self.results.geomean("cairn", TIME)
        self.assertAlmostEqual(value, math.sqrt(0.5 * 2))
        self.assertEqual(rows, 2)
        self.assertAlmostEqual(self.results.geomean("other", TIME)[0], math.sqrt(2 * 1))
        self.assertEqual(self.results.geomean("cairn", TIME, "A"), (0.5, 1))
        self.assertIsNone(self.results.geomean("cairn", TIME, "B"))

    def test_geomeans_are_over_the_same_rows(self):
        self.results.fail("fast", "other", "crashed")
        self.assertEqual(self.results.geomean("cairn", TIME), (2, 1))
        self.assertEqual(self.results.geomean("system", TIME), (2, 1))

    def test_allocator_of_one_group_does_not_narrow_the_others(self):
        self.results.allocators.append(Allocator("cairn-api", None))
        self.results.add(1, "fast", "cairn-api", {"warm_ns": Figure(30, "ns")})
        self.assertEqual(self.results.geomean("cairn", TIME)[1], 2)
        self.assertIsNone(self.results.geomean("cairn-api", TIME))
        self.assertEqual(self.results.geomean("cairn-api", TIME, "A"), (1.5, 1))

    def test_row_without_our_malloc_is_compared_but_in_no_geomean(self):
        stack = Row("stack", "B", "title", "warm_ns", "peak_rss", 0, "cairn_stack_new")
        results = results_of({("fast", name): [(10, 5)] for name in ("system", "cairn", "other")}
                             | {("stack", "system"): [(10, 5)], ("stack", "cairn"): [(1, 5)],
                                ("stack", "other"): [(20, 5)]}, rows=(FAST, stack))
        self.assertEqual(results.ratios("cairn", TIME), {"fast": 1, "stack": 0.1})
        self.assertEqual(results.geomean("cairn", TIME), (1, 1))
        self.assertIsNone(results.geomean("cairn", TIME, "B"))

    def test_failed_runs_do_not_count(self):
        self.results.fail("slow", "other", "crashed")
        self.results.fail("slow", "other", "later")
        self.assertEqual(self.results.failures["slow", "other"], "crashed")
        self.assertEqual(self.results.best_peer("slow", "warm_ns"), (100, "system"))

    def test_worst_first(self):
        self.assertEqual([row.name for row in self.results.sorted_rows(TIME)], ["slow", "fast"])
        self.assertEqual([row.name for row in self.results.sorted_rows(MEMORY)], ["fast", "slow"])

    def test_losing(self):
        self.assertEqual([(row.name, ratio) for row, ratio in self.results.losing(TIME)],
                         [("slow", 2)])
        # slow: 10 % more, but that is half a MiB
        self.assertEqual([(row.name, ratio) for row, ratio in self.results.losing(MEMORY)],
                         [("fast", 2)])

    def test_zero_has_no_ratio(self):
        results = results_of({("fast", "system"): [(0, 1)], ("fast", "cairn"): [(1, 1)]})
        self.assertIsNone(results.ratio("fast", "cairn", "warm_ns"))

    def test_unavailable(self):
        self.results.add(1, "fast", "cairn", {"cycles": Figure(None, "")})
        self.assertIsNone(self.results.median("fast", "cairn", "cycles"))
        self.assertEqual(bench_report.cell(self.results, "fast", "cairn", "cycles"), "n/a")


class ReportTest(unittest.TestCase):
    def session(self, results, skipped=None):
        return types.SimpleNamespace(results=results, skipped=skipped or {}, rounds_done=3,
                                     warm_up=True, interrupted=False, stopped="",
                                     settings=Settings(), remarks=lambda: [])

    def test_numbers(self):
        for value, unit, text in ((0, "ns", "0 ns"), (3.456, "ns", "3.46 ns"),
                                  (12345, "ns", "12.35 µs"), (2.5e9, "ns", "2.50 s"),
                                  (2048, "KiB", "2.00 MiB"), (0.5, "", "0.500"),
                                  (12345, "", "12,345")):
            self.assertEqual(bench_report.with_unit(value, unit), text)

    def test_cells(self):
        results = results_of({("fast", "system"): [(10, 5), (30, 5), (20, 5)]})
        self.assertEqual(bench_report.cell(results, "fast", "system", "warm_ns"), "20.00 ns ±25%")
        self.assertEqual(bench_report.cell(results, "fast", "other", "warm_ns"), "-")
        results.fail("fast", "other", "crashed")
        self.assertEqual(bench_report.cell(results, "fast", "other", "warm_ns"), "failed")

    def test_early_end_is_told(self):
        session = self.session(results_of({}))
        self.assertTrue(bench_report.opening(session).startswith("3 rounds after a warm-up"))
        session.stopped = "/x: No space left on device"
        self.assertTrue(bench_report.opening(session).startswith(
            "Stopped: /x: No space left on device. 3 rounds and a part of one more after"))

    def test_losing_table_is_first_and_failures_are_told(self):
        results = results_of({("fast", "system"): [(10, 5)], ("fast", "cairn"): [(20, 5)],
                              ("slow", "system"): [(10, 5)], ("slow", "cairn"): [(40, 5)]})
        results.fail("fast", "other", "killed | by a signal")
        text = bench_report.markdown(self.session(results, {"rust": "no cargo"}), {"kernel": "6"})
        titles = [line for line in text.splitlines() if line.startswith("## ")]
        self.assertEqual(titles[0], "## Rows that Cairn loses")
        self.assertIn("## Failed and skipped", titles)
        self.assertIn("| slow | time | 40.00 ns | system | 10.00 ns | 4.00 |", text)
        self.assertLess(text.index("| slow | time"), text.index("| fast | time"))
        self.assertIn("killed \\| by a signal", text)
        self.assertIn("| rust | skipped | no cargo |", text)
        self.assertIn("| kernel | 6 |", text)


class ChooseTest(unittest.TestCase):
    def test_the_light_build_is_there_by_its_name_only(self):
        found = [Allocator(name, None) for name in ("system", "cairn", "cairn-hardened-light")]
        self.assertEqual([each.name for each in choose(found, [])], ["system", "cairn"])
        self.assertEqual([each.name for each in choose(found, ["cairn-hardened-light"])],
                         ["cairn-hardened-light"])
        with self.assertRaises(UserError):
            choose(found, ["other"])


class GoalsTest(unittest.TestCase):
    def test_time(self):
        results = results_of({("fast", "system"): [(100, 1)], ("fast", "other"): [(80, 1)],
                              ("fast", "cairn"): [(79, 1)], ("slow", "system"): [(100, 1)],
                              ("slow", "other"): [(60, 1)], ("slow", "cairn"): [(70, 1)]})
        found = {goal.text: goal for goal in bench_goals.check(results)}
        over_system = found["every row of A, C and D: time over glibc's at most 0.8"]
        self.assertEqual((over_system.measured, over_system.met), ("worst 0.79 (fast)", True))
        over_best = found["every row of A, C and D: time over the best peer's at most 1.05"]
        self.assertEqual((over_best.measured, over_best.met), ("worst 1.17 (slow)", False))

    @mock.patch.object(bench_goals, "GROUPS_OF_ALL", 3)
    def test_all_rows(self):
        rows = [Row(f"row-{group}", group, "", "warm_ns", "peak_rss") for group in "BEF"]
        for count in (2, 3):
            results = Results(rows[:count], ALLOCATORS)
            for row, ours in zip(rows[:count], (80, 90, 180)):
                for name, time, memory in (("system", 200, 10), ("other", 100, 20),
                                           ("cairn", ours, 11)):
                    results.add(1, row.name, name, {"warm_ns": Figure(time, "ns"),
                                                    "peak_rss": Figure(memory, "MiB")})
            found = {goal.text: (goal.measured, goal.met) for goal in bench_goals.check(results)}
            self.assertEqual(found, {} if count == 2 else {
                "all rows: geomean of time at most that of the best single peer":
                    ("1.090; best single peer 1.000 (other), 3 rows", False),
                "all rows: geomean of time over the best peer's at most 1.15": ("1.090", True),
                "all rows: geomean of memory at most that of the best single peer":
                    ("1.100; best single peer 1.000 (system), 3 rows", False),
                "every row: time over the best peer's at most 1.6":
                    ("worst 1.80 (row-F)", False)})

    def test_limits(self):
        row = Row("returned", "memory", "", "", "after_2s_kib")
        results = Results([row], ALLOCATORS)
        results.add(1, "returned", "cairn", {"after_2s_kib": Figure(16384, "KiB"),
                                             "after_trim_kib": Figure(4097, "KiB")})
        self.assertEqual([goal.met for goal in bench_goals.check(results)], [True, False])

    def list_goals(self, **figures):
        """The goals as {text: (measured, met)}, with these figures of Cairn in three rows."""
        results = Results([Row(name, "B", "", "total_ms", "peak_rss")
                           for name in ("b-stack", "b-fifo", "b-ring-contended")], ALLOCATORS)
        for row in ("b-stack", "b-fifo", "b-ring-contended"):
            results.add(1, row, "system", {"total_ms": Figure(1000, "ms")})
            results.add(1, row, "cairn", {name: Figure(value, "") for name, value
                                          in figures.items()})
        return {goal.text: (goal.measured, goal.met) for goal in bench_goals.check(results)}

    def test_lists_of_known_lifetime(self):
        found = self.list_goals(total_ms=100, warm_alloc_ns=1.1, warm_free_ns=1.31,
                                rss_per_payload=1.015, nodes=100_000_000)
        self.assertEqual(found, {
            "b-ring-contended: total over glibc's at most 0.1": ("0.10", True),
            "b-stack: ns a node, warm at most 1.0": ("1.1", False),
            "b-stack: RSS over payload at most 1.01": ("1.015", False),
            "b-fifo: ns an alloc, warm at most 1.2": ("1.1", True),
            "b-fifo: ns a free, warm at most 1.3": ("1.31", False),
            "b-fifo: RSS over payload at most 1.02": ("1.015", True),
            "b-ring-contended: ns a node, warm at most 2.2": ("1.1", True)})

    def test_shorter_lists_are_told(self):
        found = self.list_goals(total_ms=101, nodes=5000)
        self.assertEqual(found, {"b-ring-contended: total over glibc's at most 0.1":
                                 ("0.10 (only 5,000 nodes)", False)})

    def test_scaling(self):
        rows = [Row(f"threads-{count}", "scaling", "", "warm_ns", "") for count in (1, 2, 64)]
        results = Results(rows, ALLOCATORS)
        for row, value in zip(rows, (10, 11, 12)):
            results.add(1, row.name, "cairn", {"warm_ns": Figure(value, "ns")})
        goal, = bench_goals.check(results)
        self.assertEqual((goal.measured, goal.met), ("1.20 (threads-64)", False))

    def test_processes(self):
        rows = [Row("fork-2g", "scaling", "", "warm_ns", "peak_rss"),
                Row("thread-alone", "field", "", "warm_ns", "peak_rss")]
        results = Results(rows, ALLOCATORS)
        for row in rows:
            for name, value in (("system", 100), ("other", 90), ("cairn", 105)):
                results.add(1, row.name, name, {"warm_ns": Figure(value, "ns")})
        found = {goal.text: (goal.measured, goal.met) for goal in bench_goals.check(results)}
        self.assertEqual(found, {
            "fork-2g: time over glibc's at most 1.1": ("1.05", True),
            "thread-alone: time over the best peer's at most 1.1": ("1.17", False)})

    def test_programs(self):
        rows = [Row(name, "programs", "", "cpu_s", "peak_rss") for name in ("lua", "perl")]
        hardened = Allocator("cairn-hardened", None)
        results = Results(rows, [*ALLOCATORS, hardened])
        for row, name, seconds, memory in (
                ("lua", "system", 1.2, 10), ("perl", "system", 1.0, 10),
                ("lua", "other", 1.0, 20), ("perl", "other", 1.1, 20),
                ("lua", "cairn", 1.06, 11), ("perl", "cairn", 0.9, 11),
                ("lua", "cairn-hardened", 1.5, 11), ("perl", "cairn-hardened", 1.0, 11)):
            results.add(1, row, name, {"cpu_s": Figure(seconds, "s"),
                                       "peak_rss": Figure(memory, "MiB")})
        found = {goal.text: (goal.measured, goal.met) for goal in bench_goals.check(results)}
        self.assertEqual(found, {
            "real programs: geomean of time over the best of all at most 1.02, and below every "
            "peer": ("1.030; best peer 1.106 (other), 2 rows", False),
            "real programs: time of each row over the best of all at most 1.05":
                ("worst 1.06 (lua)", False),
            "real programs: geomean of memory over the best of all at most 1.05, and below every "
            "peer but glibc": ("1.100; best peer 2.000 (other), 2 rows", False),
            "real programs: geomean of CPU time at most that of the best single peer":
                ("0.977; best single peer 1.049 (other)", True),
            "real programs: geomean of memory at most that of the best single peer":
                ("1.100; best single peer 1.000 (system)", False),
            "every real program: CPU time over the best peer's at most 1.05":
                ("worst 1.06 (lua)", False),
            "real programs: CPU time of the hardened build over the plain one's at most 1.2":
                ("1.254", False)})

    def test_programs_without_peers(self):
        row = Row("lua", "programs", "", "cpu_s", "peak_rss")
        results = Results([row], ALLOCATORS[:2])
        for name in ("system", "cairn"):
            results.add(1, "lua", name, {"cpu_s": Figure(1, "s"), "peak_rss": Figure(1, "MiB")})
        texts = [goal.text for goal in bench_goals.check(results)]
        self.assertEqual([text for text in texts if "peer but glibc" in text], [])
        self.assertIn("real programs: time of each row over the best of all at most 1.05", texts)

    def test_hardened_programs(self):
        rows = [Row("lua", "programs", "", "cpu_s", "peak_rss")]
        names = ("cairn-hardened", "cairn-hardened-light", "hardened_malloc")
        results = Results(rows, [*ALLOCATORS, *(Allocator(name, None) for name in names)])
        for name, seconds, memory in (("cairn", 1.0, 10), ("cairn-hardened", 1.19, 17),
                                      ("cairn-hardened-light", 1.11, 11),
                                      ("hardened_malloc", 1.7, 20)):
            results.add(1, "lua", name, {"cpu_s": Figure(seconds, "s"),
                                         "peak_rss": Figure(memory, "MiB")})
        found = {goal.text: (goal.measured, goal.met) for goal in bench_goals.check(results)
                 if "hardened" in goal.text}
        self.assertEqual(found, {
            "real programs: CPU time of the hardened build over the plain one's at most 1.2":
                ("1.190", True),
            "real programs: CPU time of the hardened-light build over the plain one's at most 1.1":
                ("1.110", False),
            "real programs: CPU time of the hardened build over hardened_malloc's at most 0.7":
                ("0.700", True),
            "real programs: memory of the hardened build over hardened_malloc's at most 0.85":
                ("0.850", True)})

    def goals_of(self, figures):
        """The goals, as {text: (measured, met)}, of {(row, allocator): {figure: value}}."""
        rows = [Row(name, "field", "", "warm_ns", "peak_rss")
                for name in dict.fromkeys(row for row, _ in figures)]
        results = Results(rows, ALLOCATORS)
        for (row, allocator), values in figures.items():
            results.add(1, row, allocator, {name: Figure(value, "")
                                            for name, value in values.items()})
        return {goal.text: (goal.measured, goal.met) for goal in bench_goals.check(results)}

    def test_ratios(self):
        found = self.goals_of({
            ("service", "other"): {"malloc_p50_ns": 10, "free_max_ns": 100},
            ("service", "cairn"): {"malloc_p50_ns": 12, "free_max_ns": 125},
            ("short-threads-0g", "other"): {"warm_ns": 10},
            ("short-threads-0g", "cairn"): {"warm_ns": 11},
            ("short-threads-3g", "other"): {"warm_ns": 20},
            ("short-threads-3g", "cairn"): {"warm_ns": 21}})
        self.assertEqual(found, {
            "service: each percentile and the maximum over the best peer's at most 1.2":
                ("worst 1.25 (service, free_max_ns)", False),
            "short-threads-*: time over the best peer's at most 1.1":
                ("worst 1.10 (short-threads-0g)", True)})

    def test_services(self):
        rows = [Row(name, "services", "", "cpu_s", "silent") for name in ("a", "b")]
        names = ("system", "cairn", "cairn-background")
        results = Results(rows, [Allocator(name, None) for name in names])
        for row, name, silent, growth in (
                ("a", "system", 100, 20), ("a", "cairn", 60, 5), ("a", "cairn-background", 50, -2),
                ("b", "system", 40, 1), ("b", "cairn", 60, 9), ("b", "cairn-background", 42, 3)):
            results.add(1, row, name, {"silent": Figure(silent, "MiB"), "peak": Figure(100, "MiB"),
                                       "cpu_s": Figure(1, "s"), "growth": Figure(growth, "%")})
        found = {goal.text.removeprefix("services, background:on: "): (goal.measured, goal.met)
                 for goal in bench_goals.check(results)}
        self.assertEqual(found, {
            "memory after the silence over the best of all at most 1.05": ("worst 1.05 (b)", True),
            "peak memory over the best of all at most 1.05": ("worst 1.00 (b)", True),
            "CPU time over the best of all at most 1.03": ("worst 1.00 (b)", True),
            "growth from the first to the last equal burst at most 3 %":
                ("worst 3.0 % (b)", True)})
        results.add(1, "a", "cairn-background", {"silent": Figure(80, "MiB")})
        found = {goal.text: goal.met for goal in bench_goals.check(results)}
        self.assertFalse(found["services, background:on: memory after the silence over the best of "
                               "all at most 1.05"])

    def test_calls(self):
        found = self.goals_of({
            ("longest-pair-8g", "other"): {"longest_us": 100},
            ("longest-pair-8g", "cairn"): {"longest_us": 1101},
            ("ended-at-random", "cairn"): {"warm_ns": 24},
            ("alive-at-random", "cairn"): {"warm_ns": 20},
            ("lua", "cairn"): {"faults": 875}, ("perl", "cairn"): {"faults": 1700}})
        self.assertEqual(found, {
            "longest-pair-8g: longest call at most 1000 us above the best peer's":
                ("1,101 us; best peer 100 (other)", False),
            "ended-at-random: time over alive-at-random at most 1.2": ("1.20", True),
            "sqlite3, python3, perl, lua: page faults over those of commit 533f6f2 at most 0.1":
                ("worst 0.10 (perl)", False)})

    def test_page_is_filled(self):
        results = results_of({("fast", "system"): [(100, 1)], ("fast", "cairn"): [(79, 1)]})
        goal = "every row of A, C and D: time over glibc's at most 0.8"
        page = (f"# Goals\n\n| goal | rows | measured | met |\n| {goal} | A, C | | |\n"
                "| other | x | | |\n")
        filled = page.replace("A, C | | |", "A, C | worst 0.79 (fast) | yes |")
        self.assertEqual(bench_goals.written(page, results), filled)
        self.assertEqual(bench_goals.written(filled, results), filled)

    def test_every_goal_of_the_page_is_measured_by_its_rows(self):
        rows = [row for unit in bench_programs.all_units() for row in unit.rows]
        results = Results(rows, [*ALLOCATORS, Allocator("cairn-background", None)])
        extra = {figure for _, figures, _, _ in bench_goals.RATIOS for figure in figures} | {
            figure for _, figure, _, _ in bench_goals.LIMITS} | {
                figure for figure, _, _ in bench_goals.SERVICE_RATIOS} | {
                    "longest_us", "faults", "growth"}
        for row in rows:
            for name in results.names():
                figures = extra | {figure for figure in (row.time, row.memory) if figure}
                results.add(1, row.name, name, {figure: Figure(1, "") for figure in figures})
        known = {goal.text for goal in bench_goals.check(results)}
        page = (bench_path.ROOT / "bench" / "results" / "goals.md").read_text(encoding="utf-8")
        page = page[:page.index("## What is missed")]  # that table groups several goals
        lines = [line for line in page.splitlines() if line.startswith("| ")]
        listed = {line.strip("| ").split(" | ")[0] for line in lines} - {"goal"}
        self.assertGreater(len(listed), 30)
        self.assertLessEqual(listed, known)

    def test_nothing_without_cairn(self):
        self.assertEqual(bench_goals.check(Results([FAST], ALLOCATORS[:1])), [])


if __name__ == "__main__":
    unittest.main()
