"""`cairn run` as a user runs it: in this process, or in its own where that matters."""

import contextlib
import csv
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import tool_path
from cairn import cli, run_command
from cairn.errors import UserError

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]


def cairn(*arguments):
    """Runs the tool in this process, which saves the time to start it."""
    stdout, stderr = io.StringIO(), io.StringIO()
    words = ["cairn", *map(os.fsdecode, arguments)]
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr), \
            mock.patch.object(sys, "argv", words):
        status = cli._run()  # pylint: disable=protected-access
    return types.SimpleNamespace(returncode=status, stdout=stdout.getvalue(),
                                 stderr=stderr.getvalue())


def cairn_outside(*arguments):
    return subprocess.run([str(tool_path.TOOLS / "bin" / "cairn"), *arguments],
                          capture_output=True, text=True, timeout=120, check=False)


ONE_ROUND = ("--rounds", "1", "--warm-up", "0")


def run(*command, options=ONE_ROUND, start=cairn):
    return start("run", *options, "--lib", LIBRARY, *command)


def find_library(pattern):
    return next(pathlib.Path("/").glob(f"usr/lib*/*-linux-gnu/{pattern}"), None)


class RunCommandTest(unittest.TestCase):
    def test_table(self):
        result = run("--", "sort", "/etc/passwd", start=cairn_outside)
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
        result = run("--", "echo", "seen twice", options=("--rounds", "1", "--show-output"),
                     start=cairn_outside)
        self.assertEqual(result.stdout.count("seen twice"), 3)  # with the table's title
        self.assertNotIn("output:", result.stdout)

    def test_standard_input(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("grep finds this\n")
            file.flush()
            options = ("--rounds", "1", "--stdin", file.name)
            self.assertEqual(run("--", "grep", "-q", "finds", options=options).returncode, 0)
        self.assertEqual(run("--", "grep", "-q", "finds").returncode, 1)
        device = run("--", "cat", options=("--rounds", "1", "--stdin", "/dev/null"))
        self.assertEqual(device.returncode, 0, device.stderr)

    def assert_refused(self, result, text):
        self.assertEqual(result.returncode, 2)
        self.assertIn(text, result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_errors(self):
        self.assert_refused(run("--", "no-such-program-here"), "no such program")
        self.assert_refused(cairn("run", "--lib", "/nowhere.so", "true"), "no such file")
        self.assert_refused(cairn("run", "--lib", LIBRARY, "--hardened", "true"),
                            "cannot be combined")
        self.assert_refused(run("true", options=("--stdin", "/nowhere")), "no such file")
        self.assert_refused(run(options=("--rounds", "1")), "missing argument")
        self.assert_refused(run("true", options=("--rounds", "0")), "--rounds")
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            self.assert_refused(cairn("run", "--lib", file.name, "true"), "cannot be preloaded")
        self.assert_refused(run("--", ""), "cairn: the command's name is empty")
        self.assert_refused(run("true", options=("--json", "/no/such/file")), "there is no folder")
        self.assert_refused(run("--", b"./\xff"), "no such program")

    def test_options_that_say_nothing(self):
        for text in ("soon", "", "0s", "5q", "1e9h", "-1s"):
            with self.assertRaisesRegex(UserError, "write a time such as 10s"):
                run_command.parse_duration(text)
        self.assertEqual([run_command.parse_duration(text) for text in ("10", "500ms", "2m")],
                         [10, 0.5, 120])
        for text, words in (("x", "write NAME=/path/library.so"), ("x=", "write NAME=/path"),
                            ("x=/nowhere.so", "no such file")):
            with self.assertRaisesRegex(UserError, words):
                run_command.parse_side(text)
        for further in (["system=" + LIBRARY], ["a=" + LIBRARY, "a=" + LIBRARY]):
            with self.assertRaisesRegex(UserError, "two allocators have the name"):
                run_command.choose_sides(pathlib.Path(LIBRARY), False, further)

    def test_cut_elf_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "cut300"
            path.write_bytes(pathlib.Path("/bin/ls").read_bytes()[:300])
            path.chmod(0o755)
            self.assert_refused(run(str(path)), "cut300 is damaged: its ")

    def test_unreadable_program(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "secret"
            path.write_bytes(pathlib.Path("/bin/true").read_bytes())
            path.chmod(0o111)
            if not os.access(path, os.R_OK):  # root reads it
                self.assert_refused(run(str(path)), "secret: Permission denied; whether")

    def test_real_time_signals(self):
        for number, name in ((35, "SIGRTMIN+1"), (64, "SIGRTMAX")):
            result = run("--", "sh", "-c", f"kill -{number} $$")
            self.assertEqual(result.returncode, 128 + number)
            self.assertIn(f"sh under system: killed by {name}", result.stderr)
            self.assertNotIn("Traceback", result.stderr)

    def test_signal_after_some_rounds_keeps_them(self):
        with tempfile.TemporaryDirectory() as directory:
            count = (f"echo >>{directory}/runs; "
                     f"test $(wc -l <{directory}/runs) -lt 6 || kill -SEGV $$")
            out = pathlib.Path(directory) / "out.json"
            result = run("--", "sh", "-c", count, options=(
                "--rounds", "5", "--warm-up", "0", "--json", str(out)))
            self.assertEqual(result.returncode, 139)
            self.assertIn("killed by SIGSEGV (after 2 of 5 rounds)", result.stderr)
            self.assertIn("medians of 2 interleaved rounds", result.stdout)
            self.assertEqual(json.loads(out.read_text())["rounds"], 2)

    def interrupted(self, number):
        """The result of a run of many rounds that a signal ends after three of them."""
        with tempfile.TemporaryDirectory() as directory:
            runs, out = pathlib.Path(directory) / "runs", pathlib.Path(directory) / "out.csv"
            with subprocess.Popen(
                    [str(tool_path.TOOLS / "bin" / "cairn"), "run", "--rounds", "1000",
                     "--warm-up", "0", "--lib", LIBRARY, "--csv", str(out), "sh", "-c",
                     f"echo >>{runs}; sleep 0.02"],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                while process.poll() is None and (not runs.exists() or runs.stat().st_size < 7):
                    time.sleep(0.01)
                process.send_signal(number)
                stdout, stderr = process.communicate(timeout=200)
            with out.open(newline="") as file:
                return process.returncode, stdout, stderr, list(csv.DictReader(file))

    def test_interrupt_keeps_what_is_measured(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            status, stdout, stderr, lines = self.interrupted(number)
            self.assertEqual(status, 128 + number, stderr)
            self.assertRegex(stderr, r"cairn run: interrupted \(after \d+ of 1000 rounds\)")
            self.assertNotIn("Traceback", stderr)
            self.assertIn("wall time", stdout)
            self.assertGreaterEqual(len(lines), 6)

    def test_full_disk(self):
        result = run("true", options=("--rounds", "1", "--json", "/dev/full"))
        self.assertEqual(result.returncode, 2)
        self.assertIn("--json /dev/full: No space left on device", result.stderr)
        self.assertIn("wall time", result.stdout)
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([str(tool_path.TOOLS / "bin" / "cairn"), "run", "--rounds", "1",
                                     "--lib", LIBRARY, "true"], stdout=full, text=True,
                                    stderr=subprocess.PIPE, timeout=200, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("No space left on device", result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertNotIn("Exception ignored", result.stderr)

    def test_files(self):
        with tempfile.TemporaryDirectory() as directory:
            paths = [pathlib.Path(directory) / name for name in ("a.json", "a.csv", "a.md")]
            result = run("echo", "words", options=(
                "--rounds", "2", "--json", str(paths[0]), "--csv", str(paths[1]),
                "--markdown", str(paths[2])))
            self.assertEqual(result.returncode, 0, result.stderr)
            read = json.loads(paths[0].read_text())
            self.assertEqual(read["command"], ["echo", "words"])
            self.assertEqual([len(side["runs"]) for side in read["sides"]], [2, 2])
            self.assertEqual(read["sides"][1]["processes"][0]["malloc"],
                             str(pathlib.Path(LIBRARY).resolve()))
            self.assertEqual(paths[1].read_text().count("\n"), 5)
            self.assertIn("`echo words`", paths[2].read_text())
            self.assertEqual(len(os.listdir(directory)), 3)

    def test_more_sides(self):
        result = run("true", options=("--rounds", "1", "--on", f"twin={LIBRARY}"))
        self.assertEqual(result.returncode, 0, result.stderr)
        for side in ("system", "libcairn-malloc", "twin"):
            self.assertIn(side, result.stdout)

    def test_warm_up_and_prepare(self):
        with tempfile.TemporaryDirectory() as directory:
            count = f"{directory}/prepared"
            result = run("test", "-s", count, options=(
                "--rounds", "2", "--warm-up", "1", "--prepare", f"echo once >>{count}"))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(pathlib.Path(count).read_text().count("once"), 6)
        result = run("true", options=("--prepare", "echo no room >&2; exit 4"))
        self.assert_refused(result, "exit status 4: no room (nothing was measured)")

    def test_server(self):
        result = run("sleep", "60", options=("--rounds", "1", "--for", "300ms"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("stopped after 0.3 s", result.stdout)

    def test_library_that_is_no_malloc(self):
        mathematics = f"maths={find_library('libm.so.6')}"
        result = run("true", options=("--rounds", "1", "--on", mathematics))
        self.assert_refused(result, "under maths, malloc came from")

    def test_program_that_links_another_malloc(self):
        jemalloc = find_library("libjemalloc.so.2")
        if not jemalloc:
            self.skipTest("jemalloc is not installed")
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "linked"
            subprocess.run(["cc", "-x", "c", "-", "-o", str(program), "-Wl,--no-as-needed",
                            "-xnone", str(jemalloc)], check=True, text=True,
                           input="int main(void) { return 0; }")
            result = run(str(program))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("system is jemalloc for linked, not libc's malloc", result.stdout)

    def test_program_with_a_malloc_of_its_own(self):
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "own"
            subprocess.run(
                ["cc", "-x", "c", "-", "-o", str(program), "-rdynamic", "-fno-builtin"], text=True,
                input="static char room[1 << 20]; static unsigned long used;\n"
                      "void *malloc(unsigned long size) { void *block = room + used;"
                      " used += (size + 15) & ~15ul; return block; }\n"
                      "void free(void *block) { (void)block; }\n"
                      "int main(void) { return 0; }\n", check=True)
            result = run(str(program))
        self.assert_refused(result, "has its own malloc")

    def test_program_that_does_not_start(self):
        with tempfile.TemporaryDirectory() as directory:
            library, program = (pathlib.Path(directory) / name for name in ("libgone.so", "needs"))
            subprocess.run(["cc", "-x", "c", "-", "-shared", "-o", str(library)], check=True,
                           input="int gone;", text=True)
            subprocess.run(["cc", "-x", "c", "-", "-o", str(program), "-Wl,--no-as-needed",
                            "-xnone", str(library)], check=True, text=True,
                           input="int main(void) { return 0; }")
            library.unlink()
            result = run(str(program))
        self.assert_refused(result, "needs did not start under libcairn-malloc.so")
        self.assertIn("exit status 127: ", result.stderr)
        self.assertIn("libgone.so", result.stderr)

    def test_program_at_a_fixed_address_that_takes_the_addresses_of_allocator_functions(self):
        for functions in (["malloc"], ["malloc", "realloc", "calloc", "free"]):
            taken = "".join(f"taken = (void *){function};\n" for function in functions)
            with self.subTest(functions=functions), tempfile.TemporaryDirectory() as directory:
                program = pathlib.Path(directory) / "fixed"
                subprocess.run(
                    ["cc", "-x", "c", "-", "-o", str(program), "-no-pie", "-fno-pie"], text=True,
                    input="#include <stdlib.h>\nvoid *volatile taken;\n"
                          f"int main(void) {{ {taken} return malloc(1) == 0; }}\n", check=True)
                result = run(str(program))
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertNotIn("has its own malloc", result.stdout)

    def test_child_that_the_library_does_not_serve(self):
        result = run("sh", "-c", "LD_PRELOAD=${LD_PRELOAD##*:} sort /dev/null")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, "did not serve sort: malloc came from .*libc.so.6 there")


if __name__ == "__main__":
    unittest.main()
