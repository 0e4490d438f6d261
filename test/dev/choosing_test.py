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
            with self.subTest(example.splitlines()[0]):
                done = subprocess.run(
                    [os.environ.get("CC", "cc"), "-std=gnu17", "-fsyntax-only", "-Wall", "-Wextra",
                     "-Werror", f"-I{ROOT / 'include'}", "-xc", "-"],
                    input=INCLUDES + example, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True)
                self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
