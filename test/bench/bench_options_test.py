"""bench_options, and the actions of `cairn-bench` before its first run."""

import contextlib
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import bench_path  # noqa: F401  pylint: disable=unused-import
import bench_command
import bench_files
import bench_options
import bench_programs
from bench_options import Options
from bench_rows import MicroUnit, Settings
from cairn import allocator_libraries
from cairn.errors import UserError


class OptionsTest(unittest.TestCase):
    def test_memory_is_what_the_machine_has(self):
        self.assertEqual(Options().with_memory(24 * 1024).memory_gib, 4)
        self.assertEqual(Options().with_memory(2048).memory_gib, 1.5)
        self.assertEqual(Options().with_memory(10).memory_gib, 0.1)
        self.assertEqual(Options().with_memory(0).memory_gib, 4)  # unknown
        self.assertEqual(Options(memory_gib=1.0).with_memory(2048).memory_gib, 1)
        with self.assertRaisesRegex(UserError, "--memory 3.0: only 2.0 GiB are available"):
            Options(memory_gib=3.0).with_memory(2048)

    def test_journal_holds_them(self):
        options = Options(quick=True, rows=["a-*"], peers=["x=/y"], memory_gib=2.0)
        self.assertEqual(Options.from_json(options.as_json()), options)
        with self.assertRaisesRegex(UserError, "another version"):
            Options.from_json({"quick": True})

    def test_peers_of_a_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "peers"
            path.write_text(f"# newest\nmimalloc3 3.4.3 {__file__}\n\n")
            peers = allocator_libraries.read_peers(path)
            path.write_text("mimalloc3 3.4.3\n")
            with self.assertRaisesRegex(UserError, "a line has a name, a version and a library"):
                allocator_libraries.read_peers(path)
            with self.assertRaisesRegex(UserError, "No such file"):
                allocator_libraries.read_peers(path.with_name("none"))
        found, missing = allocator_libraries.find_all(pathlib.Path("/none"), "", peers)
        self.assertEqual([one.version.split()[0] for one in found if one.name == "mimalloc3"],
                         ["3.4.3"])
        self.assertNotIn("mimalloc", [one.name for one in found])
        self.assertFalse([line for line in missing if line.startswith("mimalloc")])

    def test_rounds(self):
        self.assertEqual((Options().rounds_wanted, Options().deadline_s), (5, None))
        self.assertEqual(Options(quick=True).rounds_wanted, 3)
        self.assertIsNotNone(Options(quick=True).deadline_s)
        self.assertIsNone(Options(quick=True, rounds=9).deadline_s)


class BeforeTest(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(mock.patch.dict(os.environ, CAIRN_BUILD=str(self.directory / "none")))
        self.install = stack.enter_context(mock.patch.object(bench_files, "install_packages",
                                                             return_value=""))
        self.build = stack.enter_context(mock.patch.object(bench_files, "build"))
        self.rust = stack.enter_context(mock.patch.object(bench_files, "build_rust",
                                                          return_value=""))

    def begin(self, options, install=False, build=True):
        return bench_command._begin(  # pylint: disable=protected-access
            options, self.directory / "out", install, build)

    def test_rows_are_known_without_a_build(self):
        names = {row.name for unit in bench_programs.all_units() for row in unit.rows}
        self.assertLessEqual({"a-cycle", "threads-64", "redis", "micro-malloc-free-64"}, names)

    def test_wrong_options_are_refused_before_anything_is_installed_or_built(self):
        for options, text in ((Options(rows=["no-such-row"]), "no row or group matches"),
                              (Options(allocators=["dlmalloc"]), "dlmalloc: no such allocator"),
                              (Options(peers=["x=/nowhere.so"]), "no such file"),
                              (Options(peers=[f"x@{v}={__file__}" for v in (1, 2)]),
                               "the name x is taken"),
                              (Options(memory_gib=1e6), "are available")):
            with self.assertRaisesRegex(UserError, text):
                self.begin(options, install=True)
        self.assertEqual((self.install.called, self.build.called), (False, False))

    def test_nothing_is_installed_unless_asked(self):
        for install in (False, True):
            with self.assertRaisesRegex(UserError, "cairn-workloads is not built"):
                self.begin(Options(allocators=["system"]), install=install)
            self.assertEqual(self.install.called, install)
        self.assertTrue(self.build.called)

    def test_cargo_that_fails_costs_its_row_only(self):
        self.rust.return_value = "cargo failed"
        with self.assertRaisesRegex(UserError, "cairn-workloads is not built"):
            self.begin(Options(allocators=["system"]))
        rust = next(unit for unit in bench_programs.all_units() if unit.name == "rust")
        self.assertIn("cargo", rust.skip_reason(Settings()))

    def test_programs_that_are_not_built_are_skipped(self):
        for unit in bench_programs.all_units():
            if unit.name == "containers" or isinstance(unit, MicroUnit):
                self.assertIn("is not ", unit.skip_reason(Settings()))


class BuildTest(unittest.TestCase):
    def test_failing_cargo_is_a_complaint(self):
        failed = subprocess.CompletedProcess([], 101, "error: no such crate\n")
        with mock.patch("shutil.which", return_value="/bin/cargo"), \
                mock.patch("subprocess.run", return_value=failed):
            self.assertIn("no such crate", bench_files.build_rust())
        with mock.patch("shutil.which", return_value=None):
            self.assertEqual(bench_files.build_rust(), "")

    def test_missing_cmake_is_a_sentence(self):
        with mock.patch("subprocess.run", side_effect=FileNotFoundError(2, "No", "cmake")):
            with self.assertRaisesRegex(UserError, "configuring the build: cmake is not installed"):
                bench_files.build()

    def test_library_without_malloc_is_refused(self):
        library = next(pathlib.Path("/").glob("usr/lib*/*-linux-gnu/libm.so.6"))
        with self.assertRaisesRegex(UserError, "maths: malloc came from .*libc"):
            allocator_libraries.check_in_effect([allocator_libraries.Allocator("maths", library)])


if __name__ == "__main__":
    unittest.main()
