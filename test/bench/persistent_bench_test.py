"""The benchmark of the persistent heap at a tiny size: it runs, ends, and reports full tables."""

import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path(os.environ["CAIRN_BUILD"]) / "bench" / "cairn-persistent-bench"


def run(*words):
    with tempfile.TemporaryDirectory() as directory:
        result = subprocess.run([str(PROGRAM), "--directory", directory, "--seconds", "0.01",
                                 *words], capture_output=True, text=True, timeout=120, check=False)
        return result, os.listdir(directory)


def rows(text):
    """The cells of the lines with figures in the tables."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [cells for cells in lines if cells[0].isdigit()]


class PersistentBenchTest(unittest.TestCase):
    def test_commits_of_the_stores_that_are_there(self):
        result, left = run("--stores", "pwrite,cairn,unheard-of", "--pages", "1,16", "commits")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([cells[:2] for cells in rows(result.stdout)],
                         [["1", "pwrite"], ["1", "cairn"], ["16", "pwrite"], ["16", "cairn"]])
        for cells in rows(result.stdout):
            self.assertGreater(float(cells[2]), 0, "transactions a second")
            self.assertGreater(int(cells[-1]), 0, "transactions")
        self.assertIn("unheard-of: its library was not found", result.stdout)
        self.assertEqual(left, [], "no file stays")

    def test_rows_of_the_heap_alone(self):
        result, left = run("allocation", "groups")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([cells[0] for cells in rows(result.stdout)],
                         ["16", "64", "256", "1024", "4096", "1", "2", "4", "16", "64"])
        for cells in rows(result.stdout):
            self.assertGreater(float(cells[1]), 0)
        self.assertEqual(left, [])

    def test_what_it_does_not_know(self):
        for words in (["unheard-of"], ["--seconds", "x"], ["--unheard-of"]):
            result, _ = run(*words)
            self.assertEqual(result.returncode, 2)
            self.assertIn("usage: cairn-persistent-bench", result.stderr)


if __name__ == "__main__":
    unittest.main()
