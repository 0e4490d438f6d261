"""`cairn profile`: a program with known sites, and the output formats for other programs."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import browser
from tool_path import TOOLS

# pylint: disable=wrong-import-position
from cairn.errors import UserError
from cairn.profile_elf import Elf
from cairn.profile_file import read

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
PROGRAM = os.environ["CAIRN_TEST_TARGET"]
PLUGIN = os.environ["CAIRN_TEST_PLUGIN"]
MIB = 1 << 20
KEPT = {"keep_small": 30 * MIB * 1024 / 1000, "keep_large": 20 * MIB}  # as rounded to classes
INTERVAL = 8 << 10  # 3900 samples make keep_small: sigma is 1.6 %, of a difference 3 %
NEAR = 0.15


def cairn(*arguments, **environment):
    return subprocess.run([str(COMMAND), "profile", *map(str, arguments)], capture_output=True,
                          text=True, check=False, timeout=100,
                          env={**os.environ, "COLUMNS": "100", "LC_ALL": "C.UTF-8", **environment})


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """The (field, number or bytes) of a protobuf message; raises for anything else."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            if len(value) != size:
                raise ValueError("cut")
        else:
            raise ValueError(f"kind {key & 7}")
        yield key >> 3, value


def packed(data):
    at, values = 0, []
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


# profile.proto of github.com/google/pprof: the fields of the messages that are numbers or packed
# numbers, text, and messages.
SCHEMA = {
    "Profile": {1: "ValueType", 2: "Sample", 3: "Mapping", 4: "Location", 5: "Function",
                6: "text", 9: "number", 10: "number", 11: "ValueType", 12: "number",
                13: "packed", 14: "number"},
    "ValueType": {1: "number", 2: "number"},
    "Sample": {1: "packed", 2: "packed"},
    "Mapping": {number: "number" for number in range(1, 11)},
    "Location": {1: "number", 2: "number", 3: "number", 4: "Line", 5: "number"},
    "Line": {1: "number", 2: "number"},
    "Function": {number: "number" for number in range(1, 6)},
}


def decode(data, kind="Profile"):
    """The message as {field: [values]} by the schema; an unknown field is an error."""
    found = {}
    for field, value in fields(data):
        expected = SCHEMA[kind][field]
        if expected in SCHEMA:
            value = decode(value, expected)
        elif expected == "packed":
            value = packed(value)
        elif expected == "text":
            value = value.decode()
        elif not isinstance(value, int):
            raise ValueError(f"{kind}.{field}")
        found.setdefault(field, []).append(value)
    return found


# Runs in the page: actions of a reader with mouse and keys, and the resulting content.
USE_OF_THE_PAGE = """
const frames = () => [...document.querySelectorAll('#flame div')];
const named = name => frames().find(box => box.getAttribute('aria-label').startsWith(name));
const rows = () => cells('functions', 0);
seen.all = frames().length;
seen.rows = rows();
named('keep_large').dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
seen.hover = document.getElementById('said').textContent;
named('keep_large').click();
seen.zoomed = frames().length;
seen.width = named('keep_large').style.width;
key(document.activeElement, 'Escape');
seen.back = frames().length;
frames()[0].focus();
key(document.activeElement, 'ArrowDown');
seen.down = document.activeElement.getAttribute('aria-level');
key(document.activeElement, 'ArrowUp');
seen.up = document.activeElement.getAttribute('aria-level');
key(document.body, '/');
seen.search = document.activeElement.id;
type('keep_small');
seen.found = document.querySelectorAll('#flame div.found').length;
seen.foundRows = rows();
key(document.body, 'Escape');
press('allocated');
seen.allocated = rows();
document.querySelectorAll('th button')[0].click();
seen.sorted = rows();
"""


