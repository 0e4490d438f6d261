"""cairn.probe: the malloc that served a program, and the report of it."""

import os
import pathlib
import tempfile
import unittest

import tool_path  # noqa: F401
from cairn import probe
from cairn.errors import UserError
from cairn.probe import Process

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"


class ProbeTest(unittest.TestCase):
    def test_every_different_process_is_read_once(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "processes"
            path.write_bytes(b"sh\t/bin/sh\t/a.so\t/libc.so.6\nls\t/bin/\xff\t/a.so\t/libc.so.6\n"
                             b"sh\t/bin/sh\t/a.so\t/libc.so.6\ncut sh")
            found = probe.read(path)
        self.assertEqual([process.name for process in found], ["sh", "ls"])
        self.assertEqual(found[0], Process("sh", "/bin/sh", "/a.so", "/libc.so.6"))

    def test_system_is_what_the_program_loads(self):
        own = Process("x", "/bin/x", LIBRARY, LIBC)
        self.assertEqual(list(probe.system_remarks("system", [own])), [])
        redis = Process("redis-server", "/usr/bin/redis-check-rdb", LIBRARY, JEMALLOC)
        self.assertEqual(list(probe.system_remarks("system", [own, redis])),
                         ["system is jemalloc for redis-server, not libc's malloc: "
                          f"{JEMALLOC} is linked or preloaded there"])
        static = [Process("node", "/usr/bin/node", "node", "node")]
        self.assertEqual(list(probe.system_remarks("system", static)),
                         ["system is not libc's malloc for node: that brings its own"])

    def test_library_under_test(self):
        good = Process("x", "/bin/x", LIBRARY, LIBC)
        probe.check_served("Cairn", ["x"], LIBRARY, [good])
        with self.assertRaisesRegex(UserError, "under Cairn, malloc came from /lib"):
            probe.check_served("Cairn", ["x"], LIBRARY, [good._replace(malloc=LIBC)])
        with self.assertRaisesRegex(UserError, "/bin/x has its own malloc"):
            probe.check_served("Cairn", ["x"], LIBRARY, [good._replace(malloc="./x")])
        with self.assertRaisesRegex(UserError, "x did not load the library of Cairn"):
            probe.check_served("Cairn", ["x"], LIBRARY, [])

    def test_children_that_it_did_not_serve(self):
        processes = [Process("sh", "/bin/sh", LIBRARY, LIBC), Process("b", "/bin/b", LIBC, LIBC),
                     Process("a", "/bin/a", LIBC, LIBC)]
        probe.check_served("Cairn", ["sh"], LIBRARY, processes)
        self.assertEqual(list(probe.remarks("Cairn", LIBRARY, processes)),
                         [f"Cairn did not serve a, b: malloc came from {LIBC} there"])

    def test_real_programs(self):
        self.assertTrue(probe.is_libc(probe.malloc_of(None)))
        self.assertTrue(os.path.samefile(probe.malloc_of(LIBRARY), LIBRARY))


if __name__ == "__main__":
    unittest.main()
