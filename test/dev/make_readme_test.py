"""dev/make_readme.py: README.md's table, claims and picture are what was measured."""

import pathlib
import re
import shutil
import tempfile
import unittest

import dev_path  # noqa: F401
import make_readme

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEASURED = ("README.md", "docs/SECURITY.md", "bench/results/mimalloc-bench.md",
            "bench/results/lists.md", make_readme.PICTURE,
            *(str(path.relative_to(ROOT)) for run in ("full", "rows", "programs")
              for file in ("report.md", "results.csv")
              for path in (ROOT / "bench" / "results" / run).glob(file)))


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in MEASURED:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def change(self, name, old, new):
        """The first match of an expression; whatever was measured last."""
        path = self.root / name
        text, changes = re.subn(old, new, path.read_text(), count=1)
        self.assertEqual(changes, 1)
        path.write_text(text)

    def test_readme_is_what_is_made(self):
        self.assertEqual(list(make_readme.check(ROOT)), [])

    def test_a_figure_changed_by_hand(self):
        self.change("README.md", r"(\| time, \d+ benchmark rows \[c\] \| \**\d)\.", r"\g<1>9.")
        self.assertTrue(list(make_readme.check(self.root)))

    def test_a_figure_measured_anew(self):
        for name, old, new in (
                ("bench/results/rows/report.md", r"(\| time \| all \| \d+ \| \d)\.", r"\g<1>9."),
                ("bench/results/mimalloc-bench.md",
                 r"(\| geometric mean over the best of all \| \d)\.", r"\g<1>9."),
                ("docs/SECURITY.md", r"\| direct, 48 bytes \| at once",
                 "| direct, 48 bytes | late")):
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

    def test_programs_that_are_measured_apart(self):
        """A run of the real programs alone takes the place of the full run, with what all ran."""
        folder = self.root / "bench" / "results" / "programs"
        folder.mkdir(exist_ok=True)
        (folder / "report.md").write_text(
            "## Geomeans\n\n|  | group | rows | system | cairn | cairn-hardened | mimalloc |\n"
            "|---|---|---|---|---|---|---|\n"
            "| time | programs | 1 | 1.400 | 1.010 | 1.200 | 1.000 |\n"
            "| memory | programs | 1 | 1.100 | 1.020 | 1.300 | 1.000 |\n")
        facts = "".join(f"# {key}: {value}\n" for key, value in (
            ("commit", "0123456789ab"), ("processor", "Fast one"), ("libc", "glibc 9"),
            *((f"allocator {name}", "7.8-9") for name in ("mimalloc", "jemalloc", "tcmalloc"))))
        lines = [f"{row},programs,{name},cpu_s,time,s,1,1,1,1,1,5,{ratio}"
                 for row, ratios in (("lua", {"system": "1.4", "cairn": "1.01", "mimalloc": "1.0"}),
                                     ("perl", {"system": "1.0", "cairn": "1.0"}))
                 for name, ratio in ratios.items()]
        columns = (ROOT / "bench/results/full/results.csv").read_text().split("\nrow,")[1]
        (folder / "results.csv").write_text(
            facts + "row," + columns.splitlines()[0] + "\n" + "\n".join(lines) + "\n")
        readme = "\n".join(make_readme.check(self.root))
        self.assertIn("+| CPU time, 1 real programs [a] | 1.01 | 1.20 | 1.40 | **1.00** |", readme)
        self.assertIn("+- [a] lua; Fast one, glibc 9, Debian's mimalloc 7.8", readme)
        self.assertIn("commit 0123456789ab: [report](bench/results/programs/report.md)", readme)

    def test_geomeans_are_those_of_the_results(self):
        """The report's table against the ratios in results.csv, which it was made of."""
        measured = make_readme.Measured(ROOT)
        names, _ = measured.real_programs()
        ratios = [float(row["ratio_to_best_peer"]) for row in measured.rows(measured.programs_run)
                  if row["row"] in names and row["allocator"] == "cairn"
                  and row["aspect"] == "time"]
        product = 1.0
        for ratio in ratios:
            product *= ratio
        figures, rows = measured.geomeans(measured.programs_run, "time", "programs")
        self.assertEqual(len(ratios), rows)
        self.assertAlmostEqual(product ** (1 / rows), figures["Cairn"], 3)


if __name__ == "__main__":
    unittest.main()
