"""dev/check_order.py on small trees: what a use is, and each finding."""

import pathlib
import tempfile
import unittest

import dev_path  # noqa: F401
from check_order import ORDER, check

LOW = "int low(void);\nextern int low_count;\n"
LOW_SOURCE = '#include "heap/low.h"\nint low_count;\nint low(void)\n{\n    return 1;\n}\n'


def findings(order, files):
    """The findings in a tree with the given order of the heap layer."""
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        lines = "# A comment.\n\n" + "".join(f"heap/{entry}\n" for entry in order.split())
        for name, text in {ORDER: lines, **files}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check(root)


class OrderTest(unittest.TestCase):
    def test_later_ones_use_earlier_ones(self):
        files = {"src/heap/low.h": LOW, "src/heap/low.c": LOW_SOURCE,
                 "src/heap/high.c": '#include "heap/low.h"\nint high(void)\n{\n'
                                    "    return low() + low_count;\n}\n"}
        self.assertEqual(findings("low high", files), [])
        self.assertEqual(findings("high low", files),
                         ["src/heap/high uses the later low: include, low, low_count"])

    def test_a_call_without_an_include(self):
        files = {"src/heap/low.c": "void high(void);\nint low(void)\n{\n    high();\n"
                                   "    return 1;\n}\n",
                 "src/heap/high.c": "void high(void)\n{\n}\n"}
        self.assertEqual(findings("low high", files),
                         ["src/heap/low uses the later high: high"])

    def test_what_is_no_use(self):
        files = {"src/heap/low.c": "static int high(int high)\n{\n"
                                   "    return high; /* high() */\n}\n",
                 "src/heap/high.c": "static void own(void)\n{\n}\nvoid high_up(void)\n{\n}\n"}
        self.assertEqual(findings("low high", files), [])

    def test_an_inline_function_of_a_header(self):
        files = {"src/heap/low.h": "int high_up(void);\ninline_always int low(void)\n{\n"
                                   "    return high_up();\n}\n",
                 "src/heap/high.c": "int high_up(void)\n{\n    return 1;\n}\n"}
        self.assertEqual(findings("low high", files),
                         ["src/heap/low uses the later high: high_up"])

    def test_a_declaration_alone_is_no_use(self):
        files = {"src/heap/low.h": "int high_up(void);\n",
                 "src/heap/high.c": "int high_up(void)\n{\n    return 1;\n}\n"}
        self.assertEqual(findings("low high", files), [])

    def test_missing_and_gone(self):
        self.assertEqual(findings("gone", {"src/heap/low.c": ""}),
                         [f"src/heap/low: is not in {ORDER}",
                          f"{ORDER}: src/heap has no gone"])

    def test_a_layer_without_an_order(self):
        self.assertEqual(findings("low", {"src/heap/low.c": "", "src/page/run.c": ""}),
                         [f"src/page/run: is not in {ORDER}"])

    def test_a_circle(self):
        circle = {"src/heap/low.c": "void high(void);\nvoid low(void)\n{\n    high();\n}\n",
                  "src/heap/high.c": "void low(void);\nvoid high(void)\n{\n    low();\n}\n"}
        self.assertEqual(findings("low high", circle),
                         ["src/heap/low uses the later high: high"])
        self.assertEqual(findings("high low", circle),
                         ["src/heap/high uses the later low: low"])


if __name__ == "__main__":
    unittest.main()
