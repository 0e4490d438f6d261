"""Every workload and program of the benchmark at a tiny size, under Cairn."""

import math
import os
import pathlib
import re
import subprocess
import unittest

BUILD = pathlib.Path(os.environ["CAIRN_BUILD"])
BENCH = BUILD / "bench"
LIBRARY = BUILD / "libcairn-malloc.so"
TINY = ("--scale", "0.002", "--seconds", "0.005", "--nodes", "20000")

# Figures that may be zero or missing.
MAY_BE_ZERO = {"after_2s_kib", "after_trim_kib", "freed_kib", "start_over_libc_ms",
               "start_over_libc_kib", "reused_sizes", "merged_sizes", "split_sizes",
               "branch_misses"}
MAY_BE_NEGATIVE = {"start_over_libc_ms", "start_over_libc_kib"}
# A frame ends as a whole, so the end of one of its nodes takes almost no time.
FRAME_ROWS = {"b-stack", "b-ring", "b-ring-contended"}
LIST_ROWS = {"b-stack": "cairn_stack_new", "b-fifo": "cairn_fifo_new", "b-ring": "cairn_ring_new",
             "b-ring-contended": "cairn_ring_new"}
COUNTERS = {"instructions", "cycles", "instructions_per_cycle", "branch_misses"}


def run(*command, preload=LIBRARY, environment=None):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=120, check=False,
                          env={**os.environ, **({"LD_PRELOAD": str(preload)} if preload else {}),
                               **(environment or {})})


def listed():
    lines = run(BENCH / "cairn-workloads", "--list", preload=None).stdout.splitlines()
    return [line.split("\t") for line in lines]


def parse(text):
    return {line.split("\t")[0]: line.split("\t")[1:] for line in text.splitlines()}


