"""dev/check_symbols.py on libraries made here."""

import contextlib
import io
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import dev_path  # noqa: F401
import check_symbols


class CheckSymbolsTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.build = pathlib.Path(directory.name)
        patch = mock.patch.object(check_symbols, "LISTS", self.build / "lists")
        patch.start()
        self.addCleanup(patch.stop)
        self.library("libcairn.so", "int cairn_a(void);", "int cairn_a(void) { return 1; }")
        self.library("libcairn-malloc.so", "int cairn_a(void) { return 1; }",
                     "int free_it(void) { return 2; }", "static int hidden = 3;")
        self.assertEqual(self.check("--update"), (0, ""))

    def library(self, name, *lines, versioned="cairn_*"):
        script = self.build / "map"
        script.write_text(f"CAIRN_1.0 {{ global: {versioned}; }};")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-x", "c", "-", "-o",
                        str(self.build / name), f"-Wl,--version-script={script}"],
                       input="\n".join(lines), text=True, check=True)

    def check(self, *arguments):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = check_symbols.main([str(self.build), *arguments])
        return status, out.getvalue()

    def test_update_writes_what_the_libraries_export(self):
        self.assertEqual((self.build / "lists" / "libcairn").read_text(), "cairn_a\n")
        self.assertEqual((self.build / "lists" / "names").read_text(), "free_it\n")
        self.assertEqual(self.check(), (0, ""))

    def test_versions(self):
        names = ("int cairn_a(void) { return 1; }", "int free_it(void) { return 2; }")
        self.library("libcairn-malloc.so", *names, versioned="cairn_*; free_it")
        self.assertIn("free_it has a version: libcairn-malloc.so", self.check()[1])
        self.library("libcairn-malloc.so", *names, versioned="cairn_b")
        self.assertIn("cairn_a has no version: libcairn-malloc.so", self.check()[1])

    def test_name_too_many(self):
        self.library("libcairn.so", "int cairn_a, helper;")
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertEqual(text.splitlines()[0], "helper is exported and not listed: libcairn.so")

    def test_name_too_few(self):
        self.library("libcairn-malloc.so", "int cairn_a;")
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertEqual(text.splitlines()[0],
                         "free_it is listed and not exported: libcairn-malloc.so")

    def test_hardened_libraries_are_held_to_the_same_list(self):
        self.library("libcairn.so", "int cairn_a, cairn_b;")
        self.library("libcairn-hardened.so", "int cairn_b;")
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertEqual(text.splitlines()[:2],
                         ["cairn_b is exported and not listed: libcairn.so, libcairn-hardened.so",
                          "cairn_a is listed and not exported: libcairn-hardened.so"])


if __name__ == "__main__":
    unittest.main()
