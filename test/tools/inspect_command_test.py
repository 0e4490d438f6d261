"""`cairn inspect` on processes and core files: its report on blocks in a known state, and its
messages for targets that it cannot read."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from tool_path import TOOLS

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
LOOK = os.path.join(os.environ["CAIRN_BUILD"], "cairn-look")
PROGRAM = os.environ["CAIRN_TEST_TARGET"]
STATIC_PROGRAM = os.environ["CAIRN_TEST_STATIC_TARGET"]
ENVIRONMENT = {**os.environ, "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
SEED, TURNS = 18, 12
MAGIC = b"\x7fcairn-layout\r\n\0"


def inspect(*arguments, **options):
    return subprocess.run([str(COMMAND), "inspect", *map(str, arguments)], capture_output=True,
                          text=True, env=ENVIRONMENT, check=False, timeout=200, **options)


def look(*arguments):
    return subprocess.run([LOOK, *map(str, arguments)], capture_output=True, text=True,
                          errors="replace", check=False, timeout=200)


def preload(library=LIBRARY):
    return {**os.environ, "LD_PRELOAD": str(library)}


def read_blocks(text):
    """The program's output: (state, size, address) for each line."""
    return [(state, int(size), int(address, 16))
            for state, size, address in (line.split() for line in text.splitlines())]


class Stopped:
    """The stopped program, with its blocks."""

    def __init__(self, program=PROGRAM, env=None):
        self.process = subprocess.Popen([program], stdout=subprocess.PIPE, text=True,
                                        env=env if env is not None else preload())

    def __enter__(self):
        os.waitpid(self.process.pid, os.WUNTRACED)
        text = os.read(self.process.stdout.fileno(), 1 << 16).decode()
        return self.process.pid, read_blocks(text)

    def __exit__(self, *_):
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()


def cores_are_files():
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii").strip()
    return not pattern.startswith(("|", "/"))


def abort_in(folder, command, env, core_filter=None):
    """Runs a command that aborts; returns its output and its core file."""
    def prepare():
        if core_filter is not None:
            pathlib.Path("/proc/self/coredump_filter").write_text(core_filter, encoding="ascii")

    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.run(command, cwd=folder, env=env, stdout=output, check=False,
                                 stderr=subprocess.DEVNULL, preexec_fn=prepare)
        output.seek(0)
        text = output.read()
    cores = sorted(pathlib.Path(folder).glob("core*"))
    if process.returncode != -signal.SIGABRT or not cores:
        raise unittest.SkipTest("this system writes no core file into the working folder")
    return text, cores[0]


class BlockTest(unittest.TestCase):
    """The blocks that the program printed, compared with the blocks that are read."""

    def check_blocks(self, target, blocks):
        listed = dict((int(address, 16), int(size)) for address, size in
                      (line.split() for line in look("blocks", target).stdout.splitlines()))
        self.assertEqual(len(blocks), 11)
        for state, size, address in blocks:
            with self.subTest(state=state, size=size):
                words = look("address", target, hex(address)).stdout
                if state == "live":
                    self.assertGreaterEqual(listed[address], size)
                    self.assertIn("state=live", words)
                else:
                    self.assertNotIn(address, listed)
                    self.assertRegex(words, "remote-freed" if state == "remote"
                                     else "state=(free|in quarantine)")


