"""dev/make_readme.py: README.md's table and pictures are what was measured."""

import pathlib
import re
import shutil
import tempfile
import unittest

import dev_path  # noqa: F401
import make_readme

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEASURED = ("README.md", "bench/results/matrix.md", "bench/results/mimalloc-bench/results.csv",
            "bench/results/programs/results.csv", "bench/results/services/results.csv",
            "bench/results/services/memory.csv", make_readme.PICTURE, make_readme.SERVICE_PICTURE)


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
        self.change("README.md", r"(\| CPU time, \d+ real programs.*?\| \**\d)\.", r"\g<1>9.")
        self.assertTrue(list(make_readme.check(self.root)))

    def test_a_figure_measured_anew(self):
        for name, old, new in (
                ("bench/results/programs/results.csv", r"(\nredis,programs,cairn,cpu_s,time,s,)",
                 r"\g<1>9"),
                ("bench/results/mimalloc-bench/results.csv",
                 r"(\nmb-cfrac,mimalloc-bench,cairn,time_s,time,s,)", r"\g<1>9"),
                ("bench/results/services/results.csv",
                 r"(\nservice-python,services,cairn,silent,memory,MiB,)", r"\g<1>9"),
                ("bench/results/services/memory.csv", r"(\nsystem,[\d.]+,silence,)", r"\g<1>9"),
                ("bench/results/matrix.md", r"\| direct, 48 bytes \| at once",
                 "| direct, 48 bytes | late")):
            self.setUp()
            self.change(name, old, new)
            self.assertTrue(list(make_readme.check(self.root)), name)

    def test_a_picture_of_other_figures(self):
        for picture, old in ((make_readme.PICTURE, 'cx="'),
                             (make_readme.SERVICE_PICTURE, 'points="')):
            self.setUp()
            self.change(picture, old, old + "1")
            self.assertTrue(list(make_readme.check(self.root)), picture)

    def test_curves_of_a_service(self):
        path = self.root / "bench/results/services/memory.csv"
        path.write_text("side,seconds,phase,bytes,lazy_bytes\n"
                        "system,0.5,burst 1,1048576,0\nsystem,2.5,burst 1,2097152,0\n"
                        "system,3,silence,2097152,0\nCairn background:on,1,burst 1,3145728,0\n")
        self.assertEqual(make_readme.Measured(self.root).curves(), (
            {"glibc": [(0.5, 1), (2.5, 2), (3, 2)], "Cairn, background:on": [(1, 3)]},
            [(0.5, 2.5)]))

    def test_labels_of_curves_are_apart(self):
        self.assertEqual(make_readme.apart([30, 10, 12], 15), {10: 10, 12: 25, 30: 40})
        lines = [int(line) for line in re.findall(
            r'<text x="568" y="(\d+)"', (ROOT / make_readme.SERVICE_PICTURE).read_text())]
        self.assertGreater(len(lines), 3)
        for above, below in zip(sorted(lines), sorted(lines)[1:]):
            self.assertGreaterEqual(below - above, 14)

    def boxes(self, points):
        """(name, whether it is the label, box) of the points and labels of a panel."""
        places = make_readme.labels(points)
        for name, (x, y) in points.items():
            yield name, False, make_readme.Box(x - 5, y - 5, x + 5, y + 5)
            yield name, True, next(place[3] for place in make_readme.label_places(name, x, y)
                                   if place[:3] == places[name])

    def test_labels_are_over_nothing_else(self):
        crowd = {"Cairn": (100, 100), "glibc": (115, 103), "jemalloc": (130, 97)}
        panels = [{"one": (200, 150)}, crowd]
        picture = (ROOT / make_readme.PICTURE).read_text()
        for panel in re.findall(r"<g .*?</g>", picture, re.S):
            circles = re.findall(r'cx="(\d+)" cy="(\d+)"', panel)
            names = [name for name in re.findall(r">([^<]*)</text>", panel)
                     if name in make_readme.COLOURS]
            self.assertEqual(len(names), len(circles))
            panels.append({name: (int(x), int(y)) for name, (x, y) in zip(names, circles)})
        for points in panels:
            boxes = list(self.boxes(points))
            for name, is_label, box in boxes:
                for other, _, second in boxes:
                    self.assertFalse(is_label and name != other and box.covers(second),
                                     f"{name} over {other}")

    def test_the_best_is_bold_and_what_was_not_measured_is_empty(self):
        line = make_readme.line_of("what",
                                   {"Cairn": "1.13", "mimalloc": "1.20", "other": "0.50"})
        self.assertEqual(line, "| what | **1.13** |  | 1.20 |" + "  |" * 4)
        line = make_readme.line_of("what", {"Cairn": 30, "gperftools tcmalloc": 32}, lowest=False)
        self.assertEqual(line, "| what | 30 |  |  |  |  |  | **32** |")

    def write_results(self, group, medians):
        """Results of these times: {row: {allocator: median}}."""
        text = (self.root / "bench/results/programs/results.csv").read_text()
        head, columns = text.split("\nrow,")[0], text.split("\nrow,")[1].splitlines()[0]
        lines = [f"{row},{group},{name},cpu_s,time,s,{median},1,1,1,1,5,1"
                 for row, figures in medians.items() for name, median in figures.items()]
        lines.append("ruby-turns,turns,cairn,cpu_s,time,s,1,1,1,1,1,5,1")
        path = self.root / "bench/results" / group / "results.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([head, f"row,{columns}", *lines, ""]))

    def test_settings_and_versions_share_a_column(self):
        self.write_results("mimalloc-bench", {"mb-cfrac": {"cairn": 2, "mimalloc2": 1}})
        figures, names = make_readme.Measured(self.root).programs("mimalloc-bench", "time")
        self.assertEqual((figures, names), ({"Cairn": 2, "mimalloc 2": 1}, ["mb-cfrac"]))
        figures["mimalloc 3"] = 1.5
        figures["Cairn, background:on"] = 1.1
        self.assertEqual(make_readme.shared(figures), {
            "Cairn": "1.10 (background:on), 2.00", "mimalloc": "1.00 (v2), 1.50 (v3)"})
        self.assertEqual(make_readme.shared({"mimalloc": 1, "google/tcmalloc": 2}), {
            "mimalloc": "1.00", "gperftools tcmalloc": "2.00 (google/tcmalloc)"})

    def test_one_normalisation(self):
        """Each row is divided by its best, Cairn's among them; hardened Cairn is none of them, and
        a row that not all ran does not count."""
        self.write_results("programs", {
            "lua": {"system": 4, "cairn": 2, "cairn-hardened": 1},
            "git": {"system": 1, "cairn": 8, "cairn-hardened": 8}, "perl": {"cairn": 1}})
        figures, names = make_readme.Measured(self.root).programs("programs", "time")
        self.assertEqual(names, ["git", "lua"])
        self.assertAlmostEqual(figures["glibc"], 2 ** 0.5)
        self.assertAlmostEqual(figures["Cairn"], 8 ** 0.5)
        self.assertAlmostEqual(figures["Cairn hardened"], 2)


if __name__ == "__main__":
    unittest.main()
