"""dev/make_readme.py: README.md's table, claims and picture are what was measured."""

import pathlib
import shutil
import tempfile
import unittest

import dev_path  # noqa: F401
import make_readme

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEASURED = ("README.md", "docs/SECURITY.md", "bench/results/mimalloc-bench.md",
            "bench/results/lists.md", make_readme.PICTURE,
            *(f"bench/results/{run}/{file}" for run in ("full", "xeon")
              for file in ("report.md", "results.csv")))


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in MEASURED:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def change(self, name, old, new):
        path = self.root / name
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))

    def test_readme_is_what_is_made(self):
        self.assertEqual(list(make_readme.check(ROOT)), [])

    def test_a_figure_changed_by_hand(self):
        self.change("README.md", "| **1.31** |", "| **1.21** |")
        self.assertTrue(list(make_readme.check(self.root)))

    def test_a_figure_measured_anew(self):
        for name, old, new in (
                ("bench/results/xeon/report.md", "| 2.003 | 1.310 |", "| 2.003 | 1.410 |"),
                ("bench/results/mimalloc-bench.md", "| 1.35 | 1.13 |", "| 1.35 | 1.23 |"),
                ("docs/SECURITY.md", "| direct, 48 bytes | at once", "| direct, 48 bytes | late")):
            self.setUp()
            self.change(name, old, new)
            self.assertTrue(list(make_readme.check(self.root)), name)

    def test_a_picture_of_other_figures(self):
        self.change(make_readme.PICTURE, 'cx="', 'cx="1')
        self.assertTrue(list(make_readme.check(self.root)))

    def test_the_best_is_bold_and_what_was_not_measured_is_empty(self):
        line = make_readme.line_of("what", {"Cairn": "1.13", "glibc": "1.20", "rpmalloc": "0.50"})
        self.assertEqual(line, "| what | **1.13** |  | 1.20 |" + "  |" * 5)
        line = make_readme.line_of("what", {"Cairn": 30, "hardened_malloc": 32}, lowest=False)
        self.assertEqual(line, "| what | 30 |  |  |  |  |  |  | **32** |")

    def test_geomeans_are_those_of_the_results(self):
        """The report's table against the ratios in results.csv, which it was made of."""
        measured = make_readme.Measured(ROOT)
        ratios = [float(row["ratio_to_best_peer"]) for row in measured.rows("full")
                  if row["group"] == "programs" and row["allocator"] == "cairn"
                  and row["aspect"] == "time"]
        product = 1.0
        for ratio in ratios:
            product *= ratio
        figures, rows = measured.geomeans("full", "time", "programs")
        self.assertEqual(len(ratios), rows)
        self.assertAlmostEqual(product ** (1 / rows), figures["Cairn"], 3)


if __name__ == "__main__":
    unittest.main()
