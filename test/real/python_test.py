"""python3: parts of its own test suite, and a workload whose digest is compared.

PYTHONMALLOC=malloc: otherwise Python's own small-object allocator would serve nearly everything.
"""

import importlib.util
import json

import preload
from preload import CAIRN, HERE, SYSTEM

SERIAL_SUITES = ["test.test_dict", "test.test_json", "test.test_ctypes"]

# Parts of the suite with threads, and with threads, processes and fork together, without those
# that mostly sleep.
CONCURRENT_SUITES = ["test.test_threading"] + [
    f"test.test_multiprocessing_fork.{name}" for name in (
        "WithProcessesTestProcess", "WithProcessesTestPool", "WithProcessesTestQueue",
        "WithProcessesTestSharedMemory", "WithProcessesTestHeap", "WithProcessesTestConnection",
        "WithProcessesTestSharedCTypes", "WithProcessesTestArray", "WithManagerTestPool",
        "WithManagerTestContainers", "WithManagerTestQueue", "WithThreadsTestPool",
        "WithThreadsTestProcess", "TestSyncManagerTypes", "TestForkAwareThreadLock")]


class PythonTest(preload.RealProgramTest):
    def setUp(self):
        super().setUp()
        self.python = self.need("python3", "python3")
        if importlib.util.find_spec("test.test_dict") is None:  # this is the same python3
            self.fail("python3's test suite is missing: apt-get install libpython3-testsuite")

    def run_file(self, allocator, file, *arguments):
        return self.run_program([self.python, HERE / file, *arguments], allocator,
                                env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "1"}).stdout

    def outcomes(self, allocator, suites):
        """{test: outcome} of Python's own test suites."""
        return json.loads(self.run_file(allocator, "python_suites.py", *suites).splitlines()[-1])

    def test_workload_has_the_same_digest(self):
        actual = self.run_file(CAIRN, "python_work.py")
        self.assertRegex(actual, b"^[0-9a-f]{64}\n$")
        self.assertEqual(actual, self.run_file(SYSTEM, "python_work.py"))

    def test_own_suite_has_the_same_outcomes(self):
        expected = self.outcomes(SYSTEM, SERIAL_SUITES)
        self.assertGreater(len(expected), 700)
        self.assertEqual(self.outcomes(CAIRN, SERIAL_SUITES), expected)

    def test_own_suite_of_threads_and_processes(self):
        outcomes = list(self.outcomes(CAIRN, CONCURRENT_SUITES).values())
        self.assertGreater(outcomes.count("ok"), 250)


if __name__ == "__main__":
    preload.main()