class WorkloadsTest(unittest.TestCase):
    def check_figure(self, row, name, value, unit):
        if value == "not available":
            self.assertIn(name, COUNTERS)
            return
        number = float(value)
        self.assertTrue(math.isfinite(number))
        if name not in MAY_BE_NEGATIVE:
            self.assertGreaterEqual(number, 0)
        if name not in MAY_BE_ZERO:
            self.assertGreater(number, 0)
        if unit == "ns":  # at least a few instructions, and less than a second
            if row not in FRAME_ROWS or not name.endswith("_free_ns"):
                self.assertGreater(number, 0.1)
            self.assertLess(number, 1e9)
        if unit == "%":
            self.assertLessEqual(number, 100)

    def test_every_workload(self):
        rows = listed()
        self.assertGreater(len(rows), 50)
        self.assertEqual(len({row[0] for row in rows}), len(rows))
        for name, _, _, time, memory, _, instead in rows:
            with self.subTest(name):
                result = run(BENCH / "cairn-workloads", *TINY, name)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                figures = parse(result.stdout)
                library, function = figures.pop("allocator")
                self.assertTrue(LIBRARY.samefile(library))
                self.assertEqual(function, instead or "malloc")
                for figure, (value, unit) in figures.items():
                    with self.subTest(figure):
                        self.check_figure(name, figure, value, unit)
                for compared in (time, memory):
                    if compared not in ("", "peak_rss"):
                        self.assertIn(compared, figures)

    def test_memory_per_byte_is_at_least_one(self):
        for name in ("a-memory-1-64", "a-memory-1k-31k"):
            figures = parse(run(BENCH / "cairn-workloads", "--scale", "0.2", name).stdout)
            self.assertGreaterEqual(float(figures["bytes_per_byte"][0]), 1)
            self.assertLess(float(figures["bytes_per_byte"][0]), 2)

    def check_list_of_nodes(self, name, preload):
        figures = parse(run(BENCH / "cairn-workloads", "--nodes", "1000000", name,
                            preload=preload).stdout)
        self.assertEqual(float(figures["nodes"][0]), 1000000)
        self.assertGreaterEqual(float(figures["live_rounds"][0]), 1)
        self.assertLessEqual(float(figures["live_rounds"][0]), 2 if "contended" in name else 1)
        self.assertGreaterEqual(float(figures["rss_per_payload"][0]), 0.9)
        return figures

    def test_list_of_nodes_counts_what_was_asked_for(self):
        for name in ("b-uncontended", "b-contended", *LIST_ROWS):
            with self.subTest(name):
                self.check_list_of_nodes(name, LIBRARY)

    def test_list_on_an_allocator_of_cairns_is_on_malloc_without_cairn(self):
        listed_names = {row[0]: row[6] for row in listed() if row[6]}
        self.assertEqual(listed_names, LIST_ROWS)
        for name in LIST_ROWS:
            with self.subTest(name):
                figures = self.check_list_of_nodes(name, None)
                self.assertIn("libc", pathlib.Path(figures["allocator"][0]).name)
                self.assertEqual(figures["allocator"][1], "malloc")
                # A system's malloc takes 16 bytes a node or more.
                self.assertGreater(float(figures["rss_per_payload"][0]), 1.8)

    def test_scale_scales(self):
        asked = [float(parse(run(BENCH / "cairn-workloads", "--scale", scale,
                                 "a-memory-mixed").stdout)["asked_mib"][0])
                 for scale in ("0.01", "0.04")]
        self.assertAlmostEqual(asked[1] / asked[0], 4, delta=0.4)

    def test_served_by_the_system_without_preload(self):
        figures = parse(run(BENCH / "cairn-workloads", *TINY, "a-cycle", preload=None).stdout)
        self.assertIn("libc", pathlib.Path(figures["allocator"][0]).name)

    def test_output_goes_to_the_file(self):
        result = run(BENCH / "cairn-workloads", *TINY, "--output", "/dev/full", "a-cycle")
        self.assertEqual(result.returncode, 1)

    def test_wrong_arguments(self):
        for arguments in ((), ("no-such-row",), ("--scale", "x", "a-cycle"), ("--seconds", "-1"),
                          ("a-cycle", "a-live")):
            result = run(BENCH / "cairn-workloads", *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertTrue(result.stderr.startswith(("usage: ", "cairn-workloads: no workload")))


class ProgramsTest(unittest.TestCase):
    def check_same_output(self, *command, environment=None):
        ours, theirs = (run(*command, preload=preload, environment=environment)
                        for preload in (LIBRARY, None))
        self.assertEqual((ours.returncode, ours.stderr), (0, ""))
        self.assertRegex(ours.stdout, "^[0-9a-f]+\n$")
        self.assertEqual(ours.stdout, theirs.stdout)

    def test_containers(self):
        self.check_same_output(BENCH / "cairn-containers", 3)
        self.assertEqual(run(BENCH / "cairn-containers", "x").returncode, 2)

    def test_objects(self):
        script = pathlib.Path(__file__).resolve().parents[2] / "bench" / "programs" / "objects.py"
        self.check_same_output("/usr/bin/python3", "-S", script, 2,
                               environment={"PYTHONMALLOC": "malloc"})

    def test_micro(self):
        for name in ("cairn-bench-libc", "cairn-bench-api"):
            if not (BENCH / name).exists():
                self.skipTest("built without Google Benchmark")
            result = run(BENCH / name, "--benchmark_min_time=0.0001", "--benchmark_format=csv",
                         preload=LIBRARY if name.endswith("libc") else None)
            self.assertEqual(result.returncode, 0, result.stderr)
            cases = re.findall(r'^"(\w+)[/"]', result.stdout, re.M)
            self.assertGreater(len(cases), 20)
            self.assertEqual(set(cases), {"malloc_free", "calloc_free", "new_delete_sized",
                                          "malloc_free_1000", "realloc_in_place",
                                          "realloc_doubling", "remote_free"})


if __name__ == "__main__":
    unittest.main()
