"""`cairn-fleet profile` and `cairn-fleet stats`: the rows and their labels."""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import fleet_python
from tool_path import TOOLS

MISSING = fleet_python.enter("numpy", "pyarrow")

# pylint: disable=wrong-import-position
from cairn.profile_elf import Elf

COMMAND = [sys.executable, "-B", str(TOOLS / "bin" / "cairn")]
FLEET = [sys.executable, "-B", str(TOOLS / "bin" / "cairn-fleet")]
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
PROFILED = os.environ["CAIRN_PROFILE_TARGET"]
LOOKED_AT = os.environ["CAIRN_TEST_TARGET"]
PAGE = (TOOLS / "fleet" / "README.md").read_text()
TIME = 1_700_000_000


def cairn(*arguments):
    return run(COMMAND, *arguments)


def fleet(*arguments, **environment):
    return run(FLEET, *arguments, **environment)


def run(command, *arguments, **environment):
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True,
                          check=False, timeout=100,
                          env={**os.environ, "LC_ALL": "C.UTF-8", **environment})


def documented(heading):
    """The columns of a table of tools/fleet/README.md, in their order."""
    part = PAGE[PAGE.index(heading):]
    table = re.search(r"\n\n(\| column .*?)\n\n", part, re.S).group(1)
    return re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in table.splitlines()))


@unittest.skipIf(MISSING, MISSING)
class ColumnsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.place = pathlib.Path(self.folder.name)

    def read(self, pattern):
        import pyarrow.parquet  # pylint: disable=import-outside-toplevel
        path, = self.place.glob(pattern)
        return pyarrow.parquet.read_table(str(path))

    def dump(self):
        subprocess.run([PROFILED], check=True, env={
            **os.environ, "LD_PRELOAD": LIBRARY,
            "CAIRN_OPTIONS": f"profile:64K,profile_file:{self.place / 'dump'}"})
        path, = self.place.glob("dump.*")
        os.utime(path, (TIME, TIME))
        return path

    def stopped(self, *command, **environment):
        process = subprocess.Popen(command or [LOOKED_AT], stdout=subprocess.DEVNULL, env={
            **os.environ, "LD_PRELOAD": LIBRARY, "CAIRN_RELEASE": "9", **environment})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.waitpid(process.pid, os.WUNTRACED)
        return process.pid

    def test_a_profile(self):
        path, out = self.dump(), self.place / "out.parquet"
        done = fleet("profile", path, "--output", out, "--host", "h", "--release", "7")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        table = self.read("out.parquet")
        self.assertEqual(table.schema.names, documented("## Columns"))
        value = json.loads(cairn("profile", path, "--json").stdout)
        wanted = {}
        for site in value["sites"]:
            key = ";".join(frame["function"] for frame in reversed(site["stack"]))
            sums = wanted.setdefault(key, [0, 0, 0])
            sums[0] += site["live"]["bytes"]
            sums[1] += site["allocated"]["bytes"]
            sums[2] += site["live"]["samples"]
        rows = table.to_pylist()
        self.assertEqual({row["stack"]: [row["inuse_bytes"], row["alloc_bytes"],
                                         row["inuse_samples"]] for row in rows}, wanted)
        # A block of the start of the C library may be sampled, too.
        known = {"keep_small", "keep_large", "waste"}
        self.assertLessEqual(known, {row["site"] for row in rows})
        self.assertLess(sum(row["alloc_bytes"] for row in rows if row["site"] not in known),
                        sum(row["alloc_bytes"] for row in rows) / 100)
        self.assertEqual(len({row["stack_id"] for row in rows}), len(rows))
        first = rows[0]
        self.assertEqual(first["time"], datetime.datetime.fromtimestamp(
            TIME, datetime.timezone.utc))
        self.assertEqual((first["host"], first["release"], first["program"], first["pid"]),
                         ("h", "7", pathlib.Path(PROFILED).name, int(path.name.split(".")[1])))
        self.assertEqual((first["build_id"], first["interval_bytes"]),
                         (Elf(PROFILED).build_id, 64 << 10))

    def test_a_folder_gets_files_with_names_of_their_own(self):
        path = self.dump()
        for _ in range(2):  # a dump that is read again replaces its own file
            done = fleet("profile", path, "--output", self.place, "--host", "a/b",
                         CAIRN_RELEASE="env")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        table = self.read(f"profile-a_b-{pathlib.Path(PROFILED).name}-*-{TIME}000.parquet")
        self.assertEqual(set(table["release"].to_pylist()), {"env"})

    def test_a_process(self):
        pid = self.stopped()
        done = fleet("stats", pid, "--output", self.place, "--host", "h")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        table = self.read("stats-h-*.parquet")
        self.assertEqual(table.schema.names, documented("### Looks at a process"))
        row, = table.to_pylist()
        value = json.loads(cairn("stats", pid, "--json").stdout)
        for word in ("allocated", "active", "dirty", "kept", "mapped", "retained", "resident"):
            self.assertEqual(row[f"{word}_bytes"], value[word])
        self.assertEqual(row["purged_bytes"], value["purged"])
        self.assertEqual(row["system_calls"],
                         sum(value[name] for name in value if name.endswith("_calls")))
        self.assertEqual((row["pid"], row["release"], row["build_id"]),
                         (pid, "9", Elf(LOOKED_AT).build_id))

    def test_a_profile_of_a_process(self):
        pid = self.stopped(PROFILED, "stop", CAIRN_OPTIONS="profile:64K")
        done = fleet("profile", pid, "--output", self.place, "--host", "h")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        rows = self.read(f"profile-h-{pathlib.Path(PROFILED).name}-{pid}-*.parquet").to_pylist()
        value = json.loads(cairn("profile", pid, "--json").stdout)
        self.assertEqual(sum(row["inuse_bytes"] for row in rows), value["live"]["bytes"])
        self.assertEqual((rows[0]["pid"], rows[0]["release"], rows[0]["build_id"]),
                         (pid, "9", Elf(PROFILED).build_id))

    def test_what_it_refuses(self):
        path = self.dump()
        for words, sentence in (
                (["profile", path], "missing option '--output'"),
                (["profile", path, "-o", self.place / "no" / "x"], "there is no folder")):
            done = fleet(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(sentence, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_text_that_is_no_text(self):
        from cairn_fleet import columns  # pylint: disable=import-outside-toplevel
        self.assertEqual(columns.stack_id("a;b"), columns.stack_id("a;b"))
        self.assertNotEqual(columns.stack_id("a;b"), columns.stack_id("b;a"))
        columns.stack_id("\udcff")


class MissingTest(unittest.TestCase):
    @unittest.skipIf(subprocess.run(["/usr/bin/python3", "-c", "import pyarrow"], check=False,
                                    capture_output=True).returncode == 0,
                     "the system's Python has pyarrow")
    def test_without_pyarrow_it_is_one_sentence(self):
        done = subprocess.run(["/usr/bin/python3", FLEET[-1], "stats", str(os.getpid()),
                               "--output", "/tmp/x.parquet"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("needs the Python package pyarrow", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
