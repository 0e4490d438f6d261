"""`cairn profile` of a process and of a core file: the profile that the process itself would dump,
read from outside; and the messages for incomplete targets."""

import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from inspect_command_test import MAGIC, cores_are_files
from tool_path import TOOLS

# pylint: disable=wrong-import-position
from cairn.errors import UserError
from cairn.profile_file import read, read_any
from cairn.profile_pprof import pprof
from cairn.profile_report import remarks
from cairn.profile_symbols import Symbols

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
PROGRAM = os.environ["CAIRN_PROFILE_TARGET"]
UNPROFILED = os.environ["CAIRN_TEST_TARGET"]
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "LC_ALL": "C.UTF-8"}
MIB = 1 << 20
KEPT = {"keep_small": 60 * MIB * 1024 / 1000, "keep_large": 20 * MIB}  # as rounded to classes
SIZES = {"keep_small": 1000, "keep_large": MIB, "waste": 5000}
INTERVAL = 8 << 10  # 7800 samples make keep_small: sigma is 1.2 %
NEAR = 0.15
BEGUN_BYTES = 160 * MIB  # churn has allocated 120 MiB before it frees the first
LOOKS = 4
LONG_NAME = "profile_target_of_a_long_name"
# The fields that do not depend on the source and the time.
FIELDS = ("version", "pid", "program", "interval", "lost_stacks", "lost_blocks", "sites", "blocks")
QUIET = """
import sys
kept = []
for line in sys.stdin:
    kept.append([bytearray(3000) for _ in range(2000)])
    print("done", flush=True)
"""


def cairn(*arguments, **environment):
    return subprocess.run([str(TOOLS / "bin" / "cairn"), "profile", *map(str, arguments)],
                          capture_output=True, text=True, check=False, timeout=100,
                          env={**ENVIRONMENT, **environment})


def preload(options=f"profile:{INTERVAL}", library=LIBRARY):
    return {**ENVIRONMENT, "LD_PRELOAD": str(library), "CAIRN_OPTIONS": options}


def leaf(symbols, frames):
    return symbols.stack(frames)[0].function


class OutsideCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)

    def started(self, command, env=None, **options):
        process = subprocess.Popen([str(word) for word in command], cwd=self.place,
                                   env=env or preload(), **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def stopped(self, command=(PROGRAM, "stop"), env=None, **options):
        process = self.started(command, env, **options)
        os.waitpid(process.pid, os.WUNTRACED)
        return process

    def wait_until_full(self, pid):
        """Waits until the program has allocated the blocks that it keeps, and continues."""
        until, size = time.monotonic() + 60, 0
        while size < BEGUN_BYTES:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
            try:
                size = read_any(pid).sum(False).bytes
            except UserError:  # the program has not begun
                pass

    def check_same(self, profile, other, *more):
        for name in (*FIELDS, *more):
            self.assertEqual(getattr(profile, name), getattr(other, name), name)

    def check_sums(self, profile):
        symbols, sums = Symbols(profile), {}
        for site in profile.sites:
            name = leaf(symbols, site.frames)
            sums[name] = sums.get(name, 0) + site.live.bytes
        for name, kept in KEPT.items():
            self.assertLess(abs(sums[name] - kept), NEAR * kept, name)

    def check_refuses(self, *words_and_sentence):
        *words, sentence = words_and_sentence
        result = cairn(*words)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, sentence)
        self.assertEqual(len(result.stderr.splitlines()), 1)


