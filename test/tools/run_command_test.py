"""`cairn run` from outside, as a user starts it."""

import os
import subprocess
import tempfile
import unittest

import tool_path

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]


def cairn(*arguments):
    return subprocess.run([str(tool_path.TOOLS / "bin" / "cairn"), *arguments],
                          capture_output=True, text=True, timeout=120, check=False)


def run(*command, options=("--rounds", "1")):
    return cairn("run", *options, "--lib", LIBRARY, *command)


class RunCommandTest(unittest.TestCase):
    def test_table(self):
        result = run("--", "sort", "/etc/passwd")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("sort /etc/passwd", result.stdout)
        for row in ("wall time", "CPU time", "peak RSS", "page faults"):
            self.assertIn(row, result.stdout)
        self.assertIn("output: the same in every run", result.stdout)

    def test_options_of_the_command_are_its_own(self):
        self.assertEqual(run("sh", "-c", "exit $#", "x", "--rounds", "--help").returncode, 2)

    def test_exit_status_is_passed_on(self):
        result = run("--", "sh", "-c", "exit 3")
        self.assertEqual(result.returncode, 3)
        self.assertIn("exit status: 3 under both", result.stdout)

    def test_exit_status_that_differs(self):
        result = run("--", "sh", "-c", 'test -z "$LD_PRELOAD"')
        self.assertEqual(result.returncode, 1)
        self.assertIn("exit status: 0 under system, 1 under", result.stdout)

    def test_signal(self):
        result = run("--", "sh", "-c", "echo last words >&2; kill -SEGV $$",
                     options=("--rounds", "5"))
        self.assertEqual(result.returncode, 128 + 11)
        self.assertIn("sh under system: killed by SIGSEGV", result.stderr)
        self.assertIn("last words", result.stderr)

    def test_misuse_message_is_shown(self):
        result = run("--", "/usr/bin/python3", "-S", "-c",
                     "import ctypes, os\n"
                     "if 'LD_PRELOAD' in os.environ:\n"
                     "    free = ctypes.CDLL(None).free\n"
                     "    free.argtypes = [ctypes.c_void_p]\n"
                     "    free(16)\n")
        self.assertEqual(result.returncode, 128 + 6)
        self.assertIn("cairn: free of 0x10, which is not a Cairn block", result.stderr)

    def test_show_output(self):
        result = run("--", "echo", "seen twice", options=("--rounds", "1", "--show-output"))
        self.assertEqual(result.stdout.count("seen twice"), 3)  # with the table's title
        self.assertNotIn("output:", result.stdout)

    def test_standard_input(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("grep finds this\n")
            file.flush()
            options = ("--rounds", "1", "--stdin", file.name)
            self.assertEqual(run("--", "grep", "-q", "finds", options=options).returncode, 0)
        self.assertEqual(run("--", "grep", "-q", "finds").returncode, 1)

    def assert_refused(self, result, text):
        self.assertEqual(result.returncode, 2)
        self.assertIn(text, result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_errors(self):
        self.assert_refused(run("--", "no-such-program-here"), "no such program")
        self.assert_refused(cairn("run", "--lib", "/nowhere.so", "true"), "no such file")
        self.assert_refused(cairn("run", "--lib", LIBRARY, "--hardened", "true"), "exclude")
        self.assert_refused(run("true", options=("--stdin", "/nowhere")), "no such file")
        self.assert_refused(run(options=("--rounds", "1")), "Missing argument")
        self.assert_refused(run("true", options=("--rounds", "0")), "--rounds")
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            self.assert_refused(cairn("run", "--lib", file.name, "true"), "cannot be preloaded")


if __name__ == "__main__":
    unittest.main()
