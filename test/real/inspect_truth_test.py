"""The map of live blocks that cairn-look reads from real programs, stopped during their work, and
from their core files. It is compared with the list of recorder.c, a library before malloc: no block
is missing, none is extra, and each has its size."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
LOOK = os.path.join(os.environ["CAIRN_BUILD"], "cairn-look")
RECORDER = os.environ["CAIRN_TEST_RECORDER"]
LONGEST_SECONDS = 200  # on a busy machine

PYTHON_WORK = "x = [{i: [str(i), i * 1.5]} for i in range(40000)]"
PYTHON_THREADS = """
import threading
def work(number):
    kept = []
    for i in range(20000):
        kept.append(str(number * i) * (i % 40))
        if i % 3 == 0:
            kept.pop(0)
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
PERL_WORK = 'my %h; for my $i (1..60000) { $h{"key$i"} = [$i, "value" x ($i % 50)]; }'
SQL_WORK = ("create table t(a integer primary key, b text, c real);"
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000) "
            "insert into t select i, hex(i * 7919), i * 0.5 from n;"
            "create index t_b on t(b); select count(*), max(b) from t where c > 100;")
LUA_WORK = "local t = {} for i = 1, 60000 do t[i] = {i, tostring(i), {}} end"
C_WORK = "\n".join(f"int f{i}(int a) {{ int s = {i}; while (a--) s += a * {i}; return s; }}"
                   for i in range(200))


def cores_are_files():
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii").strip()
    return not pattern.startswith(("|", "/"))


def read_list(lines):
    return {int(address, 16): int(size) for address, size in (line.split() for line in lines)}


def state_of(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return stat.rpartition(")")[2].split()[0]


class Recorded:
    """A program under the recorder, stopped after a number of calls."""

    def __init__(self, folder, command, calls, **options):
        self.record = pathlib.Path(folder) / "record"
        self.errors = pathlib.Path(folder) / "errors"  # its messages, to report a failure
        environment = {**os.environ, "LD_PRELOAD": f"{RECORDER}:{LIBRARY}",
                       "CAIRN_RECORD_TO": str(self.record), "CAIRN_RECORD_UNTIL": str(calls),
                       **options.pop("env", {})}
        environment.pop("CAIRN_OPTIONS", None)
        self.pid = None
        with self.errors.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(command, cwd=folder, env=environment,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=errors, start_new_session=True,
                                            preexec_fn=self.allow_core, **options)

    @staticmethod
    def allow_core():
        import resource  # pylint: disable=import-outside-toplevel
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)

    def wait(self):
        """Waits until the program has stopped; returns the recorded blocks."""
        whole = self.record.with_name("record.whole")
        end = time.monotonic() + LONGEST_SECONDS
        while not whole.exists() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        if not whole.exists():
            status = self.process.poll()
            ended = f"it ended with status {status}" if status is not None else (
                f"it went on for {LONGEST_SECONDS} s" +
                ("" if self.record.exists() else " without as many calls"))
            raise AssertionError(f"the recorder wrote no list of {self.process.args[0]}: {ended}. "
                                 f"Stderr: {self.errors.read_text(errors='replace').strip()}")
        lines = whole.read_text(encoding="ascii").splitlines()
        self.pid = int(lines[0])
        while state_of(self.pid) != "T" and time.monotonic() < end:
            time.sleep(0.01)
        return read_list(lines[1:])

    def dump(self, folder):
        """The core file of the program, None if the system wrote it elsewhere. The signal is
        pending while the program is stopped, and is delivered before any other."""
        os.kill(self.pid, signal.SIGXCPU)
        os.kill(self.pid, signal.SIGCONT)
        if self.process.pid == self.pid:
            self.process.wait(LONGEST_SECONDS)
        cores = sorted(pathlib.Path(folder).glob("core*"))
        return cores[0] if cores else None

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class TruthTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The dynamic linker only warns of a library that it cannot preload, and the program runs
        # without it, perhaps for ever. So the library is tried on a short program first.
        with tempfile.TemporaryDirectory() as folder:
            recorded = Recorded(folder, ["sort", "/dev/null"], 2)
            try:
                recorded.wait()
            finally:
                recorded.end()

    def read_blocks(self, target):
        result = subprocess.run([LOOK, "blocks", str(target)], capture_output=True, text=True,
                                check=False, timeout=LONGEST_SECONDS)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return read_list(result.stdout.splitlines())

    def check(self, calls, *command, least=1000, **options):
        program = shutil.which(command[0])
        if program is None:
            self.skipTest(f"{command[0]} is not installed")
        with tempfile.TemporaryDirectory() as folder:
            prepare = options.pop("prepare", None)
            if prepare:
                prepare(pathlib.Path(folder))
            recorded = Recorded(folder, [program, *command[1:]], calls, **options)
            try:
                blocks = recorded.wait()
                self.assertGreater(len(blocks), least)
                self.assertEqual(self.read_blocks(recorded.pid), blocks)
                core = recorded.dump(folder) if cores_are_files() else None
                if core:
                    self.assertEqual(self.read_blocks(core), blocks)
            finally:
                recorded.end()

    def test_python(self):
        self.check(150000, "/usr/bin/python3", "-c", PYTHON_WORK, env={"PYTHONMALLOC": "malloc"})

    def test_python_with_threads(self):
        self.check(150000, "/usr/bin/python3", "-c", PYTHON_THREADS,
                   env={"PYTHONMALLOC": "malloc"})

    def test_perl(self):
        self.check(150000, "perl", "-e", PERL_WORK)

    def test_sqlite(self):
        self.check(60000, "sqlite3", ":memory:", SQL_WORK, least=300)

    def test_lua(self):
        self.check(100000, "lua5.4" if shutil.which("lua5.4") else "lua", "-e", LUA_WORK)

    def test_git(self):
        def prepare(folder):
            for i in range(300):
                (folder / f"file{i}").write_text(f"{i}\n" * i, encoding="ascii")
            subprocess.run(["git", "init", "--quiet", str(folder)], check=True)

        self.check(2000, "git", "add", "--all", least=100, prepare=prepare)

    def test_sort(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.writelines(f"{i * 7919 % 100003} {i}\n" for i in range(50000))
            file.flush()
            self.check(400, "sort", "--parallel=2", "-k1,1n", "-k2,2n", file.name, least=20)

    def compile(self, calls, driver, name):
        program = subprocess.run([driver, f"-print-prog-name={name}"], capture_output=True,
                                 text=True, check=False).stdout.strip() \
            if shutil.which(driver) else name
        with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
            file.write(C_WORK)
            file.flush()
            self.check(calls, program, "-quiet", "-O2", file.name, "-o", "/dev/null")

    def test_the_c_compiler(self):
        self.compile(60000, "gcc", "cc1")

    def test_the_cxx_compiler(self):
        self.compile(60000, "g++", "cc1plus")

    def test_redis(self):
        self.check(1500, "redis-server", "--save", "", "--port", "0", "--unixsocket", "socket",
                   least=500)


if __name__ == "__main__":
    unittest.main()