class LiveTest(BlockTest):
    def test_a_stopped_process(self):
        with Stopped() as (pid, blocks):
            self.check_blocks(pid, blocks)
            result = inspect(pid)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn(f"process {pid} (look_target), stopped: Cairn", result.stdout)
            self.assertNotIn("running", result.stdout)
            self.assertRegex(result.stdout, r"blocks with own mappings +1 +33\.0 MiB")

    def test_a_static_program_without_symbols(self):
        with tempfile.TemporaryDirectory() as folder:
            program = shutil.copy(STATIC_PROGRAM, folder)
            subprocess.run(["strip", program], check=True)
            with Stopped(program, dict(os.environ)) as (pid, blocks):
                self.check_blocks(pid, blocks)

    def test_an_address_within_a_block_leads_to_its_start(self):
        with Stopped() as (pid, blocks):
            address = next(address for state, size, address in blocks if size == 300000)
            words = inspect(pid, address + 70000).stdout
            self.assertIn(f"from {address:#x}", words)
            self.assertIn("the address is 70000 bytes into it", words)

    def test_json(self):
        with Stopped() as (pid, _):
            value = json.loads(inspect(pid, "--json").stdout)
        self.assertEqual(value["target"]["stopped"], 1)
        self.assertEqual(value["doubts"], {"torn": 0, "unreadable": 0})
        self.assertEqual([heap["owner"] for heap in value["heaps"]].count("alive"), 1)
        self.assertTrue(all(row["live"] + row["free"] + row["remote"] + row["quarantined"]
                            + row["unused"] == row["slots"] for row in value["classes"]))

    def test_guarded_blocks(self):
        environment = {**preload(), "CAIRN_OPTIONS": "guard:1"}
        with Stopped(env=environment) as (pid, blocks):
            address = next(address for state, size, address in blocks if size == 1000)
            self.assertIn("live (guarded): 1000 bytes", inspect(pid, hex(address)).stdout)
            freed = next(address for state, _, address in blocks if state == "freed")
            self.assertIn("freed (guarded)", inspect(pid, hex(freed)).stdout)

    def test_a_process_that_runs_is_read_and_said_to_run(self):
        with subprocess.Popen([PROGRAM, "churn"], env=preload(),
                              stdout=subprocess.PIPE) as process:
            try:
                process.stdout.readline()  # the program has allocated
                for _ in range(10):
                    self.assertEqual(look("census", process.pid).returncode, 0)
                    self.assertIn(look("blocks", process.pid).returncode, (0,))
                self.assertIn("was running while it was read", inspect(process.pid).stdout)
            finally:
                process.kill()


class RefusalTest(unittest.TestCase):
    def check_refused(self, sentence, *arguments, command=look):
        result = command(*arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, sentence)
        self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_what_is_there_not(self):
        self.check_refused("no process 4194304", 4194304, command=inspect)
        self.check_refused("no such file", "census", "/nowhere/core")
        self.check_refused("not a core file", "census", __file__)
        self.check_refused("a program or a library, not a core file", "census", PROGRAM)
        self.check_refused("not a regular file", "census", "/dev/null")

    def test_another_allocator(self):
        with subprocess.Popen(["sleep", "60"]) as process:
            try:
                time.sleep(0.1)
                self.check_refused("no Cairn library found", "census", process.pid)
            finally:
                process.kill()

    def test_no_address(self):
        with Stopped() as (pid, _):
            self.check_refused("not an address", "address", pid, "0xyz")
            self.check_refused("takes no ADDRESS", pid, "0x1000", "--blocks", command=inspect)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_a_process_of_another_user(self):
        with Stopped() as (pid, _), tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            program = shutil.copy(LOOK, folder)
            result = subprocess.run([program, "census", str(pid)], capture_output=True, text=True,
                                    user=65534, check=False)
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, f"cannot read process {pid}: .*CAP_SYS_PTRACE")


