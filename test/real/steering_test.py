"""The background thread and the control socket under preload: a Python program holds memory, forks
and sleeps; limits of address space, set-user-ID, exec, a control group that changes."""

import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
WAIT_SECONDS = 60
MIB = 1 << 20

# Other users may not have access to the one that runs this test.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
HOLDER = r"""
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def burst(size=3000, count=8000):
    blocks = [libc.malloc(size) for _ in range(count)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks:
        libc.free(block)
"""
BURST = "burst(); print('up', flush=True); sys.stdin.readline()"


def resident(process):
    status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10


def threads(process):
    return [path.read_text(encoding="utf-8").strip()
            for path in pathlib.Path(f"/proc/{process}/task").glob("*/comm")]


def comes_true(condition):
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    return condition()


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WAIT_SECONDS)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self.file = self.socket.makefile("rw", encoding="ascii")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def ask(self, request):
        self.file.write(request + "\n")
        self.file.flush()
        return json.loads(self.file.readline())


def listens(path):
    """Whether a server listens. The path exists a moment before."""
    with contextlib.suppress(OSError), Client(path):
        return True
    return False


def served_by(path):
    """The process that answers there; 0 if none does."""
    try:
        with Client(path) as client:
            return client.ask("version")["pid"]
    except OSError:
        return 0


class SteeringTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-steering-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, words, options, **how):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LD_PRELOAD": LIBRARY,
                       "CAIRN_OPTIONS": options}
        process = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def python(self, text, options, **how):
        return self.start([sys.executable, "-c", HOLDER + text], options, **how)

    def socket_of(self, process):
        path = self.folder / f"s.{process}"
        self.assertTrue(comes_true(lambda: listens(path)), f"nothing listens at {path}")
        return path

    @property
    def control(self):
        return f"control:{self.folder}/s.%p"

    def test_without_options_there_is_no_thread(self):
        process = self.python("print('up', flush=True); sys.stdin.readline()", "")
        self.assertEqual(process.stdout.readline(), "up\n")
        self.assertEqual(len(threads(process.pid)), 1)

    def test_a_sleeping_process_gives_back(self):
        process = self.python("print('up', flush=True); sys.stdin.readline()\n"
                              "burst(); print('done', flush=True); sys.stdin.readline()",
                              "background:on,decay_ms:200,dirty_cap:1G")
        process.stdout.readline()
        before = resident(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        self.assertTrue(comes_true(lambda: "cairn" in threads(process.pid)))
        self.assertTrue(comes_true(lambda: resident(process.pid) < before + 8 * MIB),
                        (before, resident(process.pid)))

    def test_purge_takes_a_sleeping_threads_memory(self):
        text = """
done = threading.Event()
def work():
    burst(); done.set(); time.sleep(1000)
threading.Thread(target=work, daemon=True).start()
done.wait(); print('up', flush=True); sys.stdin.readline()
"""
        process = self.python(text, f"{self.control},decay_ms:1000000,dirty_cap:1G")
        process.stdout.readline()
        with Client(self.socket_of(process.pid)) as client:
            before = resident(process.pid)
            answer = client.ask("purge")
            self.assertTrue(answer["ok"])
            after = resident(process.pid)
            self.assertLess(after, before - 15 * MIB)
            self.assertLess(answer["after_bytes"], answer["before_bytes"] - 15 * MIB)
            stats = client.ask("stats")
            self.assertEqual(stats["pid"], process.pid)
            self.assertEqual(stats["stats"]["dirty_bytes"], 0)
            self.assertEqual(stats["steering"]["background"], 1)
            self.assertGreater(len(stats["threads"]), 1)

    def test_each_process_of_a_fork_has_its_socket(self):
        text = """
kept = []
if os.fork() == 0:
    for _ in range(3000):
        kept.append(bytearray(20000)); time.sleep(0.01)
    os._exit(0)
print('up', flush=True); sys.stdin.readline()
"""
        process = self.python(text, self.control)
        process.stdout.readline()
        own = self.socket_of(process.pid)
        found = comes_true(lambda: [path for path in self.folder.iterdir()
                                    if path != own and listens(path)])
        self.assertEqual(len(found), 1)
        for path in (own, found[0]):
            with Client(path) as client:
                self.assertEqual(client.ask("version")["pid"], int(path.suffix[1:]))
        os.kill(int(found[0].suffix[1:]), signal.SIGKILL)
        process.communicate("\n", timeout=WAIT_SECONDS)
        self.assertFalse(own.exists(), "the file goes at the end")

    def start_parent(self, child_begins):
        """A process that serves a socket, and its child, which begins with these words: (process,
        child's number, function that ends the parent)."""
        text = f"""
kept = []
child = os.fork()
if child == 0:
    {child_begins}
    for _ in range(3000):
        kept.append(bytearray(20000)); time.sleep(0.01)
    os._exit(0)
print(child, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os._exit(0)
"""
        asked = self.folder / "asked"
        process = self.start([sys.executable, "-c", HOLDER + text, str(asked)],
                             f"control:{self.folder}/s.one")

        def end_parent():
            with Client(self.socket_of("one")) as client:
                self.assertEqual(client.ask("version")["pid"], process.pid)
            asked.touch()
            process.wait(timeout=WAIT_SECONDS)
        return process, int(process.stdout.readline()), end_parent

    def check_takes_over(self, process, child):
        self.assertTrue(comes_true(lambda: served_by(self.folder / "s.one") == child))
        os.kill(child, signal.SIGKILL)
        self.assertEqual(process.communicate()[1], "")

    def test_a_daemon_takes_over_its_parents_socket(self):
        process, child, end_parent = self.start_parent("sys.stdin.readline()")
        end_parent()
        process.stdin.write("\n")
        process.stdin.flush()
        self.check_takes_over(process, child)

    def test_a_child_with_a_thread_takes_over_from_its_parent(self):
        process, child, end_parent = self.start_parent("pass")
        self.assertTrue(comes_true(lambda: "cairn" in threads(child)))
        end_parent()
        self.check_takes_over(process, child)

    def test_a_child_is_silent_about_its_parents_socket(self):
        text = """
if os.fork() == 0:
    kept = [(bytearray(20000), time.sleep(0.01)) for _ in range(50)]
    os._exit(0)
os.wait()
"""
        process = self.python(text, f"control:{self.folder}/s.one")
        _, errors = process.communicate(timeout=WAIT_SECONDS)
        self.assertEqual((process.returncode, errors), (0, ""))

    def test_exec_takes_over_its_socket(self):
        text = f"""
print('up', flush=True); sys.stdin.readline()
os.execv(sys.executable, [sys.executable, '-c', 'print("again", flush=True); input()'])
"""
        process = self.python(text, self.control)
        process.stdout.readline()
        path = self.socket_of(process.pid)
        with Client(path) as client:
            self.assertTrue(client.ask("version")["ok"])
            process.stdin.write("\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "again\n")
            self.assertEqual(client.file.readline(), "", "the old connection ended")
        self.assertTrue(comes_true(lambda: served_by(path) == process.pid))

    def check_gets_thread(self, process):
        """The program runs BURST, and ends well with the thread."""
        self.assertEqual(process.stdout.readline(), "up\n")
        self.assertTrue(comes_true(lambda: "cairn" in threads(process.pid)))
        _, errors = process.communicate("\n", timeout=WAIT_SECONDS)
        self.assertEqual((process.returncode, errors), (0, ""))

    def test_little_address_space_is_enough(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (300 * MIB, 300 * MIB))
        process = self.python(BURST, "background:on", preexec_fn=limit)
        self.check_gets_thread(process)

    def test_a_small_program_has_no_thread(self):
        # An entrypoint that changes its rights and then executes the server: libc aborts it if
        # another thread has other rights.
        if os.geteuid() != 0:
            self.skipTest("only root may change its rights")
        process = self.start(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                              PYTHON, "-c", HOLDER + BURST], "background:on")
        self.check_gets_thread(process)

    def test_a_thread_that_cannot_be_made_is_a_warning(self):
        if os.geteuid() != 0:
            self.skipTest("the limit is tried as another user")

        def no_threads():
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
            os.setgid(65534)
            os.setuid(65534)
        os.chmod(self.folder, 0o755)
        process = self.start([PYTHON, "-c", HOLDER + "burst()"], "background:on",
                             preexec_fn=no_threads)
        out, errors = process.communicate(timeout=WAIT_SECONDS)
        self.assertEqual((process.returncode, out), (0, ""))
        self.assertRegex(errors, r"^cairn: cannot start the background thread: E[A-Z]+\n$")

    def test_a_socket_that_cannot_be_made_is_a_warning(self):
        for path in ("/nowhere/at/all", str(self.folder)):
            process = self.start(["/bin/cat"], f"control:{path}")
            error = process.stderr.readline()  # of a thread that starts with the program
            out, errors = process.communicate(timeout=WAIT_SECONDS)
            self.assertEqual((process.returncode, out), (0, ""))
            self.assertRegex(error + errors,
                             rf"^cairn: cannot open control socket {path}: E[A-Z]+\n$")

    def group(self, maximum, high="max", stalled=0):
        group = self.folder / "root/sys/fs/cgroup/shop"
        group.mkdir(parents=True, exist_ok=True)
        (self.folder / "root/proc/self").mkdir(parents=True, exist_ok=True)
        (self.folder / "root/proc/self/cgroup").write_text("0::/shop\n", encoding="ascii")
        for name, value in (("memory.max", maximum), ("memory.high", high),
                            ("memory.pressure", f"some avg10=0.00 total={stalled}")):
            new = group / "new"
            new.write_text(f"{value}\n", encoding="ascii")
            new.rename(group / name)

    def test_the_limits_follow_the_group_and_refuse(self):
        self.group(1000 * MIB)
        text = """
print('up', flush=True)
for line in sys.stdin:
    block = libc.malloc(100 << 20); print('yes' if block else 'no', flush=True); libc.free(block)
"""
        process = self.python(text, f"{self.control},watch_root:{self.folder}/root,"
                                    "soft_limit:cgroup,hard_limit:cgroup")
        process.stdout.readline()

        def allocates():
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline() == "yes\n"

        with Client(self.socket_of(process.pid)) as client:
            self.assertEqual(client.ask("get hard_limit")["value"], "cgroup")
            self.assertTrue(allocates())
            self.group(80 * MIB, 40 * MIB)
            self.assertTrue(comes_true(lambda: client.ask("stats")["steering"]["cgroup_high_bytes"]
                                       == 40 * MIB))
            steering = client.ask("stats")["steering"]
            self.assertEqual(steering["soft_limit_bytes"], 36 * MIB)
            self.assertEqual(steering["hard_limit_bytes"], 76 * MIB)
            self.assertFalse(allocates())
            self.assertGreater(client.ask("stats")["steering"]["refusals"], 0)
            self.group("max")
            self.assertTrue(comes_true(allocates))

    def test_pressure_comes_and_goes(self):
        self.group("max")
        process = self.python("print('up', flush=True)\nfor line in sys.stdin:\n"
                              "    burst(100000, 200); print('done', flush=True)",
                              f"{self.control},watch_root:{self.folder}/root,dirty_cap:1G")
        process.stdout.readline()
        stall = 0
        with Client(self.socket_of(process.pid)) as client:
            def pressed():
                nonlocal stall
                stall += 1000000
                self.group("max", stalled=stall)
                return client.ask("stats")["steering"]["pressure"]
            self.assertTrue(comes_true(pressed))
            self.assertTrue(comes_true(
                lambda: client.ask("stats")["stats"]["dirty_bytes"] == 0 or not pressed()))
            self.assertTrue(comes_true(
                lambda: not client.ask("stats")["steering"]["pressure"]), "it is over")
            self.assertEqual(client.ask("stats")["steering"]["pressure_spells"], 1)

    def test_a_program_with_privileges_takes_no_options(self):
        if os.geteuid() != 0:
            self.skipTest("only root makes a set-user-ID program")
        program = self.folder / "sleep"
        shutil.copy("/bin/sleep", program)
        os.chown(program, 65534, 65534)
        os.chmod(program, 0o4755)
        os.chmod(self.folder, 0o777)
        process = self.start([str(program), "0.5"], self.control)
        process.communicate(timeout=WAIT_SECONDS)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["sleep"])

    def test_a_client_that_floods_leaves_the_program_alone(self):
        process = self.python("print('up', flush=True)\nfor line in sys.stdin:\n"
                              "    burst(64, 1000); print('done', flush=True)", self.control)
        process.stdout.readline()
        path = self.socket_of(process.pid)
        floods = [Client(path) for _ in range(12)]
        for client in floods:
            client.socket.setblocking(False)
            try:
                while True:
                    client.socket.send(b"stats\n" * 1000)
            except OSError:
                pass
        for _ in range(5):
            process.stdin.write("\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "done\n")
        with Client(path) as client:
            self.assertTrue(client.ask("version")["ok"])
        for client in floods:
            client.__exit__()


if __name__ == "__main__":
    unittest.main()
