"""After its start the heap makes the system calls that docs/HARDENING.md lists, and no others.

SANDBOXED is the program that filters its own calls (sandboxed.c), SANDBOXED_STATIC this program
with libcairn-malloc.a in it, SANDBOXED_LIBRARIES the libraries to preload, separated by colons.
"""

import os
import re
import subprocess
import unittest
from pathlib import Path

PROGRAM = os.environ["SANDBOXED"]
LIBRARIES = os.environ["SANDBOXED_LIBRARIES"].split(":")
FORMS = {os.path.basename(library): (PROGRAM, library) for library in LIBRARIES}
FORMS["static"] = (os.environ["SANDBOXED_STATIC"], None)
DOCUMENT = Path(__file__).parents[2] / "docs" / "HARDENING.md"


def documented():
    """The calls in the first table of the section."""
    section = DOCUMENT.read_text().split("\n## System calls\n")[1].split("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.M)[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.M)


def run(form, when, calls):
    """Exit status and messages."""
    program, library = FORMS[form]
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("LD_PRELOAD", "CAIRN_OPTIONS")}
    if library:
        environment["LD_PRELOAD"] = library
    done = subprocess.run([program, when, *calls], env=environment, text=True, timeout=240,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


class SandboxTest(unittest.TestCase):
    def setUp(self):
        if run("static", "first", [])[0] == 77:
            self.skipTest("this kernel installs no filter of system calls")

    def test_only_documented_calls_before_the_first_block(self):
        for form in FORMS:
            with self.subTest(form=form):
                self.assertEqual(run(form, "first", documented()), (0, ""))

    def test_only_documented_calls_after_a_thousand_blocks(self):
        for form in FORMS:
            with self.subTest(form=form):
                self.assertEqual(run(form, "later", documented()), (0, ""))

    def test_each_documented_call_is_made(self):
        self.assertEqual(len(documented()), 6)
        for call in documented():
            others = [other for other in documented() if other != call]
            with self.subTest(without=call):
                status, text = run(os.path.basename(LIBRARIES[-1]), "later", others)
                self.assertEqual(status, 1)
                self.assertRegex(text, r"^system call \d+ is not allowed\n$")


if __name__ == "__main__":
    unittest.main()
