"""`cairn stats`: the sums that it shows, and its output formats for other programs."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from tool_path import TOOLS

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
PROGRAM = os.environ["CAIRN_TEST_TARGET"]
SAMPLE = re.compile(r'cairn_[a-z_]+\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)*\} \d+$')


def stats(*arguments):
    return subprocess.run([str(COMMAND), "stats", *map(str, arguments)], capture_output=True,
                          text=True, env={**os.environ, "COLUMNS": "80", "LC_ALL": "C.UTF-8"},
                          check=False, timeout=200)


class StatsTest(unittest.TestCase):
    def setUp(self):
        self.process = subprocess.Popen([PROGRAM], stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "LD_PRELOAD": LIBRARY})
        os.waitpid(self.process.pid, os.WUNTRACED)
        text = os.read(self.process.stdout.fileno(), 1 << 16).decode()
        self.live = [int(size) for state, size, _ in (line.split() for line in text.splitlines())
                     if state == "live"]

    def tearDown(self):
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()

    def test_json_has_the_sums(self):
        value = json.loads(stats(self.process.pid, "--json").stdout)
        self.assertGreaterEqual(value["allocated"], sum(self.live))
        self.assertLess(value["allocated"], sum(self.live) + (1 << 20))
        self.assertGreaterEqual(value["allocated_blocks"], len(self.live))
        self.assertLessEqual(value["allocated"], value["active"])
        self.assertLessEqual(value["resident"], value["mapped"] + value["metadata"] + (4 << 20))
        self.assertGreater(value["map_calls"], 0)

    def test_the_table(self):
        result = stats(self.process.pid)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for word in ("allocated", "active", "dirty", "resident", "retained", "mapped", "metadata"):
            self.assertRegex(result.stdout, rf"(?m)^{word} +\d")
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80)

    def test_prometheus(self):
        lines = stats(self.process.pid, "--prometheus").stdout.splitlines()
        names = set()
        for line in lines:
            if line.startswith("# TYPE "):
                names.add(line.split()[2])
                self.assertIn(line.split()[3], ("gauge", "counter"))
            elif not line.startswith("# HELP "):
                self.assertRegex(line, SAMPLE)
                self.assertIn(line.partition("{")[0], names)
        self.assertIn("cairn_allocated_bytes", names)
        self.assertEqual(len(set(lines)), len(lines))

    def test_watching_ends_with_the_process(self):
        with subprocess.Popen([str(COMMAND), "stats", str(self.process.pid), "--watch", "0.1"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as watching:
            seen = [watching.stdout.readline() for _ in range(25)]
            time.sleep(0.1)
            self.process.kill()
            self.process.wait()
            rest, errors = watching.stdout.read(), watching.stderr.read()
            watching.wait(60)
        self.assertEqual((watching.returncode, errors), (0, ""))
        self.assertGreaterEqual("".join([*seen, rest]).count("retained"), 2)

    def test_what_it_refuses(self):
        for arguments in ((self.process.pid, "--watch", "0"), (4194304,),
                          *((self.process.pid, "--watch", each) for each in ("nan", "inf", "1e10")),
                          (self.process.pid, "--json", "--prometheus")):
            result = stats(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_a_full_disk_is_named(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([str(COMMAND), "stats", str(self.process.pid)], stdout=full,
                                  stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (
            2, "cairn: cannot write the output: No space left on device\n"))
        done = stats(self.process.pid, "--watch", "0.1", "--record", "/dev/full")
        self.assertEqual((done.returncode, done.stderr), (
            2, "cairn: --record /dev/full: No space left on device\n"))

    def test_a_record_has_no_form_of_one_look(self):
        with tempfile.TemporaryDirectory() as folder:
            record, page = pathlib.Path(folder) / "record", pathlib.Path(folder) / "page"
            record.write_text('{"cairn_stats":1,"target":{},"started":0}\n')
            for form in (("--json",), ("--prometheus",)):
                result = stats(record, "--html", page, *form)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(f"{form[0]}", result.stderr)
                self.assertIn("cannot be combined", result.stderr)
                self.assertFalse(page.exists())


if __name__ == "__main__":
    unittest.main()
