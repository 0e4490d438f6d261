"""`bench/cairn-bench` as a user runs it, on rows that take milliseconds."""

import csv
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "bench" / "cairn-bench"
BUILD = pathlib.Path(os.environ["CAIRN_BUILD"])
LIBRARY = BUILD / "libcairn-malloc.so"
OURS_AND_SYSTEM = ("--allocators", "system,cairn")
PROGRAMS = {"redis", "postgres", "nginx", "sqlite3", "python3", "python3-own", "perl", "lua",
            "node", "git", "gcc", "clang", "containers", "rust"}


def bench(*arguments, **environment):
    return bench_as_is("--no-build", *arguments, **environment)


def bench_as_is(*arguments, **environment):
    return subprocess.run([str(TOOL), *map(str, arguments)], capture_output=True,
                          text=True, timeout=200, check=False,
                          env={**os.environ, "COLUMNS": "200", **environment})


def read_csv(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    facts = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    return facts, list(csv.DictReader(line for line in lines if not line.startswith("#")))


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # pylint: disable-next=consider-using-with
        cls.directory = tempfile.TemporaryDirectory(prefix="cairn-bench-test-")
        cls.out = pathlib.Path(cls.directory.name) / "report"
        cls.result = bench("--quick", "--rounds", 3, "--rows", "a-c*,d-4-bytes,threads-?",
                           *OURS_AND_SYSTEM, "--out", cls.out, "--nodes", 1000,
                           "--peer", f"twin={LIBRARY}", "--allocators", "twin")

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_succeeds(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        self.assertIn("Geomeans", self.result.stdout)
        self.assertIn("report.md", self.result.stdout)

    def test_summary_has_every_row_and_allocator(self):
        facts, lines = read_csv(self.out / "results.csv")
        for key in ("commit", "processor", "kernel", "compiler", "libc", "allocator twin"):
            self.assertTrue(facts.get(key), key)
        compared = [line for line in lines if line["aspect"] == "time"]
        self.assertEqual({line["row"] for line in compared},
                         {"a-cycle", "a-calloc", "a-churn", "d-4-bytes", "threads-1", "threads-2",
                          "threads-4", "threads-8"})
        for line in compared:
            self.assertEqual(line["runs"], "3")
            self.assertGreater(float(line["median"]), 0)
            self.assertLessEqual(float(line["first_quartile"]), float(line["third_quartile"]))
            self.assertGreater(float(line["ratio_to_best_peer"]), 0)
        self.assertEqual({line["allocator"] for line in compared}, {"system", "cairn", "twin"})

    def test_best_peer_has_ratio_one_and_ours_is_no_peer(self):
        _, lines = read_csv(self.out / "results.csv")
        for row in ("a-cycle", "threads-4"):
            ratios = {line["allocator"]: float(line["ratio_to_best_peer"]) for line in lines
                      if line["row"] == row and line["aspect"] == "time"}
            self.assertEqual(min(ratios["system"], ratios["twin"]), 1)

    def test_every_run_is_written_and_the_order_is_shuffled(self):
        _, lines = read_csv(self.out / "runs.csv")
        memory = [(line["round"], line["row"], line["allocator"]) for line in lines
                  if line["figure"] == "peak_rss"]
        self.assertEqual(len(memory), 3 * 8 * 3)
        self.assertEqual(len(set(memory)), len(memory))
        orders = [tuple(allocator for number, row, allocator in memory
                        if (number, row) == (str(n), name))
                  for n in (1, 2, 3) for name in ("a-cycle", "a-calloc", "a-churn", "threads-1")]
        self.assertGreater(len(set(orders)), 2)

    def test_rows_that_we_lose_come_first(self):
        text = (self.out / "report.md").read_text(encoding="utf-8")
        section = text.partition("## Time")[2].partition("\n## ")[0]
        ratios = [float(match) for match in re.findall(r"\| (\d+\.\d+) \|$", section, re.M)]
        self.assertEqual(len(ratios), 8)
        self.assertEqual(ratios, sorted(ratios, reverse=True))

    def test_plots(self):
        names = sorted(path.name for path in self.out.glob("*.png"))
        if importlib.util.find_spec("matplotlib"):
            self.assertEqual(names, ["memory.png", "overview.png", "threads.png", "time.png"])
            for name in names:
                self.assertEqual((self.out / name).read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        else:
            self.assertEqual(names, [])
            self.assertIn("no plots: matplotlib is not installed", self.result.stderr)


class ListsTest(unittest.TestCase):
    def test_lists_of_known_lifetime_stand_beside_malloc(self):
        with tempfile.TemporaryDirectory(prefix="cairn-bench-test-") as out:
            result = bench("--quick", "--rounds", 1, "--rows", "b-stack,b-fifo,b-ring*", "--nodes",
                           5000, *OURS_AND_SYSTEM, "--out", out)
            self.assertEqual(result.returncode, 0, result.stderr)
            _, lines = read_csv(pathlib.Path(out) / "results.csv")
        for row in ("b-stack", "b-fifo", "b-ring", "b-ring-contended"):
            for figure in ("total_ms", "cold_alloc_ns", "warm_alloc_ns", "rss_per_payload"):
                found = {line["allocator"] for line in lines
                         if (line["row"], line["figure"]) == (row, figure)}
                self.assertEqual(found, {"system", "cairn"}, (row, figure))
        self.assertIn("(only 5,000 nodes)", result.stdout)
        self.assertNotIn("Geomeans", result.stdout)


class ProgramsTest(unittest.TestCase):
    def test_every_program_that_is_there_runs_the_same(self):
        """Servers run on Cairn and on the system's malloc, and leave no files."""
        with tempfile.TemporaryDirectory(prefix="cairn-bench-test-") as out:
            os.chmod(out, 0o755)  # for PostgreSQL's user
            result = bench("--quick", "--rounds", 1, "--rows", "programs", *OURS_AND_SYSTEM,
                           "--out", out, TMPDIR=out)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            _, lines = read_csv(pathlib.Path(out) / "results.csv")
            report = (pathlib.Path(out) / "report.md").read_text()
            self.assertEqual([path.name for path in pathlib.Path(out).glob("cairn-bench-*")], [])
        skipped = set(re.findall(r"^\| (\S+) \| skipped \|", report, re.M))
        self.assertEqual(set(re.findall(r"^\| \S+ \| (?:system|cairn) \| .* \|$",
                                        report.partition("## Failed")[2], re.M)), set())
        found = {(line["row"], line["allocator"], line["aspect"]): line for line in lines}
        for row in PROGRAMS - skipped:
            for allocator in ("system", "cairn"):
                time_line = found[row, allocator, "time"]
                self.assertEqual(time_line["figure"], "cpu_s", row)
                self.assertGreater(float(time_line["median"]), 0, row)
                memory_line = found[row, allocator, "memory"]
                self.assertEqual(memory_line["figure"],
                                 "peak_pss" if row in ("postgres", "nginx") else "peak_rss")
                self.assertGreater(float(memory_line["median"]), 0.5, row)


class ResumeTest(unittest.TestCase):
    def test_interrupted_benchmark_keeps_its_runs_and_goes_on(self):
        with tempfile.TemporaryDirectory(prefix="cairn-bench-test-") as directory:
            out = pathlib.Path(directory)
            with subprocess.Popen(
                    [str(TOOL), "--no-build", "--quick", "--rounds", "1000", "--rows",
                     "a-cycle,d-4-bytes", *OURS_AND_SYSTEM, "--out", str(out)],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                journal = out / "journal.jsonl"
                while not journal.exists() or journal.read_text().count("\n") < 1 + 4 + 8:
                    time.sleep(0.02)
                process.send_signal(signal.SIGINT)
                stdout, stderr = process.communicate(timeout=100)
            self.assertEqual(process.returncode, 130, stderr)
            self.assertRegex(stderr, r"interrupted after \d+ of 1000 rounds; to go on: cairn-bench "
                                     "--resume")
            self.assertNotIn("Traceback", stderr)
            self.assertIn("Geomeans", stdout)
            self.assertIn("Interrupted by the user", (out / "report.md").read_text())
            _, before = read_csv(out / "runs.csv")

            # as if the tool had been killed while it wrote the last line
            journal.write_bytes(journal.read_bytes()[:-10])
            rounds = max(int(line["round"]) for line in before) + 1
            result = bench_as_is("--resume", out, "--rounds", rounds)
            self.assertEqual(result.returncode, 0, result.stderr)
            facts, after = read_csv(out / "runs.csv")
            self.assertIn("resumed", facts)
            last = int(before[-1]["round"])
            self.assertEqual([line for line in after if int(line["round"]) < last],
                             [line for line in before if int(line["round"]) < last])
            memory = [line for line in after if line["figure"] == "peak_rss"]
            self.assertEqual(len(memory), rounds * 4)

    def test_another_build_is_refused(self):
        with tempfile.TemporaryDirectory(prefix="cairn-bench-test-") as directory:
            twin = pathlib.Path(directory) / "twin.so"
            twin.write_bytes(LIBRARY.read_bytes())
            result = bench("--quick", "--rounds", 1, "--rows", "a-cycle", "--peer", f"twin={twin}",
                           "--allocators", "twin", "--out", directory)
            self.assertEqual(result.returncode, 0, result.stderr)
            with twin.open("ab") as file:
                file.write(b"changed")
            result = bench_as_is("--resume", directory)
        self.assertEqual(result.returncode, 2)
        self.assertIn("twin.so is not what the benchmark was begun with", result.stderr)


class ListedRowsTest(unittest.TestCase):
    """The rows are committed, so that they are known before anything is built."""

    def check(self, name, *command):
        program = BUILD / "bench" / command[0]
        if not program.exists():
            self.skipTest(f"{program} is not built")
        listed = subprocess.run([str(program), *command[1:]], capture_output=True, text=True,
                                check=True).stdout
        committed = TOOL.parent / name
        self.assertEqual(committed.read_text(encoding="utf-8"), listed,
                         f"write what {' '.join(command)} prints to bench/{name}")

    def test_workloads(self):
        self.check("rows.tsv", "cairn-workloads", "--list")

    def test_micro_benchmarks(self):
        self.check("micro.txt", "cairn-bench-libc", "--benchmark_list_tests")


class ErrorsTest(unittest.TestCase):
    def assert_refused(self, result, text):
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(text, result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_errors(self):
        self.assert_refused(bench("--rows", "no-such-row"), "no row or group matches")
        self.assert_refused(bench("--allocators", "dlmalloc"), "dlmalloc: no such allocator")
        self.assert_refused(bench("--peer", "fast"), "write NAME=/path/library.so")
        self.assert_refused(bench("--peer", "fast=/nowhere.so"), "no such file")
        self.assert_refused(bench("--peer", f"cairn={LIBRARY}"), "is taken")
        self.assert_refused(bench("--memory", "100000"), "are available")
        self.assert_refused(bench("--write-goals", "/nowhere.md"), "does not exist")
        self.assert_refused(bench("--rounds", "0"), "--rounds")
        self.assert_refused(bench("--rows", "a-cycle", "--out", "/proc/nothing"), "--out")
        self.assert_refused(bench("--rows", "heap-8g", "--memory", "1"), "every row is skipped")
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            self.assert_refused(bench("--rows", "a-cycle", "--peer", f"empty={file.name}"),
                                "cannot be preloaded")

    def test_allocator_that_is_not_in_effect_is_noticed(self):
        innocent = next(pathlib.Path("/").glob("usr/lib*/*-linux-gnu/libm.so.6"))
        with tempfile.TemporaryDirectory() as out:
            self.assert_refused(bench("--rows", "a-cycle", "--out", out, "--quick", "--peer",
                                      f"mathematics={innocent}"), "malloc came from")

    def test_file_that_cannot_be_written_costs_no_other(self):
        with tempfile.TemporaryDirectory(prefix="cairn-bench-test-") as out:
            blocked = pathlib.Path(out) / "runs.csv"
            blocked.mkdir()
            result = bench("--quick", "--rounds", 1, "--rows", "a-cycle", *OURS_AND_SYSTEM,
                           "--out", out)
            self.assertTrue((pathlib.Path(out) / "report.md").exists())
        self.assert_refused(result, f"{blocked}: ")
        self.assertIn("Geomeans", result.stdout)

    def test_nothing_to_resume(self):
        with tempfile.TemporaryDirectory() as out:
            self.assert_refused(bench_as_is("--resume", out), "No such file")
            self.assert_refused(bench_as_is("--resume", out, "--quick"), "not with --quick")
            (pathlib.Path(out) / "journal.jsonl").write_text('{"format": 1}\n')
            self.assert_refused(bench_as_is("--resume", out), "is damaged")

    def test_list_needs_no_build(self):
        result = bench_as_is("--list", "--rows", "micro", CAIRN_BUILD="/nonexistent")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("micro-malloc-free-64", result.stdout)

    def test_list(self):
        result = bench("--list", "--rows", "B")
        self.assertEqual(result.returncode, 0)
        for row in ("b-contended", "b-stack", "b-fifo", "b-ring-contended"):
            self.assertIn(row, result.stdout)
        self.assertNotIn("a-cycle", result.stdout)


if __name__ == "__main__":
    unittest.main()