class ProfileTest(browser.PageCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        place = pathlib.Path(cls.folder.name)
        cls.small, cls.large = place / "small", place / "large"
        for prefix, arguments in ((cls.small, ()), (cls.large, ("twice",))):
            subprocess.run([PROGRAM, *arguments], check=True, env={
                **os.environ, "LD_PRELOAD": LIBRARY,
                "CAIRN_OPTIONS": f"profile:{INTERVAL},profile_file:{prefix}"})
        cls.before, = place.glob("small.*.0")
        cls.after, = place.glob("large.*.0")
        cls.forms = {form: place / f"out.{form}"
                     for form in ("pprof", "speedscope", "folded", "html")}
        done = cairn(cls.before, *(word for form, path in cls.forms.items()
                                   for word in (f"--{form}", path)))
        if (done.returncode, done.stdout, done.stderr) != (0, "", ""):
            raise AssertionError(done)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def assert_near(self, value, expected):
        self.assertLess(abs(value - expected), NEAR * expected, f"{value} is not near {expected}")

    def test_json_has_the_sites(self):
        result = cairn(self.before, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        value = json.loads(result.stdout)
        self.assertTrue(value["whole"])
        self.assertEqual(value["interval_bytes"], INTERVAL)
        sums = {}
        for site in value["sites"]:
            name = site["stack"][0]["function"]
            sums.setdefault(name, [0, 0])
            sums[name][0] += site["live"]["bytes"]
            sums[name][1] += site["allocated"]["bytes"]
        for name, kept in KEPT.items():
            self.assert_near(sums[name][0], kept)
            self.assertEqual(sums[name][0], sums[name][1])
        self.assertEqual(sums["waste"][0], 0)
        self.assert_near(sums["waste"][1], 40 * MIB)
        large = [block for block in value["blocks"] if block["stack"][0].startswith("keep_large")]
        self.assertEqual(len(large), 20, "blocks of 1 MiB are all samples")
        self.assertEqual({block["asked_bytes"] for block in large}, {MIB})
        callers = {frame["function"] for site in value["sites"] for frame in site["stack"]}
        self.assertIn("main", callers)

    def test_the_table(self):
        result = cairn(self.before)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"(?m)^ *[23]\d\.\d MiB +±\d % +\d\d % +\d+ +keep_small")
        self.assertRegex(result.stdout, r"(?m)^ *20\.0 MiB +±0 % +\d\d % +20 +keep_large")
        self.assertNotIn("waste", result.stdout)
        self.assertIn("waste", cairn(self.before, "--allocated").stdout)
        self.assertIn("and ", cairn(self.before, "--top", 1).stdout)

    def test_pprof_reads_back_by_the_schema(self):
        value = decode(gzip.decompress(self.forms["pprof"].read_bytes()))
        text = value[6]
        self.assertEqual(text[0], "")
        types = [(text[row[1][0]], text[row[2][0]]) for row in value[1]]
        self.assertEqual(types, [("alloc_objects", "count"), ("alloc_space", "bytes"),
                                 ("inuse_objects", "count"), ("inuse_space", "bytes")])
        self.assertEqual(text[value[14][0]], "inuse_space")
        self.assertEqual(value[12], [INTERVAL])
        maps = {row[1][0]: row for row in value[3]}
        self.assertEqual(text[value[3][0][5][0]], PROGRAM, "the program comes first")
        self.assertEqual(text[value[3][0][6][0]], Elf(PROGRAM).build_id)
        functions = {row[1][0]: text[row[2][0]] for row in value[5]}
        places = {row[1][0]: row for row in value[4]}
        sums = {}
        for row in value[2]:
            ids, numbers = row[1][0], row[2][0]
            self.assertEqual(len(numbers), 4)
            for number in ids:
                place = places[number]
                mapping = maps[place[2][0]]
                self.assertTrue(mapping[2][0] <= place[3][0] < mapping[3][0])
            leaf = functions[places[ids[0]][4][0][1][0]]
            sums[leaf] = sums.get(leaf, 0) + numbers[3]
        for name, kept in KEPT.items():
            self.assert_near(sums[name], kept)

    @unittest.skipUnless(shutil.which("pprof"), "Go's pprof is not installed")
    def test_pprof_itself_shows_the_sites(self):
        done = subprocess.run(["pprof", "-top", "-sample_index=inuse_space",
                               str(self.forms["pprof"])],
                              capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, r"keep_small")

    def test_speedscope(self):
        value = json.loads(self.forms["speedscope"].read_text())
        names = [frame["name"] for frame in value["shared"]["frames"]]
        for profile in value["profiles"]:
            self.assertEqual(profile["type"], "sampled")
            self.assertEqual(len(profile["samples"]), len(profile["weights"]))
            self.assertEqual(profile["endValue"], sum(profile["weights"]))
            for stack in profile["samples"]:
                self.assertTrue(all(number < len(names) for number in stack))
        self.assertTrue(names[value["profiles"][0]["samples"][0][-1]].startswith("keep_small"))

    def test_folded(self):
        lines = self.forms["folded"].read_text().splitlines()
        for line in lines:
            self.assertRegex(line, r"^[^;]+(;[^;]+)* \d+$")
        self.assertRegex(lines[0], r";keep_small[^;]* \d+$")

    def test_html_is_one_file(self):
        text = self.forms["html"].read_text()
        data = json.loads(re.search(r'id="data">(.*?)</script>', text).group(1))

        def check(node):
            self.assertLessEqual(sum(child[1] for child in node[5]), node[1])
            for child in node[5]:
                check(child)
        check(data["root"])
        self.assert_near(data["root"][1], sum(KEPT.values()))
        self.assertTrue(any(name.startswith("keep_small") for name in data["names"]))

    def use_page(self, *arguments):
        return browser.use(self.folder.name, self.forms["html"].read_text(), USE_OF_THE_PAGE,
                           *arguments)

    @unittest.skipUnless(browser.BROWSER, "chromium is not installed")
    def test_html_in_a_browser(self):
        seen = self.use_page()
        self.assertTrue(any(row.startswith("keep_small") for row in seen["rows"]))
        self.assertFalse(any(row.startswith("waste") for row in seen["rows"]))
        self.assertRegex(seen["hover"], r"^keep_large.*: 20\.0 MiB, \d\d\.\d %.*keep_large")
        self.assertLess(seen["zoomed"], seen["all"])
        self.assertIn("100%", seen["width"])
        self.assertEqual(seen["back"], seen["all"])
        self.assertEqual((seen["down"], seen["up"]), ("2", "1"))
        self.assertEqual(seen["search"], "search")
        self.assertGreaterEqual(seen["found"], 1)
        self.assertTrue(all(row.startswith("keep_small") for row in seen["foundRows"]))
        self.assertTrue(any(row.startswith("waste") for row in seen["allocated"]))
        self.assertEqual(seen["sorted"], sorted(seen["sorted"], key=str.lower))
        self.check_page(self.forms["html"].read_text(), seen)
        dark = self.use_page(browser.DARK)
        self.assertNotEqual((seen["dark"], seen["back_color"]), (dark["dark"], dark["back_color"]))

    def test_diff(self):
        rows = json.loads(cairn("diff", self.before, self.after, "--json").stdout)
        self.assertEqual(rows[0]["stack"][0], "keep_small")
        self.assert_near(rows[0]["change_bytes"], KEPT["keep_small"])
        text = cairn("diff", self.before, self.after).stdout
        self.assertRegex(text, r"(?m)^ *\+[23]\d\.\d ± [01]\.\d MiB .*keep_small")
        self.assertEqual(json.loads(cairn("diff", self.before, self.before, "--json").stdout), [])

    def test_run(self):
        result = cairn("run", "--lib", LIBRARY, "--interval", INTERVAL, "--", PROGRAM, "once", "7")
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^ *[56]\d\.\d MiB .*keep_small")

    def test_run_merges_the_workers(self):
        result = cairn("run", "--lib", LIBRARY, "--interval", INTERVAL, "--output",
                       self.path("forked"), "--json", "--", PROGRAM, "fork")
        self.assertEqual(result.returncode, 0, result.stderr)
        value = json.loads(result.stdout)
        self.assertEqual(value["processes"], 3)
        live, allocated = {}, {}
        for site in value["sites"]:
            name = site["stack"][0]["function"]
            live[name] = live.get(name, 0) + site["live"]["bytes"]
            allocated[name] = allocated.get(name, 0) + site["allocated"]["bytes"]
        self.assert_near(live["keep_large"], 40 * MIB)
        self.assert_near(live["keep_small"], 2 * KEPT["keep_small"])
        self.assert_near(allocated["waste"], 40 * MIB)
        self.assert_near(allocated["keep_large"], 40 * MIB)
        dumps = sorted(self.path(".").glob("forked.*"))
        self.assertEqual(len(dumps), 3)
        self.assertIn("3 processes of ", cairn(*dumps).stdout)

    def test_run_keeps_dumps_of_growth(self):
        prefix = self.path("kept")
        result = cairn("run", "--lib", LIBRARY, "--growth", "10M", "--output", prefix, "--json",
                       "--", PROGRAM)
        self.assertEqual(result.returncode, 0, result.stderr)
        dumps = list(self.path(".").glob("kept.*"))
        self.assertGreater(len(dumps), 3)
        reasons = [read(path).reason for path in dumps]
        self.assertEqual(reasons.count("end"), 1)
        self.assertEqual(reasons.count("growth"), len(dumps) - 1)

    def test_another_build_is_not_believed(self):
        folder = self.path("other")
        folder.mkdir()
        shutil.copy("/bin/true", folder / pathlib.Path(PROGRAM).name)
        text = self.before.read_text().replace(str(PROGRAM), "/gone/" + pathlib.Path(PROGRAM).name)
        moved = self.path("moved")
        moved.write_text(text)
        result = cairn(moved, "--symbols", folder)
        self.assertIn("is another build", result.stdout)
        name = pathlib.Path(PROGRAM).name
        self.assertRegex(result.stdout, re.escape(name) + r"\+0x[0-9a-f]+")
        found = cairn(moved, "--symbols", pathlib.Path(PROGRAM).parent)
        self.assertIn("keep_small", found.stdout)

    def test_a_library_that_was_unloaded_has_its_names(self):
        folder = self.path("plugins")
        folder.mkdir()
        plugin = folder / "plugin.so"
        shutil.copy(PLUGIN, plugin)
        result = cairn("run", "--lib", LIBRARY, "--interval", INTERVAL, "--output",
                       folder / "dump", "--", PROGRAM, "plugin", plugin)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^ *20\.0 MiB +±0 % +\d\d % +20 +make\b")
        dump, = folder.glob("dump.*")
        for form in ("pprof", "folded", "html", "speedscope"):
            done = cairn(dump, f"--{form}", folder / form)
            self.assertEqual((done.returncode, done.stderr), (0, ""), form)
        value = decode(gzip.decompress((folder / "pprof").read_bytes()))
        names = {value[6][row[5][0]] for row in value[3]}
        self.assertIn(str(plugin), names)
        self.assertIn("make", {value[6][row[2][0]] for row in value[5]})
        plugin.unlink()
        text = cairn(dump).stdout
        self.assertRegex(text, r"(?m)^ *20\.0 MiB .* plugin\.so\+0x[0-9a-f]+\n +"
                               r"(?:with_plugin|main)")
        self.assertIn("plugin.so: is not here", text)

    def test_a_stripped_program_gives_its_name_and_offsets(self):
        stripped = self.path("stripped_target")
        shutil.copy(PROGRAM, stripped)
        if subprocess.run(["strip", str(stripped)], check=False).returncode:
            self.skipTest("strip failed")
        result = cairn("run", "--lib", LIBRARY, "--", stripped)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"stripped_target\+0x[0-9a-f]+")

    def test_what_is_no_dump(self):
        text = self.before.read_text()
        broken = self.path("broken")
        for content, sentence in (
                ("hello\n", "not a dump of Cairn's heap profiler"),
                ("cairn-profile 99\n", "another version of Cairn"),
                (text.replace("interval ", "interval x"), "damaged")):
            broken.write_text(content)
            with self.assertRaisesRegex(UserError, sentence):
                read(broken)
        result = cairn(broken)
        self.assertEqual(result.returncode, 2)
        self.assertIn("damaged", result.stderr)

    def test_an_empty_name_is_shown(self):
        run = cairn("")
        self.assertEqual(run.stderr, "cairn: '': No such file or directory\n")
        self.assertEqual(run.returncode, 2)

    def test_a_dump_that_was_cut_is_read_as_far_as_it_goes(self):
        cut = self.path("cut")
        text = self.before.read_text()
        for length in range(200, len(text) - 5, len(text) // 50):
            cut.write_text(text[:length])
            self.assertFalse(read(cut).is_whole)
        result = cairn(cut)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the dump was cut", result.stdout)

    def test_an_empty_dump_is_one_that_was_cut(self):
        cut = self.path("began.123.1")
        for content in ("", "cairn-pro"):
            cut.write_text(content)
            self.assertEqual((read(cut).pid, read(cut).is_whole), (123, False))
        result = cairn(cut)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the dump was cut", result.stdout)
        result = cairn(self.before, cut)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("keep_small", result.stdout)

    def test_a_cut_dump_does_not_hide_a_whole_one(self):
        for process, content in (("$$", ""), ("$$", "cairn-profile 1\nprocess 1"),
                                 ("99999999", "")):
            result = cairn("run", "--lib", LIBRARY, "--interval", INTERVAL, "--", "/bin/sh", "-c",
                           f'printf %s "$1" > "${{CAIRN_OPTIONS##*profile_file:}}.{process}.9"; '
                           'exec "$0"', PROGRAM, content)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("keep_small", result.stdout)
            self.assertIn("1 dump was cut", result.stderr)

    def test_the_longest_cut_dump_counts_without_a_whole_one(self):
        text, pid = self.before.read_text(), read(self.before).pid
        begin, end = self.path(f"part.{pid}.1"), self.path(f"part.{pid}.2")
        begin.write_text(text[:len(text) // 2])
        end.write_text("")
        text = cairn(begin, end).stdout
        self.assertRegex(text, rf"^process {pid} \(profile_target\)")
        self.assertIn("the dump was cut", text)

    def test_a_program_that_leaves_none(self):
        result = cairn("run", "--lib", LIBRARY, "--", "/bin/sh", "-c", "kill -9 $$")
        self.assertEqual(result.returncode, 2)
        self.assertIn("wrote no profile: it was ended by SIGKILL", result.stderr)

    def test_python_is_named_as_an_interpreter(self):
        words = re.compile(r"CPython runs the program: functions of C are named here; memray")
        result = cairn("run", "--lib", LIBRARY, "--interval", "4K", "--", sys.executable, "-c",
                       "a = [bytearray(9999) for _ in range(999)]")
        self.assertEqual(len(words.findall(result.stdout)), 1, result.stdout)
        result = cairn("run", "--lib", LIBRARY, "--interval", "1K", "--", PROGRAM)
        self.assertEqual(words.findall(result.stdout), [])


if __name__ == "__main__":
    unittest.main()
