"""The examples in docs/CHOOSING.md compile, without a warning."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ("scope", "ring", "fifo", "pool", "tlsf", "pages", "heap")
INCLUDES = "".join(f"#include <cairn/{header}.h>\n" for header in HEADERS)
INCLUDES += "#include <stdio.h>\n#include <string.h>\n"


class ChoosingTest(unittest.TestCase):
    def test_every_example_compiles(self):
        page = (ROOT / "docs/CHOOSING.md").read_text()
        examples = re.findall(r"^```c\n(.*?)^```", page, re.M | re.S)
        self.assertGreaterEqual(len(examples), 8)
        for example in examples:
            self.compile(["cc", "-std=gnu17", "-xc"], INCLUDES + example)
        cxx_examples = re.findall(r"^```cpp\n(.*?)^```", page, re.M | re.S)
        self.assertGreaterEqual(len(cxx_examples), 1)
        for example in cxx_examples:
            self.compile(["c++", "-std=c++17", "-xc++"],
                         "#include <cairn/cairn.hpp>\n#include <vector>\n" + example)

    def compile(self, command, text):
        command[0] = os.environ.get({"cc": "CC", "c++": "CXX"}[command[0]], command[0])
        with self.subTest(text.splitlines()[-3]):
            done = subprocess.run(
                [*command, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}",
                 "-"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
