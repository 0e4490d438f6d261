"""The misuse matrix: how the end of a fault is classified, which results are worse, the output."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench" / "compare")]
import matrix_command
import misuse_matrix
from cairn.errors import UserError
from misuse_matrix import (AT_ONCE, CRASH, HANGS, LATE, NONE, PREVENTED, REPORTED, SILENT, UNKNOWN,
                           Fault)

CALL = Fault("double", "double free", "direct", True)
ACCESS = Fault("write", "next to a block", "1 byte", False)


class Classify(unittest.TestCase):
    def check(self, fault, marks, status, expected):
        self.assertEqual(misuse_matrix.classify(fault, marks, status), expected)

    def test_an_abort_counts_by_its_time(self):
        self.check(CALL, "b", -signal.SIGABRT, AT_ONCE)
        self.check(CALL, "bd", -signal.SIGABRT, LATE)
        self.check(CALL, "bdh", -signal.SIGABRT, LATE)
        self.check(CALL, "bs", -signal.SIGABRT, AT_ONCE)

    def test_a_late_abort_counts_as_reported_when_nothing_was_harmed_before(self):
        self.check(ACCESS, "bds", -signal.SIGABRT, REPORTED)
        self.check(ACCESS, "bdhs", -signal.SIGABRT, LATE)
        self.check(ACCESS, "bdhh", -signal.SIGABRT, LATE)
        self.check(ACCESS, "bd", -signal.SIGILL, LATE)
        self.check(ACCESS, "bds", -signal.SIGSEGV, CRASH)

    def test_a_trap_detects_an_access_only(self):
        self.check(ACCESS, "b", -signal.SIGSEGV, AT_ONCE)
        self.check(ACCESS, "bd", -signal.SIGSEGV, CRASH)
        self.check(CALL, "b", -signal.SIGSEGV, CRASH)
        self.check(CALL, "b", -signal.SIGBUS, CRASH)

    def test_the_verdict_counts_when_the_program_went_on(self):
        self.check(CALL, "bdp", 0, PREVENTED)
        self.check(CALL, "bdh", 0, SILENT)
        self.check(CALL, "bdhp", 0, SILENT)

    def test_the_rest(self):
        self.check(CALL, "c", 0, NONE)
        self.check(CALL, "b", -signal.SIGALRM, HANGS)
        self.check(CALL, "bd", 4, CRASH)
        with self.assertRaises(UserError):
            self.check(CALL, "", -signal.SIGSEGV, None)


class Order(unittest.TestCase):
    def test_the_worst(self):
        self.assertEqual(misuse_matrix.worst([AT_ONCE, SILENT, LATE]), SILENT)
        self.assertEqual(misuse_matrix.worst([AT_ONCE, LATE]), LATE)
        self.assertEqual(misuse_matrix.worst([NONE, NONE]), NONE)

    def test_worse(self):
        self.assertTrue(misuse_matrix.is_worse(SILENT, PREVENTED))
        self.assertTrue(misuse_matrix.is_worse(LATE, PREVENTED))
        self.assertTrue(misuse_matrix.is_worse(PREVENTED, REPORTED))
        self.assertTrue(misuse_matrix.is_worse(REPORTED, AT_ONCE))
        self.assertTrue(misuse_matrix.is_worse(LATE, AT_ONCE))
        self.assertFalse(misuse_matrix.is_worse(AT_ONCE, LATE))
        self.assertFalse(misuse_matrix.is_worse(LATE, LATE))
        self.assertTrue(misuse_matrix.is_worse(NONE, SILENT))


class Expectation(unittest.TestCase):
    class Program:
        """Returns the given results in turn."""
        def __init__(self, *results):
            self.results = list(results)

        def commit(self, _fault, _library):
            return self.results.pop(0)

    def regressions(self, result, expected, *more):
        allocator = matrix_command.Allocator("cairn", None)
        return misuse_matrix.regressions(self.Program(*more), [allocator], [CALL],
                                         {"cairn": {"double": result}}, {"cairn": expected})

    def test_the_same_and_better_pass(self):
        self.assertEqual(self.regressions(AT_ONCE, {"double": AT_ONCE}), [])
        self.assertEqual(self.regressions(AT_ONCE, {"double": SILENT}), [])

    def test_what_stays_worse_fails(self):
        found = self.regressions(SILENT, {"double": LATE}, SILENT, CRASH, SILENT)
        self.assertEqual(found, ["double: silent under cairn, expected late"])

    def test_chance_passes(self):
        self.assertEqual(self.regressions(SILENT, {"double": LATE}, SILENT, LATE), [])

    def test_both_lists_are_the_same(self):
        self.assertEqual(self.regressions(AT_ONCE, {}), ["double: not in the expectation"])
        found = self.regressions(AT_ONCE, {"double": AT_ONCE, "gone": LATE})
        self.assertEqual(found, ["gone: in the expectation, but there is no such fault"])
        with self.assertRaises(UserError):
            misuse_matrix.regressions(None, [matrix_command.Allocator("other", None)], [CALL],
                                      {}, {"cairn": {}})

    def test_it_is_read_as_it_was_written(self):
        results = {"cairn": {"double": AT_ONCE, "write": SILENT},
                   "peer": {"double": CRASH, "write": CRASH}}
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "expected.csv"
            path.write_text(misuse_matrix.expectation_text([CALL, ACCESS], results))
            self.assertEqual(misuse_matrix.read_expectation(path), {"cairn": results["cairn"]})

    def test_file_that_is_no_expectation_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "expected.csv"
            for content, text in ((None, "No such file"), ("words\n1\n", "no table of faults"),
                                  ("fault,cairn\ndouble,perhaps\n", "'perhaps' is no result"),
                                  ("fault,cairn\ndouble,late,more\n", "no table of faults"),
                                  ("fault,other\ndouble,late\n", "nothing is expected of cairn")):
                if content:
                    path.write_text(content)
                with self.assertRaisesRegex(UserError, text):
                    misuse_matrix.read_expectation(path, ["cairn"])

    def test_lines_behind_another_are_found(self):
        ours = {"double": REPORTED, "write": SILENT, "sized": AT_ONCE}
        theirs = {"double": LATE, "write": PREVENTED, "sized": NONE}
        self.assertEqual(misuse_matrix.behind(ours, theirs), ["write"])
        self.assertEqual(misuse_matrix.behind(theirs, ours), ["double", "sized"])

    def test_an_undetected_bad_free_is_told_of_our_builds(self):
        results = {"cairn": {"double": LATE, "write": SILENT}, "peer": {"double": SILENT}}
        self.assertEqual(misuse_matrix.undetected_frees([CALL, ACCESS], results),
                         ["double: late under cairn"])


class RunAll(unittest.TestCase):
    """A fault that fails to run, or an interrupt, does not lose the results of the others."""

    class Program:
        def __init__(self, *results):
            self.results = list(results)

        def commit(self, _fault, _library):
            result = self.results.pop(0)
            if isinstance(result, BaseException):
                raise result
            return result

    def run_all(self, *results, advance=lambda: None):
        allocators = [matrix_command.Allocator("cairn", None)]
        with mock.patch("os.cpu_count", return_value=1):
            return misuse_matrix.run_all(self.Program(*results), [CALL, ACCESS], allocators, 1,
                                         advance)

    def test_fault_that_did_not_happen(self):
        results, problems, interrupt = self.run_all(UserError("did not come to it"), LATE)
        self.assertEqual(results, {"cairn": {"double": UNKNOWN, "write": LATE}})
        self.assertEqual(problems, ["cairn: did not come to it"])
        self.assertIsNone(interrupt)

    def test_interrupt(self):
        def advance():
            raise KeyboardInterrupt
        results, _, interrupt = self.run_all(LATE, LATE, advance=advance)
        self.assertIn(LATE, results["cairn"].values())
        self.assertIsInstance(interrupt, KeyboardInterrupt)


class Document(unittest.TestCase):
    def test_the_part_between_the_markers_is_replaced(self):
        text = f"before\n{matrix_command.BEGIN}\nold\n{matrix_command.END}\nafter\n"
        results = {"cairn": {"double": AT_ONCE}, "peer": {"double": SILENT}}
        allocators = [matrix_command.Allocator(name, None, "1.0") for name in results]
        lines = list(matrix_command.markdown([CALL], allocators, results, "command", 3))
        new = matrix_command.replace_part(text, lines)
        self.assertTrue(new.startswith("before\n" + matrix_command.BEGIN))
        self.assertTrue(new.endswith(matrix_command.END + "\nafter\n"))
        self.assertNotIn("old", new)
        self.assertIn("| direct | at once | **silent** |", new)
        self.assertIn("| **at once** | 1 | 0 |", new)
        self.assertEqual(matrix_command.replace_part(new, lines), new)

    def test_it_is_read_as_it_was_written(self):
        results = {"cairn": {"double": AT_ONCE, "write": REPORTED},
                   "peer": {"double": SILENT, "write": NONE}}
        allocators = [matrix_command.Allocator(name, None, "1.0") for name in results]
        lines = matrix_command.markdown([CALL, ACCESS], allocators, results, "command", 3)
        titles, rows = matrix_command.read_markdown("text\n" + "\n".join(lines) + "\ntext\n")
        self.assertEqual(titles, ["direct", "1 byte"])
        self.assertEqual(rows, [{"cairn": AT_ONCE, "peer": SILENT},
                                {"cairn": REPORTED, "peer": NONE}])

    def test_a_file_without_markers_is_left_alone(self):
        with self.assertRaises(UserError):
            matrix_command.replace_part("text\n", ["x"])


class Committed(unittest.TestCase):
    """The table in bench/results/matrix.md, its summary in docs/HARDENING.md, and the expected
    results of every build."""

    def setUp(self):
        self.titles, self.rows = matrix_command.read_markdown(
            (ROOT / "bench" / "results" / "matrix.md").read_text())
        self.expected = misuse_matrix.read_expectation(ROOT / "test" / "matrix" / "expected.csv")

    def column(self, name):
        return dict(enumerate(row[name] for row in self.rows))

    def check_not_behind(self, ours):
        behind = misuse_matrix.behind(ours, self.column("hardened_malloc"))
        self.assertEqual([self.titles[line] for line in behind], [])

    def test_the_summary_counts_these_rows(self):
        names = ("cairn", "cairn-hardened-light", "cairn-hardened", "hardened_malloc", "system",
                 "jemalloc", "mimalloc", "tcmalloc")
        page = (ROOT / "docs" / "HARDENING.md").read_text()
        table = re.search(r"^\| harm not noticed \|.*\n\|-.*\n((?:\|.*\n)+)", page, re.M).group(1)
        first = 0
        for line in table.splitlines():
            title, errors, *figures = [cell.strip() for cell in line.strip("|").split("|")]
            rows = self.rows if title == "all" else self.rows[first:first + int(errors)]
            first += int(errors)
            self.assertEqual(len(rows), int(errors), title)
            silent = [sum(row[name] == SILENT for row in rows) for name in names]
            self.assertEqual([int(figure) for figure in figures], silent, title)
        self.assertEqual(first, 2 * len(self.rows))

    def test_its_words_are_known(self):
        for row in self.rows:
            for result in row.values():
                self.assertIn(result, (*misuse_matrix.RANKS, NONE))

    def test_hardened_does_at_least_as_well_as_hardened_malloc(self):
        self.check_not_behind(self.column("cairn-hardened"))

    def test_what_is_expected_of_hardened_does_too(self):
        expected = self.expected["cairn-hardened"].values()
        self.assertEqual(len(expected), len(self.rows))
        self.check_not_behind(dict(enumerate(expected)))


class Command(unittest.TestCase):
    """The whole command, as a user runs it."""

    def run_matrix(self, *arguments):
        return subprocess.run([str(ROOT / "bench" / "cairn-matrix"), "--faults",
                               os.environ["CAIRN_TEST_FAULTS"], *arguments],
                              capture_output=True, text=True, check=False)

    def test_a_library_that_is_no_malloc_is_refused(self):
        run = self.run_matrix("other=" + os.environ["CAIRN_TEST_PLAIN_LIBRARY"])
        self.assertEqual(run.returncode, 2)
        self.assertIn("malloc comes from", run.stderr)

    def test_bad_arguments(self):
        for arguments in ((), ("cairn",), ("cairn=/nonexistent.so",)):
            run = self.run_matrix(*arguments)
            self.assertEqual(run.returncode, 2, run.stderr)

    def in_process(self, faults, write=None, expect=None, record=None):
        matrix_command.matrix(["cairn=" + os.environ["CAIRN_TEST_LIBRARY"]], False, faults, 1,
                              write, expect, record, None)

    def test_missing_folder_from_outside(self):
        run = self.run_matrix("--write", "/no/such/file",
                              "cairn=" + os.environ["CAIRN_TEST_LIBRARY"])
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertEqual(run.stderr,
                         "cairn-matrix: --write /no/such/file: there is no folder /no/such\n")

    def test_files_that_cannot_be_are_refused_before_the_first_fault(self):
        with tempfile.TemporaryDirectory() as directory:
            marks = pathlib.Path(directory) / "started"
            faults = pathlib.Path(directory) / "faults"
            faults.write_text(f"#!/bin/sh\ntouch {marks}\nexec {os.environ['CAIRN_TEST_FAULTS']} "
                              '"$@"\n')
            faults.chmod(0o755)
            plain = pathlib.Path(directory) / "plain.md"
            plain.write_text("no markers\n")
            folder = pathlib.Path(directory)
            missing = pathlib.Path("/no/such/file")
            for option, path, text in (("write", missing, "there is no folder /no/such"),
                                       ("write", folder / "new", "No such file"),
                                       ("write", plain, "lacks the lines"),
                                       ("record", missing, "there is no folder"),
                                       ("expect", missing, "No such file")):
                with self.assertRaisesRegex(UserError, text):
                    self.in_process(faults, **{option: path})
                self.assertFalse(marks.exists(), (option, path))

    def test_program_that_is_not_the_faults(self):
        for program, text in (("/bin/true", "lists no faults"),
                              ("/etc/passwd", "Permission denied"),
                              ("/nonexistent", "no such file")):
            with self.assertRaisesRegex(UserError, text):
                self.in_process(pathlib.Path(program))


if __name__ == "__main__":
    unittest.main()
