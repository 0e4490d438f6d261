"""`cairn profile start`, `stop` and `dump` on a running process, by its socket and its number."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from tool_path import TOOLS

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "LC_ALL": "C.UTF-8"}
WORK = """
import sys
print("ready", flush=True)
kept = []
for line in sys.stdin:
    kept.append([bytearray(3000) for _ in range(2000)])
    print("done", flush=True)
"""


def cairn(*arguments):
    return subprocess.run([str(TOOLS / "bin" / "cairn"), *map(str, arguments)],
                          capture_output=True, text=True, env=ENVIRONMENT, check=False,
                          timeout=120)


class ProfileControlTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.socket = pathlib.Path(self.folder.name) / "control"
        self.start()
        self.addCleanup(self.end)

    def start(self, options=""):
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**ENVIRONMENT, "LD_PRELOAD": LIBRARY, "PYTHONMALLOC": "malloc",
                            "CAIRN_OPTIONS": f"{options}background:on,control:{self.socket}"})
        self.assertEqual(self.process.stdout.readline(), "ready\n")
        until = time.monotonic() + 60
        while not self.socket.is_socket() and time.monotonic() < until:
            time.sleep(0.02)

    def end(self):
        self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def work(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.assertEqual(self.process.stdout.readline(), "done\n")

    def dump(self, target):
        file = pathlib.Path(self.folder.name) / "dump"
        done = cairn("profile", "dump", target, file)
        self.assertEqual(done.returncode, 0, done.stderr)
        samples = [line for line in file.read_text(encoding="utf-8").splitlines()
                   if line.startswith("block ")]
        return len(samples)

    def test_by_socket(self):
        started = cairn("profile", "start", self.socket, "--interval", "16K")
        self.assertEqual(started.returncode, 0, started.stderr)
        self.work()
        first = self.dump(self.socket)
        self.assertGreater(first, 100)  # 366 are expected of the first 6 MB
        self.assertEqual(cairn("profile", "stop", self.socket).returncode, 0)
        self.work()
        self.assertLessEqual(self.dump(self.socket), first + 1)

    def test_other_commands_find_the_process_by_its_socket(self):
        self.assertEqual(cairn("profile", "start", self.socket).returncode, 0)
        self.work()
        shown = f"process {self.process.pid} "
        for command in (["stats"], ["inspect"], ["leaks"], ["profile", "show"]):
            with self.subTest(command):
                done = cairn(*command, self.socket)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(shown, done.stdout)

    def test_by_number(self):
        early = cairn("profile", "dump", self.process.pid,
                      pathlib.Path(self.folder.name) / "early")
        self.assertEqual(early.returncode, 2, "it has not begun")
        self.assertIn("never started", early.stderr)
        started = cairn("profile", "start", self.process.pid)
        self.assertEqual(started.returncode, 0, started.stderr)
        self.work()
        self.assertGreater(self.dump(self.process.pid), 0)

    def test_a_dump_that_cannot_be_written_is_no_success(self):
        place = pathlib.Path(self.folder.name) / "dumps"
        place.mkdir()
        self.end()
        self.start(f"profile:16K,profile_file:{place}/dump,")
        self.assertEqual(cairn("profile", "dump", self.socket).returncode, 0)
        dump, = place.iterdir()
        dump.unlink()
        place.rmdir()
        done = cairn("profile", "dump", self.socket)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("cannot write the dump to its option profile_file", done.stderr)

    def test_what_is_refused(self):
        done = cairn("profile", "dump", self.socket)
        self.assertEqual((done.returncode, done.stderr), (
            2, f"cairn: {self.socket} runs without the option profile_file, which names its dumps: "
               f"write cairn profile dump {self.socket} FILE\n"))
        done = cairn("profile", "dump", self.socket, self.folder.name + "/dump")
        self.assertIn(f"never started: run cairn profile start {self.socket}", done.stderr)
        done = cairn("profile", "dump", self.socket, "/no/such/folder/dump")
        self.assertIn("there is no folder", done.stderr)
        done = cairn("profile", "stop", self.folder.name)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("neither a process number", done.stderr)
        done = cairn("profile", "start", self.socket, "--interval", "much")
        self.assertEqual((done.returncode, done.stderr), (
            2, "cairn: --interval much: write a number of bytes above 0, such as 64K\n"))


if __name__ == "__main__":
    unittest.main()