@unittest.skipUnless(cores_are_files(), "core files go elsewhere here (core_pattern)")
class CoreTest(BlockTest):
    """The checks of one core file; and cores that lack something."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.text, cls.core = abort_in(cls.folder.name, [PROGRAM, "abort"], preload())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def copy(self):
        return pathlib.Path(shutil.copy(self.core, pathlib.Path(self.folder.name) / "copy"))

    def test_a_core(self):
        self.check_blocks(self.core, read_blocks(self.text))
        result = inspect(self.core)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("core file (look_target): Cairn", result.stdout)

    def check_core_without_headers(self, keep_library):
        with tempfile.TemporaryDirectory() as folder:
            library = shutil.copy(LIBRARY, folder)
            text, core = abort_in(folder, [PROGRAM, "abort"], preload(library), "0x23")
            if not keep_library:
                os.unlink(library)
            self.check_blocks(core, read_blocks(text))

    def test_a_core_without_file_mappings(self):
        self.check_core_without_headers(True)

    def test_a_core_without_file_mappings_on_another_machine(self):
        self.check_core_without_headers(False)

    def check_cut(self, path, share, whole_blocks):
        """The report names the missing part of the core; returns the number of blocks it has."""
        result = look("census", path)
        if result.returncode:
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, "cut")
            return 0
        self.assertRegex(result.stdout, "missing_bytes=[1-9]")
        text = inspect(path)
        self.assertEqual((text.returncode, text.stderr), (0, ""), share)
        self.assertIn("The core file was cut: ", text.stdout)
        blocks = set(look("blocks", path).stdout.splitlines())
        self.assertLessEqual(blocks, whole_blocks, share)
        return len(blocks)

    def test_cut_cores(self):
        """Cores cut at 20 places: metadata is first, so nearly all of them have all blocks."""
        path = self.copy()
        whole = path.stat().st_size
        blocks = set(look("blocks", path).stdout.splitlines())
        found = []
        for step in range(39, 0, -2):
            os.truncate(path, whole * step // 40)
            found.append(self.check_cut(path, step / 40, blocks))
        self.assertEqual(found[:10], [len(blocks)] * 10)
        os.truncate(path, whole)

    def test_cut_in_the_library(self):
        """The library's constants, its table of classes and the page map are behind the heap."""
        path = self.copy()
        whole = path.stat().st_size
        blocks = set(look("blocks", path).stdout.splitlines())
        for kept in range(whole - 5 * 1000 * 1000, whole, 500 * 1000):
            shutil.copy(self.core, path)
            os.truncate(path, kept)
            self.assertEqual(self.check_cut(path, kept / whole, blocks), len(blocks))

    def test_a_cut_core_of_another_build(self):
        """The file of the library is not used when it is of another build."""
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(shutil.copy(LIBRARY, folder))
            _, core = abort_in(folder, [PROGRAM, "abort"], preload(library))
            contents = library.read_bytes()
            identity = contents.index(b"\x14\0\0\0\x03\0\0\0GNU\0") + 16
            # The first page of the library is in the core; its constants, behind it, are not.
            place = core.read_bytes().index(contents[identity:identity + 20])
            os.truncate(core, place // 4096 * 4096 + 4096)
            self.assertIn("is_from_file=1", look("census", core).stdout)
            library.unlink()
            library.write_bytes(contents[:identity] + bytes(20) + contents[identity + 20:])
            result = look("census", core)
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, "no Cairn library found in the truncated core file")

    def test_nothing_is_unread_in_a_complete_core(self):
        rows = look("leaks", self.core).stdout
        self.assertIn("unread_bytes=0\t", rows)

    def test_another_version(self):
        path = self.copy()
        with path.open("r+b") as file:
            file.seek(self.core.read_bytes().index(MAGIC) + 16)
            file.write((77).to_bytes(4, "little"))
        result = look("census", path)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, "layout version 77, this tool reads version")

    def test_a_core_of_another_allocator(self):
        with tempfile.TemporaryDirectory() as folder:
            _, core = abort_in(folder, [PROGRAM, "abort"], dict(os.environ))
            result = look("census", core)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, "no Cairn library found")

    def test_damage_never_ends_the_tool(self):
        contents = self.core.read_bytes()
        pages = [page for page in range(0, len(contents) - 4096, 4096)
                 if contents[page:page + 4096] != bytes(4096)]
        description = contents.index(MAGIC) + 16
        state = random.Random(SEED)
        path = self.copy()
        for turn in range(TURNS):
            places = [state.choice(pages) + state.randrange(4096) for _ in range(200)]
            if turn % 4 == 0:
                places.append(description + state.randrange(64))
            with path.open("r+b") as file:
                for place in places:
                    file.seek(place)
                    file.write(bytes([state.randrange(256)]))
            for command in ("census", "blocks"):
                result = look(command, path)
                self.assertIn(result.returncode, (0, 2), f"seed {SEED}, turn {turn}")
            with path.open("r+b") as file:
                for place in places:
                    file.seek(place)
                    file.write(contents[place:place + 1])


if __name__ == "__main__":
    unittest.main()