class StoppedTest(OutsideCase):
    def test_it_equals_the_dump_that_the_process_writes_next(self):
        process = self.stopped(env=preload(f"profile:{INTERVAL},profile_file:{self.place}/dump"))
        outside = read_any(process.pid)
        self.assertEqual(list(self.place.iterdir()), [])
        self.check_sums(outside)
        text = {form: cairn(process.pid, *words) for form, words in (
            ("table", ()), ("allocated", ("--allocated",)), ("json", ("--json",)))}
        os.kill(process.pid, signal.SIGCONT)
        self.assertEqual(process.wait(), 0)
        path, = self.place.glob("dump.*")
        dump = read(path)
        self.check_same(outside, dump, "maps", "modules")
        self.assertEqual((outside.torn, outside.unreadable, outside.is_whole), (0, 0, True))
        self.assertEqual(pprof(outside, Symbols(outside), 1), pprof(dump, Symbols(dump), 1))
        self.assertLess(dump.time_ms - outside.time_ms, 100_000)
        self.assertIn("read from its memory", text["table"].stdout)
        for form, words in (("table", ()), ("allocated", ("--allocated",))):
            self.assertEqual(text[form].stdout.splitlines()[1:],
                             cairn(path, *words).stdout.splitlines()[1:])
        value, expected = json.loads(text["json"].stdout), json.loads(cairn(path, "--json").stdout)
        for name in ("process", "sites", "live", "allocated", "remarks", "whole"):
            self.assertEqual(value[name], expected[name])

    def test_a_forked_worker_counts_its_own_allocations(self):
        parent = self.started((PROGRAM, "fork", "stop"))
        until, workers = time.monotonic() + 60, []
        while len(workers) < 2:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
            place = pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
            workers = [pid for pid in place.read_text(encoding="utf-8").split()
                       if "T (stopped)" in pathlib.Path(f"/proc/{pid}/status").read_text(
                           encoding="utf-8")]
        for pid in workers:
            self.addCleanup(os.kill, int(pid), signal.SIGKILL)
        worker, its_parent = read_any(workers[0]), read_any(parent.pid)
        self.assertEqual(worker.sum(True), its_parent.sum(True))
        self.assertEqual(worker.sum(False).bytes, 0)
        self.assertGreater(its_parent.sum(False).bytes, its_parent.sum(True).bytes)

    def test_the_forms(self):
        pid = self.stopped().pid
        forms = {form: self.place / f"out.{form}"
                 for form in ("pprof", "speedscope", "folded", "html")}
        done = cairn(pid, *(word for form, path in forms.items()
                            for word in (f"--{form}", path)))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        for form, path in forms.items():
            self.assertGreater(path.stat().st_size, 100)
            if form != "pprof":
                self.assertIn("keep_small", path.read_text(encoding="utf-8"))
        self.assertRegex(forms["folded"].read_text(encoding="utf-8").splitlines()[0],
                         r";keep_small[^;]* \d+$")

    def test_diff_with_a_dump(self):
        subprocess.run([PROGRAM], check=True,
                       env=preload(f"profile:{INTERVAL},profile_file:{self.place}/dump"))
        path, = self.place.glob("dump.*")
        pid = self.stopped().pid
        rows = json.loads(cairn("diff", path, pid, "--json").stdout)
        self.assertEqual(rows[0]["stack"][0], "keep_small")
        self.assertLess(abs(rows[0]["change_bytes"] - KEPT["keep_small"] / 2), 5 * MIB)
        self.assertEqual(json.loads(cairn("diff", pid, pid, "--json").stdout), [])

    def test_a_program_whose_file_is_gone(self):
        program = shutil.copy(PROGRAM, self.place / LONG_NAME)
        process = self.stopped((program, "stop"))
        self.assertEqual(read_any(process.pid).program, LONG_NAME)
        os.unlink(program)
        result = cairn(process.pid)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"\(deleted\): is not here, so its functions have no names")
        self.assertRegex(result.stdout, r"[56]\d\.\d MiB .*" + LONG_NAME)
        found = cairn(process.pid, "--symbols", pathlib.Path(PROGRAM).parent)
        self.assertNotIn("keep_small", found.stdout, "it has another name there")

    @unittest.skipUnless(shutil.which("gcore"), "gdb is not installed")
    def test_a_debuggers_core(self):
        """The core file of a debugger has no segments for code that was not written to."""
        process = self.stopped()
        done = subprocess.run(["gcore", "-o", str(self.place / "made"), str(process.pid)],
                              capture_output=True, text=True, check=False, timeout=200)
        core = self.place / f"made.{process.pid}"
        if done.returncode or not core.exists():
            self.skipTest("gcore made none")
        outside, inside = read_any(process.pid), read_any(core)
        self.check_same(outside, inside)
        self.check_sums(inside)
        places = {(place.path, place.start) for place in outside.maps}
        self.assertLessEqual({(place.path, place.start) for place in inside.maps}, places)


