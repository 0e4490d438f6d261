"""The frame allocators under Valgrind: their marks make memcheck report what no live block holds.

One build of the library serves programs with and without Valgrind: this one, as it is released.

The program's path is in MEMCHECK_PROGRAM. Skipped where Valgrind is not installed.
"""

import os
import re
import shutil
import subprocess
import unittest

PROGRAM = os.environ["MEMCHECK_PROGRAM"]
FAULT_STATUS = 99


def memcheck(use):
    """(exit status, memcheck's errors, all text) of the use."""
    done = subprocess.run(["valgrind", "--quiet", f"--error-exitcode={FAULT_STATUS}", PROGRAM, use],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    errors = re.findall(r"==\d+== (Invalid \w+ of size \d+|Conditional jump.*)\n", done.stdout)
    return done.returncode, errors, done.stdout


@unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
class MemcheckTest(unittest.TestCase):
    def expect(self, use, *expected):
        status, errors, text = memcheck(use)
        self.assertEqual(errors, list(expected), text)
        self.assertNotEqual(status, 0, text)  # debug builds fault at it, too

    def test_a_clean_program_has_no_error(self):
        status, errors, text = memcheck("clean")
        self.assertEqual((status, errors, text), (0, [], ""))

    def test_use_after_pop(self):
        self.expect("use_after_pop", "Invalid read of size 1")

    def test_use_after_the_scope(self):
        self.expect("use_after_scope", "Invalid read of size 1")

    def test_use_before_it_was_set(self):
        self.expect("use_before_set",
                    "Conditional jump or move depends on uninitialised value(s)")

    def test_use_after_a_fifos_free(self):
        self.expect("use_after_free", "Invalid write of size 1")

    def test_use_after_a_frames_release(self):
        self.expect("use_after_release", "Invalid read of size 1")

    def test_writes_outside_of_a_block(self):
        """Memcheck tells them at once, then the stack's own canaries end the program."""
        status, errors, text = memcheck("write_past_the_end")
        self.assertEqual(errors, ["Invalid write of size 1"] * 2, text)
        self.assertIn('cairn: stack "thread": write ', text)
        self.assertNotEqual(status, 0)


if __name__ == "__main__":
    unittest.main()
