"""cairn persist: its report on sound and damaged heaps, which it does not change."""

import contextlib
import gzip
import io
import json
import os
import pathlib
import random
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import tool_path
from cairn import cli, persist_command
from cairn.errors import UserError

TOOL = str(tool_path.TOOLS / "bin" / "cairn")
PROGRAM = os.path.join(os.environ["CAIRN_BUILD"], "cairn-persist")
TEST = pathlib.Path(__file__).resolve().parent
MAKER = os.environ["CAIRN_TEST_MAKER"]
LOOKING = ("info", "check", "dump")
DATA_OFFSET = 65536  # of persist_format.h
LOG_START = 4096
FLIPS = 60
KILLS = 8


def start(*arguments):
    """Runs the command in this process, which saves the time to start it."""
    with contextlib.redirect_stdout(io.StringIO()) as out, \
            contextlib.redirect_stderr(io.StringIO()) as err, \
            mock.patch.object(sys, "argv", ["cairn", "persist", *map(str, arguments)]):
        status = cli._run()  # pylint: disable=protected-access
    return subprocess.CompletedProcess(arguments, status or 0, out.getvalue(), err.getvalue())


def start_alone(*arguments, **options):
    return subprocess.run([TOOL, "persist", *arguments], capture_output=True, text=True,
                          timeout=200, check=False, **options)


def maker(command, path):
    return subprocess.run([MAKER, command, str(path)], capture_output=True, text=True, timeout=200,
                          check=True).stdout


class PersistCommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.heap = self.folder / "the.heap"
        maker("make", self.heap)

    def states(self):
        """Contents and times of all files."""
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
                for path in self.folder.iterdir()}

    def refused(self, command, path, text, kind=UserError):
        with self.assertRaisesRegex(kind, text) as caught:
            list(persist_command.look(command, path, *("16",) * (command == "dump")))
        sentence = str(caught.exception)
        self.assertNotIn("\n", sentence)
        return sentence

    def test_a_sound_heap(self):
        values = json.loads(start("info", self.heap, "--json").stdout)
        self.assertEqual((values["version"], values["roots"], values["last_commit"],
                          values["used_blocks"], values["closed"], values["log_commits"]),
                         (2, 3, 2, 5, True, 0))
        self.assertEqual(values["file_bytes"], self.heap.stat().st_size)
        result = start("info", self.heap)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("not needed: the heap was closed", result.stdout)
        self.assertIn(f"{values['address']:#x}", result.stdout)
        result = start("check", self.heap)
        self.assertEqual(result.returncode, 0)
        self.assertIn("sound: 5 blocks in use, 3 roots, commit 2", result.stdout)

    # docs/dev/COMPATIBILITY.md promises that every version 1.x reads this file of 1.0.0.
    def test_a_heap_of_version_1_0(self):
        self.heap.write_bytes(gzip.decompress((TEST / "heap-2.gz").read_bytes()))
        self.assertIn("version 2", start("info", self.heap).stdout)
        self.assertEqual(start("check", self.heap).returncode, 0)
        self.assertEqual(maker("read", self.heap), "1 behind the hole\n")
        maker("grow", self.heap)
        self.assertEqual(start("check", self.heap).returncode, 0)

    def test_dump(self):
        dump = json.loads(start("dump", self.heap, "--json", "--contents", "64").stdout)
        roots = {root["name"]: root["offset"] for root in dump["roots"]}
        self.assertEqual(set(roots), {"number", "täxt\t\\xff", "nothing"})
        self.assertIsNone(roots["nothing"])
        blocks = {block["offset"]: block for block in dump["blocks"]}
        self.assertEqual(bytes.fromhex(blocks[roots["number"]]["contents"])[:4], b"\1\0\0\0")
        self.assertIn(b"behind the hole\0", bytes.fromhex(blocks[roots["täxt\t\\xff"]]["contents"]))
        self.assertEqual(sum(block["used"] for block in blocks.values()), 5)
        self.assertGreater(max(block["bytes"] for block in blocks.values()), 4 << 20)
        text = start("dump", self.heap).stdout
        self.assertIn("root 'nothing': nothing", text)
        self.assertIn("used 'number'", text)
        self.assertIn("behind the hole", text)

    def test_a_reader_that_leaves(self):
        result = subprocess.run(["sh", "-c", f"{TOOL} persist dump {self.heap} | true"],
                                capture_output=True, text=True, timeout=200, check=False)
        self.assertNotIn("Traceback", result.stderr)

    def test_looking_at_a_crashed_heap_changes_nothing(self):
        maker("crash", self.heap)
        before = self.states()
        self.assertIn("the.heap.log0", before)
        for command in LOOKING:
            list(persist_command.look(command, self.heap, *("16",) * (command == "dump")))
        self.assertEqual(self.states(), before)
        info = start("info", self.heap).stdout
        self.assertIn("commit 3, which the next open brings to the file", info)
        values = json.loads(start("info", self.heap, "--json").stdout)
        self.assertEqual((values["checkpoint"], values["last_commit"], values["log_commits"],
                          values["closed"]), (2, 3, 1, False))

    def test_compact_gives_back_free_pages_and_log(self):
        address = persist_command.numbers("info", self.heap)["address"]
        maker("crash", self.heap)
        os.chmod(self.heap, 0o640)
        link = self.folder / "link"
        link.symlink_to(self.heap)
        if persist_command.numbers("info", self.heap)["disk_bytes"] < 4 << 20:
            self.skipTest("a file system that compresses, or counts otherwise")
        result = start("compact", link)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("on disk before", result.stdout)
        self.assertEqual(sorted(os.listdir(self.folder)), ["link", "the.heap"])
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.heap.stat().st_mode & 0o777, 0o640)
        values = persist_command.numbers("info", self.heap)
        self.assertLess(values["disk_bytes"], 1 << 20)
        self.assertLess(values["free_bytes"], (4 << 20) + (65536 + 4096))  # at the end: cut
        self.assertEqual(values["file_bytes"], values["size_bytes"] + DATA_OFFSET)
        self.assertEqual((values["address"], values["last_commit"], values["closed"]),
                         (address, 3, 1))
        self.assertEqual(start("check", self.heap).returncode, 0)
        self.assertEqual(maker("read", self.heap), "2 behind the hole\n")

    def test_compact_shortens_a_heap_with_little_in_it(self):
        small = self.folder / "small"
        maker("small", small)
        before = small.stat().st_size
        self.assertGreater(before, 8 << 20)
        self.assertEqual(start("compact", small).returncode, 0)
        self.assertLessEqual(small.stat().st_size, 4 * 65536)
        self.assertEqual(start("check", small).returncode, 0)
        maker("grow", small)
        self.assertEqual(start("check", small).returncode, 0)
        self.assertEqual(maker("read", small), "2 small\n")

    def test_nothing_to_gain(self):
        start("compact", self.heap)
        before = self.states()
        result = start("compact", self.heap)
        self.assertEqual(result.returncode, 0)
        self.assertIn("cannot become smaller", result.stdout)
        self.assertEqual(self.states(), before)

    def test_a_heap_in_use(self):
        with subprocess.Popen([MAKER, "hold", str(self.heap)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as user:
            self.assertEqual(user.stdout.readline(), "ready\n")
            before = self.states()
            for command in (*LOOKING, "compact"):
                self.refused(command, self.heap, "another process has the heap open$")
            self.assertEqual(self.states(), before)
            user.communicate("")
        result = start("compact", self.heap)
        self.assertEqual(result.returncode, 0)

    def test_what_is_no_heap(self):
        (self.folder / "empty").touch()
        (self.folder / "text").write_text("x" * 100000)
        os.mkfifo(self.folder / "pipe")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.folder / "socket"))
        (self.folder / "loop").symlink_to("loop")
        for name, text in (("missing", "no such file"), (".", "is a folder"),
                           ("/dev/null", "not a regular file"), ("pipe", "not a regular file"),
                           ("empty", "too short for a heap"), ("text", "the file is not a heap"),
                           ("socket", "cannot open the file"), ("loop", "symbolic links"),
                           ("the.heap/below", "Not a directory"),
                           ("n" * 300, "File name too long")):
            for command in (*LOOKING, "compact"):
                sentence = self.refused(command, self.folder / name, text)
                self.assertTrue(sentence.startswith(str(self.folder / name)))
        result = start("check", self.folder / "text")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, f"cairn: {self.folder}/text: the file is not a heap\n")
        for name in ("", "no\nline", b"\xff[bold]"):
            result = start_alone("info", "--", name, cwd=self.folder)
            self.assertEqual(result.returncode, 2)
            self.assertNotIn("Traceback", result.stderr)
            self.assertNotIn("fault of this tool", result.stderr)

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_no_permission(self):
        self.heap.chmod(0)
        for command in (*LOOKING, "compact"):
            self.refused(command, self.heap, "Permission denied")

    def test_another_version(self):
        maker("age", self.heap)
        before = self.states()
        for command in (*LOOKING, "compact"):
            self.refused(command, self.heap,
                         "the heap's format is version 3, and this library knows 2 only")
        self.assertEqual(self.states(), before)

    def test_a_heap_without_any_commit_is_not_damaged(self):
        new = self.folder / "new"
        maker("new", new)
        for command in LOOKING:
            self.refused(command, new, "nothing was ever committed to the heap")
        self.assertEqual(start("check", new).returncode, 2)
        self.assertEqual(start("compact", new).returncode, 0)
        maker("new", new)

    def test_cut_short(self):
        data = self.heap.read_bytes()
        for length in (1, 511, DATA_OFFSET - 1, DATA_OFFSET, DATA_OFFSET + 4096, len(data) - 1):
            self.heap.write_bytes(data[:length])
            before = self.states()
            for command in (*LOOKING, "compact"):
                self.refused(command, self.heap, "too short for a heap|shorter than it was")
            self.assertEqual(self.states(), before)

    def test_damage_is_a_finding(self):
        with self.heap.open("r+b") as file:
            file.seek(DATA_OFFSET + 0x2220 - 8)  # the word of the first block
            file.write(b"\xff" * 8)
        before = self.states()
        result = start("check", self.heap)
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertRegex(result.stdout, "^.*the.heap: [^\n]*block[^\n]*\n$")
        value = json.loads(start("check", self.heap, "--json").stdout)
        self.assertEqual((value["sound"], len(value["findings"])), (False, 1))
        for command in ("dump", "compact"):
            self.refused(command, self.heap, "block", persist_command.Damage)
        self.assertEqual(start("dump", self.heap).returncode, 1)
        self.assertEqual(self.states(), before)

    def test_any_flipped_bit_is_survived(self):
        maker("crash", self.heap)
        log = self.folder / "the.heap.log0"
        generator = random.Random(15)
        seen = set()
        for number in range(FLIPS):
            path = (self.heap, log)[number % 2]
            limit = (4096, DATA_OFFSET + 12288)[number % 4 // 2]
            place = generator.randrange(limit)
            if path == self.heap and place > 12288 and number % 8 == 0:
                place = DATA_OFFSET + place % 12288
            with path.open("r+b") as file:
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 1 << number % 8]))
            for command in ("check", "info"):
                try:
                    list(persist_command.look(command, self.heap))
                    seen.add("sound")
                except UserError as error:
                    self.assertNotIn("ended by", str(error), f"byte {place} of {path.name}")
                    seen.add(str(error))
            with path.open("r+b") as file:
                file.seek(place)
                file.write(bytes([byte]))
        self.assertGreater(len(seen), 2)
        self.assertEqual(start("check", self.heap).returncode, 0)

    def test_a_missing_log_is_damage(self):
        maker("crash", self.heap)
        (self.folder / "the.heap.log1").unlink()
        self.refused("check", self.heap, "log1 is missing, and commit 3 was acknowledged",
                     persist_command.Damage)

    def test_a_log_without_an_acknowledged_commit_is_damage(self):
        maker("crash", self.heap)
        log = self.folder / "the.heap.log0"
        whole = log.read_bytes()
        for length, sentence in (
                (0, "log0 is empty, and commit 3 was acknowledged"),
                (511, "log0 is cut or damaged at its start, and commit 3 was acknowledged"),
                (LOG_START, "the log ends with commit 2, and commit 3 was acknowledged: it was "
                            "cut, or is older than the heap's file")):
            log.write_bytes(whole[:length])
            before = self.states()
            for command in (*LOOKING, "compact"):
                self.refused(command, self.heap, re.escape(sentence), persist_command.Damage)
            self.assertEqual(start("check", self.heap).stdout, f"{self.heap}: {sentence}\n")
            self.assertEqual(self.states(), before)
        log.write_bytes(whole)
        self.assertEqual(start("check", self.heap).returncode, 0)

    def test_check_tells_a_torn_commit_from_an_acknowledged_one(self):
        maker("late", self.heap)  # commit 3 is acknowledged, 4 and 5 are not
        log = self.folder / "the.heap.log0"
        whole = log.read_bytes()
        end = (len(whole.rstrip(b"\0")) + 511) // 512 * 512
        found = []
        for length in range(end, LOG_START - 1, -512):
            log.write_bytes(whole[:length])
            found.append(start("check", self.heap).stdout.strip().rpartition(": ")[2])
        self.assertEqual(list(dict.fromkeys(found)), [
            *(f"5 blocks in use, 3 roots, commit {number}" for number in (5, 4, 3)),
            "it was cut, or is older than the heap's file"])

    def test_no_room_for_the_copy_leaves_the_heap(self):
        before = self.states()
        limit = 1 << 20
        result = start_alone("compact", self.heap, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, "cairn: .*cannot write the copy: File too large\n$")
        self.assertEqual(self.states(), before)

    def test_a_kill_during_compact_leaves_a_whole_heap(self):
        maker("crash", self.heap)
        first = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        generator = random.Random(7)
        for _ in range(KILLS):
            for name, data in first.items():
                (self.folder / name).write_bytes(data)
            with subprocess.Popen([PROGRAM, "compact", str(self.heap)],
                                  stdout=subprocess.DEVNULL) as process:
                time.sleep(generator.uniform(0, 0.03))
                process.kill()
            for rest in self.folder.glob("*.compact*"):
                self.assertRegex(rest.name, rf"^the\.heap\.{process.pid}\.compact(\.log[01])?$")
                rest.unlink()
            self.assertEqual(persist_command.numbers("check", self.heap)["last_commit"], 3)
            self.assertEqual(maker("read", self.heap), "2 behind the hole\n")

    def test_an_end_by_signal_leaves_no_copy(self):
        data = self.heap.read_bytes()
        for delay in range(5):
            self.heap.write_bytes(data)
            with subprocess.Popen([PROGRAM, "compact", str(self.heap)],
                                  stdout=subprocess.DEVNULL) as process:
                time.sleep(delay / 200)
                process.terminate()
            self.assertEqual(os.listdir(self.folder), ["the.heap"])
            self.assertEqual(maker("read", self.heap), "1 behind the hole\n")

    def test_further_names_are_kept(self):
        os.link(self.heap, self.folder / "second")
        self.refused("compact", self.heap, "other names")

    def test_program_that_is_not_there(self):
        result = start_alone("info", self.heap, env={**os.environ, "CAIRN_BUILD": "/nowhere"})
        self.assertEqual(result.returncode, 2)
        self.assertIn("cairn-persist not found; looked in /nowhere", result.stderr)


if __name__ == "__main__":
    unittest.main()
