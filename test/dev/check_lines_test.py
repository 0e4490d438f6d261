"""dev/check_lines.py on libraries whose variables are known."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import dev_path

LISTED = """# comment

Written by tests only.
    heap_generation a.c:rare
"""
GOOD = """
unsigned heap_generation = 1;
static unsigned rare;
static struct { long words[9]; } __attribute__((aligned(64))) busy;
static const int constant = 3;
int get(void) { return constant + ++rare + ++busy.words[0]; }
"""


class CheckLinesTest(unittest.TestCase):
    def check(self, source, listed=LISTED):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            (path / "a.c").write_text(source)
            (path / "shared_lines.txt").write_text(listed)
            script = path / "check_lines.py"
            script.write_text((dev_path.DEV / "check_lines.py").read_text())
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-fvisibility=hidden",
                            "-o", str(path / "libcairn.so"), str(path / "a.c")], check=True)
            result = subprocess.run([sys.executable, str(script), directory],
                                    capture_output=True, text=True, check=False)
        return result.returncode, result.stdout.splitlines()

    def test_variables_with_a_decision(self):
        self.assertEqual(self.check(GOOD), (0, []))

    def test_new_variable(self):
        status, found = self.check(GOOD + "static int more; int add(void) { return ++more; }")
        self.assertEqual((status, found),
                         (1, ["a.c:more may share a cache line: see dev/check_lines.py"]))

    def test_aligned_start_is_not_enough(self):
        status, found = self.check(GOOD + "int word __attribute__((aligned(64)));")
        self.assertEqual((status, found),
                         (1, ["word may share a cache line: see dev/check_lines.py"]))

    def test_variable_of_a_function(self):
        status, found = self.check(GOOD + "int add(void) { static int calls; return ++calls; }")
        self.assertEqual((status, found),
                         (1, ["a.c:calls may share a cache line: see dev/check_lines.py"]))

    def test_listed_name_that_is_gone(self):
        status, found = self.check(GOOD, LISTED + "    a.c:gone\n")
        self.assertEqual((status, found),
                         (1, ["a.c:gone is listed in shared_lines.txt, and no library has it"]))

    def test_no_library(self):
        with tempfile.TemporaryDirectory() as directory:
            result = subprocess.run([sys.executable, str(dev_path.DEV / "check_lines.py"),
                                     directory], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("has no library", result.stdout)


if __name__ == "__main__":
    unittest.main()
