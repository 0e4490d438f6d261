"""The committed traces: each is small, whole, and played as a row of the benchmark."""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

import bench_path
import bench_rows
import bench_traces
from cairn.allocator_libraries import Allocator

LIBRARY = pathlib.Path(os.environ["CAIRN_TEST_LIBRARY"])
FOLDER = bench_path.ROOT / "bench" / "traces"
BYTES_MOST = 2_000_000
SETTINGS = bench_rows.Settings(quick=True)


class BenchTracesTest(unittest.TestCase):
    def test_all_have_a_row_and_are_small(self):
        found = {path.name.partition(".")[0] for path in FOLDER.iterdir()}
        self.assertEqual(found, set(bench_traces.TITLES))
        self.assertLess(sum(path.stat().st_size for path in FOLDER.iterdir()), BYTES_MOST)

    def test_each_is_played(self):
        build = pathlib.Path(os.environ["CAIRN_BUILD"])
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch("bench_files.build_directory", return_value=build), \
                mock.patch("bench_files.program_path",
                           side_effect=lambda name: pathlib.Path(folder) / name):
            for unit in bench_traces.trace_units():
                self.assertIsNone(unit.skip_reason(SETTINGS))
                for allocator in (Allocator("system", None), Allocator("cairn", LIBRARY)):
                    figures = unit.run(allocator, SETTINGS)[unit.name]
                    self.assertGreater(figures["cpu_ms"].value, 0)
                    self.assertGreater(figures["peak_rss"].value, 2)
            self.assertEqual(len(list(pathlib.Path(folder).iterdir())), len(bench_traces.TITLES))


if __name__ == "__main__":
    unittest.main()
