#!/usr/bin/env python3
"""`cairn advise --write-sites` and `--check-sites`: from advice to a file of sites, as short as
tells them apart, and what it gives on the real program."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import types
import unittest
import unittest.mock

from tool_path import TOOLS

# pylint: disable=wrong-import-position
from cairn import advise_sites, advise_summary
from cairn.elf_notes import GNU_BUILD_ID, read_notes

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
COMMAND = TOOLS / "bin" / "cairn"
PROGRAMS = pathlib.Path(os.environ["CAIRN_TEST_PLANTED"])


def advise(*words, status=0):
    done = subprocess.run([COMMAND, "advise", "--lib", LIBRARY, *map(str, words)], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=250)
    if done.returncode != status:
        raise AssertionError(f"status {done.returncode}: {done.stdout}{done.stderr}")
    return done


class ShortestTest(unittest.TestCase):
    def shortest(self, stacks, groups, most=4):
        with unittest.mock.patch.object(advise_summary, "_all_stacks",
                                        lambda trace: iter(stacks.items())):
            return advise_summary.shortest_stacks(None, groups, most)

    def test_as_few_frames_as_tell_a_site_apart(self):
        stacks = {1: (10, 20, 30), 2: (10, 21, 30), 3: (11, 20), 4: (12, 20), 5: (12, 20, 30)}
        self.assertEqual(self.shortest(stacks, [{3}]), ([[(11,)]], 0))
        self.assertEqual(self.shortest(stacks, [{1}]), ([[(10, 20)]], 0))
        self.assertEqual(self.shortest(stacks, [{1, 2}]), ([[(10,)]], 0))
        self.assertEqual(self.shortest(stacks, [{1}, {2}]), ([[(10, 20)], [(10, 21)]], 0))
        self.assertEqual(self.shortest(stacks, [{1, 2, 3}, {5}]),
                         ([[(10,), (11,)], [(12, 20, 30)]], 0))

    def test_what_cannot_be_told_apart_is_left_out(self):
        stacks = {1: (10, 20), 2: (10, 20, 30), 3: (1, 2, 3, 4, 5), 4: (1, 2, 3, 4, 6)}
        self.assertEqual(self.shortest(stacks, [{1}, {3}]), ([[], []], 2))

    def test_stacks_that_were_cut_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            reader = pathlib.Path(folder) / "reader"
            reader.write_text("#!/bin/sh\nprintf '1\\tff\\t10\\n2\\tab\\t...\\n3\\n'\n",
                              encoding="utf-8")
            reader.chmod(0o755)
            with unittest.mock.patch.object(advise_summary.files, "trace_program",
                                            lambda: reader):
                stacks = list(advise_summary._all_stacks("t"))  # pylint: disable=protected-access
        self.assertEqual(stacks, [(1, (255, 16)), (2, (171,))])

    def test_group_names(self):
        site = {"pinned_bytes": 100}
        verdict = types.SimpleNamespace(kind="pins pages", sites=[site])
        found = [types.SimpleNamespace(verdict=verdict)] * 40
        summary = types.SimpleNamespace(
            place=lambda site: types.SimpleNamespace(function="std::map<int, a b>::make(char)"))
        names = advise_sites._group_names(found, summary)  # pylint: disable=protected-access
        self.assertEqual(names[0], "std_map_int_a_b_make-1")
        self.assertEqual(len(set(names)), advise_sites.GROUPS_MOST)


class AdviseSitesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "a.sites"

    def test_from_the_advice_to_the_receipt_on_the_program(self):
        for build in ("O0", "O2", "no_frames"):
            program = PROGRAMS / f"planted_pins_{build}"
            done = advise("--no-replay", "--write-sites", self.file, "--", program)
            self.assertIn("names 1 site;", done.stderr)
            with open(program, "rb") as file:
                identity = read_notes(file).get((GNU_BUILD_ID), b"").hex() or "-"
            text = self.file.read_text(encoding="utf-8")
            self.assertIn(f"module 1 {identity} {program}\n", text)
            self.assertRegex(text, r"\nsegregate planted_record-1 1\+0x[0-9a-f]+( 1\+0x.*)?\n$")
            checked = advise("--rounds", 2, "--check-sites", self.file, "--", program)
            self.assertIn("group planted_record-1: 3000 blocks", checked.stdout)
            row = re.search(r"peak RSS MiB.*", checked.stdout).group(0)
            apart = float(re.findall(r"(\d+\.\d+)\s*│?$", row)[0])
            self.assertLess(apart, 0.9, row)
        # The same program with another input.
        other = advise("--rounds", 1, "--check-sites", self.file, "--", program, 3)
        self.assertIn("group planted_record-1: 3000 blocks", other.stdout)

    def test_what_stays_to_the_end_and_what_gains_nothing(self):
        done = advise("--no-replay", "--json", "--write-sites", self.file, "--",
                      PROGRAMS / "planted_nothing_O2")
        json.loads(done.stdout)
        self.assertIn("names no site", done.stderr)
        self.assertEqual(self.file.read_text(encoding="utf-8"), "cairn-sites 1\n")

    def test_the_advice_tells_of_it(self):
        done = advise("--no-replay", "--", PROGRAMS / "planted_pins_O2")
        self.assertIn("--write-sites FILE", done.stdout)
        done = advise("--no-replay", "--", PROGRAMS / "planted_temporary_O2")
        self.assertNotIn("--write-sites", done.stdout)

    def test_what_is_wrong_is_a_sentence(self):
        program = PROGRAMS / "planted_pins_O2"
        self.assertIn("no such file", advise("--check-sites", "/no/file", "--", program,
                                             status=2).stderr)
        self.file.write_text("cairn-sites 1\nmodule 1 - other\nsegregate a 1+0x10\npool\n",
                             encoding="utf-8")
        said = advise("--check-sites", self.file, "--", program, status=2).stderr
        self.assertIn(f"sites: {self.file}:4: unknown word", said)
        self.assertIn("no block of", said)
        comma = self.file.with_name("a,b")
        comma.write_text("", encoding="utf-8")
        self.assertIn("without a comma",
                      advise("--check-sites", comma, "--", program, status=2).stderr)
        self.assertIn("--write-sites", advise("--write-sites", "/no/folder/a", "--", program,
                                              status=2).stderr)


if __name__ == "__main__":
    unittest.main()
