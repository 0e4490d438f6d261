"""The files for Prometheus: their queries use exported metrics only."""

import re
import shutil
import subprocess
import unittest

from tool_path import TOOLS

# pylint: disable=wrong-import-position
from cairn.metrics import METRICS

FLEET = TOOLS / "fleet"
EXPORTER = {"cairn_process_up"}
NAMES = {metric.prometheus_name for metric in METRICS} | EXPORTER


def named(expression):
    return set(re.findall(r"\bcairn_[a-z_]+\b", expression))


class FleetFilesTest(unittest.TestCase):
    def test_the_alerts_ask_for_what_is_there(self):
        text = (FLEET / "alerts.yml").read_text()
        recorded = set(re.findall(r"record: (\S+)", text))
        self.assertLessEqual(set(re.findall(r"\bcairn:[a-z_:]+", text)), recorded)
        self.assertLessEqual(named(re.sub(r"cairn:\S+", "", text)), NAMES)

    @unittest.skipUnless(shutil.which("promtool"), "Debian's prometheus is not installed")
    def test_promtool_takes_the_files(self):
        for words in (["rules", "alerts.yml"], ["config", "prometheus.yml"]):
            done = subprocess.run(["promtool", "check", *words], cwd=FLEET, text=True,
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(shutil.which("promtool"), "Debian's prometheus is not installed")
    def test_the_alerts_fire_when_they_should(self):
        done = subprocess.run(["promtool", "test", "rules", str(TOOLS.parent / "test/tools"
                                                                / "fleet_alerts.yml")],
                              text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
