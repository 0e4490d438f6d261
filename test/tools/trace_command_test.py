#!/usr/bin/env python3
"""`cairn trace`: the traces of programs that are killed, that fork or exec, and cut traces."""

import json
import os
import pathlib
import resource
import subprocess
import tempfile
import unittest
from unittest import mock

from tool_path import TOOLS

PROGRAM = os.environ["CAIRN_TEST_TARGET"]
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
READER = os.path.join(os.environ["CAIRN_BUILD"], "cairn-trace")


class TraceTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "a.trace"

    def cairn(self, *arguments):
        return subprocess.run([TOOLS / "bin" / "cairn", "trace", *map(str, arguments)], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def trace(self, *words, options=(), status=0):
        done = self.cairn("-o", self.file, "--lib", LIBRARY, *options, "--", PROGRAM, *words)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def summary(self, path=None):
        text = subprocess.run([READER, "summary", path or self.file], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        return dict(line.split("=") for line in text.splitlines())

    def events(self, path=None):
        text = subprocess.run([READER, "events", path or self.file], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        names, *lines = [line.split("\t") for line in text.splitlines()]
        return [dict(zip(names, line)) for line in lines]

    def test_every_event_is_there(self):
        done = self.trace("churn", "1000", "keep", "20", "grow")
        self.assertIn("It ended with the program.", done.stdout)
        shown = self.cairn("show", "--json", self.file)
        self.assertEqual(json.loads(shown.stdout)["events"], int(self.summary()["events"]))
        self.assertEqual(len(self.cairn("show", "--events", 5, self.file).stdout.splitlines()), 6)
        self.assertEqual(self.summary()["version"], "3")  # in columns
        events = self.events()
        churned = [event for event in events if event["size"] == "100"]
        self.assertEqual(len(churned), 1000)
        self.assertEqual(len([event for event in events if event["size"] == "30"
                              and event["operation"] == "allocate-zeroed"]), 20)
        sizes = [int(event["size"]) for event in events
                 if event["operation"] in ("resize", "resize-to")]
        self.assertEqual([size for size in sizes if size % 2000 == 0],
                         [2000 * step for step in range(1, 101)])
        self.assertEqual(len({event["stack"] for event in churned}), 1)

    def test_only_the_user_can_read_it(self):
        self.file.write_text("an older trace")
        self.file.chmod(0o644)
        self.trace("churn", "10", "fork", options=["--all"])
        modes = {path.stat().st_mode & 0o777 for path in self.file.parent.iterdir()}
        self.assertEqual(modes, {0o600})

    def test_a_process_that_outlives_the_tool_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            done = self.cairn("-o", self.file, "--lib", LIBRARY, "--", "sh", "-c",
                              '(exec > "$1"; exec "$0" churn 10) > /dev/null 2>&1 &', PROGRAM, pipe)
            self.assertEqual(done.returncode, 0, done.stderr)
            pipe.read_bytes()  # until that process has ended
        self.assertEqual([each.name for each in self.file.parent.iterdir()], ["a.trace"])

    def test_a_killed_program_loses_nothing(self):
        done = self.trace("churn", "5000", "kill", status=137)
        self.assertIn("was ended by SIGKILL", done.stdout)
        self.assertEqual(len([event for event in self.events() if event["size"] == "100"]), 5000)

    def test_a_child_has_a_trace_of_its_own(self):
        done = self.trace("churn", "10", "fork")
        self.assertIn("not kept: 1 trace of another process (--all keeps them)", done.stdout)
        self.assertEqual(len(list(self.file.parent.iterdir())), 1)
        self.trace("churn", "10", "fork", options=["--all"])
        others = [path for path in self.file.parent.iterdir() if path != self.file]
        self.assertEqual(len(others), 1)
        summary = self.summary(others[0])
        self.assertEqual(summary["parent"], self.summary()["process"])
        self.assertEqual(len([event for event in self.events(others[0])
                              if event["size"] == "100"]), 50)

    def test_a_program_that_executes_itself_has_one_a_life(self):
        self.trace("churn", "10", "exec", "churn", "30", options=["--all"])
        files = sorted(self.file.parent.iterdir())
        self.assertEqual(len(files), 2)
        counts = [len([event for event in self.events(path) if event["size"] == "100"])
                  for path in files]
        self.assertEqual(counts, [30, 10])
        self.assertEqual(self.summary()["number"], "2")

    def test_a_limit_is_kept_and_said(self):
        done = self.trace("churn", "200000", options=["--limit", "500K"])
        self.assertIn("It is cut: it had the size that it may have", done.stdout)
        summary = self.summary()
        self.assertEqual((summary["state"], summary["reason"]), ("cut", "limit"))
        self.assertGreater(int(summary["events"]), 10000)

    def test_a_program_that_closes_its_files_is_traced_on(self):
        self.trace("close", "churn", "50000")
        self.assertEqual(len([event for event in self.events() if event["size"] == "100"]), 50000)
        self.assertEqual(self.summary()["state"], "ended")

    def test_a_damaged_trace_is_kept_as_it_was_written(self):
        plain = pathlib.Path(self.folder.name) / "plain"
        subprocess.run([PROGRAM, "churn", "1000"], check=True, env={
            **os.environ, "LD_PRELOAD": LIBRARY, "CAIRN_OPTIONS": f"trace:{plain}"})
        (path,) = self.file.parent.glob("plain.*")
        path.write_bytes(path.read_bytes()[:-100000])
        done = subprocess.run([READER, "columns", path], check=False, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is damaged", done.stderr)

    def test_a_part_of_a_compressed_trace_is_no_whole_one(self):
        self.trace("churn", "20000")
        whole = self.file.read_bytes()
        for part in (len(whole) - 5, len(whole) // 2, 100):
            self.file.write_bytes(whole[:part])
            done = self.cairn("show", self.file)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, "cut|not a trace|cannot read")

    def test_symbols_are_bundled(self):
        self.trace("churn", "10", options=["--bundle"])
        names = {path.name for path in (self.file.parent / "a.trace.symbols").iterdir()}
        self.assertIn(pathlib.Path(PROGRAM).name, names)

    def test_no_room_to_compress(self):
        folder = pathlib.Path(self.folder.name)
        for name in ("zstd", "gzip"):
            (folder / name).write_text("#!/bin/sh\nhead -c 100000 /dev/zero\nexit 70\n")
            (folder / name).chmod(0o755)
        path = os.pathsep.join([self.folder.name, os.environ["PATH"]])
        with mock.patch.dict(os.environ, {"PATH": path}):
            done = self.trace("churn", "1000")
        self.assertIn("kept without compression: zstd failed", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertEqual(len([event for event in self.events() if event["size"] == "100"]), 1000)
        self.assertEqual({each.name for each in folder.iterdir()}, {"zstd", "gzip", "a.trace"})

    def test_no_room_at_all(self):
        limit = 300 << 10
        done = subprocess.run(
            [TOOLS / "bin" / "cairn", "trace", "-o", self.file, "--lib", LIBRARY, "--", PROGRAM,
             "churn", "200000"], check=False, capture_output=True, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertNotIn("internal error", done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("there was no room on the disk", done.stdout)
        self.assertEqual([each.name for each in self.file.parent.iterdir()], ["a.trace"])

    def test_not_even_room_for_the_beginning(self):
        self.file.write_text("an older trace")
        done = subprocess.run(
            [TOOLS / "bin" / "cairn", "trace", "-o", self.file, "--lib", LIBRARY, "--", PROGRAM,
             "churn", "10"], check=False, capture_output=True, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "^cairn: cannot create trace file .*: EFBIG\n"
                                      "cairn: -o .*: the trace is empty: there was no room on the "
                                      "disk\n$")
        self.assertEqual(self.file.read_text(), "an older trace")
        self.assertEqual([each.name for each in self.file.parent.iterdir()], ["a.trace"])

    def test_a_signal_that_ends_the_program_is_named(self):
        done = self.cairn("-o", self.file, "--lib", LIBRARY, "--", "sh", "-c", "kill -ABRT $$")
        self.assertEqual(done.returncode, 128 + 6)
        self.assertIn("The program was ended by SIGABRT; all that it did is there.", done.stdout)

    def test_a_device_is_not_replaced(self):
        for arguments in (("-o", "/dev/null", "--", "true"), ):
            done = self.cairn(*arguments)
            self.assertEqual((done.returncode, done.stderr),
                             (2, "cairn: -o /dev/null: not a regular file\n"))
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())

    def test_an_interrupt_ends_the_program_and_keeps_the_trace(self):
        with subprocess.Popen([TOOLS / "bin" / "cairn", "trace", "-o", self.file, "--lib", LIBRARY,
                               "--", "sh", "-c", "echo begun; exec sleep 100"],
                              stdout=subprocess.PIPE, text=True) as tool:
            self.assertEqual(tool.stdout.readline(), "begun\n")
            tool.terminate()
            tool.communicate()
        self.assertEqual(tool.returncode, 128 + 15)
        self.assertEqual([each.name for each in self.file.parent.iterdir()], ["a.trace"])

    def test_wrong_input_is_said(self):
        for arguments, words in (
                ((), "No such file"), (("--limit", "much"), "--limit much"),
                (("--lib", "/no/such.so"), "/no/such.so")):
            if arguments:
                done = self.cairn("-o", self.file, *arguments, "--", PROGRAM)
            else:
                done = self.cairn("show", self.file)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)
        self.file.write_bytes(b"something else" * 1000)
        self.assertIn("not a trace of Cairn", self.cairn("show", self.file).stderr)
        done = self.cairn("-o", "/no/such/folder/a", "--", PROGRAM)
        self.assertIn("there is no folder", done.stderr)


if __name__ == "__main__":
    unittest.main()
