"""cairn.report: the table and the sentences under it."""

import csv
import dataclasses
import io
import json
import unittest

import tool_path  # noqa: F401
from rich.console import Console

from cairn import report
from cairn.compare import Side
from cairn.measure import Run


def side(name, wall_s, peak_rss_mib, status=0):
    runs = [Run(wall_s=wall_s, cpu_s=wall_s, peak_rss_mib=peak_rss_mib, faults=0,
                exit_code=status, signal=0, output=b"", stderr_tail="")]
    return Side(name, None, runs)


class ReportTest(unittest.TestCase):
    def render(self, *sides, width=100):
        console = Console(file=io.StringIO(), width=width)
        console.print(report.table(["a program", "-x"], sides))
        return console.file.getvalue()

    def row(self, text, title):
        line = next(line for line in text.splitlines() if title in line)
        return [cell.strip() for cell in line.strip("│┃ ").split("│")]

    def test_table(self):
        text = self.render(side("system", 2.0, 1500.0), side("Cairn", 1.5, 300.0))
        self.assertIn("'a program' -x", text)
        self.assertEqual(self.row(text, "wall time"),
                         ["wall time s", "2.000 ± 0.000", "1.500 ± 0.000", "0.75"])
        self.assertEqual(self.row(text, "peak RSS"),
                         ["peak RSS MiB", "1,500.0 ± 0.0", "300.0 ± 0.0", "0.20"])
        self.assertEqual(self.row(text, "page faults")[-1], "-")

    def test_statuses(self):
        text = "\n".join(report.remarks([side("system", 1, 1, 0), side("Cairn", 1, 1, 4)]))
        self.assertIn("exit status: 0 under system, 4 under Cairn", text)
        text = "\n".join(report.remarks([side("system", 1, 1, 4), side("Cairn", 1, 1, 4)]))
        self.assertIn("exit status: 4 under both", text)
        text = "\n".join(report.remarks([side("system", 1, 1), side("Cairn", 1, 1)]))
        self.assertNotIn("exit status", text)

    def test_verdicts(self):
        def rounds(name, *walls):
            return Side(name, None, [run for wall in walls for run in side(name, wall, 7).runs])
        system = rounds("system", 1.0, 1.1, 0.9, 1.0)
        text = "\n".join(report.remarks([system, rounds("Cairn", 0.9, 0.98, 0.82, 0.9)]))
        self.assertRegex(text, r"wall time: Cairn needs (?:9\.\d|10(?:\.0)?) % less "
                               r"\(95 % interval: -1\d % to -[89]\.\d %\)")
        sides = [rounds("system", 1, 1, 1, 1, 1), rounds("Cairn", 0.72, 0.721, 0.72, 0.719, 0.66)]
        self.assertEqual(self.row(self.render(*sides), "wall time")[-1], "0.72")
        self.assertIn("wall time: Cairn needs 28 % less", "\n".join(report.remarks(sides)))
        text = "\n".join(report.remarks([system, rounds("Cairn", 0.5, 1.5, 0.9, 1.1)]))
        self.assertRegex(text, r"wall time: no significant difference "
                               r"\(95 % interval: -\d+ % to \+\d+ %\)")
        self.assertIn("peak RSS: no significant difference", text)
        self.assertNotIn("wall time: no", "\n".join(report.remarks(
            [system, rounds("Cairn", 0.5, 1.5, 0.9, 1.1)], limit_s=5)))
        self.assertIn("1 round is too few to tell a difference from chance", "\n".join(
            report.remarks([side("system", 1, 1), side("Cairn", 1, 1)])))

    def three(self):
        return [side("system", 2.0, 1500.0), side("Cairn", 1.5, 300.0), side("other", 4.0, 150.0)]

    def test_three_sides_fit_80_columns(self):
        lines = self.render(*self.three(), width=80).splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        text = "\n".join(lines)
        self.assertEqual(self.row(text, "Cairn")[1], "1.500 ± 0.000")
        self.assertIn("0.75 ×", text)
        self.assertIn("2.00 ×", text)
        self.assertNotIn("…", text)

    def test_limit(self):
        stopped = dataclasses.replace(side("system", 2.0, 1.0).runs[0], signal=15, stopped=True)
        sides = [Side("system", None, [stopped]), Side("Cairn", None, [stopped])]
        text = "\n".join(report.remarks(sides, limit_s=2))
        self.assertIn("stopped after 2 s, so wall time says nothing", text)
        self.assertNotIn("exit status", text)
        self.assertNotIn("output:", text)
        sides[1].runs = [dataclasses.replace(stopped, signal=9, killed=True)]
        self.assertIn("SIGTERM did not end it under Cairn",
                      "\n".join(report.remarks(sides, limit_s=2)))
        crashed = dataclasses.replace(stopped, signal=11)
        self.assertEqual(crashed.status, 139)

    def test_signals_of_any_number(self):
        run = side("system", 1, 1).runs[0]
        for number in range(1, 65):
            self.assertIn("killed by ",
                          report.describe_end(dataclasses.replace(run, signal=number)))
        self.assertEqual(report.describe_end(dataclasses.replace(run, signal=35)),
                         "killed by SIGRTMIN+1")
        self.assertEqual(report.describe_end(dataclasses.replace(run, signal=11)),
                         "killed by SIGSEGV")

    def test_json(self):
        read = json.loads(report.as_json(["a program"], self.three(), ["a remark"]))
        self.assertEqual((read["command"], read["rounds"]), (["a program"], 1))
        self.assertEqual([one["name"] for one in read["sides"]], ["system", "Cairn", "other"])
        self.assertEqual(read["sides"][1]["ratio"]["wall_s"], 0.75)
        self.assertEqual(read["sides"][2]["runs"][0]["peak_rss_mib"], 150)
        self.assertEqual(read["remarks"], ["a remark"])

    def test_csv(self):
        lines = list(csv.DictReader(io.StringIO(report.as_csv(self.three()))))
        self.assertEqual([(line["side"], line["round"], line["wall_s"]) for line in lines],
                         [("system", "1", "2.0"), ("Cairn", "1", "1.5"), ("other", "1", "4.0")])

    def test_markdown(self):
        text = report.as_markdown(["a", "b|c"], self.three(), ["a remark"])
        lines = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual({line.count("|") for line in lines}, {6})
        self.assertIn("1.500 ± 0.000; 0.75 ×", text)
        self.assertIn("- a remark", text)
        text = report.as_markdown(["a"], self.three()[:2], [])
        self.assertIn("| wall time s | 2.000 ± 0.000 | 1.500 ± 0.000 | 0.75 |", text)


if __name__ == "__main__":
    unittest.main()
