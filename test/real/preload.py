"""Runs real programs on an allocator given by LD_PRELOAD, and on the system's own.

Every file *_test.py here is a program of its own:

    /usr/bin/python3 -B test/real/redis_test.py build/release/libcairn-malloc.so

Two questions are answered before a run counts:

Did it use the allocator under test?  The dynamic linker logs the object that each symbol was bound
    to (LD_DEBUG=bindings, one file a process). Every process of the run must have bound `malloc` to
    the library under test, and no function of the family to another object, such as libc. That is
    stronger than finding the library in /proc/PID/maps, where it may be mapped but unused, and it
    covers children that live for a millisecond.

Was the result correct?  The result of the program (bytes, digests, counts, invariants) is compared,
    mostly with that of a run on the system's malloc. The exit status alone proves nothing.

Programs run with a small fixed environment, in a temporary directory, on loopback or unix sockets,
in a session of their own that is killed when the test ends, also after a failure.
"""

import ctypes
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

# The whole test must end by itself before ctest's timeout, so that servers are stopped.
TEST_SECONDS = 850
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

HERE = pathlib.Path(__file__).parent

SYSTEM = "system"
CAIRN = "cairn"

FAMILY = frozenset("""
    malloc free calloc realloc reallocarray posix_memalign aligned_alloc memalign valloc pvalloc
    malloc_usable_size free_sized free_aligned_sized malloc_trim mallinfo mallinfo2 mallopt
    malloc_stats malloc_info
    _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t
    _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t
    _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t
    _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t
    _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t
    """.split())

BINDING = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: \w+ symbol `(\w+)'")
STARTED = re.compile(r"initialize program: (.+)")

library = None  # path of the library under test, set by main()


class Bindings:
    """The dynamic linker's logs in one directory: the programs started, and their bindings."""

    def __init__(self, directory):
        self.programs = set()
        self.faults = []
        for log in sorted(pathlib.Path(directory).iterdir()):
            self._read(log)

    def _read(self, log):
        text = log.read_text(errors="replace")
        programs = STARTED.findall(text)
        self.programs.update(os.path.basename(name) for name in programs)
        who = " ".join(programs) or log.name
        bound_malloc = False
        for source, target, symbol in BINDING.findall(text):
            if symbol not in FAMILY:
                continue
            if target == library:
                bound_malloc |= symbol == "malloc" and source != library
            elif target not in programs:
                # A program that takes the address of malloc, and is not position independent, is
                # itself the target of all bindings, by its jump slot. The binding of that slot is
                # logged as well and checked like any other.
                self.faults.append(f"{who}: {source} bound `{symbol}' to {target}")
        if not bound_malloc:
            self.faults.append(f"{who}: nobody bound `malloc' to {library}")


class Result:
    def __init__(self, stdout, stderr, seconds):
        self.stdout = stdout
        self.stderr = stderr
        self.seconds = seconds

    @property
    def text(self):
        return self.stdout.decode(errors="replace")


def describe_status(status):
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


def tail(data, lines=30):
    return "\n".join(data.decode(errors="replace").splitlines()[-lines:])


