"""dev/check_fast_path.py on libraries whose instructions are known."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import dev_path

# MALLOC and FREE are replaced by instructions; nop and ret are the same on x86-64 and aarch64.
SOURCE = """
__asm__(".globl cairn_malloc, cairn_free, malloc, free\\n"
        ".type cairn_malloc, %function\\n.type malloc, %function\\n"
        ".type cairn_free, %function\\n.type free, %function\\n"
        "cairn_malloc: malloc:\\n MALLOC\\n"
        "cairn_free: free:\\n FREE\\n");
"""
STACK = {"x86_64": "push %rax; pop %rax",
         "aarch64": "str x0, [sp, #-16]!; ldr x0, [sp], #16"}[os.uname().machine]


class CheckFastPathTest(unittest.TestCase):
    def check(self, malloc, free, *options):
        source = SOURCE.replace("MALLOC", malloc).replace("FREE", free)
        with tempfile.TemporaryDirectory() as directory:
            for name in ("libcairn.so", "libcairn-malloc.so"):
                subprocess.run([os.environ.get("CC", "cc"), "-shared", "-x", "c", "-", "-o",
                                str(pathlib.Path(directory) / name)],
                               input=source, text=True, check=True)
            result = subprocess.run([sys.executable, str(dev_path.DEV / "check_fast_path.py"),
                                     directory, "--pairs", "100", "--no-others", *options],
                                    capture_output=True, text=True, check=False)
        self.assertEqual(result.stderr, "")
        return result.returncode, result.stdout

    def test_exact_count(self):
        status, text = self.check("nop; " * 18 + "ret", "nop; " * 26 + "ret")
        self.assertEqual(status, 0, text)
        self.assertIn("libcairn.so cairn_malloc: 19 instructions (at most 19), 0 bytes of stack, "
                      "100.0% of 100 calls", text)
        self.assertIn("libcairn-malloc.so free: 27 instructions (at most 27)", text)

    def test_one_too_many(self):
        status, text = self.check("nop; " * 19 + "ret", "ret")
        self.assertEqual(status, 1)
        self.assertIn("check_fast_path: libcairn.so cairn_malloc: 20 instructions, over 19", text)
        self.assertEqual(self.check("nop; " * 19 + "ret", "ret", "--malloc-most", "20")[0], 0)

    def test_stack(self):
        status, text = self.check("ret", STACK + "; ret")
        self.assertEqual(status, 1)
        self.assertIn("libcairn.so cairn_free: the fast path uses", text)

    def test_path_that_is_not_the_usual_one(self):
        # Two paths in turn, chosen by a counter in the data of the library.
        counter = {"x86_64": "incb turn(%rip); testb $1, turn(%rip); jz 1f; nop; 1: ret",
                   "aarch64": "adrp x9, turn; ldr w10, [x9, :lo12:turn]; add w10, w10, #1; "
                              "str w10, [x9, :lo12:turn]; tbz w10, #0, 1f; nop; 1: ret"}
        status, text = self.check(counter[os.uname().machine]
                                  + "; .pushsection .data; turn: .long 0; .popsection", "ret")
        self.assertEqual(status, 1)
        self.assertIn("only 50.0% of the calls take the same path", text)


if __name__ == "__main__":
    unittest.main()
