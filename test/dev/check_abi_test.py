"""dev/check_abi.py on small libraries: what grew passes, what old programs would trip over does
not."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import dev_path  # noqa: F401
import check_abi

PUBLIC = "struct cairn_stats { long used; };\n"
FUNCTION = "long cairn_read(struct cairn_stats *stats) { return stats->used; }\n"


@unittest.skipUnless(shutil.which("abidiff"), "no abidiff (Debian: abigail-tools)")
class CheckAbiTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.old = self.folder / "old.abi"
        text = subprocess.run(["abidw", str(self.library(PUBLIC + FUNCTION))], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        self.old.write_text(text)

    def library(self, text):
        subprocess.run([os.environ.get("CC", "cc"), "-g", "-shared", "-fPIC", "-x", "c", "-", "-o",
                        "libcairn.so"], input=text, text=True, check=True, cwd=self.folder)
        return self.folder / "libcairn.so"

    def test_the_same_and_more(self):
        for text in (PUBLIC + FUNCTION, PUBLIC + FUNCTION + "int cairn_new(void) { return 1; }\n"):
            self.assertTrue(check_abi.compare(self.library(text), self.old)[0])

    def test_what_old_programs_trip_over(self):
        for text in (PUBLIC + FUNCTION.replace("cairn_read", "cairn_look"),
                     PUBLIC.replace("long used;", "long kept; long used;") + FUNCTION,
                     PUBLIC + FUNCTION.replace("stats *stats)", "stats *stats, int more)")):
            same, words = check_abi.compare(self.library(text), self.old)
            self.assertFalse(same)
            self.assertIn("cairn_read", words)

    def test_there_is_a_baseline(self):
        found = list((check_abi.ROOT / "dev" / "abi").glob("*/*.abi"))
        self.assertGreaterEqual(len(found), len(check_abi.LIBRARIES))
        for path in found:
            self.assertNotIn(str(check_abi.ROOT), path.read_text())


if __name__ == "__main__":
    unittest.main()
