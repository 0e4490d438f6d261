"""`cairn leaks run`, which names the allocation stack of each lost block as LeakSanitizer does; the
stacks of the profiler and of a trace; classes; and the pointers to a block."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

from leaks_command_test import ENVIRONMENT, PRELOAD, PROGRAM, read_notes, state_of
from tool_path import TOOLS

COMMAND = TOOLS / "bin" / "cairn"
CLASSES = os.environ["CAIRN_CLASS_TARGET"]


def cairn(*arguments, **options):
    return subprocess.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True,
                          env=ENVIRONMENT, check=False, timeout=200, **options)


def functions_of(value, row):
    frames = next(each["stack"] for each in value["stacks"] if each["site"] == row["site"])
    return [frame["function"] for frame in frames]


class StoppedClasses:
    """The program with classes, stopped, and the addresses that it printed."""

    def __init__(self, options):
        self.process = subprocess.Popen([CLASSES, "stop"], text=True, stdout=subprocess.PIPE,
                                        env={**PRELOAD, "CAIRN_OPTIONS": options})

    def __enter__(self):
        addresses = self.process.stdout.readline().split()
        os.waitpid(self.process.pid, os.WUNTRACED)
        return self.process.pid, [int(word, 16) for word in addresses]

    def __exit__(self, *_):
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()


class RunTest(unittest.TestCase):
    def run_target(self):
        result = cairn("leaks", "run", "--json", "--all", "--", PROGRAM, "exit")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        start = result.stdout.index("{")
        return read_notes(result.stdout[:start]), json.loads(result.stdout[start:])

    def test_each_lost_block_has_its_stack(self):
        notes, value = self.run_target()
        lost = {address for state, _, address in notes if state == "lost"}
        named = {row["address"] for row in value["leaks"] + value["held"]}
        self.assertLessEqual(named, lost)
        # A frame of exit() that has ended may still hold a pointer to one of them.
        self.assertGreaterEqual(len(named), len(lost) - 2)
        for row in value["leaks"] + value["held"]:
            stack = functions_of(value, row)
            self.assertTrue(any("lose" in name for name in stack), stack)

    def test_the_same_as_leak_sanitizer(self):
        library = subprocess.run(["gcc", "-print-file-name=liblsan.so"], capture_output=True,
                                 text=True, check=False).stdout.strip()
        if not os.path.isabs(library):
            self.skipTest("LeakSanitizer's library is not installed")
        theirs = subprocess.run([PROGRAM, "exit"], capture_output=True, text=True, check=False,
                                env={**os.environ, "LD_PRELOAD": library,
                                     "LSAN_OPTIONS": "fast_unwind_on_malloc=0"})
        if "SUMMARY: LeakSanitizer" not in theirs.stderr:
            self.skipTest("LeakSanitizer does not work here")
        names = {name.split(".")[0] for name in re.findall(r" in (lose\w*)", theirs.stderr)}
        _, value = self.run_target()
        ours = {name.split(".")[0] for row in value["leaks"] + value["held"]
                for name in functions_of(value, row) if name.startswith("lose")}
        self.assertEqual(ours, names)
        self.assertGreaterEqual(len(ours), 4)

    def test_the_status_is_the_program_s(self):
        self.assertEqual(cairn("leaks", "run", "--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(cairn("leaks", "run", "--", "sh", "-c", "kill -TERM $$").returncode,
                         128 + signal.SIGTERM)
        self.assertEqual(cairn("leaks", "run", "--check", "--", CLASSES).returncode, 1)
        self.assertEqual(cairn("leaks", "run", "--check", "--", "ls").returncode, 0)

    def test_what_does_not_go(self):
        for arguments, sentence in ((("run",), "the program is missing"),
                                    (("run", "--", "/no/such"), "no such program"),
                                    ((os.getpid(), "--", "ls"), "cairn leaks run -- PROGRAM"),
                                    (("run", "--hold", "--", "ls"), "cannot be combined with run")):
            result = cairn("leaks", *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(sentence, result.stderr)


class EndTest(unittest.TestCase):
    def test_the_signal_is_named(self):
        result = cairn("leaks", "run", "--", "sh", "-c", "kill -ABRT $$")
        self.assertEqual(result.returncode, 128 + 6)
        self.assertRegex(result.stdout, r"^process \d+ \(sh\), ended by SIGABRT: Cairn ")
        result = cairn("leaks", "run", "--", "sh", "-c", "exit 3")
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stdout, r"^process \d+ \(sh\), ended: Cairn ")

    def test_a_high_status_is_no_signal(self):
        for status in (129, 255):
            result = cairn("leaks", "run", "--", "sh", "-c", f"exit {status}")
            self.assertEqual(result.returncode, status)
            self.assertRegex(result.stdout, r"^process \d+ \(sh\), ended: Cairn ")
        result = cairn("leaks", "run", "--", "sh", "-c", "exec /no/such/program 2> /dev/null")
        self.assertEqual(result.returncode, 127)


class InterruptTest(unittest.TestCase):
    def start(self, script):
        """The tool, and the number of the program that it runs, which waits for its input."""
        waiting, writing = os.pipe()
        self.addCleanup(os.close, writing)
        tool = subprocess.Popen([str(COMMAND), "leaks", "run", "--", "sh", "-c",
                                 f"{script} echo $$; read line"], text=True, env=ENVIRONMENT,
                                stdin=waiting, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.close(waiting)
        self.addCleanup(tool.communicate)
        self.addCleanup(tool.kill)
        return tool, int(tool.stdout.readline())

    def test_the_signal_is_passed_on(self):
        for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")):
            tool, _ = self.start("")
            tool.send_signal(number)
            output, errors = tool.communicate(timeout=60)
            self.assertEqual((tool.returncode, errors), (128 + number, ""))
            self.assertRegex(output, rf"^process \d+ \(sh\), ended by {name}: Cairn ")

    def test_the_second_one_ends_a_program_that_ignores_it(self):
        tool, pid = self.start("trap '' TERM HUP;")
        for _ in range(100):
            tool.send_signal(signal.SIGTERM)
            try:
                tool.wait(0.3)
                break
            except subprocess.TimeoutExpired:
                pass
        self.assertEqual(tool.wait(0), 128 + signal.SIGTERM)
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)


class NamesTest(unittest.TestCase):
    def check_groups(self, text):
        self.assertRegex(text, r"\n *100 +64 +6\.2 KiB +0x[0-9a-f]+  shop::Order\n")
        self.assertRegex(text, r"\n *50 +32 +1\.6 KiB +0x[0-9a-f]+  text, as 'customer number \d+'")
        self.assertNotIn("Parcel", text)

    def check_stacks(self, text):
        """One row for each kind of block; its stack is below it, and ends with main."""
        for name in ("orders", "names"):
            self.assertRegex(text, r"\n    allocated by (?:.*strdup.*\n      )?"
                                   rf"lose_{name} class_target\.cc:\d+"
                                   r"\n      main class_target\.cc:\d+\n")
        self.assertNotIn("libc_start", text)

    def test_lost_blocks_in_groups(self):
        with StoppedClasses("") as (pid, _):
            result = cairn("leaks", pid)
            self.check_groups(result.stdout)
            self.assertEqual(result.stdout.count("shop::Order"), 1)

    def test_lost_blocks_at_the_end(self):
        text = cairn("leaks", "run", "--", CLASSES).stdout
        self.check_groups(text)
        self.check_stacks(text)

    def test_the_profiler_s_stacks(self):
        """The profiler's table has the addresses of blocks, which must not count as pointers."""
        with StoppedClasses("profile:64") as (pid, _):
            value = json.loads(cairn("leaks", pid, "--json", "--all").stdout)
            self.assertEqual(value["lost"]["direct_blocks"], 150)
            sampled = [row for row in value["leaks"] if "site" in row]
            self.assertGreater(len(sampled), 10)
            for row in sampled:
                self.assertTrue({"lose_orders()", "lose_names()"} & set(functions_of(value, row)))

    def test_sampled_blocks_share_the_row_of_the_others(self):
        with StoppedClasses("profile:512") as (pid, _), tempfile.TemporaryDirectory() as folder:
            text = cairn("leaks", pid).stdout
            self.check_groups(text)
            self.assertRegex(text, r"allocated by lose_orders \S+ \(\d+ samples?\)\n")
            self.assertNotIn("libc_start", text)
            narrow = subprocess.run([str(COMMAND), "leaks", str(pid)], capture_output=True,
                                    text=True, env={**ENVIRONMENT, "COLUMNS": "60"}, check=False)
            stacks = [line for line in narrow.stdout.splitlines() if "class_target.cc:" in line]
            self.assertGreater(len(stacks), 0)
            for line in stacks:
                self.assertRegex(line, r"^ {4}(?:allocated by |  )\S+ class_target\.cc:\d+")
            value = json.loads(cairn("leaks", pid, "--json").stdout)
            self.assertEqual([row["blocks"] for row in value["groups"]], [100, 50])
            sites = value["groups"][0]["sites"]
            self.assertLess(0, sum(site["blocks"] for site in sites))
            self.assertLess(sum(site["blocks"] for site in sites), 100)
            page = pathlib.Path(folder) / "page.html"
            cairn("leaks", pid, "--html", page)
            groups = re.search(r'"groups":(\[\[.*?\]\])', page.read_text())[1]
            self.assertEqual([row[0] for row in json.loads(groups)], [100, 50])

    def test_the_stacks_of_a_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder) / "trace"
            with StoppedClasses(f"trace:{prefix}") as (pid, _):
                value = json.loads(cairn("leaks", pid, "--json", "--trace",
                                         f"{prefix}.{pid}.1").stdout)
                self.assertEqual(len(value["leaks"]), 150)
                self.assertEqual([row["blocks"] for row in value["groups"]], [100, 50])
                self.assertIn("lose_orders()", functions_of(value, value["groups"][0]))


