"""The output of `cairn advise` on a terminal: no word is cut, and code has lines that fit."""

import contextlib
import io
import re
import unittest

import tool_path  # noqa: F401
from cairn import advise_report, console
from cairn.advise_savings import Figure, Saving
from cairn.advise_snippets import SNIPPETS, snippet
from cairn.advise_verdicts import Verdict
from cairn.console import say

COLUMNS = 80
CODE_COLUMNS = COLUMNS - len("   | ")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@contextlib.contextmanager
def terminal(width):
    """A terminal in the place of the standard output."""
    before = console.out
    printed = Terminal()
    fake = console._Out(highlight=False, width=width, file=printed)  # pylint: disable=W0212
    modules = (console, advise_report)
    try:
        for module in modules:
            module.out = fake
        yield printed
    finally:
        for module in modules:
            module.out = before


class TerminalTest(unittest.TestCase):
    def test_sentences_are_wrapped_between_words(self):
        words = "one-at-a-time: a pool's blocks (of std::vector<int>) are freed together  " * 4
        with terminal(40) as printed:
            say(words.strip(), "   ", "     ")
        lines = printed.getvalue().splitlines()
        self.assertGreater(len(lines), 5)
        self.assertEqual(" ".join(printed.getvalue().split()), " ".join(words.split()))
        for line in lines:
            self.assertLessEqual(len(line), 40)

    def test_a_long_word_is_not_cut(self):
        with terminal(40) as printed:
            say("a path: /" + 60 * "x")
        self.assertIn("/" + 60 * "x", printed.getvalue().splitlines())

    def test_code_fits(self):
        for kind in SNIPPETS:
            for text in snippet(kind, {"most_bytes": 4096, "room_bytes": 16384}):
                for line in text.splitlines():
                    self.assertLessEqual(len(line), CODE_COLUMNS, f"{kind}: {line}")

    def test_all_advice(self):
        figure = Figure(1e6, 1e5, 1e8)
        site = {"allocations": 123456, "peak_bytes": 1 << 20}
        data = {"allocations": 234567, "frees": 1, "resizes": 2, "threads": 3,
                "peak_bytes": 1 << 24}
        name = "std::vector<shop::Order, std::allocator<shop::Order> >::_M_realloc_insert<int>"

        class Summary:  # pylint: disable=too-few-public-methods
            remarks = ()

            def __init__(self):
                self.data = data

            def place(self, _):
                return Frame()

            def frames(self, _):
                return [Frame()] * 3

        class Frame:  # pylint: disable=too-few-public-methods
            function, file, line, module, path = f"void {name}(int&&)", "/a/orders.cc", 123, "a", ""

            def __str__(self):
                return f"{self.function} orders.cc:{self.line}"

        found = [advise_report.Advice(
            Verdict(kind, "policy", [site], "evidence of several words that say what was seen in "
                    "the trace of the program", {"live_bytes": 1 << 20}),
            Saving(figure, figure), 0.1, 0.1)
                 for kind in advise_report.TITLES if kind != "scope"]

        class Cost:  # pylint: disable=too-few-public-methods
            is_measured, time_ns, peak_bytes = True, 1e9, 1 << 20

        with terminal(COLUMNS) as printed:
            advise_report.print_advice(advise_report.Findings(found, found), Summary(), Cost(),
                                       0.03, 3, True)
        for line in re.sub(r"\x1b\[[\d;]*m", "", printed.getvalue()).splitlines():
            self.assertLessEqual(len(line), COLUMNS, line)


if __name__ == "__main__":
    unittest.main()
