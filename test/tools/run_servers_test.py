"""`cairn run --load`: a server's memory under several allocators."""

import contextlib
import csv
import io
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import browser
import rich.console
import tool_path
from cairn import cli, compare, server_load, server_memory, server_ready, server_report
from cairn.errors import UserError

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
NAME = pathlib.Path(LIBRARY).resolve().stem
PYTHON = "/usr/bin/python3"
TARGET = str(pathlib.Path(__file__).resolve().with_name("server_target.py"))
LONGEST_S = 200
MIB = 1 << 20
PAGE = """
const line = document.querySelector('canvas'), said = document.querySelector('.said');
line.focus();
key(line, 'Home');
seen.first = said.textContent;
seen.hues = ['c0', 'c1'].filter(hue => colours(line).includes(colour(hue).trim()));
seen.rows = [...document.querySelectorAll('table tbody th')].map(one => one.textContent);
seen.columns = [...document.querySelectorAll('table thead th')].map(one => one.textContent);
"""


def cairn(*arguments):
    """Runs the tool in this process."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr), \
            mock.patch.object(sys, "argv", ["cairn", *arguments]):
        status = cli._run()  # pylint: disable=protected-access
    return types.SimpleNamespace(returncode=status, stdout=stdout.getvalue(),
                                 stderr=stderr.getvalue())


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class ServerCase(unittest.TestCase):
    """Servers and loads that have a word of the test in their arguments, to be found by it."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.mark = f"mark-{self.path.name}"
        self.port = free_port()
        self.sleeper = f"{PYTHON} -S -c 'import time; time.sleep(600)' {self.mark}"

    def server(self, *words):
        return [PYTHON, "-S", TARGET, str(self.port), self.mark, *words]

    def load(self, said="hello", more=""):
        return (f"{PYTHON} -S -c \"import socket\n"
                f"one = socket.create_connection(('127.0.0.1', {self.port}))\n"
                f"one.sendall(b'{said}')\n"
                "assert one.recv(10) == b'ok', 'no answer'\n"
                f"print('50% 1.5ms\\n99% 20 ms')\" {self.mark}{more}")

    def arguments(self, *options, load=None, idle="100ms", bursts="1"):
        return ["run", "--lib", LIBRARY, "--load", self.load() if load is None else load,
                "--idle", idle, "--bursts", bursts, *options]

    def run_it(self, *options, server=None, **more):
        return cairn(*self.arguments(*options, **more), "--", *(server or self.server()))

    def remaining(self):
        """The processes that have the word of the test in their arguments."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def check_nothing_remains(self, within_s=0):
        end = time.monotonic() + within_s
        while self.remaining() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.remaining(), [])

    def check_fails(self, result, pattern, status=2):
        self.assertRegex(result.stderr, pattern)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.check_nothing_remains()


class MeasuredTest(ServerCase):
    def test_table_and_files(self):
        files = {form: self.path / f"out.{form}" for form in ("json", "csv", "markdown", "html")}
        options = [word for form, path in files.items() for word in (f"--{form}", str(path))]
        result = self.run_it("--ready", str(self.port), *options, server=self.server("grow"),
                             bursts="2")
        self.assertEqual(result.returncode, 0, result.stderr)
        for row in ("peak MiB", "after burst 1 MiB", "after burst 2 MiB", "CPU time s",
                    "after 0.1 s silent MiB", r"median request ms +1\.5 +1\.5 +1\.5",
                    r"99 % of requests ms +20\.0 +20\.0 +20\.0"):
            self.assertRegex(result.stdout, row)
        self.assertIn("out.html has the curves", result.stdout)
        read = json.loads(files["json"].read_text())
        self.assertEqual([side["name"] for side in read["sides"]],
                         ["system", NAME, f"{NAME} background:on"])
        self.assertIn("Use background:on for services", result.stdout)
        for side in read["sides"]:
            first, second = side["after_burst_bytes"]
            self.assertTrue(19 * MIB < second - first < 22 * MIB, (first, second))
            self.assertGreaterEqual(side["peak_bytes"], second)
            self.assertEqual([burst["latency_ms"] for burst in side["bursts"]],
                             [{"50": 1.5, "99": 20}] * 2)
        self.assertEqual(read["sides"][1]["processes"][0]["malloc"],
                         str(pathlib.Path(LIBRARY).resolve()))
        with files["csv"].open(newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertLessEqual({"burst 1", "burst 2", "silence"}, {line["phase"] for line in lines})
        self.assertIn("| peak MiB | ", files["markdown"].read_text())
        self.check_nothing_remains()

    def test_what_is_freed_is_seen(self):
        out = self.path / "out.json"
        # The shell's own process number counts the bursts: only the last one shrinks.
        count = self.path / "count"
        load = (f"echo >>{count}; case $(wc -l <{count}) in 1|3|5) {self.load()};; "
                f"*) {self.load('shrink')};; esac")
        result = self.run_it("--json", str(out), server=self.server("grow"), load=load, bursts="2")
        self.assertEqual(result.returncode, 0, result.stderr)
        for side in json.loads(out.read_text())["sides"]:
            first, second = side["after_burst_bytes"]
            self.assertGreater(first - second, 18 * MIB)
            self.assertLess(abs(side["after_silence_bytes"] - second), 2 * MIB)

    def test_children_and_lazily_free_pages(self):
        tree = server_memory.Tree(os.getpid())
        with subprocess.Popen(self.server("child", "lazy")) as process:
            try:
                while not server_ready.answers(str(self.port), tree):
                    time.sleep(0.02)
                before, lazy = tree.memory()
                self.assertLess(lazy, MIB)
                self.assertGreater(before, 20 * MIB)
                subprocess.run(self.load(), shell=True, check=True, stdout=subprocess.DEVNULL)
                after, lazy = tree.memory()
                self.assertTrue(19 * MIB < lazy < 21 * MIB, lazy)
                self.assertTrue(19 * MIB < after - before < 23 * MIB, after - before)
                self.assertGreater(tree.cpu_s(), 0)
                self.assertNotIn(1, tree.pids())
            finally:
                for pid in self.remaining():
                    os.kill(pid, signal.SIGKILL)

    def test_processor_time_has_ended_children(self):
        with subprocess.Popen(["sh", "-c", f"{PYTHON} -S -c 'for i in range(10**7): pass'; "
                               "echo; read line"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            tree = server_memory.Tree(os.getpid())
            process.stdout.readline()
            self.assertGreater(tree.cpu_s(), 0.1)
            process.stdin.close()

    def test_no_server_ends_by_itself(self):
        """Neither the server nor its child, in a session of its own, reacts to SIGTERM."""
        result = self.run_it(server=self.server("child", "stubborn"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.check_nothing_remains()

    def test_variants_and_peers(self):
        result = self.run_it("--options", "decay_ms:50", "--on", f"twin={LIBRARY}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, rf"(?m)^ +system +{NAME} +decay_ms:50 +twin$")
        self.assertRegex(result.stdout, f"Next to system, {NAME} decay_ms:50 has .* of the peak")
        self.assertNotIn("background:on", result.stdout)

    def test_port_is_found_without_names(self):
        """A bare root has no /etc/hosts."""
        with socket.socket() as one, mock.patch(
                "socket.getaddrinfo", side_effect=self.only_addresses(socket.getaddrinfo)):
            one.bind(("127.0.0.1", 0))
            self.assertFalse(server_ready.answers(str(one.getsockname()[1]), None))
            one.listen()
            self.assertTrue(server_ready.answers(str(one.getsockname()[1]), None))

    def only_addresses(self, look_up):
        def of_address(host, *rest):
            if host == "localhost":
                raise socket.gaierror(-2, "Name or service not known")
            return look_up(host, *rest)
        return of_address

    def test_ways_to_be_ready(self):
        self.assertEqual(self.run_it("--ready", self.load()).returncode, 0)
        path = str(self.path / "socket")
        load = (f"{PYTHON} -S -c \"import socket; one = socket.socket(socket.AF_UNIX); "
                f"one.connect('{path}'); one.send(b'a'); one.recv(10)\"; rm {path}")
        server = [PYTHON, "-S", TARGET, path, self.mark]
        result = self.run_it(load=load, server=server)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("printed no line such as `50% 1.8ms`", result.stdout)

    def test_preparation_runs_before_each_server(self):
        count = self.path / "count"
        result = self.run_it("--prepare", f"echo >>{count}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(count.read_text(), "\n\n\n")


class WorkloadTest(ServerCase):
    """The service and the load of `make run`, in a small size."""

    def test_documents(self):
        server, load = (tool_path.TOOLS / "workloads" / name
                        for name in ("documents.py", "documents_load.py"))
        result = self.run_it("--ready", str(self.port), load=f"{PYTHON} -S {load} {self.port} 6 2",
                             server=[PYTHON, "-S", str(server), str(self.port)])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"99 % of requests ms +\d")
        alone = subprocess.run([PYTHON, "-S", str(load), str(self.port), "6", "2"], text=True,
                               capture_output=True, check=False)
        self.assertEqual((alone.returncode, alone.stdout), (1, ""))
        self.assertIn("2 of 2 connections failed: [Errno 111] Connection refused", alone.stderr)


class RefusedTest(ServerCase):
    def test_server_that_ends_early(self):
        self.check_fails(self.run_it(server=["sh", "-c", "echo no room >&2; exit 3"]),
                         r"sh under system ended before it answered \(.*foreground\): exit status "
                         r"3: no room \(nothing was measured\)")
        self.check_fails(self.run_it(server=["sh", "-c", "kill -SEGV $$"]),
                         "ended before it answered .*: killed by SIGSEGV", 128 + 11)
        self.check_fails(self.run_it(server=["no-such-program"]), "no such program")

    def test_server_that_becomes_a_daemon(self):
        self.check_fails(self.run_it(server=["sh", "-c", f"{self.sleeper} & exit 0"]),
                         "a server has to stay in the foreground")

    def test_server_that_never_answers(self):
        for ready, words in ((["--ready", "false"], "--ready false"), (
                ["--ready", str(self.port)], f"--ready {self.port}"), (
                    [], "listens on a TCP port or Unix socket")):
            with mock.patch("cairn.server_load.READY_S", 0.3):
                self.check_fails(self.run_it(*ready, server=[PYTHON, "-S", "-c",
                                                             "import time; time.sleep(60)",
                                                             self.mark]),
                                 f"python3 under system did not answer within 0.3 s: .*{words}")

    def test_ready_command_that_is_none(self):
        self.check_fails(self.run_it("--ready", "/none/there"),
                         "--ready /none/there: the command was not found")

    def test_ready_command_that_hangs(self):
        with mock.patch("cairn.server_ready.COMMAND_S", 0.2), \
                mock.patch("cairn.server_load.READY_S", 0.3):
            self.check_fails(self.run_it("--ready", self.sleeper), "did not answer within")

    def test_load_that_fails(self):
        result = self.run_it(load=f"{self.sleeper} & echo first; echo no wrk >&2; exit 4")
        self.check_fails(result, "--load failed in burst 1 under system: exit status 4: no wrk")
        self.check_fails(self.run_it(load="kill -9 $$"), "--load failed .*: killed by SIGKILL")
        self.check_fails(self.run_it(load="  "), "--load: the command is empty")

    def test_load_fails_under_one_allocator(self):
        out = self.path / "out.json"
        count = self.path / "count"
        result = self.run_it("--json", str(out),
                             load=f"echo >>{count}; test $(wc -l <{count}) -lt 2")
        self.check_fails(result, rf"under {NAME}: exit status 1 \(after 1 of 3 allocators\)")
        self.assertIn("peak MiB", result.stdout)
        self.assertEqual(len(json.loads(out.read_text())["sides"]), 1)

    def test_port_that_is_taken(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen()
            self.check_fails(self.run_it("--ready", str(self.port)),
                             f"port {self.port} is taken: another process answers there")
            self.check_fails(self.run_it(), "Address already in use")
        self.check_fails(self.run_it("--ready", "true"), "succeeds before the server runs")

    def test_server_that_ends_under_load(self):
        load = f"{self.load()}; {self.load()}"
        self.check_fails(self.run_it(server=self.server("abort"), load=load),
                         "ended during burst 1: killed by SIGABRT", 128 + 6)
        # A load that waits for ever is ended, too.
        self.check_fails(self.run_it(server=self.server("leave"), load=load + "; sleep 600"),
                         "ended during burst 1: exit status 5")
        self.check_fails(self.run_it(server=self.server("leave"), load=load, idle="100s"),
                         "ended during the silence: exit status 5")
        for _ in range(5):  # on a busy machine the server may end in the first or second burst
            result = self.run_it(server=self.server("leave-soon"), load=load, bursts="2")
            if "during burst" not in result.stderr:
                break
        self.check_fails(result, "ended after burst 1: exit status 5")

    def test_options(self):
        for options, words in (
                (["--rounds", "2"], "--rounds cannot be combined with --load"),
                (["--for", "2s"], "--for cannot be combined with --load"),
                (["--ready", "70000"], "--ready 70000: not a port"),
                (["--options", "no_such:1"], "--options no_such:1: unknown option"),
                (["--html", "/no/such/file"], "there is no folder")):
            self.check_fails(self.run_it(*options), words)
        self.check_fails(self.run_it(idle="soon"), "--idle soon: write a time such as 10s")
        for option, value in (("--bursts", "2"), ("--idle", "1s"), ("--ready", "80"),
                              ("--html", "x")):
            self.check_fails(cairn("run", option, value, "true"), f"{option} needs --load")


class InterruptTest(ServerCase):
    """The whole tool, in a session like that of a terminal."""

    def start(self, *options, server=None, **more):
        tool = [str(tool_path.TOOLS / "bin" / "cairn"), *self.arguments(*options, **more), "--",
                *(server or self.server())]
        process = subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def await_file(self, path):
        end = time.monotonic() + LONGEST_S
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.1)

    def check_interrupted(self, process, number, within_s=0):
        stdout, stderr = process.communicate(timeout=LONGEST_S)
        self.assertEqual(process.returncode, 128 + number, stderr)
        self.assertRegex(stderr, r"cairn run: interrupted \(nothing was measured\)")
        self.assertNotIn("Traceback", stderr)
        self.assertEqual(stdout, "")
        self.check_nothing_remains(within_s)

    def test_during_a_burst(self):
        seen = self.path / "seen"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.start(load=f"{self.load()}; touch {seen}; sleep 600")
            self.await_file(seen)
            if number == signal.SIGINT:
                os.killpg(process.pid, number)  # as a terminal does
            else:
                process.send_signal(number)
            self.check_interrupted(process, number)
            seen.unlink()

    def test_while_the_server_starts(self):
        seen = self.path / "seen"
        process = self.start("--ready", f"touch {seen}; sleep 1; false",
                             server=["sh", "-c", f"{self.sleeper} & wait"])
        self.await_file(seen)
        os.killpg(process.pid, signal.SIGINT)
        self.check_interrupted(process, signal.SIGINT)

    def test_during_the_silence_of_a_stubborn_server(self):
        """The second interrupt kills the server at once."""
        seen = self.path / "seen"
        process = self.start(load=f"{self.load()}; touch {seen}", idle="600s",
                             server=self.server("child", "stubborn"))
        self.await_file(seen)
        started = time.monotonic()
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.3)
        self.check_interrupted(process, signal.SIGINT)
        self.assertLess(time.monotonic() - started, LONGEST_S)

    def test_tool_that_is_killed(self):
        seen = self.path / "seen"
        process = self.start(load=f"{self.load()}; touch {seen}; sleep 600",
                             server=self.server("child"))
        self.await_file(seen)
        process.kill()
        process.communicate()
        self.check_nothing_remains(LONGEST_S)

    def test_measured_allocators_are_kept(self):
        count = self.path / "count"
        process = self.start(load=f"echo >>{count}; test $(wc -l <{count}) -lt 2 || "
                             f"{{ touch {self.path}/seen; sleep 600; }}")
        self.await_file(self.path / "seen")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LONGEST_S)
        self.assertEqual(process.returncode, 130)
        self.assertIn("interrupted (after 1 of 3 allocators)", stderr)
        self.assertIn("peak MiB", stdout)
        self.check_nothing_remains()


def result_of(name, values, step_s=0.5):
    """A result with these samples in MiB: a burst up to the middle, then silence."""
    samples = [server_memory.Sample(place * step_s, value * MIB, 0)
               for place, value in enumerate(values)]
    middle = samples[len(samples) // 2]
    return server_load.Result(compare.Side(name), samples,
                              [server_load.Burst(0, middle.seconds, {})], [middle], samples[-1], 1)


class ReportTest(browser.PageCase):
    def test_latencies(self):
        for text, expected in (
                ("50% 1.8ms\n99% 9.3 ms\n", {50: 1.8, 99: 9.3}),
                ("  Latency Distribution\n     50%  635.00us\n     99%    1.20s\n",
                 {50: 0.635, 99: 1200}),  # wrk --latency
                ("  50%     12\n  66%     13\n  99%     40\n 100%     52 (longest request)\n",
                 {50: 12, 99: 40}),  # ab
                ("  50% in 0.0012 secs\n  99%% in 0.0100 secs\n", {50: 1.2, 99: 10}),  # hey
                ("50% of the requests\n99 percent\n1550% 3ms\n", {})):
            found = server_load.latencies(text)
            self.assertEqual({key: round(value, 6) for key, value in found.items()}, expected)

    def test_curves(self):
        results = [result_of("system", [10, 100, 100, 50, 50]), result_of("Cairn x:y", [10, 20, 5])]
        lines = list(server_report.curves(results, 80))
        self.assertTrue(all(len(line) <= 80 for line in lines))
        self.assertEqual([line[:18].strip() for line in lines],
                         ["system", "peak 100 MiB", "end 50 MiB", "", "",
                          "Cairn", "x:y", "peak 20 MiB", "end 5 MiB", "", ""])
        places = [line[19:].ljust(61) for line in lines]
        self.assertEqual((places[0][0], places[0][20], places[0][60]), (" ", "█", " "))
        self.assertEqual((places[2][60], places[3][0]), ("█", "▃"))
        self.assertEqual([place[20] for place in places[5:9]], [" ", " ", " ", "▆"])
        self.assertEqual(places[4].rstrip().strip("1"), "·" * 30)
        self.assertRegex(places[10], "^0 s +2 s$")
        wide = list(server_report.curves(results, 1000))
        self.assertLessEqual(max(map(len, wide)), 100)

    def test_six_allocators_fit_into_eighty_columns(self):
        names = ("system", "Cairn", "Cairn background:on", "jemalloc", "mimalloc", "tcmalloc")
        results = [result_of(name, [1000, 2000]) for name in names]
        job = server_load.Job(["server"], "load", 1, 10)
        with io.StringIO() as file:
            rich.console.Console(file=file, width=500).print(server_report.table(job, results))
            self.assertLessEqual(max(len(line.rstrip()) for line in file.getvalue().splitlines()),
                                 80)

    def test_a_single_sample(self):
        lines = list(server_report.curves([result_of("system", [10])], 80))
        self.assertEqual(len(lines), 6)

    @unittest.skipUnless(browser.BROWSER, "no chromium")
    def test_page(self):
        results = [result_of("system", [10, 100, 50]), result_of("<b>Cairn", [10, 20, 5, 5, 5])]
        job = server_load.Job(["server"], "wrk </script>", 1, 1)
        text = server_report.page(job, results, ["one sentence"])
        with tempfile.TemporaryDirectory() as folder:
            seen = browser.use(folder, text, PAGE)
        self.check_page(text, seen)
        self.assertIn("system 10.0 MiB, <b>Cairn 10.0 MiB", seen["first"])
        self.assertEqual(seen["hues"], ["c0", "c1"])
        self.assertEqual(seen["columns"], ["", "system", "<b>Cairn"])
        self.assertIn("peak MiB", seen["rows"])


if __name__ == "__main__":
    unittest.main()
