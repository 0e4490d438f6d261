"""dev/check_docs.py on small trees, each with one disagreement, and on this one."""

import pathlib
import tempfile
import unittest

import dev_path  # noqa: F401
from check_docs import findings

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = ('keys[] = {\n    {"decay_ms", parse_decay, AT(decay), 0},\n'
           '    {"verbose", NULL, 0, 9},\n};\n')
TABLE = "| key | values |\n|---|---|\n| `decay_ms` | 1 |\n| `verbose` | 0, 1 |\n"
MESSAGES = ("| `cairn: double free of P (N-byte block)` | freed before |\n"
            "| `cairn: stack \"NAME\": pop without a push` | no frame |\n")
PLACES = {"OPTIONS_PAGE": "docs/reference/OPTIONS.md",
          "MESSAGES_PAGE": "docs/reference/MESSAGES.md"}
SOURCE = '''/* See slab.c, and take_slab there. */
void take_slab(void)
{
    die("double free of %p (%zu-byte "
        "block)", pointer, size);
    die("stack \\"%s\\": pop without a push", stack->name);
}
'''


def found(**changes):
    """The findings in a tree that agrees but for the files given: name with _ for / and text."""
    files = {"src/front/options.c": OPTIONS, "src/slab.c": SOURCE, "README.md": TABLE,
             PLACES["OPTIONS_PAGE"]: TABLE, PLACES["MESSAGES_PAGE"]: MESSAGES}
    files.update({PLACES.get(name, name.replace("__", "/").replace("_DOT_", ".")): text
                  for name, text in changes.items()})
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return list(findings(pathlib.Path(folder)))


class DocsTest(unittest.TestCase):
    def only(self, found_lines, *parts):
        self.assertEqual(len(found_lines), 1, found_lines)
        for part in parts:
            self.assertIn(part, found_lines[0])

    def test_what_agrees(self):
        self.assertEqual(found(), [])

    def test_an_option_that_a_page_leaves_out(self):
        less = TABLE.replace("| `verbose` | 0, 1 |\n", "")
        self.only(found(OPTIONS_PAGE=less), "docs/reference/OPTIONS.md", "verbose is missing")
        self.assertEqual(found(README_DOT_md=less), [])

    def test_an_option_that_nothing_parses(self):
        self.only(found(OPTIONS_PAGE=TABLE + "| `colour` | red |\n"),
                  "docs/reference/OPTIONS.md", "nothing parses colour")

    def test_a_message_that_no_page_has(self):
        self.only(found(src__new_DOT_c='void f(void) { die("fifo \\"%s\\": lost %u", n, 3); }\n'),
                  "new.c:1", 'fifo "%s": lost %u')

    def test_a_message_that_nothing_prints(self):
        self.only(found(MESSAGES_PAGE=MESSAGES + "| `cairn: all is lost` | never |\n"),
                  "nothing prints: all is lost")

    def test_both_messages_of_a_choice(self):
        choice = 'void f(void) { die(a ? "one %p" : "two of %p (%u)", p, 3); }\n'
        self.only(found(src__new_DOT_c=choice,
                        MESSAGES_PAGE=MESSAGES + "| `cairn: one P` | |\n"),
                  "two of %p (%u)")

    def test_a_word_that_differs(self):
        self.assertEqual(len(found(MESSAGES_PAGE=MESSAGES.replace("double", "second"))), 2)

    def test_a_message_in_a_comment_is_none(self):
        self.assertEqual(found(src__new_DOT_c='/* die("of %p", p) */\n'), [])

    def test_a_function_that_another_file_has(self):
        page = "`src/slab.c: take_slab` and `slab.c: steps A to B, put_slab`\n"
        self.only(found(docs__PAGE_DOT_md=page,
                        src__new_DOT_c="/* take_slab */ void put_slab(void) {}\n"),
                  "docs/PAGE.md:1", "no put_slab in slab.c")

    def test_a_file_that_is_gone(self):
        self.only(found(src__new_DOT_c="int x; /* see gone.c and slab.c */\n"),
                  "src/new.c:1", "no gone.c")
        self.only(found(docs__PAGE_DOT_md="\n`page/gone.h` says\n"), "docs/PAGE.md:2", "gone.h")
        self.only(found(src__new_DOT_c="int x; /* docs/OPTIONS.md, docs/reference/OPTIONS.md */\n"),
                  "src/new.c:1", "no docs/OPTIONS.md")

    def test_a_link_that_leads_nowhere(self):
        self.only(found(docs__PAGE_DOT_md="\n[a](reference/OPTIONS.md#b), [c](https://d.e/f)\n"
                        "[g](../docs/) [h](folder/)\n"), "docs/PAGE.md:3: links: no folder/")

    def test_a_page_that_the_book_leaves_out(self):
        nav = "nav:\n  - reference/OPTIONS.md\n  - Words:\n      - OLD.md\n"
        self.assertEqual(found(mkdocs_DOT_yml=nav), [
            "mkdocs.yml: book: OLD.md is not in docs/",
            "mkdocs.yml: book: reference/MESSAGES.md is missing"])

    def test_a_page_that_the_book_has_twice(self):
        pages = ("PAGE.md", "reference/MESSAGES.md", "reference/OPTIONS.md", "PAGE.md")
        nav = "nav:\n" + "".join(f"  - {page}\n" for page in pages)
        self.only(found(mkdocs_DOT_yml=nav, docs__PAGE_DOT_md="# Page\n"),
                  "mkdocs.yml: book", "PAGE.md is listed twice")

    def test_two_decisions_with_one_number(self):
        self.only(found(**{"docs/dev/decisions/0007-one.md": "# 7. One\n",
                           "docs/dev/decisions/0007-two.md": "# 7. Two\n"}),
                  "docs/dev/decisions", "2 files have the number 0007")

    def test_a_decision_whose_heading_has_another_number(self):
        self.only(found(**{"docs/dev/decisions/0007-one.md": "# 8. One\n"}),
                  "0007", "the heading has another number")

    def test_a_name_that_is_gone(self):
        self.only(found(src__new_DOT_c="\nint x; /* as in give_slab, take_slab */\n"),
                  "src/new.c:2", "no give_slab")
        self.only(found(docs__PAGE_DOT_md="`take_slab` and `give_slab`\n"), "no give_slab")

    def test_examples_and_decisions_may_name_anything(self):
        self.assertEqual(found(docs__PAGE_DOT_md="```c\nmy_own(file.c); /* `my_own` */\n```\n",
                               docs__decisions__1_DOT_md="`once_tried` was slower\n"), [])

    def test_this_tree(self):
        self.assertEqual(list(findings(ROOT)), [])


if __name__ == "__main__":
    unittest.main()
