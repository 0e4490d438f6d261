"""dev/run_docs.py and dev/doc_blocks.py: pages that are right, and pages with one fault each."""

import pathlib
import tempfile
import time
import unittest

import dev_path  # noqa: F401
import doc_blocks
import run_docs


class PageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libcairn-malloc.so").touch()

    def run_page(self, text, long=False):
        page = self.folder / "PAGE.md"
        page.write_text(text)
        source = self.folder if long else None
        found, skipped, findings = run_docs.run_page(page, self.folder, long, source)
        return len(found), len(skipped), [what for _, what in findings]

    def test_a_page_that_is_right(self):
        self.assertEqual(self.run_page("```sh\nword=5\n```\n\n```console\n$ echo $word apples \\\n"
                                       "> 'and 3.5 KiB'\n7 apples and 12 MiB\n$ true\n```\n"),
                         (2, 0, []))

    def test_a_command_that_fails(self):
        for text in ("```sh\ntrue\nfalse\ntrue\n```\n", "```console\n$ false\n$ true\n```\n",
                     "```sh\nno-such-program --at all\n```\n"):
            _, _, findings = self.run_page(text)
            self.assertEqual(len(findings), 1, text)
            self.assertRegex(findings[0], "^ended with (1: false|127: no-such-program --at all)")

    def test_another_status_than_the_page_says(self):
        page = "<!-- status: 3 -->\n```sh\nsh -c 'exit {}'\n```\n\n```sh\ntrue\n```\n"
        self.assertEqual(self.run_page(page.format(3)), (2, 0, []))
        self.assertIn("ended with 4, not 3", self.run_page(page.format(4))[2][0])
        self.assertIn("ended with 0, not 3", self.run_page(page.format(0))[2][0])

    def test_a_shell_that_ends_early(self):
        self.assertIn("did not come to its end", self.run_page("```sh\nexit 0\n```\n")[2][0])

    def test_other_output_than_is_shown(self):
        for shown in ("2 pears\n", "2 apples\nand more\n", "apples\n2 apples\n"):
            findings = self.run_page(f"```console\n$ echo 1 apples\n{shown}```\n")[2]
            self.assertIn("prints otherwise", findings[0])

    def test_figures_that_are_exact(self):
        page = "<!-- exact: it always is -->\n```console\n$ echo 5 apples\n{} apples\n```\n"
        self.assertEqual(self.run_page(page.format(5))[2], [])
        self.assertIn("prints otherwise: 4 apples", self.run_page(page.format(4))[2][0])

    def test_a_name_in_place_of_its_value(self):
        page = "```console\n$ echo 'held {}'\n…\n```\n"
        self.assertIn("a name in place of its value",
                      self.run_page(page.format("{self.holds[0]} times"))[2][0])
        for text in ("7 times", '{"key": 1}', "{}", "{2}"):
            self.assertEqual(self.run_page(page.format(text))[2], [], text)

    def test_nothing_is_left_running(self):
        file = self.folder / "number"
        text = f"```sh\nsleep 600 &\necho $! >{file}\n```\n"
        self.assertEqual(self.run_page(text), (1, 0, []))
        number = file.read_text().strip()
        end = time.monotonic() + 20  # SIGKILL was sent; a busy machine takes its time
        while self.runs(number) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse(self.runs(number))

    @staticmethod
    def runs(number):
        try:
            return ") Z" not in pathlib.Path(f"/proc/{number}/stat").read_text()
        except OSError:
            return False

    def test_markers(self):
        text = ("<!-- not run: it needs root -->\n```sh\nfalse\n```\n\n"
                "<!-- long: hours -->\n```sh\nfalse\n```\n\n"
                "<!-- needs: no-such-program -->\n\n```sh\nfalse\n```\n\n"
                "```sh\ntrue\n```\n")
        self.assertEqual(self.run_page(text), (1, 3, []))
        count, skipped, findings = self.run_page(text, long=True)
        self.assertEqual((count, skipped, len(findings)), (2, 2, 1))

    def test_the_readers_places_and_programs(self):
        (self.folder / "bin").mkdir()
        self.assertEqual(self.run_page("```console\n$ program with arguments\nwith arguments\n"
                                       "$ test -e /usr/local/lib/libcairn-malloc.so\n"
                                       "$ test -e /path/libmine.so && cc -c program.c\n```\n"),
                         (1, 0, []))


class ShapeTest(unittest.TestCase):
    def test_numbers_units_and_addresses_may_differ(self):
        for shown, printed in (("0x7fab 10.5 KiB", "0x1 9 MiB"),
                               ("7fa627a84b80  up", "00c0ffee0000  up"),
                               ("40 374  so many", "7 so many"),
                               ("1.2 ms ± 3 %", "900 µs ± 12 %"), ("a … z", "a b c z"),
                               ("process 7 (a), asleep: C", "process 1234 (a), running: C"),
                               ("held 3 times, at most 4.2 ms.", "held 12 times, at most 3.9 ms.")):
            self.assertIsNone(run_docs.same_shape([shown], [printed]), shown)

    def test_words_may_not(self):
        for shown, printed in (("10 slabs", "10 spans"), ("live: 208", "live 208"), ("", "word"),
                               ("held 3 times", "held {self.holds} times")):
            self.assertIsNotNone(run_docs.same_shape([shown], [printed]), shown)

    def test_lines_left_out(self):
        printed = ["first", "second 1", "third"]
        self.assertIsNone(run_docs.same_shape(["first", "…"], printed))
        self.assertIsNone(run_docs.same_shape(["…", "third"], printed))
        self.assertIsNone(run_docs.same_shape(["first", "…", "third"], printed))
        self.assertEqual(run_docs.same_shape(["…", "fourth"], printed), "fourth")


class UnmarkedTest(unittest.TestCase):
    def unmarked(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "README.md").write_text(text)
            return [what for _, _, what in doc_blocks.unmarked(root)]

    def test_what_would_escape(self):
        for text in ("```\nanything\n```\n", "```text\n$ cairn inspect 1\n```\n",
                     "```text\nsudo make install\n```\n", "```console\ncairn inspect 1\n```\n",
                     "Words:\n\n    LD_PRELOAD=lib.so program\n\nmore\n"):
            self.assertEqual(len(self.unmarked(text)), 1, text)

    def test_what_is_none(self):
        self.assertEqual(self.unmarked("```text\nprocess 1\n```\n\n```c\nmake(1);\n```\n\n"
                                       "- item\n\n    more of it\n"), [])


if __name__ == "__main__":
    unittest.main()
