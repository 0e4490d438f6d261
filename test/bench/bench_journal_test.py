"""bench_journal: a benchmark that ended early resumes after its last run."""

import json
import pathlib
import tempfile
import unittest

import bench_path  # noqa: F401  pylint: disable=unused-import
from bench_journal import NAME, Journal
from bench_rows import Figure, Row, Settings, Unit
from bench_session import Session
from cairn.allocator_libraries import Allocator
from cairn.errors import UserError

ALLOCATORS = [Allocator("system", None), Allocator("cairn", pathlib.Path("/lib/cairn.so"))]


class CountingUnit(Unit):
    """A unit whose figure is the number of its run, over all sessions."""

    def __init__(self, name, log, interrupt_at=None):
        self.rows = (Row(name, "fake", "", "warm_ns", ""),)
        self.log, self.interrupt_at = log, interrupt_at

    def run(self, allocator, settings):
        if len(self.log) == self.interrupt_at:
            raise KeyboardInterrupt
        self.log.append((self.name, allocator.name))
        self.output = "digest"
        return {self.name: {"warm_ns": Figure(float(len(self.log)), "ns"),
                            "cycles": Figure(None, "")}}


class JournalTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.path = self.directory / NAME
        self.log = []

    def run_session(self, journal, rounds=3, interrupt_at=None):
        self.units = [CountingUnit(name, self.log, interrupt_at) for name in ("a", "b")]
        session = Session(self.units, ALLOCATORS, Settings(), 1, journal)
        session.run(rounds)
        journal.close()
        return session

    def test_interrupted_and_resumed_is_the_same_as_at_once(self):
        whole = self.run_session(Journal.create(self.directory, {}))
        order, self.log = self.log, []
        for interrupt_at in (0, 1, 6, 13):
            self.log = []
            first = self.run_session(Journal.create(self.directory, {}), 3, interrupt_at)
            self.assertTrue(first.interrupted)
            second = self.run_session(Journal.open(self.directory))
            self.assertEqual(self.log, order)
            self.assertEqual(second.results.runs, whole.results.runs)
            self.assertEqual(second.results.unavailable, whole.results.unavailable)
            self.assertFalse(second.interrupted)

    def test_more_rounds(self):
        self.run_session(Journal.create(self.directory, {}), 1)
        session = self.run_session(Journal.open(self.directory), 2)
        self.assertEqual(len(self.log), 3 * 4)
        self.assertEqual(session.rounds_done, 2)
        self.assertEqual(self.units[0].output, "digest")

    def test_every_run_is_there_before_the_next_begins(self):
        journal = Journal.create(self.directory, {})
        journal.add(1, CountingUnit("a", []), ALLOCATORS[0], {"failed": "why"})
        lines = self.path.read_text().splitlines()
        self.assertEqual(json.loads(lines[1]),
                         {"round": 1, "unit": "a", "allocator": "system", "failed": "why"})
        journal.close()

    def test_failures_are_not_repeated(self):
        journal = Journal.create(self.directory, {})
        journal.add(0, CountingUnit("a", []), ALLOCATORS[1], {"failed": "killed"})
        journal.close()
        session = self.run_session(Journal.open(self.directory))
        self.assertEqual(session.results.failures, {("a", "cairn"): "killed"})
        self.assertNotIn(("a", "cairn"), self.log)

    def test_line_that_was_cut_short_is_dropped(self):
        self.run_session(Journal.create(self.directory, {"facts": "µ"}), 1)
        whole = self.path.read_bytes()
        for cut in (1, 20):
            self.path.write_bytes(whole[:-cut])
            journal = Journal.open(self.directory)
            self.assertEqual(len(journal.runs), 7)
            journal.close()
            self.log.clear()
            self.run_session(Journal.open(self.directory), 1)
            self.assertEqual(len(self.log), 1)
            self.assertEqual(len(self.path.read_bytes().splitlines()), 9)

    def test_what_is_no_journal_is_refused(self):
        for content, text in ((None, "No such file"), ("", "is damaged"), ("{\n", "is damaged"),
                              ("[1]\n", "is damaged"), ("{\"format\": 9}\n", "another version"),
                              ("{\"format\": 1}\n[]\n", "is damaged"),
                              ("{\"format\": 1}\n{}\n", "is damaged")):
            if content is not None:
                self.path.write_text(content)
            with self.assertRaisesRegex(UserError, text):
                Journal.open(self.directory)

    def test_new_benchmark_keeps_the_previous_journal(self):
        self.run_session(Journal.create(self.directory, {"mine": 1}), 1)
        before = self.path.read_text()
        Journal.create(self.directory, {"mine": 2}).close()
        self.assertEqual((self.directory / "journal.previous.jsonl").read_text(), before)
        self.assertEqual(self.path.read_text().count("\n"), 1)

    def test_two_at_once_are_refused(self):
        first = Journal.create(self.directory, {"mine": 1})
        with self.assertRaisesRegex(UserError, "another benchmark"):
            Journal.create(self.directory, {})
        self.assertIn("mine", self.path.read_text())
        first.close()

    def test_full_disk_names_the_journal(self):
        with open("/dev/full", "w", encoding="utf-8") as file:
            journal = Journal(self.path, file, {}, {})
            session = self.run_session(journal)
        self.assertEqual(session.stopped, f"{self.path}: No space left on device")
        self.assertEqual(session.status, 2)


if __name__ == "__main__":
    unittest.main()
