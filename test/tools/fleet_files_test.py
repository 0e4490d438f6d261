"""The files for Grafana and Prometheus: their queries name what is exported."""

import json
import re
import shutil
import subprocess
import unittest

from tool_path import TOOLS

# pylint: disable=wrong-import-position
from cairn.metrics import METRICS

FLEET = TOOLS / "fleet"
EXPORTER = {"cairn_process_up"}
LABELS = {"host", "pid", "program", "build_id", "release", "call", "size"}
NAMES = {metric.prometheus_name for metric in METRICS} | EXPORTER


def named(expression):
    return set(re.findall(r"\bcairn_[a-z_]+\b", expression))


class FleetFilesTest(unittest.TestCase):
    def setUp(self):
        self.board = json.loads((FLEET / "dashboard.json").read_text())
        self.expressions = [target["expr"] for panel in self.board["panels"]
                            for target in panel["targets"]]

    def test_the_dashboard_asks_for_what_is_there(self):
        self.assertGreater(len(self.expressions), 10)
        for expression in self.expressions:
            self.assertTrue(named(expression))
            self.assertLessEqual(named(expression), NAMES)
        variables = {each["name"] for each in self.board["templating"]["list"]}
        used = set(re.findall(r"\$(\w+)", " ".join(self.expressions))) - {"__rate_interval"}
        self.assertLessEqual(used, variables)
        for each in self.board["templating"]["list"][1:]:
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", each["query"]["query"])
            self.assertIn(found.group(1), NAMES)
            self.assertIn(found.group(2), LABELS)

    def test_its_panels_lie_beside_one_another(self):
        taken = set()
        for panel in self.board["panels"]:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertLessEqual(place["x"] + place["w"], 24)
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells
        self.assertEqual(len({panel["id"] for panel in self.board["panels"]}),
                         len(self.board["panels"]))

    def test_the_alerts_ask_for_what_is_there(self):
        text = (FLEET / "alerts.yml").read_text()
        recorded = set(re.findall(r"record: (\S+)", text))
        self.assertLessEqual(set(re.findall(r"\bcairn:[a-z_:]+", text)), recorded)
        self.assertLessEqual(named(re.sub(r"cairn:\S+", "", text)), NAMES)

    @unittest.skipUnless(shutil.which("promtool"), "Debian's prometheus is not installed")
    def test_promtool_takes_all_queries(self):
        for words in (["rules", "alerts.yml"], ["config", "prometheus.yml"]):
            done = subprocess.run(["promtool", "check", *words], cwd=FLEET, text=True,
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rules = "groups: [{name: board, rules: ["
        for number, expression in enumerate(self.expressions):
            text = json.dumps(expression.replace("$__rate_interval", "1m"))
            rules += f"{{record: 'r:{number}', expr: {text}}},\n"
        done = subprocess.run(["promtool", "check", "rules", "/dev/stdin"], input=rules + "]}]\n",
                              text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(shutil.which("promtool"), "Debian's prometheus is not installed")
    def test_the_alerts_fire_when_they_should(self):
        done = subprocess.run(["promtool", "test", "rules", str(TOOLS.parent / "test/tools"
                                                                / "fleet_alerts.yml")],
                              text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
