#!/usr/bin/env python3
"""`sites:FILE` on a program: its sites get heaps of their own, and nothing else changes; under
threads, fork, signals, in libraries loaded later, and beside a tracer, a profiler and a sampler."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from tool_path import TOOLS  # pylint: disable=unused-import
from cairn.elf_notes import GNU_BUILD_ID, read_notes

PROGRAM = os.environ["CAIRN_TEST_TARGET"]
LOADED = os.environ["CAIRN_TEST_LOADED"]
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
HARDENED = os.environ.get("CAIRN_TEST_HARDENED")


def build_id(path):
    with open(path, "rb") as file:
        return read_notes(file)[GNU_BUILD_ID].hex()


class SitesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "a.sites"
        told = subprocess.run([PROGRAM, "load", LOADED, "where"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        self.sites = {name: frames for name, *frames in map(str.split, told.splitlines())}

    def write(self, names, identity=build_id):
        """A file of these sites, of a group each that has the site's name."""
        modules, lines = {}, []
        for name in names:
            frames = []
            for frame in self.sites[name]:
                path, _, offset = frame.rpartition("+")
                number = modules.setdefault(path, len(modules) + 1)
                frames.append(f"{number}+{offset}")
            lines.append(f"segregate {name} {' '.join(frames)}")
        heads = [f"module {number} {identity(path)} {path}" for path, number in modules.items()]
        self.file.write_text("\n".join(["cairn-sites 1", *heads, *lines]) + "\n", encoding="utf-8")

    def run_program(self, *words, options="", library=LIBRARY):
        done = subprocess.run(
            [PROGRAM, *map(str, words)], check=False, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=200,
            env={**os.environ, "LD_PRELOAD": library, "CAIRN_OPTIONS": options})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def counts(self, *words, more="", library=LIBRARY):
        """{group: blocks}, a list where several processes say so."""
        said = self.run_program(*words, options=f"sites:{self.file},verbose:on{more}",
                                library=library).stderr
        found = {}
        for name, count in re.findall(r"sites: group (\w+): (\d+) blocks", said):
            found.setdefault(name, []).append(int(count))
        self.assertNotIn("ignored", said)
        return {name: counts[0] if len(counts) == 1 else counts for name, counts in found.items()}

    @staticmethod
    def memory(done):
        return {name: int(size) for name, size in re.findall(r"Vm(\w+):\s+(\d+)", done.stdout)}

    def test_a_site_that_pins_pages_pins_none_in_a_heap_of_its_own(self):
        self.write(["kept"])
        self.assertEqual(self.counts("batches"), {"kept": 3000})
        plain = self.memory(self.run_program("batches", "memory"))
        apart = self.memory(self.run_program("batches", "memory", options=f"sites:{self.file}"))
        self.assertLess(apart["HWM"], 0.8 * plain["HWM"])
        self.assertLess(apart["RSS"], 0.5 * plain["RSS"])

    def test_deeper_frames_tell_callers_apart(self):
        self.write(["outer"])
        self.assertEqual(self.counts("pairs", 500), {"outer": 500})

    def test_threads_and_growth(self):
        self.write(["kept"])
        self.assertEqual(self.counts("threads", "grow"), {"kept": 4 * 2000 + 500 - 4})

    def test_a_child_of_fork_has_the_groups_and_a_library_loaded_later_its_site(self):
        self.write(["kept", "late"])
        self.assertEqual(self.counts("batches", "fork"),
                         {"kept": [3100, 3000], "late": [0, 0]})
        self.assertEqual(self.counts("load", LOADED, "late", 300), {"kept": 0, "late": 300})

    def test_signal_handlers(self):
        self.write(["kept"])
        self.assertGreater(self.counts("signals", 300)["kept"], 300)

    def test_beside_other_watchers(self):
        self.write(["kept"])
        trace = pathlib.Path(self.folder.name) / "t"
        for more in (f",trace:{trace}", ",profile:1000", ",sample:50",
                     f",profile:64,sample:2000,trace:{trace}"):
            self.assertEqual(self.counts("batches", "grow", "fork", more=more)["kept"],
                             [3600, 3500], more)
        self.assertTrue(list(trace.parent.glob("t.*")))

    def test_hardened(self):
        if not HARDENED:
            self.skipTest("without the hardened libraries")
        self.write(["kept"])
        self.assertEqual(self.counts("batches", "grow", library=HARDENED), {"kept": 3500})

    def test_by_name_and_for_another_build(self):
        self.write(["kept"], identity=lambda path: "-")
        self.assertEqual(self.counts("batches"), {"kept": 3000})
        self.write(["kept"], identity=lambda path: "00" + build_id(path)[2:])
        said = self.run_program("batches", options=f"sites:{self.file},verbose:on").stderr
        self.assertIn(f"cairn: sites: {self.file} is for another build of {PROGRAM}\n", said)
        self.assertIn("group kept: 0 blocks", said)

    def test_what_is_wrong_is_said_and_the_program_goes_on(self):
        for text, line in (
                ("", f"sites: {self.file} is no file of sites: it does not begin with "
                     "\"cairn-sites\""),
                ("cairn-sites 2\n", f"sites: {self.file} is of another version than the one that "
                                    "is known"),
                ("cairn-sites 1\n", f"sites: {self.file} names no site"),
                ("cairn-sites 1\npool a\n", f"sites: {self.file}:2: unknown word \"pool\", line "
                                            f"ignored\ncairn: sites: {self.file} names no site"),
                ("cairn-sites 1\n" + "#" * (1 << 20),
                 f"no sites: {self.file} is longer than a file of sites may be")):
            self.file.write_text(text, encoding="utf-8")
            said = self.run_program("pairs", 5, options=f"sites:{self.file}").stderr
            self.assertEqual(said, f"cairn: {line}\n")
        self.file.unlink()
        self.assertEqual(self.run_program("pairs", 5, options=f"sites:{self.file}").stderr,
                         f"cairn: no sites: {self.file}: error 2\n")
        self.assertEqual(self.run_program("pairs", 5, options="sites:a").stderr,
                         'cairn: bad value of option "sites:a" in CAIRN_OPTIONS, ignored\n')


if __name__ == "__main__":
    unittest.main()
