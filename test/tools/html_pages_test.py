"""The pages of `cairn inspect --html`, `leaks --html` and `stats --html`, in a browser: their
content for a heap with known blocks, and the actions of mouse and keys."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import browser
from tool_path import TOOLS

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
TARGET = os.environ["CAIRN_TEST_TARGET"]
LEAK_TARGET = os.environ["CAIRN_LEAK_TARGET"]

INSPECT = """
const [map, places] = document.querySelectorAll('canvas');
const saids = document.querySelectorAll('.said');
const crumbs = () => [...document.querySelectorAll('.crumbs button')].map(one => one.textContent);
seen.crumbs = crumbs();
seen.colours = colours(map).length;
const drawnColours = new Set([...colours(map), ...colours(places)]);
seen.hues = ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'free'].filter(
  hue => drawnColours.has(colour(hue).trim()));
const legend1 = document.querySelector('.legend');
seen.legend = legend1.textContent;
seen.legendHues = [...legend1.querySelectorAll('i')].map(dot => dot.style.background.slice(6, -1));
mouse(map, 'mousemove', 20, 60);
seen.hover = saids[0].textContent;
mouse(map, 'click', 20, 60);
seen.zoomed = crumbs();
key(document.body, 'Escape');
seen.back = crumbs();
map.focus();
const first = saids[0].textContent;
for (const name of ['ArrowRight', 'ArrowDown', 'ArrowRight']) key(map, name);
seen.moved = saids[0].textContent !== first;
press('by heap');
seen.byHeap = saids[0].textContent;
places.focus();
key(places, 'ArrowRight');
seen.cell = saids[1].textContent;
seen.sizes = cells('sizes', 0);
document.querySelector('table[aria-label=sizes] th:nth-child(2) button').click();
seen.bySize = cells('sizes', 1);
seen.heaps = cells('heaps', 0);
key(document.body, '/');
seen.search = document.activeElement.id;
type('^48-byte');
seen.found = cells('sizes', 0);
seen.marked = colours(places).includes(colour('mark').trim());
key(document.body, 'Escape');
document.querySelector('table[aria-label=heaps] tbody tr').focus();
key(document.activeElement, 'Enter');
seen.picked = document.getElementById('search').value;
"""
LEAKS = """
const map = document.querySelector('canvas'), said = document.querySelector('.said');
seen.rows = cells('lost blocks', 4);
seen.addresses = cells('lost blocks', 0);
mouse(map, 'mousemove', 10, 60);
seen.hover = said.textContent;
key(document.body, '/');
type('no function');
seen.found = cells('lost blocks', 4);
"""
STATS = """
const line = document.querySelector('canvas'), said = document.querySelector('.said');
line.focus();
seen.last = said.textContent;
key(line, 'Home');
seen.first = said.textContent;
mouse(line, 'mousemove', line.clientWidth / 2, 100);
seen.hover = said.textContent;
press('mapped');
press('dirty');
key(line, 'ArrowRight');
seen.chosen = said.textContent;
mouse(line, 'mousedown', 200, 100);
mouse(line, 'mousemove', line.clientWidth - 60, 100);
window.dispatchEvent(new MouseEvent('mouseup'));
key(line, 'Home');
seen.zoomed = said.textContent;
key(document.body, 'Escape');
key(line, 'Home');
seen.whole = said.textContent;
seen.rows = cells('bytes', 0);
"""


def cairn(*arguments):
    return subprocess.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": "100", "LC_ALL": "C.UTF-8"}, check=False,
                          timeout=200)


class Stopped:
    """A program that prints its blocks and stops itself."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                        env={**os.environ, "LD_PRELOAD": LIBRARY})

    def __enter__(self):
        os.waitpid(self.process.pid, os.WUNTRACED)
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()


