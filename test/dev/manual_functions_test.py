"""Section 3 of the manual: every function that the library exports has its page, every page is of
something that a header declares, and mandoc has no complaint."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import dev_path
import make_man3

ROOT = pathlib.Path(__file__).resolve().parents[2]


class FunctionsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        cls.addClassCleanup(cls.folder.cleanup)
        subprocess.run(["/usr/bin/python3", "-B", str(dev_path.DEV / "make_man3.py"),
                        cls.folder.name], check=True)
        files = list(pathlib.Path(cls.folder.name, "man3").glob("*.3"))
        cls.pages = {page.stem: page.read_text() for page in files if not page.is_symlink()}
        cls.links = {page.stem: page.resolve().stem for page in files if page.is_symlink()}

    def test_every_exported_function_has_a_page(self):
        exported = (ROOT / "dev/symbols/libcairn").read_text().split()
        public = {name for name in exported if not make_man3.INTERNAL.search(name)}
        self.assertGreater(len(public), 100)
        self.assertEqual(public - set(self.pages) - set(self.links), set())

    def test_every_page_is_of_something_declared(self):
        declared = " ".join(path.read_text() for path in (ROOT / "include/cairn").glob("*.h"))
        for name, page in self.links.items():
            self.assertRegex(declared, rf"\b{name}\b")
            self.assertIn(page, self.pages)

    def test_nothing_internal_has_a_page(self):
        for path in (ROOT / "include/cairn/detail").glob("*.h"):
            text = path.read_text()
            for name in re.findall(r"^#define (\w+)|\b(\w+_(?:slow|slowly|inline))\(", text, re.M):
                self.assertNotIn("".join(name), self.links)

    def test_a_page_has_what_the_header_says(self):
        page = self.pages["cairn_pool"]
        for words in ("cairn_pool *cairn_pool_new(size_t object_size, size_t align, ",
                      "NULL with errno ENOMEM or EINVAL.", "size_t max_objects;", ".SS Magazines",
                      "cairn_pool_put(cairn_pool *pool, void *object);"):
            self.assertIn(words, page)
        for words in ("CAIRN_API", "__attribute__", "cairn_pool_get_slowly", "__builtin_expect"):
            self.assertNotIn(words, page)

    def test_every_header_has_a_page_that_names_the_others(self):
        names = {"cairn"} | {f"cairn_{path.stem}" for path in (ROOT / "include/cairn").glob("*.h")
                             if path.stem != "api"}
        for name in names:
            self.assertRegex(self.pages[name], rf"\.SH NAME\n{name} \\- \w")
            self.assertLessEqual(names - {name}, set(re.findall(r"^\.BR (\w+) \(3\)",
                                                                self.pages[name], re.M)))

    def test_nothing_to_complain_about(self):
        if not shutil.which("mandoc"):
            self.skipTest("no mandoc")
        for name, text in self.pages.items():
            said = subprocess.run(["mandoc", "-Tlint", "-Wwarning"], input=text, text=True,
                                  stdout=subprocess.PIPE, check=False).stdout
            self.assertEqual(said, "", name)


if __name__ == "__main__":
    unittest.main()
