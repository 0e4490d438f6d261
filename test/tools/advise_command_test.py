"""`cairn advise` on programs with known sites (advise/*.c): each has a site for which a verdict is
right, and others that only look like it. The time that a change saves is not checked."""

import concurrent.futures
import html
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import unittest

from tool_path import TOOLS

# pylint: disable=wrong-import-position
from cairn import advise_savings, advise_summary
from cairn.advise_command import record, traced
from cairn.advise_verdicts import verdicts
from cairn.measure import measure

LIBRARY = pathlib.Path(os.environ["CAIRN_TEST_LIBRARY"])
COMMAND = TOOLS / "bin" / "cairn"
PROGRAMS = pathlib.Path(os.environ["CAIRN_TEST_PLANTED"])
BUILDS = ("O0", "O2", "no_frames")
CHANGED = ("scope", "fifo", "ring", "pool", "reserve", "temporary", "one", "pins", "rounding",
           "records")
PLANTED = {"scope": "scope", "fifo": "FIFO", "ring": "ring frame", "pool": "pool",
           "reserve": "reserve", "temporary": "temporary",
           "one": "one at a time", "pins": "pins pages", "leak": "leak",
           "rounding": "rounding",
           "records": "leak and rounding", "handover": "hand-over", "nothing": None}
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
# Runs in the page: actions of a reader with mouse and keys, and the resulting content.
USE_OF_THE_PAGE = """<script>
const seen = {}, all = what => [...document.querySelectorAll(what)];
const key = (target, name) =>
  target.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, cancelable: true}));
seen.advice = all('#advice h3').map(head => head.textContent);
seen.words = all('#advice p').map(line => line.textContent);
all('#advice summary').forEach(line => line.click());
seen.code = all('#advice details[open] pre').map(text => text.textContent);
seen.canvases = all('canvas').map(canvas =>
  [canvas.width > 100, canvas.getAttribute('aria-label')]);
const rows = () => all('tbody tr').map(row => row.cells[0].textContent);
seen.rows = rows();
all('tbody tr')[0].click();
seen.life = all('.said').pop().textContent;
key(document.body, '/');
document.activeElement.value = 'planted';
document.activeElement.dispatchEvent(new Event('input'));
seen.found = rows();
key(document.body, 'Escape');
seen.back = rows();
seen.requests = performance.getEntriesByType('resource').map(entry => entry.name);
document.body.innerHTML = '';
document.body.textContent = 'SEEN' + JSON.stringify(seen) + 'NEES';
</script>"""


def planted(name, build="O2"):
    return str(PROGRAMS / f"planted_{name}_{build}")


def cairn(*arguments):
    return subprocess.run([str(COMMAND), "advise", "--lib", LIBRARY, *map(str, arguments)],
                          capture_output=True, text=True, check=False, timeout=100,
                          env={**os.environ, "COLUMNS": "100", "LC_ALL": "C.UTF-8"})


def judged(name, build, words):
    """{(function, verdict)…} of a run."""
    with tempfile.TemporaryDirectory() as folder:
        summary = advise_summary.read(record([planted(name, build), *words], folder, LIBRARY))
        return {(summary.place(verdict.sites[0]).function, verdict.kind)
                for verdict in verdicts(summary.data)}


class AdviseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.pins = record([planted("pins")], cls.folder.name, LIBRARY)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def test_all_that_is_planted_is_found_and_nothing_else(self):
        cases = [(name, build, ()) for name in PLANTED for build in BUILDS]
        cases += [(name, "O2", ("2",)) for name in PLANTED]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda case: judged(*case), cases))
        for case, found in zip(cases, results):
            with self.subTest(case=case):
                expected = PLANTED[case[0]]
                self.assertEqual(sorted(kind for _, kind in found),
                                 expected.split(" and ") if expected else [])
                self.assertTrue(all(place.startswith("planted") for place, _ in found), found)

    def test_a_measured_saving(self):
        result = cairn("--json", "--fail-above", 10, self.pins)
        self.assertEqual((result.returncode, result.stderr), (3, ""))
        advice, = json.loads(result.stdout)["advice"]
        self.assertEqual(advice["verdict"], "pins pages")
        self.assertEqual(advice["place"]["function"], "planted_record")
        self.assertRegex(advice["place"]["file"], r"pins\.c$")
        self.assertGreater(advice["place"]["line"], 0)
        self.assertGreater(advice["saving"]["peak_bytes"]["value"], 4 << 20)
        self.assertGreater(advice["saving"]["peak_bytes"]["sure_share"], 0.1)
        self.assertGreater(advice["saved_share"], 0.1)
        self.assertIn("cairn_private_heap_new", advice["c"])
        self.assertIn("cairn::private_heap", advice["cpp"])
        functions = [frame["function"] for frame in advice["sites"][0]["stack"]]
        self.assertIn("main", functions)
        quiet = cairn("--fail-above", 99, self.pins)
        self.assertEqual((quiet.returncode, quiet.stderr), (0, ""))
        self.assertRegex(quiet.stdout, r"1\. planted_record pins\.c:\d+: a heap of their own")
        self.assertRegex(quiet.stdout, r"peak memory: saves \d+\.\d MiB ± \d+\.\d [KM]iB, ")

    def test_where_a_scope_belongs(self):
        for build in BUILDS:
            result = cairn("--no-replay", "--", planted("scope", build))
            self.assertRegex(result.stdout, r"(?m); the scope belongs into handle scope\.c:\d+$")

    @unittest.skipUnless(shutil.which("strip"), "binutils are not installed")
    def test_without_lines_it_says_what_is_missing(self):
        bare = self.path("bare")
        subprocess.run(["strip", "-g", "-o", bare, planted("scope")], check=True)
        hint = "the program was built without -g"
        for name, is_said in ((bare, True), (planted("scope"), False)):
            self.assertEqual(hint in cairn("--no-replay", "--", name).stdout, is_said)

    def test_the_memory_that_is_promised_comes(self):
        """The peak of ten programs, before and after a change by hand, by the kernel's count for
        the whole process, without huge pages."""
        for name in CHANGED:
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                trace = record([planted(name)], folder, LIBRARY)
                data = advise_summary.read(trace).data
                verdict, = (each for each in verdicts(data) if each.policy)
                promise = advise_savings.measured(trace, traced(data), LIBRARY, 3, 0.0,
                                                  [verdict])[0].memory
                runs = [[measure([planted(name, build)], LIBRARY, options="huge_pages:off")
                         .peak_rss_mib * (1 << 20) for build in ("O2", "by_hand")]
                        for _ in range(5)]
                came = statistics.median(before - after for before, after in runs)
                self.assertLessEqual(abs(promise.value - came),
                                     max(0.25 * abs(came), promise.noise), (promise, came))

    def test_the_same_program_has_the_same_sites(self):
        for words in ((planted("fifo"),), (planted("reserve"), "2")):
            looked_at = []
            for _ in range(3):
                said = json.loads(cairn("--json", "--once", "--", *words).stdout)
                looked_at.append(sorted((each["verdict"], each["place"]["function"])
                                        for each in said["advice"] + said["not_proposed"]))
                for each in said["advice"]:
                    for figure in each["saving"].values():
                        self.assertGreaterEqual(figure["value"], -figure["noise"])
            self.assertEqual(looked_at[1:], looked_at[:1] * 2)
            self.assertEqual(len(looked_at[0]), 1)

    def test_the_changed_programs_end_well(self):
        for name in CHANGED:
            run = measure([planted(name, "by_hand"), "2"], LIBRARY)
            self.assertEqual((run.status, run.stderr_tail), (0, ""))

    def test_a_program_is_run(self):
        result = cairn("--least", 0, "--snippets", "--", planted("leak"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"1\. planted_record leak\.c:\d+: a leak")
        self.assertRegex(result.stdout, r"\d\.\d MiB live at the end, \d\d\.\d % of the peak")
        self.assertIn("| #include <memory>", result.stdout)
        self.assertRegex(result.stdout, r"without a trace: \d+\.\d ms of processors, \d+\.\d MiB")

    def test_nothing_to_gain(self):
        result = cairn("--", planted("nothing"))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"(?m)^Nothing to gain: no site's change saves 3 % of")
        self.assertEqual(cairn("--fail-above", 0, "--", planted("nothing")).returncode, 0)

    def test_what_is_not_measured_says_so(self):
        result = cairn("--no-replay", self.pins)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("not measured", result.stdout)
        self.assertEqual(cairn("--no-replay", "--fail-above", 0, self.pins).returncode, 0)

    def test_bad_input(self):
        cut = self.path("cut")
        cut.write_bytes(self.pins.read_bytes()[:5000])
        gone = self.path("gone") / "page.html"
        for words, sentence in (([cut], "the file is truncated"),
                                (["/none/there"], "no such program"),
                                (["/etc/passwd"], "neither a trace of Cairn nor an executable"),
                                (["--html", gone, self.pins], "there is no folder")):
            result = cairn(*words)
            self.assertEqual(result.returncode, 2, result)
            self.assertIn(sentence, result.stderr)

    def test_a_killed_program(self):
        result = cairn("--once", "--", "/bin/sh", "-c", "kill -9 $$")
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("was ended by SIGKILL", result.stderr)
        self.assertIn("Nothing to gain", result.stdout)

    @unittest.skipUnless(BROWSER, "chromium is not installed")
    def test_html_in_a_browser(self):
        made = self.path("advice.html")
        result = cairn("--html", made, self.pins)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        text = made.read_text()
        self.assertLess(len(text), 2 << 20)
        self.assertNotRegex(text, r"https?://|@import|<link [^>]*href=.(?!data:)")
        used = self.path("used.html")
        used.write_text(text.replace("</body>", USE_OF_THE_PAGE + "</body>"))
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu",
                               f"--user-data-dir={self.path('browser')}", "--dump-dom",
                               used.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False, timeout=100)
        found = re.search(r"SEEN(.*)NEES", done.stdout)
        self.assertIsNotNone(found, done.stdout[-500:])
        seen = json.loads(html.unescape(found.group(1)))
        self.assertEqual(len(seen["advice"]), 1)
        self.assertRegex(seen["advice"][0], r"^1\. planted_record pins\.c:\d+: a heap of their own")
        self.assertTrue(any("peak memory: saves" in line for line in seen["words"]))
        self.assertTrue(any("cairn_private_heap_new" in code for code in seen["code"]))
        self.assertEqual([wide for wide, _ in seen["canvases"]], [True, True])
        self.assertRegex(seen["canvases"][0][1], "live memory over time")
        names = {row.split(" ")[0] for row in seen["rows"]}
        self.assertLessEqual({"planted_record", "decoy_short", "decoy_index"}, names)
        self.assertRegex(seen["life"], r"^decoy_short .*\d % below .*s.* ← main")
        self.assertTrue(all(row.startswith("planted") for row in seen["found"]))
        self.assertEqual(seen["back"], seen["rows"])
        self.assertEqual(seen["requests"], [])


if __name__ == "__main__":
    unittest.main()