class PagesTest(browser.PageCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.page = pathlib.Path(self.folder.name) / "page.html"

    def written(self, *arguments):
        result = cairn(*arguments, "--html", self.page)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        return self.page.read_text(encoding="utf-8")

    def data_of(self, text):
        return json.loads(re.search(r'id="data">(.*?)</script>', text).group(1))

    def use(self, text, script, *arguments):
        if not browser.BROWSER:
            self.skipTest("chromium is not installed")
        seen = browser.use(self.folder.name, text, script, *arguments)
        self.check_page(text, seen)
        return seen

    def test_the_map_is_the_census(self):
        with Stopped(TARGET) as process:
            data = self.data_of(self.written("inspect", process.pid))
            whole = json.loads(cairn("inspect", process.pid, "--json").stdout)
        self.assertEqual(sum(group[5] for group in data["groups"]),
                         sum(row["live_bytes"] for row in whole["classes"]))
        self.assertEqual(sum(group[3] for group in data["groups"]),
                         sum(row["slabs"] for row in whole["classes"]))
        sums = {kind: sum(run[2] for run in data["runs"] if run[0] == kind)
                for kind in ("large", "huge", "free", "kept")}
        self.assertEqual(sums, {row["name"]: row["bytes"] for row in whole["kinds"]
                                if row["name"] in sums})
        mapped = sum(cell is not None for part in data["map"]["parts"] for cell in part["cells"])
        self.assertGreaterEqual(mapped * data["map"]["cell"],
                                sum(sums.values()) + sum(group[4] for group in data["groups"]))

    def test_inspect(self):
        with Stopped(TARGET) as process:
            text = self.written("inspect", process.pid)
        seen = self.use(text, INSPECT)
        self.assertRegex(seen["crumbs"][0], r"^heap · \d+\.\d MiB$")
        self.assertGreater(seen["colours"], 4)
        self.assertIn("blocks with own mappings", seen["hover"])
        self.assertEqual(len(seen["zoomed"]), 2)
        self.assertEqual(seen["back"], seen["crumbs"])
        self.assertTrue(seen["moved"])
        self.assertRegex(seen["byHeap"], r"^heap: \d")
        self.assertRegex(seen["cell"], r"^0x[0-9a-f]+: ")
        self.assertIn("48-byte blocks", seen["sizes"])
        numbers = [int(re.sub(r"\D", "", size)) for size in seen["bySize"]]
        self.assertEqual(numbers, sorted(numbers, reverse=True))
        self.assertEqual(seen["search"], "search")
        self.assertEqual(seen["found"], ["48-byte blocks"])
        self.assertTrue(seen["marked"])
        self.assertEqual(seen["picked"], seen["heaps"][0])
        for words in ("slabs", "large blocks", "metadata", "no block in it, or given back"):
            self.assertIn(words, seen["legend"])
        self.assertLessEqual(set(seen["hues"]), set(seen["legendHues"]))
        dark = self.use(text, "", browser.DARK, browser.NARROW)
        self.assertNotEqual((seen["dark"], seen["back_color"]), (dark["dark"], dark["back_color"]))

    def test_leaks(self):
        with Stopped(LEAK_TARGET, "stop") as process:
            text = self.written("leaks", process.pid)
            said = os.read(process.stdout.fileno(), 1 << 16).decode()
        seen = self.use(text, LEAKS)
        lost = {line.split()[2] for line in said.splitlines() if line.startswith("lost")}
        self.assertLessEqual(set(seen["addresses"]), lost)
        self.assertGreater(len(seen["addresses"]), 20)
        self.assertRegex(seen["hover"], r"^0x[0-9a-f]+: 40\.0 MiB, 40\.0 MiB of it directly")
        self.assertEqual(len(seen["found"]), 1)
        self.assertIn("'a name that no function has'", seen["rows"])

    def test_stats(self):
        record = pathlib.Path(self.folder.name) / "record"
        with subprocess.Popen([TARGET, "churn"], stdout=subprocess.PIPE,
                              env={**os.environ, "LD_PRELOAD": LIBRARY}) as process:
            try:
                process.stdout.readline()  # the program has allocated
                with subprocess.Popen([str(COMMAND), "stats", str(process.pid), "--watch", "0.1",
                                       "--record", str(record)], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True) as watching:
                    end = time.monotonic() + 100
                    while time.monotonic() < end and not (
                            record.exists() and record.read_text().count("\n") > 10):
                        time.sleep(0.05)
                    watching.send_signal(signal.SIGINT)
                    output, errors = watching.communicate(timeout=100)
            finally:
                process.kill()
        self.assertEqual((watching.returncode, output, errors), (130, "", "cairn: interrupted\n"))
        looks = [json.loads(line) for line in record.read_text().splitlines()]
        self.assertEqual(looks[0]["cairn_stats"], 1)
        text = self.written("stats", record)
        seen = self.use(text, STATS)
        for name in ("first", "last", "hover"):
            self.assertRegex(seen[name], r"^[\d.]+ s: allocated .*resident .*, dirty ")
        self.assertNotEqual(seen["first"], seen["last"])
        self.assertRegex(seen["chosen"], r"allocated .*, mapped \d")
        self.assertNotIn("dirty", seen["chosen"])
        self.assertNotEqual(seen["zoomed"].split(":")[0], seen["first"].split(":")[0])
        self.assertEqual(seen["whole"].split(":")[0], "0 s" if seen["first"].startswith("0 s")
                         else seen["first"].split(":")[0])
        self.assertIn("allocated", seen["rows"])
        with record.open("a") as file:
            file.write('{"seconds": 9')  # killed while it wrote
        self.assertEqual(len(self.data_of(self.written("stats", record))["times"]), len(looks) - 1)

    def test_labels_can_be_read_and_addresses_keep_their_end(self):
        from cairn import html_page  # pylint: disable=import-outside-toplevel
        text = html_page.page("a", [], {}, ("treemap.js",))
        seen = self.use(text, """
            const leaf = {name: 'a name of a leaf', children: []};
            makeTreemap({parent: byId('content'), root: {name: 'all', children: [leaf]},
              value: () => 100, children: made => made.children, name: made => made.name,
              hue: () => 'c0', part: () => 411 / 420, text: made => made.name});
            seen.colours = colours(document.querySelector('canvas'));
            const context = document.createElement('canvas').getContext('2d');
            context.font = '12px monospace';
            const letter = context.measureText('0').width;
            seen.fitted = [20, 9, 4, 2].map(room => fitted(context, '0x7f5664901000',
              room * letter));
            seen.name = fitted(context, '32768-byte blocks', 8 * letter);
        """)
        # The filled area ends within the words: their upper half is dark, the lower half light.
        self.assertIn("#1b1b1f", seen["colours"])
        self.assertIn("#ffffff", seen["colours"])
        self.assertEqual(seen["fitted"], ["0x7f5664901000", "…64901000", "…000", ""])
        self.assertEqual(seen["name"], "32768-b…")

    def test_names_are_text(self):
        name = "</script><script>seen.broken = 1</script><b>"
        from cairn import html_page  # pylint: disable=import-outside-toplevel
        text = html_page.page(name, [name], {"name": name}, ())
        seen = self.use(text, "seen.name = data.name; seen.title = document.title;")
        self.assertEqual((seen["name"], seen["title"]), (name, name))
        self.assertNotIn("broken", seen)

    def test_what_it_refuses(self):
        record = pathlib.Path(self.folder.name) / "record"
        with Stopped(TARGET) as process:
            pid = process.pid
            for words, arguments in (
                    ("shows the whole heap", ("inspect", pid, "--blocks", "--html", self.page)),
                    ("there is no folder", ("inspect", pid, "--html", "/nowhere/page")),
                    ("--growing can be combined only with",
                     ("leaks", pid, "--growing", "1", "--html", self.page)),
                    ("a file that --record wrote", ("stats", pid, "--html", self.page)),
                    ("--record needs --watch SECONDS", ("stats", pid, "--record", record))):
                result = cairn(*arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
                self.assertIn(words, result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1)
        for text, words in (('{"cairn_stats":1,"target":{},"started":0}\n', "needs two snapshots"),
                            ('{"cairn_stats":2}\n', "another version"),
                            ('{"cairn_stats":1,"target":{},"started":0}\n[]\n', "damaged")):
            record.write_text(text)
            result = cairn("stats", record, "--html", self.page)
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    unittest.main()
