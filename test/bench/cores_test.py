"""bench/cores: its programs without the simulator, and the tables of given results."""

import argparse
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "cores"))

import cores  # pylint: disable=wrong-import-position
import cores_report  # pylint: disable=wrong-import-position

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
RESULT = """mallocs 2000
frees 2000
cycles 1000000
instructions_program 10
locked_allocator {locked}
read_dirty_allocator {lines}
write_shared_program 2
call 9 4
line 7f0000000040 {hottest} 0 0 0
site 401000 {hottest} 0 0 0
pair 401000 401010 5 0 0 0
code 401000 7 5 0 0 0
block 401000 12
hold 401000 3 300 150
map 00400000-00500000 r-xp 00000000 08:01 1 /usr/bin/program
"""


@unittest.skipUnless(platform.machine() == "x86_64", "the simulator is of x86-64")
class ProgramsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # pylint: disable=consider-using-with
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.out = pathlib.Path(cls.directory.name)
        cores.build_programs(cls.out)

    def run_program(self, *arguments, library=None):
        environment = dict(os.environ)
        if library:
            environment["LD_PRELOAD"] = str(library)
        return subprocess.run([str(self.out / "programs"), *arguments], check=True, text=True,
                              stdout=subprocess.PIPE, env=environment, timeout=100).stdout

    def test_all_programs_are_reported(self):
        self.assertEqual(self.run_program("--list").split(), cores_report.PROGRAMS)

    def test_same_operations_under_every_allocator(self):
        for program in cores_report.PROGRAMS:
            with self.subTest(program=program):
                counts = {self.run_program(program, "2", "5", library=library)
                          for library in (LIBRARY, self.out / "libbaseline.so")}
                self.assertEqual(len(counts), 1)
                self.assertRegex(counts.pop(), r"^2 threads: [1-9]\d+ mallocs, [1-9]\d+ frees\n$")


class ReportTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)

    def write(self, program, name, threads, lines=0, locked=0, hottest=0):
        (self.folder / f"{program}.{name}.{threads}").write_text(
            RESULT.format(lines=lines, locked=locked, hottest=hottest))

    def goal(self, program, threads=16):
        return cores_report.goal_row(cores_report.Results(self.folder), program, threads)

    def test_figures_of_a_result(self):
        self.write("pairs", "cairn", 16, lines=40, locked=8, hottest=6)
        result = cores_report.Result(self.folder / "pairs.cairn.16")
        figures = {figure: result.per_thousand(figure) for figure, _, _ in cores_report.FIGURES}
        self.assertEqual(figures, {"lines": 21, "locked": 4, "hottest": 3, "calls": 2,
                                   "futex_waits": 0, "instructions": 5})

    def test_goals(self):
        self.write("pairs", "baseline", 16, lines=20)
        self.write("pairs", "cairn", 16, lines=260, locked=400, hottest=40)
        self.write("pairs", "jemalloc", 16, lines=220)
        self.write("pairs", "glibc", 16, lines=30)  # no peer of the goals
        self.assertEqual(self.goal("pairs"), ["pairs", "16", "120", "120", "20", "20", "200",
                                              "300", "yes"])
        self.write("pairs", "rpmalloc", 16, lines=90)
        self.assertEqual(self.goal("pairs")[2:4] + self.goal("pairs")[-1:], ["120", "50", "no"])

    def test_hottest_line(self):
        for program, measured, met in (("many", 44, "no"), ("larson", 44, "yes"),
                                       ("shorts", 300, "no")):
            self.write(program, "baseline", 16)
            self.write(program, "cairn", 16, hottest=measured)
            self.assertEqual(self.goal(program)[-1], met, program)

    def test_document(self):
        self.write("many", "baseline", 2, lines=10)
        self.write("many", "cairn", 2, lines=30)
        document = self.folder / "document.md"
        document.write_text(f"before\n\n{cores_report.BEGIN}\nold\n{cores_report.END}\n\nafter\n")
        cores_report.report(argparse.Namespace(results=self.folder, write=document))
        text = document.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"))
        self.assertNotIn("old", text)
        self.assertRegex(text, r"(?m)^\| many \| 2 \| 6\.0 \| 10 \|$")
        self.assertNotIn("| many | 2 | 10 | 50", text, "2 threads have no goal")
        cores_report.report(argparse.Namespace(results=self.folder, write=document))
        self.assertEqual(document.read_text(), text)
        self.assertTrue(re.search(r"## Lines\n\n\| program", text))


if __name__ == "__main__":
    unittest.main()
