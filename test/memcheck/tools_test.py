"""Valgrind's tools find in a program on Cairn what they find in it on the system's malloc.

Valgrind puts its own functions in place of malloc, by name, if it can read the library's symbols.
FAULTY_PROGRAM uses the system's malloc, FAULTY_PROGRAM_LINKED libcairn-malloc.so, and
FAULTY_PROGRAM_STATIC contains libcairn-malloc.a. FAULTY_LIBRARIES are the libraries to preload,
separated by colons.

Skipped where Valgrind is not installed.
"""

import os
import re
import shutil
import subprocess
import unittest

PLAIN = os.environ["FAULTY_PROGRAM"]
LIBRARIES = os.environ["FAULTY_LIBRARIES"].split(":")
FORMS = {"linked": (os.environ["FAULTY_PROGRAM_LINKED"], None),
         "static": (os.environ["FAULTY_PROGRAM_STATIC"], None)}
FORMS |= {f"preload of {os.path.basename(library)}": (PLAIN, library) for library in LIBRARIES}

OWN_BLOCKS = 6  # of the program and its two threads; the C++ runtime, where loaded, makes another


def valgrind(tool, program, library, *options):
    """All that the tool writes about the program."""
    if program == FORMS["static"][0]:
        options = ("--soname-synonyms=somalloc=NONE", *options)  # else it leaves weak functions
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("LD_PRELOAD", "CAIRN_OPTIONS")}
    if library:
        environment["LD_PRELOAD"] = library
    done = subprocess.run(["valgrind", f"--tool={tool}", *options, program], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.stdout


def memcheck(program, library):
    """Each error with its function, what is said of the blocks, and the number of errors."""
    text = valgrind("memcheck", program, library, "--leak-check=full")
    errors = re.findall(r"==\d+== (Invalid \w+ of size \d+|[\d,]+ bytes in \d+ blocks are \w+)"
                        r".*?(\w+)(?:\(\))? \(faulty_program\.cc:\d+\)", text, re.S)
    blocks = re.findall(r"Address 0x\w+ is ([\d,]+ bytes \w+) a block of size ([\d,]+) (\w+)",
                        text)
    in_use = re.findall(r"in use at exit: ([\d,]+ bytes in \d+ blocks)", text)
    return errors, blocks, in_use, re.findall(r"ERROR SUMMARY: (\d+)", text)


def helgrind(program, library):
    text = valgrind("helgrind", program, library)
    races = re.findall(r"Possible data race during (\w+) of size (\d+)", text)
    return races, re.findall(r"ERROR SUMMARY: (\d+)", text)


def dhat(program, library):
    text = valgrind("dhat", program, library, "--dhat-out-file=/dev/null")
    made = int(re.search(r"Total: .* in (\d+) blocks", text)[1])
    return made >= OWN_BLOCKS, re.findall(r"At t-end: *([\d,]+ bytes in \d+ blocks)", text)


@unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
class ToolsTest(unittest.TestCase):
    maxDiff = None

    def compare(self, find, *wanted):
        expected = find(PLAIN, None)
        for part in wanted:
            self.assertIn(part, str(expected))
        for form, (program, library) in FORMS.items():
            with self.subTest(form=form):
                self.assertEqual(find(program, library), expected)

    def test_memcheck(self):
        self.compare(memcheck, "Invalid write of size 1', 'overflow'",
                     "Invalid read of size 1', 'use_after_free'",
                     "Invalid read of size 1', 'use_after_delete'",
                     "1,000 bytes in 1 blocks are definitely', 'leak'")

    def test_helgrind(self):
        self.compare(helgrind, "('read', '4')", "('write', '4')")

    def test_dhat(self):
        self.compare(dhat, "True", "1,000 bytes in 1 blocks")


if __name__ == "__main__":
    unittest.main()
