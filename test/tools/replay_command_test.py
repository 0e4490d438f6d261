"""`cairn replay`: traces with known events, complete and damaged, on several allocators."""

import html
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

from tool_path import TOOLS

from cairn import replay_play

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
MAKER = os.environ["CAIRN_TEST_MAKER"]
PEAK_EVENTS = 100000
PEAK_LIVE = PEAK_EVENTS // 2 * 1000
VERSION_PLACE, STATE_PLACE, CHUNK_PLACE = 8, 72, 4096  # of src/watch/trace_format.h
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
USE_OF_THE_PAGE = """<script>
const seen = {}, cells = column =>
  [...document.querySelectorAll('tbody tr')].map(row => row.cells[column].textContent);
seen.names = cells(0);
seen.peaks = cells(4);
const canvas = document.querySelector('canvas');
canvas.focus();
canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home', bubbles: true}));
seen.said = document.querySelector('.said').textContent;
seen.lines = [...document.querySelectorAll('main button')].map(one => one.textContent);
seen.requests = performance.getEntriesByType('resource').map(entry => entry.name);
document.body.innerHTML = '';
document.body.textContent = 'SEEN' + JSON.stringify(seen) + 'NEES';
</script>"""


def cairn(*arguments):
    return subprocess.run([str(COMMAND), "replay", "--lib", LIBRARY, *map(str, arguments)],
                          capture_output=True, text=True, check=False, timeout=100,
                          env={**os.environ, "COLUMNS": "120", "LC_ALL": "C.UTF-8"})


class CostTest(unittest.TestCase):
    def test_less_than_nothing_is_nothing(self):
        class Program:
            @staticmethod
            def windows_at(_):
                return []

        def side(cpu_ns, peak_bytes):
            run = {"cpu_ns": cpu_ns, "wait_ns": 1000, "wall_ns": 5000, "peak_bytes": peak_bytes,
                   "minor_faults": 3}
            return replay_play.Side("any", program=Program(), runs=[run, run])

        for ours, seconds, peak in ((9000, 0, 0), (12000, 2e-6, 300)):
            cost = replay_play.cost(side(ours, 500 + peak), side(10000, 500 + 200 * (not peak)))
            self.assertEqual((cost.allocator_s, cost.peak_bytes), (seconds, peak))


class ReplayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.traces = {}
        for name, events in (("churn", 50000), ("handover", 20000), ("peak", PEAK_EVENTS)):
            cls.traces[name] = pathlib.Path(cls.folder.name) / f"{name}.trace"
            subprocess.run([MAKER, name, str(events), cls.traces[name]], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def figures(self, *arguments):
        done = cairn(*arguments, "--rounds", 1, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return json.loads(done.stdout)

    def assert_refused(self, sentence, *arguments):
        done = cairn(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        self.assertRegex(done.stderr, sentence)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def damaged(self, name, change):
        data = bytearray(self.traces["churn"].read_bytes())
        path = self.path(name)
        path.write_bytes(change(data) or data)
        return path

    def test_peak_of_a_known_program(self):
        found = self.figures(self.traces["peak"])
        self.assertEqual((found["events"], found["peak_live_bytes"]), (PEAK_EVENTS, PEAK_LIVE))
        for side in found["allocators"]:
            self.assertGreater(side["peak_bytes"], PEAK_LIVE, side["name"])
            self.assertLess(side["peak_bytes"], PEAK_LIVE * 1.08, side["name"])
            highest = max(side["samples"], key=lambda sample: sample["held_bytes"])
            self.assertGreater(highest["held_bytes"], PEAK_LIVE * 0.9)
            self.assertGreater(highest["live_bytes"], PEAK_LIVE * 0.8)

    def test_table(self):
        done = cairn(self.traces["handover"], "--rounds", 2)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout,
                         r"handover\.trace: 199\d\d events of 2 threads, at most 900 B")
        self.assertRegex(done.stdout,
                         r"(?m)^system +\d+\.\d+ s .*\nlibcairn-malloc\S* +\d+\.\d+ s ")

    def test_a_program_kept_is_played_again(self):
        kept = self.path("kept")
        first = self.figures(self.traces["churn"], "--keep", kept)
        again = self.figures(kept)
        self.assertEqual(first["events"], again["events"])
        self.assert_refused("is already a replay program", kept, "--keep", self.path("other"))
        with kept.open("r+b") as file:
            file.truncate(kept.stat().st_size - 8)
        self.assert_refused("damaged replay program: the file is truncated; prepare it again", kept)

    def test_sites_on_other_allocators(self):
        policy = self.path("policy")
        policy.write_text("site-policy 1\neven heap 1\nodd fifo 2\n")
        found = self.figures(self.traces["peak"], "--site-policy", policy)
        sides = {side["name"]: side for side in found["allocators"]}
        self.assertEqual(len(sides), 4)
        with_sites = sides["system + sites"]
        self.assertEqual(with_sites["sites"],
                         [{"name": name, "served": PEAK_EVENTS // 4, "elsewhere": 0}
                          for name in ("even", "odd")])
        self.assertEqual(sides["system"]["sites"], [])
        self.assertLess(with_sites["peak_bytes"], PEAK_LIVE * 1.1)
        policy.write_text("site-policy 1\neven arena 1\n")
        self.assert_refused(r"policy:2: arena is not a verdict", self.traces["peak"],
                            "--site-policy", policy)
        policy.write_text("site-policy 1\neven heap 1\nnone fifo 77\n")
        self.assert_refused(r"policy: the trace has no block of policy none", self.traces["peak"],
                            "--site-policy", policy)

    def test_damaged_traces(self):
        def version(data):
            data[VERSION_PLACE:VERSION_PLACE + 4] = struct.pack("<I", 99)

        def garbage(data):
            data[CHUNK_PLACE + 64:CHUNK_PLACE + 264] = bytes([255]) * 200

        self.assert_refused("version 99", self.damaged("version", version))
        self.assert_refused("damaged", self.damaged("garbage", garbage),
                            "--keep", self.path("never"))
        self.assertFalse(self.path("never").exists())
        self.assert_refused("the file is truncated",
                            self.damaged("cut", lambda data: data[:100000]))
        self.assert_refused("no trace|not a trace", self.damaged("text", lambda _: b"hello" * 99))
        self.assert_refused("no such file", self.path("missing"))
        self.assert_refused("it is a folder", "")
        self.assert_refused("/: it is a folder", "/")

    @unittest.skipUnless(BROWSER, "chromium is not installed")
    def test_html_in_a_browser(self):
        page = self.path("page.html")
        done = cairn(self.traces["peak"], "--rounds", 1, "--html", page)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = page.read_text()
        self.assertNotRegex(text, r"https?://")
        page.write_text(text.replace("</body>", USE_OF_THE_PAGE + "</body>"))
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu",
                               f"--user-data-dir={self.path('browser')}", "--dump-dom",
                               page.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False, timeout=100)
        found = re.search(r"SEEN(.*)NEES", done.stdout)
        self.assertIsNotNone(found, done.stdout[-500:])
        seen = json.loads(html.unescape(found.group(1)))
        self.assertEqual(len(seen["names"]), 2)
        self.assertTrue(all(re.fullmatch(r"\d\d\.\d MiB", peak) for peak in seen["peaks"]))
        self.assertRegex(seen["said"], r"^0 s: live [\d.]+ MiB, system [\d.]+ MiB, ")
        self.assertIn("live", seen["lines"])
        self.assertEqual(seen["requests"], [])


if __name__ == "__main__":
    unittest.main()