def _die_with_parent():
    """Runs in the child, so that a killed test leaves no servers."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class RealProgramTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-real-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        # Servers that drop root must reach their files.
        self.directory.chmod(0o755)
        self._runs = 0

    # Programs

    def need(self, name, package, directories=None):
        """The path of a Debian program. A missing one is a clear failure, never a skip."""
        path = shutil.which(name, path=directories or PATH)
        if path is None:
            self.fail(f"{name} is missing: apt-get install {package}")
        return path

    def need_file(self, path, package):
        if not os.path.exists(path):
            self.fail(f"{path} is missing: apt-get install {package}")
        return path

    def environment(self, allocator, extra=None):
        variables = {
            "PATH": PATH,
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        if "CAIRN_OPTIONS" in os.environ:
            variables["CAIRN_OPTIONS"] = os.environ["CAIRN_OPTIONS"]
        variables.update(extra or {})
        if allocator == CAIRN:
            self._runs += 1
            log = self.directory / f"bindings-{self._runs}"
            log.mkdir()
            log.chmod(0o777)
            variables["LD_PRELOAD"] = library
            variables["LD_DEBUG"] = "bindings,libs"
            variables["LD_DEBUG_OUTPUT"] = str(log / "process")
        return variables

    def run_program(self, argv, allocator, *, input=b"", cwd=None, env=None, timeout=400,
                    user=None, expect_programs=(), status=0):
        """Runs argv to its end and returns its output. Fails unless it ends with `status`, and,
        on Cairn, unless all its processes ran on Cairn, `expect_programs` among them."""
        variables = self.environment(allocator, env)
        began = time.monotonic()
        process = self._spawn(argv, variables, cwd=cwd, user=user, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            self._kill(process)
            stdout, stderr = process.communicate()
            self.fail(f"no end after {timeout} s on {allocator}: {self._shown(argv, allocator)}\n"
                      f"{tail(stdout)}\n{tail(stderr)}")
        self._kill(process)  # whatever it left running in its session
        if process.returncode != status:
            self.fail(f"{describe_status(process.returncode)} on {allocator}: "
                      f"{self._shown(argv, allocator)}\n{tail(stdout)}\n{tail(stderr)}")
        if allocator == CAIRN:
            self.check_messages(stderr)
            self.check_bindings(variables, [argv[0], *expect_programs])
        return Result(stdout, stderr, time.monotonic() - began)

    def run_on_both(self, argv, **options):
        """Runs argv on the system's malloc, then on Cairn; the caller compares the results."""
        return (self.run_program(argv, SYSTEM, **options), self.run_program(argv, CAIRN, **options))

    def start_server(self, argv, allocator, *, cwd=None, env=None, user=None):
        """Starts a server in the background; it is killed with its children when the test ends."""
        variables = self.environment(allocator, env)
        log = open(self.directory / f"server-{time.monotonic_ns()}.log", "w+b")
        self.addCleanup(log.close)
        server = self._spawn(argv, variables, cwd=cwd, user=user, stdin=subprocess.DEVNULL,
                             stdout=log, stderr=subprocess.STDOUT)
        server.cairn_variables = variables
        server.cairn_allocator = allocator
        server.cairn_log = log
        server.cairn_argv = argv
        return server

    def server_output(self, server):
        return os.pread(server.cairn_log.fileno(), 1 << 20, 0)

    def wait_until(self, condition, what, server=None, seconds=120):
        """Polls until condition() is true. Fails when the server has ended in the meantime."""
        end = time.monotonic() + seconds
        while not condition():
            if server is not None and server.poll() is not None:
                self._kill(server)
                self.fail(f"server ended ({describe_status(server.returncode)}) before {what}: "
                          f"{self._shown(server.cairn_argv, server.cairn_allocator)}\n"
                          f"{tail(self.server_output(server))}")
            if time.monotonic() > end:
                output = tail(self.server_output(server)) if server else ""
                self.fail(f"after {seconds} s still not: {what}\n{output}")
            time.sleep(0.02)

    def check_server(self, server, expect_programs=()):
        """Checks that a running server uses Cairn, by its bindings and its mappings."""
        self.check_bindings(server.cairn_variables, [server.cairn_argv[0], *expect_programs])
        maps = pathlib.Path(f"/proc/{server.pid}/maps").read_text()
        self.assertIn(os.path.realpath(library), maps)

    def stop_server(self, server, how=signal.SIGTERM, seconds=120, status=0):
        """Sends the server the signal `how`, if that is not None, and checks how it ends."""
        if how is not None:
            server.send_signal(how)
        try:
            server.wait(seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"server did not end within {seconds} s\n{tail(self.server_output(server))}")
        self._kill(server)  # whatever it left running in its session
        output = self.server_output(server)
        if server.returncode != status:
            self.fail(f"{describe_status(server.returncode)}: "
                      f"{self._shown(server.cairn_argv, server.cairn_allocator)}\n{tail(output)}")
        if server.cairn_allocator == CAIRN:
            self.check_messages(output)
            self.check_bindings(server.cairn_variables, [server.cairn_argv[0]])

    # Checks

    def check_messages(self, stderr):
        """Fails if the allocator or the dynamic linker wrote a message."""
        for line in stderr.splitlines():
            if line.startswith(b"cairn:") or b"from LD_PRELOAD cannot be preloaded" in line:
                self.fail(f"complaint on stderr: {line.decode(errors='replace')}")

    def check_bindings(self, variables, expect_programs):
        directory = os.path.dirname(variables["LD_DEBUG_OUTPUT"])
        found = Bindings(directory)
        for program in expect_programs:
            if os.path.basename(program) not in found.programs:
                found.faults.append(f"{program} did not run under the library; seen: "
                                    f"{', '.join(sorted(found.programs)) or 'no program'}")
        if found.faults:
            self.fail("not on the library under test:\n" + "\n".join(found.faults[:20]))

    # Processes

    def _spawn(self, argv, variables, *, cwd, user, **streams):
        # A new session gives a process group to kill; root needs no password to become `user`.
        extra = {"user": user, "group": user, "extra_groups": []} if user else {}
        process = subprocess.Popen([str(arg) for arg in argv], env=variables,
                                   cwd=str(cwd or self.directory), start_new_session=True,
                                   preexec_fn=_die_with_parent, **streams, **extra)
        process.cairn_killed = False
        self.addCleanup(self._reap, process)
        return process

    def _kill(self, process):
        """Kills the whole session once, before its number can belong to another one."""
        if process.cairn_killed:
            return
        process.cairn_killed = True
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _reap(self, process):
        self._kill(process)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def _shown(self, argv, allocator):
        """The command line of the program, to repeat it in a debugger."""
        preload = f"LD_PRELOAD={library} " if allocator == CAIRN else ""
        return preload + " ".join(shlex.quote(str(arg)) for arg in argv)


def free_port():
    """A TCP port on the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_running(pid):
    """Whether the process runs: False also for a zombie."""
    try:
        return ") Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def _end_early(number, _frame):
    reason = f"not done after {TEST_SECONDS} s" if number == signal.SIGALRM else "asked to end"
    raise TimeoutError(reason)


def main():
    global library
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} libcairn-malloc.so [unittest options]")
    library = os.path.realpath(sys.argv.pop(1))
    if not os.path.isfile(library):
        sys.exit(f"{library} does not exist: build it first")
    # Each signal raises an exception in the running test, which can then clean up; with failfast
    # no other test follows.
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_early)
    signal.alarm(TEST_SECONDS)
    unittest.main(verbosity=2, failfast=True)
