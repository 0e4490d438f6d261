"""bench_session and bench_rows: the order of the runs, failures, selection of rows."""

import json
import pathlib
import signal
import subprocess
import unittest
from unittest import mock

import bench_path  # noqa: F401  pylint: disable=unused-import
from bench_rows import (Figure, MicroUnit, Row, RunFailed, Settings, Unit, WorkloadUnit,
                        check_function, check_served_by, micro_figures, micro_row_name,
                        parse_workload_output, select)
from bench_session import Session
from cairn.allocator_libraries import Allocator
from cairn.errors import Interrupt, UserError

SYSTEM, CAIRN = Allocator("system", None), Allocator("cairn", pathlib.Path("/lib/cairn.so"))


class FakeUnit(Unit):
    def __init__(self, name, log, fails_under=None, reason=None):
        self.rows = (Row(name, "fake", "", "warm_ns", ""),)
        self.log, self.fails_under, self.reason = log, fails_under, reason

    def skip_reason(self, settings):
        return self.reason

    def run(self, allocator, settings):
        self.log.append((self.rows[0].name, allocator.name))
        if allocator.name == self.fails_under:
            raise RunFailed("killed")
        return {self.rows[0].name: {"warm_ns": Figure(float(len(self.log)), "ns")}}


class SessionTest(unittest.TestCase):
    def setUp(self):
        self.log = []

    def session(self, *units):
        return Session(units, [SYSTEM, CAIRN], Settings(), seed=1)

    def test_rounds_are_interleaved_and_the_warm_up_is_not_recorded(self):
        session = self.session(FakeUnit("a", self.log), FakeUnit("b", self.log))
        session.run(3)
        self.assertEqual(len(self.log), 4 * 4)
        self.assertEqual([row for row, _ in self.log], ["a", "a", "b", "b"] * 4)
        for at in range(0, len(self.log), 2):
            self.assertEqual({name for _, name in self.log[at:at + 2]}, {"system", "cairn"})
        self.assertEqual(len(session.results.values("a", "cairn", "warm_ns")), 3)
        self.assertGreater(min(session.results.values("a", "cairn", "warm_ns")), 4)
        self.assertEqual(session.rounds_done, 3)

    def test_memory_is_touched_before_each_run(self):
        for cold, touched in ((False, [400] * 4), (True, [])):
            unit = FakeUnit("a", self.log)
            unit.rows = (Row("a", "fake", "", "warm_ns", "", 4000),)
            session = Session([unit], [SYSTEM, CAIRN], Settings(quick=True, cold=cold), seed=1)
            with mock.patch("bench_session.touch_memory") as touch:
                session.run(1)
            self.assertEqual([call.args[0] for call in touch.mock_calls], touched)

    def test_without_a_warm_up_the_first_round_is_recorded(self):
        session = Session([FakeUnit("a", self.log)], [SYSTEM, CAIRN], Settings(), 1, warm_up=False)
        session.run(2)
        self.assertEqual((len(self.log), session.rounds_done), (4, 2))
        self.assertEqual(len(session.results.values("a", "cairn", "warm_ns")), 2)

    def test_order_is_shuffled_and_reproducible(self):
        self.session(FakeUnit("a", self.log)).run(20)
        first = list(self.log)
        self.log.clear()
        self.session(FakeUnit("a", self.log)).run(20)
        self.assertEqual(first, self.log)
        self.assertEqual({first[at][1] for at in range(0, len(first), 2)}, {"system", "cairn"})

    def test_failure_is_recorded_and_not_repeated(self):
        session = self.session(FakeUnit("a", self.log, fails_under="cairn"))
        session.run(3)
        self.assertEqual(self.log.count(("a", "cairn")), 1)
        self.assertEqual(session.results.failures, {("a", "cairn"): "killed"})
        self.assertEqual(len(session.results.values("a", "system", "warm_ns")), 3)

    def failing(self, error, number=3):
        """A session whose unit raises at its n-th run under cairn."""
        unit = FakeUnit("a", self.log)
        measured = unit.run

        def run(allocator, settings):
            if self.log.count(("a", "cairn")) == number and allocator is CAIRN:
                raise error
            return measured(allocator, settings)

        unit.run = run
        session = self.session(unit)
        session.run(5)
        return session

    def test_what_is_wrong_with_one_run_does_not_lose_the_others(self):
        for error, text in ((UserError("malloc came from elsewhere"), "malloc came from elsewhere"),
                            (json.JSONDecodeError("no", "", 0), "its report is unreadable"),
                            (KeyError("benchmarks"), "its report is unreadable"),
                            (subprocess.CalledProcessError(1, "x"), "its report is unreadable")):
            self.log.clear()
            session = self.failing(error)
            self.assertIn(text, session.results.failures["a", "cairn"])
            self.assertEqual((session.rounds_done, session.stopped), (5, ""))
            self.assertEqual(len(session.results.values("a", "system", "warm_ns")), 5)

    def test_row_that_a_run_says_nothing_of_fails_alone(self):
        unit = FakeUnit("a", self.log)
        unit.rows += (Row("b", "fake", "", "warm_ns", ""),)
        session = self.session(unit)
        session.run(1)
        self.assertEqual(set(session.results.failures), {("b", "system"), ("b", "cairn")})
        self.assertEqual(len(session.results.values("a", "cairn", "warm_ns")), 1)

    def test_full_disk_stops_and_keeps_what_is_measured(self):
        session = self.failing(OSError(28, "No space left on device", "/tmp/x"))
        self.assertEqual(session.stopped, "/tmp/x: No space left on device")
        self.assertEqual((session.status, session.rounds_done), (2, 2))
        self.assertEqual(len(session.results.values("a", "cairn", "warm_ns")), 2)

    def test_termination_keeps_what_is_measured(self):
        session = self.failing(Interrupt(signal.SIGTERM))
        self.assertEqual((session.stopped, session.status), ("interrupted", 143))
        self.assertEqual(len(session.results.values("a", "cairn", "warm_ns")), 2)

    def test_skipped(self):
        session = self.session(FakeUnit("a", self.log, reason="not here"))
        session.run(1)
        self.assertEqual((session.skipped, self.log), ({"a": "not here"}, []))

    def test_deadline_allows_at_least_one_round(self):
        session = self.session(FakeUnit("a", self.log))
        session.run(1000000, deadline_s=1e-9)
        self.assertEqual(session.rounds_done, 1)

    def test_interrupt_keeps_what_is_done(self):
        def interrupt(done):
            if done == 2:
                raise KeyboardInterrupt
        session = self.session(FakeUnit("a", self.log))
        session.run(5, on_round=interrupt)
        self.assertTrue(session.interrupted)
        self.assertEqual(session.rounds_done, 2)


