"""`cairn leaks` on a program with known lost blocks, one of each kind, and others that only look
lost: stopped, running, held, and as a core file. Clean programs have no lost blocks."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from inspect_command_test import abort_in, cores_are_files
from tool_path import TOOLS

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
LOOK = os.path.join(os.environ["CAIRN_BUILD"], "cairn-look")
PROGRAM = os.environ["CAIRN_LEAK_TARGET"]
STATIC_PROGRAM = os.environ["CAIRN_LEAK_STATIC_TARGET"]
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "LC_ALL": "C.UTF-8"}
PRELOAD = {**os.environ, "LD_PRELOAD": LIBRARY}
KINDS = 20  # of lost blocks


def leaks(*arguments):
    return subprocess.run([str(COMMAND), "leaks", *map(str, arguments)], capture_output=True,
                          text=True, env=ENVIRONMENT, check=False, timeout=200)


def state_of(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return stat.rpartition(")")[2].split()[0]


class Target:
    """The program at its end, with its notes: (state, kind, address)."""

    def __init__(self, end, program=PROGRAM, env=None):
        self.process = subprocess.Popen([program, end], env=env or PRELOAD, text=True,
                                        stdout=subprocess.PIPE)
        self.wanted = "S" if end == "wait" else "T"

    def __enter__(self):
        text = os.read(self.process.stdout.fileno(), 1 << 16).decode()
        end = time.monotonic() + 60
        while state_of(self.process.pid) != self.wanted and time.monotonic() < end:
            time.sleep(0.01)
        return self.process.pid, read_notes(text)

    def __exit__(self, *_):
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()


def read_notes(text):
    return [(state, kind, int(address, 16))
            for state, kind, address in (line.split() for line in text.splitlines())]


class KindsTest(unittest.TestCase):
    def check_kinds(self, target, notes, *arguments):
        result = leaks(target, "--json", "--all", *arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        value = json.loads(result.stdout)
        direct = {leak["address"] for leak in value["leaks"]}
        named = direct | {leak["address"] for leak in value["held"]}
        lost = {address for state, _, address in notes if state == "lost"}
        self.assertEqual(len({kind for state, kind, _ in notes if state == "lost"}), KINDS)
        self.assertEqual({kind for _, kind, address in notes if address in named},
                         {kind for state, kind, _ in notes if state == "lost"})
        # The end of the mapping before a huge block looks like a pointer to that block.
        huge = {address for _, kind, address in notes if kind == "huge"}
        self.assertEqual(named - huge, lost - huge)
        self.assertLessEqual(named, lost)
        by_kind = {}
        for _, kind, address in notes:
            by_kind.setdefault(kind, []).append(address in direct)
        self.assertEqual(sum(by_kind["list"]), 1, "only its head")
        self.assertEqual(sum(by_kind["cycle"]), 1)
        self.assertEqual(sum(by_kind["tree"]), 1)
        return value

    def test_a_stopped_process(self):
        with Target("stop") as (pid, notes):
            value = self.check_kinds(pid, notes)
            self.assertEqual(value["lost"]["looks"], 1)
            self.assertEqual(value["lost"]["threads"], 2)
            self.assertEqual(state_of(pid), "T", "it stays stopped")

    def test_a_process_that_runs(self):
        with Target("wait") as (pid, notes):
            self.assertEqual(self.check_kinds(pid, notes)["lost"]["looks"], 2)
            self.assertEqual(state_of(pid), "S", "and goes on")

    def test_a_process_that_is_held(self):
        with Target("wait") as (pid, notes):
            self.assertEqual(self.check_kinds(pid, notes, "--hold")["lost"]["looks"], 1)
            end = time.monotonic() + 20
            while state_of(pid) != "S" and time.monotonic() < end:
                time.sleep(0.01)
            self.assertEqual(state_of(pid), "S", "it was let go")

    def test_guarded_blocks(self):
        with Target("stop", env={**PRELOAD, "CAIRN_OPTIONS": "guard:1"}) as (pid, notes):
            self.check_kinds(pid, notes)

    def test_a_static_program(self):
        with Target("stop", STATIC_PROGRAM, dict(os.environ)) as (pid, notes):
            self.check_kinds(pid, notes)

    @unittest.skipUnless(cores_are_files(), "core files go elsewhere here (core_pattern)")
    def test_a_core(self):
        with tempfile.TemporaryDirectory() as folder:
            text, core = abort_in(folder, [PROGRAM, "abort"], PRELOAD)
            self.check_kinds(core, read_notes(text))
            os.truncate(core, core.stat().st_size * 9 // 10)
            result = leaks(core)
            self.assertTrue("blocks may be named falsely" in result.stdout
                            or (result.returncode == 2 and "cut" in result.stderr))

    def test_what_is_printed(self):
        with Target("stop") as (pid, notes):
            result = leaks(pid)
            self.assertEqual(result.returncode, 0)
            lost = sum(state == "lost" for state, _, _ in notes)
            self.assertRegex(result.stdout, rf"\n({lost}|{lost - 1}) of \d+ blocks are lost, no "
                             r"pointer leads to them: \d+\.\d MiB\.")
            self.assertRegex(result.stdout, r"\n106496 +1 +1 +104\.0 KiB")
            self.assertIn("'xxxx", result.stdout)
            self.assertEqual(leaks(pid, "--check").returncode, 1)


class CleanTest(unittest.TestCase):
    """Programs without lost blocks."""

    def check_clean(self, *command, **options):
        program = shutil.which(command[0])
        if program is None:
            self.skipTest(f"{command[0]} is not installed")
        env = {**PRELOAD, "PYTHONMALLOC": "malloc"}
        with subprocess.Popen([program, *command[1:]], env=env, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, **options) as process:
            try:
                self.assertEqual(process.stdout.readline(), b"ready\n")
                os.kill(process.pid, signal.SIGSTOP)
                os.waitpid(process.pid, os.WUNTRACED)
                result = leaks(process.pid, "--check")
                self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
                self.assertIn("No block is lost: pointers lead to all", result.stdout)
            finally:
                process.kill()

    def test_python(self):
        self.check_clean("/usr/bin/python3", "-c",
                         "import time\nx = [{i: [str(i), i * 1.5]} for i in range(20000)]\n"
                         "print('ready', flush=True)\ntime.sleep(60)")

    def test_perl(self):
        self.check_clean("perl", "-e", '$| = 1; my %h; $h{"key$_"} = [$_, "v" x ($_ % 50)] '
                         'for 1..20000; print "ready\\n"; sleep 60')

    def test_bash(self):
        self.check_clean("bash", "-c", "declare -A h; for i in {1..3000}; do h[$i]=v$i; done; "
                         "echo ready; read x")


class GrowingTest(unittest.TestCase):
    def test_a_size_that_grows(self):
        program = ("import time\nkept = []\nprint('ready', flush=True)\nwhile True:\n"
                   "    kept.append(bytearray(3000))\n    time.sleep(0.001)")
        env = {**PRELOAD, "PYTHONMALLOC": "malloc"}
        with subprocess.Popen(["/usr/bin/python3", "-c", program], env=env,
                              stdout=subprocess.PIPE) as process:
            try:
                process.stdout.readline()
                for _ in range(5):  # a machine that stops for seconds stops the growth, too
                    result = leaks(process.pid, "--growing", "2", "--json")
                    self.assertEqual(result.returncode, 0, result.stderr)
                    growing = json.loads(result.stdout)["growing"]
                    if growing and growing[0]["grown_blocks"] > 10:
                        break
            finally:
                process.kill()
        first = growing[0]
        self.assertTrue(3000 <= first["size_bytes"] <= 3600, first)
        self.assertGreater(first["grown_blocks"], 10)


class RefusalTest(unittest.TestCase):
    def check_refused(self, sentence, *arguments):
        result = leaks(*arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, sentence)

    def test_what_is_there_not(self):
        self.check_refused("no process 4194304", 4194304)
        self.check_refused("no such file", "/nowhere/core")

    def test_what_does_not_go_together(self):
        self.check_refused("--growing can be combined only with --json", os.getpid(),
                           "--growing", 1, "--hold")

    def test_how_long_it_can_wait(self):
        for seconds in ("nan", "inf", "1e12", "0"):
            self.check_refused("--growing .*: write between", os.getpid(), "--growing", seconds)


if __name__ == "__main__":
    unittest.main()
