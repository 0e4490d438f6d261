"""`cairn inspect` and `cairn stats` of a process that does not run on Cairn."""

import mmap
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

import tool_path
from cairn import allocator_libraries, other_malloc

COMMAND = str(tool_path.TOOLS / "bin" / "cairn")
PYTHON = "/usr/bin/python3"
MIB = 1 << 20
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
# Holds memory of each kind, says so, and waits for the end of its input.
HOLDER = """
import mmap, sys, threading
def fill(memory):
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    return memory
anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
held = [fill(mmap.mmap(-1, 30 << 20, anonymous)), fill(mmap.mmap(-1, 7 << 20)),
        fill(mmap.mmap(-1, 5 << 20, anonymous))]
held[2].madvise(mmap.MADV_FREE)
def work():
    held.append([bytearray(10000) for _ in range(300)])
    filled.release()
    threading.Event().wait()
filled = threading.Semaphore(0)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
    filled.acquire()
print("ready", flush=True)
sys.stdin.read()
"""


class OtherMallocTest(unittest.TestCase):
    def start(self, *command, **environment):
        """The process, once it has printed a line."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, env={**ENVIRONMENT, **environment})
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        process.stdout.readline()
        return process

    def described(self, pid, command="inspect"):
        result = subprocess.run([COMMAND, command, str(pid)], capture_output=True, text=True,
                                check=False, timeout=200)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_memory_by_kind(self):
        process = self.start(PYTHON, "-S", "-c", HOLDER)
        memory = other_malloc.Memory(str(process.pid))
        kinds = {name: dict(zip(("count", "mapped", "resident", "lazy", "swapped"), values))
                 for name, values in memory.kinds.items()}
        self.assertTrue(35 * MIB < kinds["anonymous"]["resident"] < 60 * MIB, kinds)
        self.assertTrue(4 * MIB < kinds["anonymous"]["lazy"] < 6 * MIB, kinds)
        self.assertTrue(7 * MIB <= kinds["shared"]["resident"] < 8 * MIB, kinds)
        self.assertGreater(kinds["files"]["resident"], MIB)
        self.assertGreaterEqual(kinds["heap"]["mapped"], mmap.PAGESIZE)
        self.assertEqual(kinds["stacks"]["count"], 4)
        self.assertGreaterEqual(kinds["arenas"]["count"], 1)
        self.assertGreater(kinds["arenas"]["resident"], 2 * MIB)
        self.assertGreater(memory.status_bytes("VmPTE"), 0)

    def test_description(self):
        process = self.start(PYTHON, "-S", "-c", HOLDER, "an\033[31m argument")
        for command in ("inspect", "stats"):
            text = self.described(process.pid, command)
            for words in (rf"process {process.pid} \(python3\) does not run on Cairn",
                          r"Its malloc: glibc \(/.*libc\.so\.6\)\.", "Resident now .*, at most ",
                          "  in glibc's arenas +[1-9]", "anonymous mappings ", "lazily free",
                          "page tables +[0-9]", r'cairn run --load "COMMAND" -- /usr/bin/python3 '):
                self.assertRegex(text, words)
            self.assertNotIn("\033", text)

    def test_title_that_a_program_gives_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            name = pathlib.Path(folder) / "server 127.0.0.1:80"
            name.symlink_to("/bin/cat")
            process = self.start("/bin/sh", "-c", 'echo; exec "$0"', str(name))
            while not os.readlink(f"/proc/{process.pid}/exe").endswith("cat"):
                time.sleep(0.02)
            text = self.described(process.pid)
        self.assertIn(f'cairn run --load "COMMAND" -- {name}\n', text)

    def test_mapped_allocators(self):
        for name, file, package in allocator_libraries.PACKAGED:
            library = allocator_libraries.find_file(file)
            if not library:
                continue
            with self.subTest(package=package):
                process = self.start(PYTHON, "-S", "-c", HOLDER, LD_PRELOAD=str(library))
                text = self.described(process.pid)
                self.assertRegex(text, rf"Its malloc: {name} \(/.*{re.escape(library.name)}")
                self.assertNotIn("glibc's arenas", text)

    def test_programs_that_contain_one(self):
        main = ("#include <stdio.h>\nconst char *volatile said = WORDS;\n"
                "int main(void) { puts(said); fflush(stdout); return getchar(); }\n")
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "program")
            for words, options, expected in (
                    ("<jemalloc>: error", [], "jemalloc, which the program file contains"),
                    ("nothing", ["-static"], "in the program file, which is linked statically")):
                subprocess.run(["cc", "-x", "c", "-", "-o", path, f'-DWORDS="{words}"',
                                *options], input=main, text=True, check=True)
                text = self.described(self.start(path).pid)
                self.assertIn(f"Its malloc: {expected}.", text)
                self.assertEqual("cairn run cannot compare it" in text, bool(options))
                os.unlink(path)

    def test_names_of_libraries(self):
        for paths, expected in (
                (["/lib/ld-musl-x86_64.so.1"], "musl (/lib/ld-musl-x86_64.so.1)"),
                (["/lib/libc.so.6", "/x/libhardened_malloc.so"],
                 "hardened_malloc (/x/libhardened_malloc.so)"),
                (["/x/libmesh.so"], "mesh (/x/libmesh.so)"),
                (["/lib/libc-2.31.so"], "glibc (/lib/libc-2.31.so)")):
            self.assertEqual(other_malloc.malloc_name("self", paths), expected)

    def test_a_process_that_has_ended(self):
        result = subprocess.run([COMMAND, "inspect", "4194304"], capture_output=True, text=True,
                                check=False)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("no process 4194304", result.stderr)


if __name__ == "__main__":
    unittest.main()