class RowsTest(unittest.TestCase):
    def test_output_of_a_workload(self):
        served_by, function, figures = parse_workload_output(
            "allocator\t/lib/libc.so.6\tmalloc\nwarm_ns\t3.5\tns\ncycles\tnot available\t\n")
        self.assertEqual((served_by, function), ("/lib/libc.so.6", "malloc"))
        self.assertEqual(figures, {"warm_ns": Figure(3.5, "ns"), "cycles": Figure(None, "")})
        with self.assertRaises(RunFailed):
            parse_workload_output("")

    def test_wrong_allocator_is_an_error(self):
        check_served_by("/lib/x86_64-linux-gnu/libc.so.6", SYSTEM)
        with self.assertRaises(UserError):
            check_served_by("/lib/libjemalloc.so.2", SYSTEM)
        own = pathlib.Path(__file__)
        check_served_by(str(own), Allocator("cairn", own))
        with self.assertRaises(UserError):
            check_served_by("/lib/x86_64-linux-gnu/libc.so.6", Allocator("cairn", own))

    def test_row_about_another_allocator_must_not_measure_our_malloc(self):
        row = Row("b-stack", "B", "", "total_ms", "peak_rss", 0, "cairn_stack_new")
        check_function("cairn_stack_new", row, CAIRN)
        check_function("malloc", row, SYSTEM)
        with self.assertRaisesRegex(UserError, "b-stack, cairn: malloc served"):
            check_function("malloc", row, CAIRN)
        check_function("malloc", Row("a-cycle", "A", "", "warm_ns", "peak_rss"), CAIRN)

    def test_select(self):
        units = [FakeUnit(name, []) for name in ("a-one", "a-two", "b-one")]
        self.assertEqual(select(units, []), units)
        self.assertEqual(select(units, ["fake"]), units)
        self.assertEqual(select(units, ["a-*"]), units[:2])
        self.assertEqual(select(units, ["b-one", "a-o?e"]), [units[0], units[2]])
        with self.assertRaisesRegex(UserError, "c-one"):
            select(units, ["a-*", "c-one"])

    def test_nodes_fit_the_memory(self):
        unit = WorkloadUnit(Row("b-contended", "B", "", "total_ms", "peak_rss", 0))
        self.assertEqual(unit.nodes(Settings(memory_mib=8192)), 100_000_000)
        self.assertIsNone(unit.remark(Settings(memory_mib=8192)))
        self.assertLess(unit.nodes(Settings(memory_mib=4096)), 70_000_000)
        self.assertIn("--memory 6.2 allows", unit.remark(Settings(memory_mib=4096)))
        self.assertEqual(unit.nodes(Settings(nodes=5000)), 5000)
        for name in ("b-stack", "b-fifo", "b-ring"):
            unit = WorkloadUnit(Row(name, "B", "", "total_ms", "peak_rss", 0))
            self.assertEqual(unit.nodes(Settings(memory_mib=4096)), 100_000_000)
            self.assertEqual(unit.nodes(Settings(memory_mib=2048)), 2048 * 2**20 // 33)
        unit = WorkloadUnit(Row("b-ring-contended", "B", "", "total_ms", "peak_rss", 0))
        self.assertEqual(unit.nodes(Settings(memory_mib=2048)), 2048 * 2**20 // 66)
        other = WorkloadUnit(Row("a-cycle", "A", "", "warm_ns", "peak_rss", 64))
        self.assertEqual(other.nodes(Settings()), 0)

    def test_rows_that_need_too_much_are_skipped(self):
        unit = WorkloadUnit(Row("heap-8g", "scaling", "", "warm_ns", "peak_rss", 12800))
        self.assertIn("12.5 GiB", unit.skip_reason(Settings(memory_mib=4096)))
        self.assertIsNone(unit.skip_reason(Settings(memory_mib=16384)))
        self.assertIn("--quick", unit.skip_reason(Settings(memory_mib=16384, quick=True)))

    def test_micro_benchmark_that_failed_has_no_figures(self):
        unit = MicroUnit(pathlib.Path("/bin/true"), pathlib.Path("/bin/true"), ["a/8", "b/8"])
        report = {"benchmarks": [{"name": "a/8", "cpu_time": 5, "real_time": 6},
                                 {"name": "b/8", "error_occurred": True}]}

        def write(command, _library, _settings):
            name = next(word for word in command if "benchmark_out=" in str(word))
            pathlib.Path(name.partition("=")[2]).write_text(json.dumps(report))

        with mock.patch("bench_rows.run_measured", side_effect=write):
            self.assertEqual(set(unit.run(SYSTEM, Settings())), {"micro-a-8"})
        report = []
        with mock.patch("bench_rows.run_measured"):
            with self.assertRaises(ValueError):  # a session treats it as a failure of the run
                unit.run(SYSTEM, Settings())

    def test_micro(self):
        self.assertEqual(micro_row_name("remote_free/64/real_time"), "micro-remote-free-64")
        self.assertEqual(micro_figures({"name": "malloc_free/8", "cpu_time": 5, "real_time": 6}),
                         {"cpu_ns": Figure(5, "ns"), "real_ns": Figure(6, "ns")})
        batch = micro_figures({"name": "malloc_free_1000/8", "cpu_time": 5000.0,
                               "real_time": 6000.0, "items_per_second": 1000 / 5e-6})
        self.assertAlmostEqual(batch["cpu_ns"].value, 5)
        self.assertAlmostEqual(batch["real_ns"].value, 6)


if __name__ == "__main__":
    unittest.main()
