"""`cairn stats`, `cairn inspect` and `cairn leaks` on incomplete targets: each command answers, or
states in one sentence what is missing and what to do. Core files that were cut, that have no file
mappings, or that are of another version or allocator; stripped programs; containers; processes
that may not be read."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

from inspect_command_test import MAGIC, abort_in, cores_are_files, preload
from tool_path import TOOLS

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
PROGRAM = os.environ["CAIRN_LEAK_TARGET"]
LOOK = os.path.join(os.environ["CAIRN_BUILD"], "cairn-look")
STATIC_PROGRAM = os.environ["CAIRN_LEAK_STATIC_TARGET"]
COMMANDS = {"stats": "(?m)^allocated ", "inspect": "live in slabs", "leaks": "blocks are lost"}
LONGEST_SECONDS = 60


def cairn(*arguments, **options):
    return subprocess.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": "100", "LC_ALL": "C.UTF-8"}, check=False,
                          timeout=200, **options)


def namespaces_are_allowed():
    return os.geteuid() == 0 and shutil.which("chroot") and subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL,
        check=False).returncode == 0


class TargetCase(unittest.TestCase):
    def check_answers(self, target, *sentences):
        for command, words in COMMANDS.items():
            with self.subTest(command=command):
                result = cairn(command, target)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertRegex(result.stdout, words)
                for sentence in sentences:
                    self.assertRegex(result.stdout, sentence)

    def check_refuses(self, target, sentence, **options):
        for command in COMMANDS:
            with self.subTest(command=command):
                result = cairn(command, target, **options)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertRegex(result.stderr, sentence)
                self.assertEqual(len(result.stderr.splitlines()), 1)


@unittest.skipUnless(cores_are_files(), "core files go elsewhere here (core_pattern)")
class CoreTest(TargetCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        _, cls.core = abort_in(cls.folder.name, [PROGRAM, "abort"], preload())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def copy(self):
        return pathlib.Path(shutil.copy(self.core, pathlib.Path(self.folder.name) / "copy"))

    def test_a_core(self):
        self.check_answers(self.core)

    def test_a_cut_core_answers_in_part_or_says_so(self):
        path = self.copy()
        whole = path.stat().st_size
        for share in (0.999, 0.3):
            os.truncate(path, int(whole * share))
            for command in COMMANDS:
                with self.subTest(command=command, share=share):
                    result = cairn(command, path)
                    text = result.stdout + result.stderr
                    self.assertRegex(text, "was cut|too short for a core file")
                    self.assertEqual(result.returncode, 2 if result.stderr else 0)
                    self.assertLessEqual(len(result.stderr.splitlines()), 1)

    def test_a_core_without_file_mappings(self):
        with tempfile.TemporaryDirectory() as folder:
            _, core = abort_in(folder, [PROGRAM, "abort"], preload(), "0x23")
            self.check_answers(core)

    def test_another_version(self):
        path = self.copy()
        with path.open("r+b") as file:
            file.seek(self.core.read_bytes().index(MAGIC) + 16)
            file.write((77).to_bytes(4, "little"))
        self.check_refuses(path, "layout version 77, this tool reads version .*: use the tools "
                                 "of that library")

    def test_another_allocator(self):
        with tempfile.TemporaryDirectory() as folder:
            _, core = abort_in(folder, [PROGRAM, "abort"], dict(os.environ))
            self.check_refuses(core, "no Cairn library found: its memory belongs to another "
                                     "allocator")

    def test_no_core(self):
        self.check_refuses(__file__, "not a core file")
        self.check_refuses("/nowhere/core", "no such file")


class ProcessTest(TargetCase):
    """Stopped processes, each started by a command that execs the program or is its parent."""

    def started(self, command, folder, env=None, **options):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env or preload(),
                                   cwd=folder, start_new_session=True, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def stopped(self, process):
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        return process.pid

    def child(self, process, name):
        """The child of the process, once it runs the program and has both its threads."""
        end = time.monotonic() + LONGEST_SECONDS
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while time.monotonic() < end:
            for pid in children.read_text(encoding="ascii").split():
                status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
                if f"Name:\t{name}\n" in status and "Threads:\t2\n" in status:
                    return int(pid)
            time.sleep(0.02)
        self.fail("it did not start")

    def test_a_stripped_program(self):
        with tempfile.TemporaryDirectory() as folder:
            program = shutil.copy(STATIC_PROGRAM, folder)
            subprocess.run(["strip", program], check=True)
            process = self.started([program, "stop"], folder, dict(os.environ))
            self.check_answers(self.stopped(process))

    def test_another_allocator(self):
        """Commands for any process describe it, others refuse it."""
        process = self.started([PROGRAM, "stop"], "/", dict(os.environ))
        pid = self.stopped(process)
        for command in COMMANDS:
            with self.subTest(command=command):
                result = cairn(command, pid)
                if command in ("inspect", "stats"):
                    self.assertEqual((result.returncode, result.stderr), (0, ""))
                    self.assertRegex(result.stdout, rf"process {pid} .* does not run on Cairn")
                    result = cairn(command, pid, "--json")
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertRegex(result.stderr, "no Cairn library found")
                self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_a_program_whose_file_is_gone(self):
        with tempfile.TemporaryDirectory() as folder:
            library, program = shutil.copy(LIBRARY, folder), shutil.copy(PROGRAM, folder)
            process = self.started([program, "stop"], folder, preload(library))
            pid = self.stopped(process)
            os.unlink(library)
            os.unlink(program)
            self.check_answers(pid)

    @unittest.skipUnless(namespaces_are_allowed(), "only root can make namespaces, where allowed")
    def test_a_container(self):
        """A container with its own mounts and process numbers: its files have other paths here."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            needed = [PROGRAM, LIBRARY]
            for line in subprocess.run(["ldd", PROGRAM, LIBRARY], capture_output=True, text=True,
                                       check=True).stdout.splitlines():
                needed += [word for word in line.split() if word.startswith("/") and
                           not word.endswith(":")]
            for path in set(needed):
                place = root / path.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
            inner = root / "inner"
            inner.mkdir()
            shutil.move(root / PROGRAM.lstrip("/"), inner / "service")
            shutil.move(root / LIBRARY.lstrip("/"), inner / "malloc.so")
            process = self.started(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", shutil.which("chroot"),
                 folder, "/inner/service", "wait"], folder, {"LD_PRELOAD": "/inner/malloc.so"},
                stderr=subprocess.DEVNULL)
            self.check_answers(self.child(process, "service"), r"process \d+ \(service\)")

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_a_process_of_another_user(self):
        with tempfile.TemporaryDirectory() as folder:
            pid = self.stopped(self.started([PROGRAM, "stop"], folder))
            os.chmod(folder, 0o755)
            look = shutil.copy(LOOK, folder)
            for command in ("census", "blocks", "leaks"):
                result = subprocess.run([look, command, str(pid)], capture_output=True, text=True,
                                        user=65534, check=False)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertRegex(result.stderr, f"cannot read process {pid}: permission denied; "
                                                "run the tool as its user.*CAP_SYS_PTRACE")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "only root drops rights")
    def test_a_process_of_the_same_user_with_more_rights(self):
        """A debugger without a right of the target, which also acts like a restrictive value of
        kernel.yama.ptrace_scope."""
        with tempfile.TemporaryDirectory() as folder:
            pid = self.stopped(self.started([PROGRAM, "stop"], folder))
            result = subprocess.run(
                ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace",
                 LOOK, "census", str(pid)],
                capture_output=True, text=True, check=False)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("permission denied to root, since the tool lacks CAP_SYS_PTRACE",
                          result.stderr)
            self.assertNotIn("as root", result.stderr)


if __name__ == "__main__":
    unittest.main()
