"""cairn.report: the table and the sentences under it."""

import io
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
    def render(self, theirs, ours):
        console = Console(file=io.StringIO(), width=100)
        console.print(report.table(["a program", "-x"], theirs, ours))
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
        text = "\n".join(report.remarks(side("system", 1, 1, 0), side("Cairn", 1, 1, 4)))
        self.assertIn("exit status: 0 under system, 4 under Cairn", text)
        text = "\n".join(report.remarks(side("system", 1, 1, 4), side("Cairn", 1, 1, 4)))
        self.assertIn("exit status: 4 under both", text)
        text = "\n".join(report.remarks(side("system", 1, 1), side("Cairn", 1, 1)))
        self.assertNotIn("exit status", text)


if __name__ == "__main__":
    unittest.main()
