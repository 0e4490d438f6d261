"""cmake/discover_tests.py: the tests that ctest gets from a program with GoogleTest."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class DiscoverTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("one_test", "two_test"):
            (self.folder / f"{name}.cc").write_text("// A test.\n")

    def discover(self, suites, *options):
        """Runs the script on a program that lists these suites: {name: [(file, case, more)]}."""
        listed = [{"name": name, "testsuite": [
            {"name": case, "file": str(self.folder / f"{file}.cc"), **more}
            for file, case, more in cases]} for name, cases in suites.items()]
        (self.folder / "list.json").write_text(json.dumps({"testsuites": listed}))
        program = self.folder / "program"
        copy = f'cp "{self.folder}/list.json" "${{2#--gtest_output=json:}}"'
        program.write_text(f"#!/bin/sh\n{copy}\n")
        program.chmod(0o755)
        out = self.folder / "cases.cmake"
        result = subprocess.run(
            [sys.executable, "-B", ROOT / "cmake/discover_tests.py", "--out", out, "--labels",
             "unit", "--timeout", "9", *options, "--", program],
            capture_output=True, text=True, check=False)
        return result, out.read_text() if out.exists() else ""

    def test_a_case_has_the_name_of_its_file_and_a_process(self):
        result, text = self.discover(
            {"Some": [("one_test", "First", {}), ("two_test", "Next", {})]})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(text.count("add_test("), 2)
        self.assertIn("add_test([==[one_test.Some.First]==]", text)
        self.assertIn("[==[--gtest_filter=Some.Next]==]", text)
        self.assertIn("LABELS unit TIMEOUT 9", text)

    def test_parameters_are_shown_by_their_values(self):
        _, text = self.discover({
            "Sizes/Some": [("one_test", "Fits/0", {"value_param": "16"})],
            "Typed/1": [("one_test", "Case", {"type_param": "char"})]})
        self.assertIn("[==[one_test.Sizes/Some.Fits/16]==]", text)
        self.assertIn("[==[--gtest_filter=Sizes/Some.Fits/0]==]", text)
        self.assertIn("[==[one_test.Typed.Case<char>]==]", text)

    def test_a_case_in_two_files_is_refused(self):
        result, text = self.discover({"Some": [("one_test", "Same", {}), ("two_test", "Same", {})]})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("Some.Same is in", result.stderr)
        self.assertEqual(text, "")

    def test_grouped_files_are_one_test_unless_they_say_otherwise(self):
        (self.folder / "two_test.cc").write_text(
            "// Two. Each case needs a process\n// of its own.\n")
        cases = [("one_test", "A", {}), ("one_test", "B", {}),
                 ("two_test", "C", {}), ("two_test", "D", {})]
        _, text = self.discover({"Some": cases}, "--grouped")
        self.assertEqual(text.count("add_test("), 3)
        self.assertIn("[==[--file=one_test]==]", text)
        self.assertIn("add_test([==[two_test.Some.C]==]", text)


if __name__ == "__main__":
    unittest.main()
