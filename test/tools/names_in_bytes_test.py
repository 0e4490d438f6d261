"""Names of programs, files and arguments whose bytes are not UTF-8: every command works with them,
and all show a byte in one form, \\xff."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

from tool_path import TOOLS

from cairn.advise_summary import _maps
from cairn.lost_blocks import _read_trace
from cairn.texts import ESCAPED, json_text

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
PROGRAM = os.environ["CAIRN_LEAK_TARGET"]
NAME = b"leak\xff\xe4"
SHOWN = r"leak\xff\xe4"
OTHER_FORMS = re.compile(r"\\udc|�|internal error")


class TextsTest(unittest.TestCase):
    def test_bytes_that_are_not_utf_8(self):
        name = (NAME + "é".encode()).decode(errors="surrogateescape")
        self.assertEqual(name.encode("utf-8", ESCAPED).decode(), SHOWN + "é")
        self.assertEqual(name.encode("ascii", ESCAPED).decode(), SHOWN + r"\xe9")
        self.assertEqual(json.loads(json_text({name: [name, (name,), 1, None]})),
                         {SHOWN + "é": [SHOWN + "é", [SHOWN + "é"], 1, None]})

    def test_every_program_is_read_with_its_bytes(self):
        """A text of another program without `errors` fails at its first byte."""
        for path in sorted((TOOLS / "cairn").glob("*.py")):
            text = path.read_text(encoding="utf-8")
            for call in re.findall(r"\btext=True\b[^()]*\)|\bcapture_output=True[^()]*\)", text):
                self.assertIn("errors=\"surrogateescape\"", call, path.name)
            self.assertNotIn('errors="replace"', text.replace('"ascii", errors="replace"', ""),
                             path.name)


class LinesTest(unittest.TestCase):
    NAME = "/bin/a\x85b\u2028c\rd"  # signs at which str.splitlines ends a line

    def test_a_line_of_a_trace_ends_only_at_a_newline(self):
        maps = _maps(f"version 3\nmap 0x1000 0x2000 0x0 ab {self.NAME}\n")
        self.assertEqual([each.path for each in maps], [self.NAME])
        done = subprocess.CompletedProcess([], 0, self.NAME.encode(), b"")
        with mock.patch("subprocess.run", return_value=done):
            self.assertEqual(_read_trace("a.trace"), self.NAME)


class CommandsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / os.fsdecode(NAME)
        shutil.copy(PROGRAM, self.program)

    def cairn(self, *arguments, status=0):
        """The output of a command. It has no other form of a byte."""
        result = subprocess.run([str(COMMAND), *arguments], capture_output=True, check=False,
                                timeout=200, cwd=self.folder,
                                env={**os.environ, "COLUMNS": "200", "LC_ALL": "C.UTF-8"})
        text = (result.stdout + result.stderr).decode()
        self.assertEqual(result.returncode, status, text)
        self.assertNotRegex(text, OTHER_FORMS)
        return text

    def check_file(self, name):
        self.assertNotRegex((self.folder / name).read_text(encoding="utf-8"), OTHER_FORMS)
        self.assertIn(SHOWN, (self.folder / name).read_text(encoding="utf-8").replace("\\\\", "\\"))

    def test_a_program_at_its_end(self):
        self.cairn("leaks", "run", "--html", "page.html", "--", self.program, "exit")
        text = self.cairn("leaks", "run", "--", self.program, "exit")
        self.assertIn(f"({SHOWN}), ended", text)
        self.assertIn("lose_huge", text)
        self.check_file("page.html")

    def test_commands_that_start_a_program(self):
        path = f"./{self.program.name}"
        text = self.cairn("run", "--rounds", "1", "--warm-up", "0", "--json", "figures.json",
                          "--markdown", "figures.md", "--", path, "exit", self.program.name)
        self.assertIn(f"'./{SHOWN}' exit '{SHOWN}'", text)
        self.check_file("figures.json")
        self.check_file("figures.md")
        trace = self.program.name + ".trace"
        self.assertIn(SHOWN, self.cairn("trace", "run", "-o", trace, "--", path, "exit"))
        self.assertIn(SHOWN, self.cairn("replay", "--rounds", "1", trace))

    def test_commands_that_look_at_a_process(self):
        with subprocess.Popen([self.program, "stop"], stdout=subprocess.DEVNULL, env={
                **os.environ, "LD_PRELOAD": LIBRARY, "CAIRN_OPTIONS": "profile:1K"}) as process:
            try:
                os.waitpid(process.pid, os.WUNTRACED)
                number = str(process.pid)
                for command in ("inspect", "leaks", "stats", "profile", "purge"):
                    with self.subTest(command):
                        plan = ["--plan"] if command == "purge" else []
                        self.assertIn(f"({SHOWN})", self.cairn(command, number, *plan))
                        self.assertIn(json.dumps(SHOWN),
                                      self.cairn(command, number, "--json", *plan))
                for command in ("inspect", "leaks", "profile"):
                    self.cairn(command, number, "--html", f"{command}.html")
                    self.check_file(f"{command}.html")
            finally:
                process.kill()

    def test_a_newline_in_the_name_of_a_process(self):
        program = self.folder / "a\nb"
        shutil.copy(PROGRAM, program)
        with subprocess.Popen([program, "stop"], stdout=subprocess.DEVNULL, env={
                **os.environ, "LD_PRELOAD": LIBRARY}) as process:
            try:
                os.waitpid(process.pid, os.WUNTRACED)
                self.assertIn("(a?b), stopped", self.cairn("stats", str(process.pid)))
            finally:
                process.kill()

    def test_sentences(self):
        for arguments in (["run", "--lib", "{}", "--", "true"], ["run", "--stdin", "{}", "true"],
                          ["run", "--on", "{}", "true"], ["leaks", "run", "--", "./{}"],
                          ["inspect", "{}"], ["profile", "{}"], ["trace", "show", "{}"],
                          ["replay", "{}"], ["persist", "info", "{}"], ["{}"],
                          ["run", "--prepare", "echo {}; exit 3", "true"]):
            with self.subTest(arguments):
                words = [word.format(os.fsdecode(b"no\xff")) for word in arguments]
                self.assertIn(r"no\xff", self.cairn(*words, status=2))


if __name__ == "__main__":
    unittest.main()
