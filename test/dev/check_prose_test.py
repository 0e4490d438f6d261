"""dev/check_prose.py on small pages and sources, each with one fault or with none."""

import pathlib
import tempfile
import unittest

import dev_path  # noqa: F401
import check_prose


def found(name, text):
    """The findings in a folder with this one file."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / name).write_text(text)
        return list(check_prose.findings(root, [root]))


class ProseTest(unittest.TestCase):
    def only(self, lines, *parts):
        self.assertEqual(len(lines), 1, lines)
        for part in parts:
            self.assertIn(part, lines[0])

    def test_each_word_is_found(self):
        for sentence in ("It is mended.", "malloc and its kin", "It keeps so many pages.",
                         "Likewise for slabs.", "It was told of that.", "Memory goes back.",
                         "It is the holder's, or for who frees it.", "What is left is freed.",
                         "The second is the same.", "Pages are counted. The holder's.",
                         "Nobody frees it.", "Of 40 peaks 39 are smaller."):
            self.only(found("page.md", f"A plain beginning.\n\n{sentence}\n"), "page.md:3: words:")

    def test_plain_sentences_pass(self):
        self.assertEqual(found("page.md", "The thread that frees a block keeps the same size.\n"
                                          "A name stands for a page. What does it cost?\n"), [])

    def test_a_pattern_across_two_lines(self):
        self.only(found("page.md", "A line.\nIt keeps so\nmany pages.\n"), "page.md:2:", "so many")

    def test_code_headings_and_quotations_of_it_may_say_anything(self):
        self.assertEqual(found("page.md", "## What it costs\n\n`so many`\n\n```c\nso many\n```\n"
                                          "\n<!-- so many -->\n"), [])

    def test_cells_and_items_are_sentences_of_their_own(self):
        self.assertEqual(found("page.md", "| a | the size. |\n|---|---|\n| of X | b |\n"), [])

    def test_long_sentences_are_listed_when_there_are_many(self):
        long = " ".join(["word"] * 36) + ". "
        self.only(found("page.md", long + "It is short. " * 49), "page.md:1: long")
        self.assertEqual(found("page.md", long + "It is short. " * 50), [])

    def test_comments_and_no_code(self):
        self.only(found("a.c", "int kin;\n/* Its kin,\n * and `x`. */\n"), "a.c:2:", "kin")
        self.only(found("a.h", "int x; // nobody frees it\n"), "a.h:1:", "nobody")
        self.only(found("a.sh", "kin=1\n# its kin\n"), "a.sh:2:", "kin")
        self.only(found("a.js", "kin();\n// its kin\n"), "a.js:2:", "kin")
        self.only(found("a.sql", "SELECT kin;\n-- its kin\n"), "a.sql:2:", "kin")
        self.only(found("Makefile.in", "kin:\n# its kin\n"), "Makefile.in:2:", "kin")

    def test_comments_side_by_side_are_apart(self):
        self.assertEqual(found("a.c", "int so; /* so */\nint many; /* many */\n"), [])

    def test_docstrings_and_comments_of_python(self):
        self.only(found("a.py", 'def f():\n    """One.\n\n    Its kin."""\n'), "a.py:4:", "kin")
        self.only(found("a.py", "kin = 1  # its kin\n"), "a.py:1:", "kin")

    def test_scripts_without_a_suffix_are_python_by_their_first_line(self):
        self.only(found("a.in", '#!/usr/bin/python3\n"""Its kin, in words."""\n'), "a.in:2:", "kin")

    def test_tracked_files_of_the_repository(self):
        root = pathlib.Path(check_prose.__file__).resolve().parents[1]
        names = {str(path.relative_to(root)) for path in check_prose.files(root, [root])}
        if not (root / ".git").exists():
            self.skipTest("no repository")
        self.assertLessEqual({".ci/run", "Makefile", "README.md", "packaging/debian/control",
                              "bench/results/rows/report.md", "tools/cairn/page/page.js",
                              "src/heap/fast.h", "dev/prove"}, names)
        self.assertFalse({name for name in names if "corpus" in name or name.endswith(".gz")})

    def test_spelling(self):
        if not check_prose.shutil.which("codespell"):
            self.skipTest("no codespell")
        wrong = "rec" + "ieved"
        self.only(found("page.md", f"It is {wrong}.\n"), f"{wrong} ==> received")

    def test_limits(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "README.md").write_text("word " * (check_prose.WORDS_MAX["README.md"] + 1))
            self.only(list(check_prose.check_limits(root)), "README.md:1: limits")
            (root / "README.md").write_text("word")
            for number in range(check_prose.USER_PAGES_MAX + 1):
                (root / "docs" / f"{number}.md").write_text("word")
            self.only(list(check_prose.check_limits(root)), "pages for users")
            (root / "docs" / "0.md").unlink()
            (root / "docs" / "1.md").write_text("word " * check_prose.USER_WORDS_MAX)
            self.only(list(check_prose.check_limits(root)), "words for users")


if __name__ == "__main__":
    unittest.main()
