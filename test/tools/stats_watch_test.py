"""The live view of `cairn stats --watch` on a terminal: its content for each size, its keys, and
its end."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from tool_path import TOOLS

# pylint: disable=wrong-import-position
from cairn.stats_watch import history_text

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
TARGET = os.environ["CAIRN_TEST_TARGET"]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LEAVE_SCREEN = "\x1b[?1049l"
LONGEST_SECONDS = 100


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, columns, rows, *command):
        self.ours, theirs = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.ours)
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs,
                                        env=environment, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.theirs = theirs
        self.text = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.ours], [], [], left)[0]:
                break
            self.text += os.read(self.ours, 1 << 16).decode(errors="replace")

    def read_until(self, pattern):
        end = time.monotonic() + LONGEST_SECONDS
        while not re.search(pattern, CONTROL.sub("", self.text)):
            if time.monotonic() > end:
                raise AssertionError(f"no {pattern} in {self.text!r}")
            self.read(0.05)

    def whole_screens(self):
        """The lines of each screen, from its start to that of the next one."""
        return [[CONTROL.sub("", line).rstrip("\r") for line in screen.split("\n")]
                for screen in self.text.split("\x1b[H")[1:-1]]

    def key(self, sign):
        self.text = ""
        os.write(self.ours, sign.encode())

    def end(self):
        """Waits for the end of the command; returns its status."""
        while self.process.poll() is None:
            self.read(0.05)
        self.read(0.1)
        return self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.theirs)
        os.close(self.ours)


class WatchTest(unittest.TestCase):
    def setUp(self):
        self.target = subprocess.Popen([TARGET, "churn"], stdout=subprocess.PIPE,
                                       env={**os.environ, "LD_PRELOAD": LIBRARY})
        self.addCleanup(self.target.stdout.close)
        self.addCleanup(self.end_target)
        self.target.stdout.readline()  # the target has allocated

    def end_target(self):
        self.target.kill()
        self.target.wait()

    def watch(self, columns=80, rows=24):
        terminal = Terminal(columns, rows, str(COMMAND), "stats", str(self.target.pid), "--watch",
                            "0.1")
        self.addCleanup(terminal.close)
        return terminal

    def check_left(self, terminal):
        self.assertEqual(termios.tcgetattr(terminal.ours), terminal.before)
        self.assertIn(LEAVE_SCREEN, terminal.text)

    def test_q_ends_it(self):
        terminal = self.watch()
        terminal.read_until("[▁-█]{3}")
        for line in terminal.whole_screens()[-1]:
            self.assertLessEqual(len(line), 80, line)
        for words in ("allocated", "resident", "live bytes by size", "space pauses, q ends"):
            self.assertIn(words, terminal.text)
        terminal.key("q")
        self.assertEqual(terminal.end(), 0)
        self.check_left(terminal)
        after = CONTROL.sub("", terminal.text.split(LEAVE_SCREEN)[1])
        self.assertRegex(after, r"allocated +\d")
        self.assertRegex(after, r"\d+ snapshots in \d+ s: ended by q")

    def test_an_interrupt(self):
        terminal = self.watch()
        terminal.read_until("resident")
        terminal.key("\x03")
        self.assertEqual(terminal.end(), 128 + signal.SIGINT)
        self.check_left(terminal)
        self.assertNotIn("Traceback", terminal.text)

    def test_the_process_ends(self):
        terminal = self.watch()
        terminal.read_until("resident")
        self.end_target()
        self.assertEqual(terminal.end(), 0)
        self.check_left(terminal)
        self.assertIn("the process has ended", CONTROL.sub("", terminal.text))

    def test_space_pauses(self):
        terminal = self.watch()
        terminal.read_until("resident")
        terminal.key(" ")
        terminal.read_until("paused; space continues")
        for _ in range(20):  # only the rest of that screen; without the pause ten a second come
            terminal.text = ""
            terminal.read(0.5)
            if not terminal.text:
                break
        self.assertEqual(terminal.text, "", "nothing changes")
        terminal.key(" ")
        terminal.read_until("space pauses")

    def test_another_size_of_the_terminal(self):
        terminal = self.watch(120, 40)
        terminal.read_until("[▁-█]{3}")
        terminal.resize(50, 12)
        end = time.monotonic() + LONGEST_SECONDS
        fit = False
        while not fit:
            terminal.text = ""
            while len(terminal.whole_screens()) < 3:
                self.assertLess(time.monotonic(), end, terminal.text)
                terminal.read(0.05)
            fit = all(len(screen) <= 12 and max(map(len, screen)) <= 50
                      for screen in terminal.whole_screens())


class HistoryTest(unittest.TestCase):
    def test_bars(self):
        self.assertEqual(history_text([0, 7, 14], 10), "▁▅█")
        self.assertEqual(history_text([0, 0], 10), "▁▁")
        self.assertEqual(history_text([1, 2, 4], 2), "▅█")
        self.assertEqual(history_text([], 10), "")


if __name__ == "__main__":
    unittest.main()
