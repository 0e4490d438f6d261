"""The static probes otel_memory:alloc and otel_memory:free: their notes in the file for tracers,
and, where gdb may watch a process, their arguments at a sample."""

import os
import re
import shutil
import subprocess
import unittest

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
TARGET = os.environ["CAIRN_TEST_TARGET"]


def notes():
    """The notes of the library: {(provider, name): [(place, arguments)]}"""
    text = subprocess.run(["readelf", "-n", LIBRARY], capture_output=True, text=True, check=True,
                          env=os.environ | {"LC_ALL": "C"}).stdout
    found = {}
    for provider, name, place, semaphore, arguments in re.findall(
            r"Provider: (\S+)\s+Name: (\S+)\s+Location: (0x[0-9a-f]+), Base: 0x[0-9a-f]+, "
            r"Semaphore: (0x[0-9a-f]+)\s+Arguments: (.*)", text):
        assert int(semaphore, 16) == 0, semaphore
        found.setdefault((provider, name), []).append((int(place, 16), arguments.split()))
    return found


def code_at(place):
    text = subprocess.run(["objdump", "-d", f"--start-address={place}",
                           f"--stop-address={place + 4}", LIBRARY], capture_output=True, text=True,
                          check=True).stdout
    return next(line for line in text.splitlines() if line.strip().startswith(f"{place:x}:"))


class UserProbesTest(unittest.TestCase):
    def test_the_file_names_them_with_their_arguments(self):
        found = notes()
        self.assertEqual(set(found), {("otel_memory", "alloc"), ("otel_memory", "free")})
        for (_, name), places in found.items():
            for place, arguments in places:
                self.assertEqual(len(arguments), 3 if name == "alloc" else 1)
                for argument in arguments:
                    self.assertRegex(argument, r"^8@")
                self.assertRegex(code_at(place), r"\bnop\b")

    def test_gdb_stops_there(self):
        if shutil.which("gdb") is None:
            self.skipTest("there is no gdb")
        done = subprocess.run(
            ["gdb", "-q", "-batch", "-iex", "set debuginfod enabled off",
             "-ex", f"set environment LD_PRELOAD {LIBRARY}",
             "-ex", "set environment CAIRN_OPTIONS profile:1", "-ex", "set startup-with-shell off",
             "-ex", "set breakpoint pending on",
             "-ex", "break -probe-stap otel_memory:alloc", "-ex", "run",
             "-ex", 'printf "%lu %lu %lu of %d\\n", $_probe_arg0, $_probe_arg1, $_probe_arg2,'
                    " $_probe_argc",
             "-ex", "kill", TARGET],
            capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL)
        if "Operation not permitted" in done.stderr:
            self.skipTest("gdb may not watch a process here")
        stopped = re.search(r"^(\d+) (\d+) (\d+) of 3$", done.stdout, re.M)
        self.assertTrue(stopped, done.stdout[-800:] + done.stderr[-800:])
        address, size, weighted = map(int, stopped.groups())
        self.assertEqual(address % 8, 0)
        self.assertGreater(address, 4096)
        self.assertGreater(size, 0)
        self.assertGreaterEqual(weighted, size)


if __name__ == "__main__":
    unittest.main()