class PointersTest(unittest.TestCase):
    def test_what_points_to_a_block(self):
        with StoppedClasses("") as (pid, (parcel, order)):
            value = json.loads(cairn("inspect", pid, hex(order + 20), "--pointers",
                                     "--json").stdout)
            self.assertEqual(value["block"]["start"], order)
            self.assertEqual(value["block"]["class"], "shop::Order")
            holders = [row for row in value["pointers"] if row["kind"] == "block"]
            self.assertEqual([(row["holder"], row["place"], row["class"]) for row in holders],
                             [(parcel, parcel + 8, "shop::Parcel")])
            value = json.loads(cairn("inspect", pid, hex(parcel), "--pointers", "--json").stdout)
            self.assertTrue(any("class_target+" in str(row.get("name")) for row in
                                value["pointers"]), value["pointers"])
            text = cairn("inspect", pid, hex(order), "--pointers").stdout
            self.assertRegex(text, r"a block +0 +16 bytes from 0x[0-9a-f]+, 8 into it +shop::Par")

    def test_what_nothing_points_to(self):
        with StoppedClasses("") as (pid, _):
            leak = json.loads(cairn("leaks", pid, "--json").stdout)["leaks"][0]["address"]
            self.assertEqual(state_of(pid), "T")
            text = cairn("inspect", pid, hex(leak), "--pointers").stdout
            self.assertIn("No pointer to it was found.", text)

    def test_no_address(self):
        result = cairn("inspect", os.getpid(), "--pointers")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--pointers needs the ADDRESS", result.stderr)


if __name__ == "__main__":
    unittest.main()