@unittest.skipUnless(cores_are_files(), "core files go elsewhere here (core_pattern)")
class CoreTest(OutsideCase):
    def core(self, process, name="core"):
        """Writes a core file of a stopped process."""
        pathlib.Path(f"/proc/{process.pid}/coredump_filter").write_text("0x33", encoding="ascii")
        most = resource.prlimit(process.pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(process.pid, resource.RLIMIT_CORE, (most, most))
        os.kill(process.pid, signal.SIGABRT)
        os.kill(process.pid, signal.SIGCONT)
        process.wait()
        found = [path for path in self.place.iterdir() if path.name.startswith("core")]
        if not found:
            self.skipTest("this system writes no core file into the working folder")
        return found[0].rename(self.place / name)

    def patched(self, core, old, new):
        data = core.read_bytes()
        self.assertIn(old, data)
        path = self.place / "patched"
        path.write_bytes(data.replace(old, new))
        return path

    def test_it_equals_that_of_the_process(self):
        process = self.stopped()
        outside = read_any(process.pid)
        core = self.core(process)
        inside = read_any(core)
        self.check_same(outside, inside)
        self.check_sums(inside)
        self.assertEqual(inside.time_ms, max(block.time_ms for block in inside.blocks))
        self.assertEqual([place for place in outside.maps if place.path.startswith("/")],
                         inside.maps)
        self.assertTrue(all(place.build_id for place in inside.maps))
        result = cairn(core, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(json.loads(result.stdout)["reason"], "core")
        self.check_cut(core, outside)

    def check_cut(self, core, whole):
        """The result is a part, with a message, or a message with the reason that there is none."""
        path = pathlib.Path(shutil.copy(core, self.place / "cut"))
        parts = 0
        for share in (0.999, 0.9, 0.6, 0.3, 0.01):
            os.truncate(path, int(core.stat().st_size * share))
            try:
                part = read_any(path)
            except UserError as error:
                self.assertRegex(str(error), "truncated|too short|cannot be read")
                continue
            parts += not part.is_whole
            self.assertEqual(part.unreadable == 0, part.is_whole)
            known = {(block.address, block.bytes) for block in whole.blocks}
            self.assertLessEqual({(block.address, block.bytes) for block in part.blocks}, known)
            result = cairn(path)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual("could not be read" in result.stdout, not part.is_whole)

    def test_what_it_refuses(self):
        core = self.core(self.stopped())
        at = core.read_bytes().index(MAGIC)
        version = core.read_bytes()[at:at + 20]
        path = self.patched(core, version, version[:16] + (77).to_bytes(4, "little"))
        self.check_refuses(path, "layout version 77, this tool reads version")
        counts = struct.pack("<4I", 4096, 16 << 10, 96 << 10, 40)
        path = self.patched(core, counts, struct.pack("<4I", 4096, 8 << 10, 96 << 10, 40))
        self.check_refuses(path, "has another profile format")
        self.check_refuses(self.core(self.stopped(env=preload("background:off")), "never"),
                           "its heap profiler was never started")
        self.check_refuses(self.core(self.stopped(env=ENVIRONMENT), "plain"),
                           "no Cairn library found: its memory belongs to another allocator")


class RunningTest(OutsideCase):
    def test_a_quiet_one_and_the_dumps_around(self):
        socket = self.place / "control"
        process = self.started(
            [sys.executable, "-I", "-S", "-c", QUIET], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
            env={**preload(f"background:on,control:{socket}"), "PYTHONMALLOC": "malloc"})
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)

        def work():
            process.stdin.write("\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "done\n")

        work()
        until = time.monotonic() + 60
        while not socket.is_socket() and time.monotonic() < until:
            time.sleep(0.02)
        self.check_refuses(process.pid, "its heap profiler was never started")
        self.assertEqual(cairn("start", socket, "--interval", "16K").returncode, 0)
        work()
        seen = [self.dump(socket), read_any(process.pid), self.dump(socket)]
        self.check_same(seen[0], seen[2], "maps")
        self.check_same(seen[0], seen[1], "maps")
        self.assertGreater(len(seen[1].blocks), 100)
        self.assertEqual(cairn("stop", socket).returncode, 0)
        work()
        self.check_same(self.dump(socket), read_any(process.pid), "maps")

    def dump(self, socket):
        path = self.place / "dump"
        done = cairn("dump", socket, path)
        self.assertEqual(done.returncode, 0, done.stderr)
        return read(path)

    def test_one_that_changes_all_the_time(self):
        """No sample is a mixture of two: each has the size that its site requests, and the bytes
        that follow from its weight."""
        process = self.started((PROGRAM, "churn"))
        self.wait_until_full(process.pid)
        known, looks, torn, until = {}, 0, 0, time.monotonic() + 150
        while looks < LOOKS or torn == 0:
            self.assertLess(time.monotonic(), until)
            profile = read_any(process.pid)
            symbols = Symbols(profile)
            self.assertGreater(len(profile.blocks), 1000)
            for block in profile.blocks:
                name = leaf(symbols, block.frames)
                if name not in SIZES:
                    continue  # a site in the start of the C library
                self.assertEqual(block.asked, SIZES[name])
                self.assertEqual(known.setdefault(name, (block.objects, block.bytes)),
                                 (block.objects, block.bytes))
            self.check_sums(profile)
            looks, torn = looks + 1, torn + profile.torn
            if profile.torn:
                self.assertRegex(" ".join(remarks(profile, symbols)),
                                 rf"\b{profile.torn} samples were changing")
        self.assertIn("keep_small", known)


class StrangeTest(OutsideCase):
    def test_what_it_refuses(self):
        pid = self.stopped((UNPROFILED,), env=preload(""), stdout=subprocess.DEVNULL).pid
        for words in (("show", pid, "--json"), ("diff", pid, pid)):
            self.check_refuses(*words, "its heap profiler was never started")
        self.check_refuses(self.stopped(env=ENVIRONMENT).pid, "no Cairn library found")
        self.check_refuses("999999999", "no process 999999999")
        self.check_refuses("/nowhere/core", "/nowhere/core: No such file")
        self.check_refuses(__file__, "not a dump of Cairn's heap profiler")
        self.check_refuses(PROGRAM, "a program or a library, not a core file")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "only root drops rights")
    def test_a_process_that_may_not_be_read(self):
        pid = self.stopped().pid
        result = subprocess.run(
            ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace",
             str(TOOLS / "bin" / "cairn"), "profile", str(pid)],
            capture_output=True, text=True, env=ENVIRONMENT, check=False)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, f"cannot read process {pid}: .*CAP_SYS_PTRACE")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("chroot") and subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL,
        check=False).returncode == 0, "only root can make namespaces, where allowed")
    def test_a_container(self):
        """The files of a container have other paths here, and must be found."""
        needed = [PROGRAM, LIBRARY]
        for line in subprocess.run(["ldd", PROGRAM, LIBRARY], capture_output=True, text=True,
                                   check=True).stdout.splitlines():
            needed += [word for word in line.split() if word.startswith("/") and
                       not word.endswith(":")]
        for path in set(needed):
            place = self.place / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        inner = self.place / "inner"
        inner.mkdir()
        shutil.move(self.place / PROGRAM.lstrip("/"), inner / LONG_NAME)
        shutil.move(self.place / LIBRARY.lstrip("/"), inner / "malloc.so")
        outer = self.started(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", shutil.which("chroot"),
             self.place, f"/inner/{LONG_NAME}", "churn"], preload(library="/inner/malloc.so"),
            stderr=subprocess.DEVNULL)
        pid = self.child(outer)
        self.wait_until_full(pid)
        result = cairn(pid)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, rf"process \d+ \({LONG_NAME}\), read from its memory")
        self.assertRegex(result.stdout, r"(?m)^ *[56]\d\.\d MiB .*keep_small")

    def child(self, process):
        """The first process of the container, which a signal from itself does not stop."""
        until = time.monotonic() + 60
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while time.monotonic() < until:
            for pid in children.read_text(encoding="ascii").split():
                status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
                if f"Name:\t{LONG_NAME[:15]}\n" in status:
                    return int(pid)
            time.sleep(0.02)
        self.fail("it did not start")


if __name__ == "__main__":
    unittest.main()
