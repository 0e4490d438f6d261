"""cairn.measure and the program cairn-measure."""

import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from unittest import mock

import tool_path
from cairn.errors import UserError
from cairn.measure import check_loads, measure, preload_value, run_through, started


class MeasureTest(unittest.TestCase):
    def test_peak_rss_is_the_commands_own(self):
        ballast = bytearray(200 << 20)
        for page in range(0, len(ballast), 4096):
            ballast[page] = 1
        run = measure(["true"])
        self.assertLess(run.peak_rss_mib, 20)
        self.assertEqual(len(ballast), 200 << 20)  # keeps it alive up to here

    def test_peak_rss_sees_memory_that_is_given_back(self):
        run = measure(["/usr/bin/python3", "-S", "-c", "x = b'x' * (100 << 20); del x"])
        self.assertGreater(run.peak_rss_mib, 100)
        self.assertLess(run.peak_rss_mib, 150)

    def test_peak_rss_is_of_the_largest_process_not_the_sum(self):
        one = "/usr/bin/python3 -S -c 'x = b\"x\" * (50 << 20)'"
        run = measure(["sh", "-c", f"{one}; {one} & wait"])
        self.assertGreater(run.peak_rss_mib, 50)
        self.assertLess(run.peak_rss_mib, 90)

    def test_cpu_time_includes_children(self):
        run = measure(["sh", "-c", "/usr/bin/python3 -S -c 'for i in range(10**7): pass'; :"])
        self.assertGreater(run.cpu_s, 0.1)

    def test_wall_time_includes_sleep(self):
        start = time.monotonic()
        run = measure(["sleep", "0.3"])
        self.assertGreaterEqual(run.wall_s, 0.3)
        self.assertLessEqual(run.wall_s, time.monotonic() - start)
        self.assertLess(run.cpu_s, 0.2)

    def test_exit_status(self):
        run = measure(["sh", "-c", "exit 7"])
        self.assertEqual((run.exit_code, run.signal, run.status), (7, 0, 7))

    def test_signal(self):
        run = measure(["sh", "-c", "echo farewell >&2; kill -ABRT $$"])
        self.assertEqual((run.signal, run.status), (6, 134))
        self.assertEqual(run.stderr_tail, "farewell\n")

    def test_command_that_cannot_start(self):
        with tempfile.TemporaryDirectory() as directory:
            script = pathlib.Path(directory) / "script"
            script.write_text("#!/no/such/interpreter\n")
            script.chmod(0o755)
            with self.assertRaisesRegex(UserError, "script: No such file or directory"):
                measure([str(script)])

    def test_output_is_compared_by_content(self):
        self.assertEqual(measure(["echo", "a"]).output, measure(["printf", "a\\n"]).output)
        self.assertNotEqual(measure(["echo", "a"]).output, measure(["echo", "b"]).output)

    def test_standard_input(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"from a file")
            file.flush()
            self.assertEqual(measure(["cat"], stdin=file.name).output,
                             measure(["printf", "from a file"]).output)
        self.assertEqual(measure(["cat"]).output, measure(["true"]).output)

    def test_real_time_signals(self):
        for number in (34, 35, 40, 64):
            run = measure(["sh", "-c", f"kill -{number} $$"])
            self.assertEqual((run.signal, run.status), (number, 128 + number))

    def test_limit_ends_a_server(self):
        run = measure(["sleep", "600"], limit_s=0.3)
        self.assertEqual((run.signal, run.stopped, run.killed, run.status), (15, True, False, 0))
        self.assertGreaterEqual(run.wall_s, 0.3)
        self.assertLess(run.wall_s, 100)

    def measure_trapped(self, trap, **more):
        """A server that has set its trap before the limit, on a machine that stops now and then."""
        for limit_s in (2, 8, 32):
            with tempfile.TemporaryDirectory() as folder:
                ready = pathlib.Path(folder, "ready")
                run = measure(["sh", "-c", f"{trap}; : >{ready}; while :; do sleep 0.05; done"],
                              limit_s=limit_s, **more)
                if ready.exists():
                    return run
        return self.fail("the server did not begin")

    def test_limit_leaves_time_to_end_well(self):
        run = self.measure_trapped("trap 'echo saved; exit 0' TERM")
        self.assertEqual((run.signal, run.exit_code, run.stopped, run.killed), (0, 0, True, False))
        self.assertEqual(run.output, measure(["echo", "saved"]).output)

    def test_limit_kills_what_does_not_end(self):
        run = self.measure_trapped("trap '' TERM", grace_s=0.2)
        self.assertEqual((run.signal, run.stopped, run.killed, run.status), (9, True, True, 0))

    def test_limit_ends_what_is_left_behind_and_counts_it(self):
        with tempfile.NamedTemporaryFile("r") as file, \
                tempfile.NamedTemporaryFile("r") as full:
            busy = (f"x = b'x' * (60 << 20)\nopen('{full.name}', 'w').write('full')\n"
                    "import time\ntime.sleep(600)")
            run = measure(["sh", "-c", f'setsid /usr/bin/python3 -S -c "{busy}" & '
                           f"echo $! >{file.name}; until [ -s {full.name} ]; do sleep 0.05; done; "
                           "exit 3"], limit_s=100)
            self.assertEqual((run.exit_code, run.stopped), (3, False))
            self.assertGreater(run.peak_rss_mib, 60)
            with self.assertRaises(ProcessLookupError):
                os.kill(int(file.read()), 0)

    def test_limit_that_is_not_reached(self):
        run = measure(["sh", "-c", "exit 7"], limit_s=30)
        self.assertEqual((run.exit_code, run.stopped, run.status), (7, False, 7))

    def test_command_sees_no_signals_blocked_or_ignored(self):
        masks = ["sh", "-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status"]
        plain = subprocess.run(masks, capture_output=True, text=True, check=True).stdout
        self.assertEqual(measure(masks).output, measure(["printf", "%s", plain]).output)

    def test_interrupt_leaves_nothing_behind(self):
        with tempfile.NamedTemporaryFile("r") as file:
            def interrupt():
                while os.stat(file.name).st_size == 0:
                    time.sleep(0.02)
                time.sleep(0.3)  # it waits for the command
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt).start()
            with self.assertRaises(KeyboardInterrupt):
                measure(["sh", "-c", f"echo $$ >{file.name}; exec sleep 600"])
            with self.assertRaises(ProcessLookupError):
                os.kill(int(file.read()), 0)

    def test_interrupt_that_ends_the_command_leaves_its_status(self):
        for _ in range(50):
            _, status = run_through(["sh", "-c", "kill -INT $PPID; kill -INT $$"], os.environ)
            self.assertEqual(status, -signal.SIGINT)

    def test_second_request_to_end_kills_at_once(self):
        with tempfile.NamedTemporaryFile("r") as file:
            with started(["sh", "-c", f"trap '' TERM; echo $$ >{file.name}; "
                          "while :; do sleep 0.05; done"], limit_s=1000, grace_s=1000) as one:
                while os.stat(file.name).st_size == 0:
                    time.sleep(0.02)
                one.process.terminate()
                self.assertFalse(one.has_ended(0.3))
                one.process.terminate()
                self.assertTrue(one.has_ended(200))
                self.assertEqual((one.run().signal, one.run().killed), (9, True))

    def test_end_of_a_tool_that_is_killed_ends_the_command(self):
        with tempfile.NamedTemporaryFile("r") as file:
            tool = ("import sys; sys.path.insert(0, sys.argv[1])\n"
                    "from cairn.measure import measure\n"
                    "measure(['sh', '-c', f'echo $$ >{sys.argv[2]}; exec sleep 600'])")
            with subprocess.Popen(["/usr/bin/python3", "-c", tool, str(tool_path.TOOLS),
                                   file.name]) as process:
                while os.stat(file.name).st_size == 0:
                    time.sleep(0.02)
                process.kill()
            pid, end = int(file.read()), time.monotonic() + 100
            with self.assertRaises(ProcessLookupError):
                while time.monotonic() < end:
                    os.kill(pid, 0)
                    time.sleep(0.02)

    def test_measuring_program_of_another_version(self):
        with tempfile.TemporaryDirectory() as directory:
            other = pathlib.Path(directory) / "cairn-measure"
            other.write_text("#!/bin/sh\necho wall_ns=1 >&$1\n")
            other.chmod(0o755)
            with mock.patch.dict(os.environ, CAIRN_BUILD=directory):
                with self.assertRaisesRegex(UserError, "does not belong to this version"):
                    measure(["true"])

    def test_library_is_preloaded(self):
        library = os.environ["CAIRN_TEST_LIBRARY"]
        script = ["sh", "-c", f"grep -q '{pathlib.Path(library).resolve()}' /proc/$$/maps"]
        self.assertEqual(measure(script, library=library).exit_code, 0)
        self.assertEqual(measure(script).exit_code, 1)


class PreloadTest(unittest.TestCase):
    def test_value(self):
        self.assertEqual(preload_value([], {}), "")
        self.assertEqual(preload_value(["/a/x.so"], {}), "/a/x.so")
        self.assertEqual(preload_value(["/a/x.so"], {"LD_PRELOAD": "b.so c.so"}),
                         "/a/x.so:b.so:c.so")

    def test_a_preloaded_cairn_is_not_the_systems_malloc(self):
        self.assertEqual(preload_value([], {"LD_PRELOAD": "/x/libcairn-malloc.so:b.so"}), "b.so")

    def test_library_that_is_none(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(b"no library")
            file.flush()
            with self.assertRaisesRegex(UserError, "cannot be preloaded"):
                check_loads(file.name)
        check_loads(os.environ["CAIRN_TEST_LIBRARY"])


if __name__ == "__main__":
    unittest.main()
