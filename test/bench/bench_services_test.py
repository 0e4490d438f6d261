"""bench_services: the run of a service in phases, its figures, its settings, what is refused."""

import os
import pathlib
import tempfile
import types
import unittest
from unittest import mock

import bench_path  # noqa: F401  pylint: disable=unused-import
import bench_programs
import bench_services
from bench_rows import Settings, select
from bench_services import Load
from cairn import server_load, server_memory
from cairn.allocator_libraries import Allocator
from cairn.errors import UserError

LIBRARY = pathlib.Path(os.environ["CAIRN_TEST_LIBRARY"])
SYSTEM, CAIRN = Allocator("system", None), Allocator("cairn", LIBRARY)
SETTINGS = Settings(quick=True)
MIB = 1 << 20
TINY = (Load("burst", 1, 1), Load("steady", 1, 1, pause_ms=1), Load("sizes", 1, 1, percent=50),
        Load("burst", 1, 1), Load("burst", 1, 1))


class TinyUnit(bench_services.ServiceUnit):
    """A service that tells its options, with a client that writes its parameters."""

    def __init__(self, folder, end="echo 50% 2ms; echo 99% 7ms"):
        super().__init__("tiny", "")
        self.folder, self.end = folder, end

    def command(self, directory, port):
        return ["/bin/sh", "-c", f"echo \"$CAIRN_OPTIONS\" >{self.folder}/options; exec "
                f"{bench_services.PYTHON} -m http.server {port} --bind 127.0.0.1"]

    def client(self, directory, port, load):
        words = " ".join(map(str, load.words()))
        return f"echo {words} >>{self.folder}/loads; {self.end}"


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, value in (("bench_services.PHASES", TINY), ("cairn.server_load.PAUSE_S", 0.01),
                            ("bench_services.SILENCE_QUICK_S", 0.6)):
            patch = mock.patch(name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_phases_and_figures(self):
        before = os.environ.get("CAIRN_OPTIONS")
        allocator = bench_services.with_settings([CAIRN])[0]
        figures = TinyUnit(self.folder).run(allocator, SETTINGS)["tiny"]
        self.assertEqual((self.folder / "options").read_text(encoding="utf-8"), "background:on\n")
        self.assertEqual(os.environ.get("CAIRN_OPTIONS"), before)
        self.assertEqual((self.folder / "loads").read_text(encoding="utf-8").splitlines(),
                         ["1 1 100 0", "1 1 100 1", "1 1 50 0", "1 1 100 0", "1 1 100 0"])
        self.assertEqual((figures["median_ms"].value, figures["p99_ms"].value), (2, 7))
        for name in ("silent", "after_1_burst", "after_2_steady", "after_3_sizes", "silent_5s"):
            self.assertGreater(figures[name].value, 3, name)
            self.assertLessEqual(figures[name].value, figures["peak"].value, name)
        self.assertLess(abs(figures["growth"].value), 50)

    def test_a_client_without_times(self):
        figures = TinyUnit(self.folder, "true").run(SYSTEM, SETTINGS)["tiny"]
        self.assertIsNone(figures["median_ms"].value)
        self.assertEqual((self.folder / "options").read_text(encoding="utf-8"), "\n")

    def test_a_client_that_fails(self):
        unit = TinyUnit(self.folder, "echo no answer >&2; exit 3")
        with self.assertRaisesRegex(UserError, "burst 1 under system: exit status 3: no answer"):
            unit.run(SYSTEM, SETTINGS)

    def test_a_client_that_hangs(self):
        with self.assertRaisesRegex(UserError, "burst 1 under system: exit status 124"):
            TinyUnit(self.folder, "sleep 100").run(SYSTEM, Settings(quick=True, timeout_s=1))

    def test_every_client_that_is_here_works(self):
        for unit in bench_services.service_units():
            if unit.name in ("service-python", "service-redis", "service-node", "service-ruby") \
                    and not unit.skip_reason(SETTINGS):
                with self.subTest(unit.name):
                    figures = unit.run(SYSTEM, SETTINGS)[unit.name]
                    self.assertGreater(figures["median_ms"].value, 0)


class FiguresTest(unittest.TestCase):
    def test_of_a_result(self):
        def sample(seconds, mib, lazy=0):
            return server_memory.Sample(seconds, mib * MIB, lazy * MIB)
        after = [sample(place + 1, mib) for place, mib in enumerate((100, 40, 80, 103, 110))]
        bursts = [server_load.Burst(place, place + 1, {50: place, 99: 10 * place})
                  for place in range(5)]
        silent = sample(35, 50, 7)
        samples = [*after, sample(4.5, 108), sample(5.5, 200), sample(9.9, 60), sample(10.1, 55),
                   silent]
        result = server_load.Result(types.SimpleNamespace(), samples, bursts, after, silent, 12)
        figures = {name: value for name, (value, _) in bench_services.figures_of(result).items()}
        self.assertAlmostEqual(figures.pop("growth"), 10)
        self.assertEqual(figures, {
            "cpu_s": 12, "silent": 50, "silent_5s": 60, "silent_lazy": 7, "peak": 200,
            "after_1_burst": 100, "after_2_steady": 40, "after_3_sizes": 80, "after_4_burst": 103,
            "after_5_burst": 110, "median_ms": 3, "p99_ms": 30})


class SelectionTest(unittest.TestCase):
    def test_settings_of_allocators(self):
        peers = [SYSTEM, CAIRN, Allocator("cairn-hardened", LIBRARY), Allocator("mimalloc3", None),
                 Allocator("jemalloc5", pathlib.Path("/j"), "5.3")]
        self.assertEqual(
            [(one.name, one.setting) for one in bench_services.with_settings(peers)],
            [("system-two-arenas", "MALLOC_ARENA_MAX=2"),
             ("cairn-background", "CAIRN_OPTIONS=background:on"),
             ("jemalloc5-background", "MALLOC_CONF=background_thread:true")])

    def test_only_if_named(self):
        def services(patterns):
            return [unit for unit in select(bench_programs.all_units(), patterns)
                    if unit.name.startswith("service-")]
        self.assertEqual(services([]), [])
        self.assertEqual(len(services(["services"])), 9)
        self.assertEqual(len(services(["service-redis"])), 1)

    def test_what_is_missing(self):
        with tempfile.TemporaryDirectory() as nothing, \
                mock.patch.dict(os.environ, PATH=nothing), \
                mock.patch("bench_servers.SYSTEM_DIRECTORIES", ""), \
                mock.patch("bench_services.PYTHON", "/bin/false"), \
                mock.patch("pathlib.Path.glob", return_value=[]):
            reasons = {unit.name: unit.skip_reason(SETTINGS)
                       for unit in bench_services.service_units()}
        self.assertIn("mariadbd is not installed (Debian package mariadb-server-core)",
                      reasons["service-mariadb"])
        self.assertIn("python3 has no fastapi or no uvicorn (pip", reasons["service-fastapi"])
        self.assertIn("python3 has no pyarrow", reasons["service-arrow"])
        for name in ("node", "ruby", "java", "redis", "postgres"):
            self.assertRegex(reasons[f"service-{name}"], "is not installed|refuses root", name)


if __name__ == "__main__":
    unittest.main()
