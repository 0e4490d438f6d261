"""dev/prove-world: what counts as a difference, on suites made for each case."""

import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import tempfile
import unittest

import click
from dev_path import DEV

loader = importlib.machinery.SourceFileLoader("prove_world", str(DEV / "prove-world"))
world = importlib.util.module_from_spec(importlib.util.spec_from_loader("prove_world", loader))
loader.exec_module(world)

LIBRARIES = {"cairn": "libcairn-malloc.so", "full": "libcairn-malloc-hardened.so"}


def compare(function, parts=()):
    """The differences of a suite of this function, and its runs."""
    runs = []

    def counted(run):
        runs.append((run.library, run.parts))
        return function(run, len(runs))

    with contextlib.redirect_stdout(io.StringIO()):
        found = list(world.compare(world.Suite(counted, "a suite"), LIBRARIES, None, list(parts)))
    return found, runs


class CompareTest(unittest.TestCase):
    def test_equal_outcomes_take_one_run_each(self):
        found, runs = compare(lambda run, count: {"a": "ok", "b": "failed"}, ["part"])
        self.assertEqual(found, [])
        self.assertEqual(runs, [(None, ["part"]), *((lib, ["part"]) for lib in LIBRARIES.values())])

    def test_a_difference_is_seen_twice(self):
        found, _ = compare(lambda run, count: {"a": "ok", "b": "failed" if run.library else "ok"})
        self.assertEqual(found, [("b", "cairn", "ok", "failed"), ("b", "full", "ok", "failed")])

    def test_a_test_that_is_missing_differs(self):
        full = LIBRARIES["full"]
        found, _ = compare(lambda run, count: {} if run.library == full else {"a": "ok"})
        self.assertEqual(found, [("a", "full", "ok", "-")])

    def test_what_comes_once_is_none(self):
        found, runs = compare(lambda run, count: {"a": "failed" if count == 2 else "ok"})
        self.assertEqual(found, [])
        self.assertEqual(len(runs), 5)

    def test_what_glibc_does_not_do_twice_is_none(self):
        answers = iter(["ok", "failed", "failed", "ok", "ok", "ok"])
        found, _ = compare(lambda run, count: {"a": next(answers)})
        self.assertEqual(found, [])

    def test_a_line_of_the_librarys_is_a_difference(self):
        def says(run, count):
            line = "cairn: free of 0x123, which is not a Cairn block" if run.library else "fine"
            status, text = run.command("echo", line, preload=False)
            return {"exit status": str(status), "fine": str("0x" not in text)}
        found, _ = compare(says)
        said = "line of Cairn's: cairn: free of P, which is not a Cairn block"
        self.assertIn((said, "cairn", "-", "printed"), found)

    def test_a_program_that_ends_by_a_signal_or_not_at_all_has_an_outcome(self):
        def ends(run, count):
            return {"abort": run.command("sh", "-c", "kill -ABRT $$")[0],
                    "sleep": run.command("sleep", "100", seconds=0.1)[0]}
        seen = {}
        compare(lambda run, count: seen.update(ends(run, count)) or {})
        self.assertEqual(seen, {"abort": "killed by SIGABRT", "sleep": "no end after 0.1 s"})


class FolderTest(unittest.TestCase):
    def test_perl_after_make_alone_lacks_its_link_to_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "t").mkdir()
            (path / "perl").touch()
            with self.assertRaisesRegex(world.Missing, "t/perl is missing: .*make test_prep"):
                world.perl(world.Run(path, None, path, []))


class WordsTest(unittest.TestCase):
    def test_suite_folder_and_parts(self):
        self.assertEqual(world.parse("cpython:test_gc,test_list"),
                         ("cpython", None, ["test_gc", "test_list"]))
        self.assertEqual(world.parse("git=/"), ("git", pathlib.Path("/"), []))

    def test_what_is_wrong_is_said(self):
        for word, message in (("nosuch", "no such suite"), ("git", "git=FOLDER"),
                              ("cpython=/", "takes no folder"), ("git=/no/such", "is no folder")):
            with self.assertRaisesRegex(click.BadParameter, message):
                world.parse(word)


class OutcomesTest(unittest.TestCase):
    def test_lines_of_redis_and_git(self):
        self.assertEqual(world.matched(r"^\[(?P<outcome>ok|err)\]: (?P<test>[^(\n]*)",
                                       "[ok]: SADD (1 ms)\n[err]: SREM (2 ms)\nnothing\n"),
                         {"SADD": "ok", "SREM": "err"})

    def test_lines_of_postgres(self):
        self.assertEqual(world.postgres_outcomes(
            "test test_setup                   ... ok          869 ms\n"
            "     collate.linux.utf8           ... ok           31 ms\n"
            "     lock                         ... FAILED      289 ms\n"),
            {"test_setup": "ok", "collate.linux.utf8": "ok", "lock": "FAILED"})
        self.assertEqual(world.postgres_outcomes(
            "ok 1         - test_setup                                284 ms\n"
            "not ok 2     + collate.linux.utf8                         25 ms\n"),
            {"test_setup": "ok", "collate.linux.utf8": "not ok"})

    def test_known_differences_name_the_document(self):
        self.assertIn("HARDENING", world.reason_of("jemalloc", "test_zero_alloc", "full"))
        self.assertIsNone(world.reason_of("jemalloc", "test_zero_alloc", "cairn"))


if __name__ == "__main__":
    unittest.main()
