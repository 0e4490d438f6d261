"""The command line as a whole: version, completion, files, and errors without a traceback."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import tool_path
import cairn
from cairn import cli, errors, output
from cairn.errors import UserError

TOOL = str(tool_path.TOOLS / "bin" / "cairn")


def start(*arguments, **environment):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=200,
                          check=False, env={**os.environ, **environment})


class CommandLineTest(unittest.TestCase):
    def test_version_is_that_of_the_header(self):
        header = (tool_path.TOOLS.parent / "include" / "cairn" / "api.h").read_text()
        parts = re.findall(r"#define CAIRN_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
        self.assertEqual(".".join(parts), cairn.VERSION)
        result = start("--version")
        self.assertEqual((result.returncode, result.stdout), (0, f"cairn {cairn.VERSION}\n"))

    def test_full_disk(self):
        for arguments in ((), ("--version",), ("run", "--help"), ("--show-completion", "bash")):
            with open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([TOOL, *arguments], stdout=full, stderr=subprocess.PIPE,
                                        text=True, timeout=200, check=False)
            self.assertEqual((result.returncode, result.stderr), (
                2, "cairn: cannot write the output: No space left on device\n"), arguments)

    def test_no_words_at_all(self):
        result = start()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for word in ("Usage: cairn", "leaks", "inspect", "trace"):
            self.assertIn(word, result.stdout)

    def test_completion(self):
        def complete(words):
            result = start(_CAIRN_COMPLETE="complete_bash", COMP_WORDS=words,
                           COMP_CWORD=str(len(words.split(" ")) - 1))
            return result.stdout.split()

        self.assertEqual(complete("cairn r"), ["replay", "run"])
        self.assertEqual(complete("cairn run --mark"), ["--markdown"])
        result = start("--show-completion", "bash")
        if result.returncode:  # without shellingham, the option takes no shell
            result = start(_CAIRN_COMPLETE="source_bash")
        self.assertIn("complete -o default -F", result.stdout)

    def test_unknown_words(self):
        for arguments in (("no-such-command",), ("run", "--no-such-option"), ("purge", "1", "2")):
            result = start(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r"^cairn[ a-z]*: .*[;.?] ?see cairn[ a-z]* --help\n$")
        self.assertEqual(start("profile", "dump").stderr, "cairn profile dump: missing argument "
                         "'PID|SOCKET'; see cairn profile dump --help\n")

    def test_no_word_becomes_a_picture(self):
        script = ("import sys; sys.path.insert(0, sys.argv[1])\n"
                  "from cairn.console import note, say\n"
                  "say('background:on: a'); note('background:on: b')")
        printed = subprocess.run([sys.executable, "-c", script, str(tool_path.TOOLS)],
                                 capture_output=True, text=True, check=True)
        self.assertEqual((printed.stdout, printed.stderr),
                         ("background:on: a\n", "background:on: b\n"))

    def test_closed_and_narrow_streams(self):
        for redirection in (">&-", "2>&-", "<&- >&- 2>&-"):
            result = subprocess.run(["sh", "-c", f"exec {TOOL} --version {redirection}"],
                                    capture_output=True, text=True, timeout=200, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
        result = start("run", "--help", PYTHONIOENCODING="ascii")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_sources_are_of_the_oldest_python(self):
        for path in [pathlib.Path(TOOL), *tool_path.TOOLS.glob("cairn/*.py"),
                     *tool_path.TOOLS.glob("fleet/cairn_fleet/*.py")]:
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))

    def test_the_tool_does_not_need_the_fleet(self):
        for path in tool_path.TOOLS.glob("cairn/*.py"):
            self.assertNotIn("cairn_fleet", path.read_text(encoding="utf-8"), path.name)

    def test_every_error_is_a_sentence(self):
        for error, status, text in (
                (UserError("sentence"), 2, "cairn: sentence"),
                (OSError(28, "No space left on device", "/x"), 70, "No space left"),
                (errors.Interrupted(KeyboardInterrupt()), 130, "interrupted"),
                (errors.Interrupted(errors.Interrupt(15)), 143, "interrupted"),
                (RuntimeError("odd"), 70, "internal error: RuntimeError: odd")):
            failing = mock.Mock(side_effect=error)
            with mock.patch.object(cli, "note") as note:
                self.assertEqual(cli._run(failing), status)  # pylint: disable=protected-access
            self.assertIn(text, note.call_args[0][0])

    def test_system_errors_and_interrupts_of_a_command(self):
        def failing(error):
            @errors.as_sentences
            def command():
                raise error
            return command

        with self.assertRaisesRegex(UserError, "^/x: No space left on device$"):
            failing(OSError(28, "No space left on device", "/x"))()
        with self.assertRaises(errors.Interrupted) as caught:
            failing(KeyboardInterrupt())()
        self.assertEqual(caught.exception.status, 130)

    def test_old_interpreter_is_refused_in_a_sentence(self):
        source = pathlib.Path(TOOL).read_text()
        code = f"import sys; sys.version_info = (3, 8, 0); __file__ = {TOOL!r}\n" + source
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                check=False)
        self.assertIn("needs Python 3.9 or newer", result.stderr)
        self.assertNotIn("Traceback", result.stderr)


class OutputTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def test_refused_before_anything_is_done(self):
        for path, text in ((self.directory / "missing" / "file", "there is no folder"),
                           (self.directory, "is a folder")):
            with self.assertRaisesRegex(UserError, f"^--json .*{text}"):
                output.check_writable("--json", path)
        output.check_writable("--json", self.directory / "new")
        self.assertEqual(os.listdir(self.directory), [])

    def test_full_disk_leaves_nothing_half_written(self):
        def fill(path):
            path.write_text("half")
            raise OSError(28, "No space left on device")

        path = self.directory / "file"
        path.write_text("old")
        with self.assertRaises(OSError):
            output.replace(path, fill)
        self.assertEqual(path.read_text(), "old")
        self.assertEqual(os.listdir(self.directory), ["file"])

    def test_full_disk_leaves_the_old_file(self):
        path = self.directory / "file"
        path.write_text("old")
        with mock.patch("os.replace", side_effect=OSError(28, "No space left on device")):
            with self.assertRaisesRegex(UserError, "--csv .*file: No space left on device"):
                output.write("--csv", path, "new")
        self.assertEqual(path.read_text(), "old")
        self.assertEqual(os.listdir(self.directory), ["file"])

    def test_a_pipe_or_a_device_is_written_and_stays(self):
        pipe = self.directory / "pipe"
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
            output.replace(pipe, lambda path: path.write_text("new"))
            self.assertEqual(reader.communicate()[0], "new")
        self.assertTrue(pipe.is_fifo())
        done = subprocess.run([sys.executable, "-c", "import pathlib, tool_path\n"
                               "from cairn import output\n"
                               "output.write('--html', pathlib.Path('/dev/stdout'), 'page')"],
                              capture_output=True, text=True, check=False,
                              cwd=pathlib.Path(__file__).parent)
        self.assertEqual((done.stdout, done.stderr), ("page", ""))
        with self.assertRaisesRegex(UserError, "-o /dev/null: not a regular file"):
            output.check_regular("-o", pathlib.Path("/dev/null"))

    def test_mode_and_links_stay(self):
        path, link = self.directory / "file", self.directory / "link"
        path.write_text("old")
        path.chmod(0o640)
        link.symlink_to(path)
        output.write("--csv", link, "new")
        self.assertTrue(link.is_symlink())
        self.assertEqual((path.read_text(), path.stat().st_mode & 0o777), ("new", 0o640))


if __name__ == "__main__":
    unittest.main()
