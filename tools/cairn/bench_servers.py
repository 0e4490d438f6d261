"""Rows of the benchmark that are servers: each listens on a Unix socket in a folder of its own and
is stopped when its clients are done.

The server alone runs on the allocator, from its start to its end: CPU time is that of all its
processes. Wall time is that of the clients, who run on what the tool runs on.

A server of one process is compared by its peak RSS. One of several processes is compared by their
sum, since each of them pays for a heap of its own: the peak PSS. RSS would count what they share,
such as PostgreSQL's buffers, once for each of them; PSS divides it. What a process held at its own
peak beyond what it holds when it is looked at is added, so that it does not matter much when that
is. The largest single process stands beside as peak RSS.
"""

import contextlib
import hashlib
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from typing import List, NamedTuple

from cairn import bench_files, files
from cairn.bench_rows import (PEAK_PSS, PEAK_RSS, Figure, Row, RunFailed, Unit, check_processes,
                              last_line, limited, process_figures, processes_under, run_beside,
                              run_measured)
from cairn.errors import UserError

START_S = 20
LOOK_S = 0.1  # between two looks at the memory of a server's processes
SYSTEM_DIRECTORIES = ":/usr/sbin:/sbin"  # not in every user's PATH


def libc_path():
    """The libc that programs here run on, taken from this one."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if pathlib.PurePath(path).name.startswith("libc.so"):
            return path
    return None


class Client(NamedTuple):
    command: List
    is_compared: bool = False  # what it writes has to be the same in each run


def processes_of(pid):
    """A process and its children."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        raise RunFailed("the server has ended, or the kernel does not tell its processes") from None
    return [pid, *map(int, children)]


def _kib(text, name):
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.M)
    return int(found.group(1)) if found else 0


def pss_mib(pid):
    """What all processes of a server hold, each as at its peak; see above."""
    total = 0
    for process in processes_of(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            directory = pathlib.Path("/proc") / str(process)
            status = (directory / "status").read_text()
            total += _kib((directory / "smaps_rollup").read_text(), "Pss")
            total += _kib(status, "VmHWM") - _kib(status, "VmRSS")
    return total / 1024


def check_mapped(pid, library, allocator):
    """Every process of the server has the library, those that it forked, too."""
    name = os.path.realpath(library)
    for process in processes_of(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            maps = pathlib.Path(f"/proc/{process}/maps").read_text()
            if maps and name not in maps:  # one that is about to end has none any more
                raise UserError(f"{allocator.name}: {library} is not in process {process} of the "
                                "server")


class Server:
    """A server that runs in a thread, measured from its start to its end. It writes its process
    number to a file."""

    def __init__(self, command, library, settings, pid_file):
        self._pid_file = pathlib.Path(pid_file)
        self._outcome = None
        self._thread = threading.Thread(target=self._run, args=(command, library, settings))
        self._thread.start()

    def _run(self, command, library, settings):
        try:
            self._outcome = run_measured(command, library, settings)
        except (RunFailed, UserError, OSError) as error:
            self._outcome = error

    def pid(self):
        """Its process number, or None before it has written that."""
        try:
            return int(self._pid_file.read_text().split("\n")[0])
        except (FileNotFoundError, ValueError):
            return None

    def wait_for(self, is_ready):
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._thread.is_alive():
            if self.pid() and is_ready():
                return self.pid()
            time.sleep(0.005)
        raise RunFailed("the server did not start")

    def stop(self, number):
        """Asks it to end and waits. Should it not, `timeout` ends it, under which it runs."""
        pid = self.pid()
        if pid and self._thread.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        self._thread.join()

    def measured(self):
        """What it cost, once it was stopped; raises what hindered it."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class ServerUnit(Unit):
    """A server and its clients. A class of this kind says how they are started."""

    row = None
    needs = {}  # programs and their Debian packages
    server = ""  # the one of them that is measured
    stop_signal = signal.SIGTERM

    def __init__(self):
        self.rows = (self.row,)
        self._checked = set()  # names of allocators that serve the server

    def find(self, name):
        """The path of a program, or None."""
        return shutil.which(name, path=os.environ.get("PATH", os.defpath) + SYSTEM_DIRECTORIES)

    def skip_reason(self, settings):
        for name, package in self.needs.items():
            if not self.find(name):
                return f"{name} is not installed (Debian package {package})"
        return None

    def library(self, allocator, directory):  # pylint: disable=unused-argument
        """What is preloaded."""
        return allocator.library

    def prepare(self, directory):
        """Puts into the new folder what the server needs there."""

    def command(self, directory):
        """The server; it listens on directory/socket and writes its process number to
        directory/pid."""
        raise NotImplementedError

    def is_ready(self, directory):
        return pathlib.Path(directory, "socket").exists()

    def clients(self, directory, settings):
        """Clients that follow one another."""
        raise NotImplementedError

    def _run_client(self, client, settings, pid):
        """(digest of what it wrote, peak PSS of the server)"""
        most = 0
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, \
                subprocess.Popen(limited(client.command, settings), stdout=out, stderr=err) as run:
            while run.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.wait(LOOK_S)
                if self.row.memory == PEAK_PSS:
                    most = max(most, pss_mib(pid))
            if run.returncode:
                err.seek(0)
                raise RunFailed(f"{client.command[0]}: exit status {run.returncode}: "
                                f"{last_line(err.read().decode(errors='replace'))}")
            return files.digest(out).hexdigest() if client.is_compared else "", most

    def _load(self, directory, settings, pid):
        """(seconds, peak PSS) of the clients' work."""
        start = time.monotonic()
        runs = [self._run_client(client, settings, pid)
                for client in self.clients(directory, settings)]
        seconds = time.monotonic() - start
        self.check_output(" ".join(digest for digest, _ in runs))
        return seconds, max(most for _, most in runs)

    def _check_program(self, library, allocator):
        """Asks the server for its version, or for what it does not know, in a run of its own."""
        if allocator.name not in self._checked:
            command = [self.find(self.server), "--version"]
            check_processes(processes_under(command, library), library, allocator)
            self._checked.add(allocator.name)

    def _serve(self, allocator, settings, directory):
        self.prepare(directory)
        library = self.library(allocator, directory)
        self._check_program(library, allocator)
        server = Server(self.command(directory), library, settings, f"{directory}/pid")
        try:
            pid = server.wait_for(lambda: self.is_ready(directory))
            seconds, pss = self._load(directory, settings, pid)
            if library:
                check_mapped(pid, library, allocator)
        except RunFailed:
            server.stop(self.stop_signal)
            server.measured()  # if it ended badly, that is what is to be told
            raise
        finally:
            server.stop(self.stop_signal)
        figures = {**process_figures(server.measured()), "wall_s": Figure(seconds, "s")}
        return {**figures, PEAK_PSS: Figure(pss, "MiB")} if pss else figures

    def run(self, allocator, settings):
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as directory:
            return {self.name: self._serve(allocator, settings, directory)}


class RedisUnit(ServerUnit):
    """redis-server under load from redis-benchmark."""

    row = Row("redis", "programs", "redis-server, set/get/lists/sets", "cpu_s", PEAK_RSS)
    needs = {"redis-server": "redis-server", "redis-benchmark": "redis-tools"}
    server = "redis-server"
    TESTS = "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,lrange_100,mset"

    def library(self, allocator, directory):
        # Debian's redis-server is linked with jemalloc; libc before it makes "system" be system.
        return allocator.library or libc_path()

    def command(self, directory):
        return [self.find("redis-server"), "--port", "0", "--unixsocket", f"{directory}/socket",
                "--pidfile", f"{directory}/pid", "--save", "", "--appendonly", "no", "--dir",
                directory, "--daemonize", "no"]

    def clients(self, directory, settings):
        yield Client([self.find("redis-benchmark"), "-s", f"{directory}/socket", "-q", "-t",
                      self.TESTS, "-c", "20", "-P", "16", "-r", "50000", "-d", "200", "-n",
                      "2000" if settings.quick else "70000"])


NGINX_CONFIGURATION = """
{user}
daemon off;
worker_processes 1;
pid {directory}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    root {directory}/root;
    keepalive_requests 1000000;
    upstream itself {{
        server unix:{directory}/behind;
        keepalive 16;
    }}
    server {{
        listen unix:{directory}/socket;
        location /proxied/ {{
            proxy_pass http://itself/;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
        location /packed/ {{ gzip on; gzip_types *; gzip_comp_level 1; alias {directory}/root/; }}
        location /included/ {{ ssi on; ssi_types *; alias {directory}/root/; }}
    }}
    server {{ listen unix:{directory}/behind; }}
}}
"""


class NginxUnit(ServerUnit):
    """nginx with one worker: files, what it packs, what it puts together, what it fetches from
    itself."""

    row = Row("nginx", "programs", "nginx, files, gzip, includes, proxy", "cpu_s", PEAK_PSS)
    needs = {"nginx": "nginx"}
    server = "nginx"
    stop_signal = signal.SIGQUIT
    PATHS = ("/1000.txt", "/proxied/20000.txt", "/packed/1000.txt", "/included/page.html")

    def prepare(self, directory):
        root = pathlib.Path(directory) / "root"
        root.mkdir()
        for size in (1000, 20000):
            line = hashlib.sha256(str(size).encode()).hexdigest() + "\n"
            (root / f"{size}.txt").write_text((line * size)[:size])
        (root / "page.html").write_text('<!--#include virtual="/1000.txt" -->|'
                                        '<!--#include virtual="/proxied/1000.txt" -->')
        # Only root may choose the workers' user, and must: they read files of this one.
        user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
        (root.parent / "nginx.conf").write_text(
            NGINX_CONFIGURATION.format(directory=directory, user=user))

    def command(self, directory):
        return [self.find("nginx"), "-e", "stderr", "-c", f"{directory}/nginx.conf"]

    def clients(self, directory, settings):
        client = bench_files.source_directory() / "bench" / "programs" / "http_load.py"
        yield Client(["/usr/bin/python3", "-S", client, f"{directory}/socket",
                      "4000" if settings.quick else "64000", *self.PATHS], is_compared=True)


class PostgresUnit(ServerUnit):
    """PostgreSQL under pgbench, which writes, and under queries that sort and join. It refuses
    root, so root becomes another user for it."""

    row = Row("postgres", "programs", "PostgreSQL, pgbench and reports", "cpu_s", PEAK_PSS)
    needs = {name: "postgresql" for name in ("postgres", "initdb", "pgbench", "psql")}
    server = "postgres"
    stop_signal = signal.SIGINT  # "fast": without waiting for clients
    USERS = ("postgres", "nobody")
    SETTINGS = ("listen_addresses=", "fsync=off", "full_page_writes=off", "autovacuum=off",
                "shared_buffers=32MB", "max_wal_size=1GB", "jit=off", "huge_pages=off",
                "max_parallel_workers_per_gather=0", "max_parallel_maintenance_workers=0")

    def __init__(self):
        super().__init__()
        self._made = None  # the folder of the new data directory, made once

    def find(self, name):
        # Debian puts nothing but wrappers for its clusters into PATH.
        versions = pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
        newest = max(versions, key=lambda path: float(path.parts[4]), default=None)
        return str(newest) if newest else super().find(name)

    def account(self):
        """Who runs it where the benchmark is root's, or None."""
        if os.geteuid() != 0:
            return None
        for name in self.USERS:
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name)
        return None

    def skip_reason(self, settings):
        if os.geteuid() == 0 and not (self.account() and shutil.which("setpriv")):
            return "PostgreSQL refuses root, and there is no user or no setpriv to become another"
        return super().skip_reason(settings)

    def _as_user(self, command):
        account = self.account()
        return [*(["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}",
                   "--clear-groups"] if account else []), *command]

    def _own(self, directory):
        if self.account():
            os.chown(directory, self.account().pw_uid, self.account().pw_gid)

    def _new_data(self):
        """A data directory as initdb makes it."""
        if self._made is None:
            # pylint: disable-next=consider-using-with
            made = tempfile.TemporaryDirectory(prefix="cairn-bench-")
            self._own(made.name)
            run_beside(self._as_user(
                [self.find("initdb"), "--pgdata", f"{made.name}/data", "--username", "postgres",
                 "--no-sync", "--no-locale", "--encoding", "UTF8", "--auth", "trust",
                 "--wal-segsize", "4"]))
            self._made = made
        return f"{self._made.name}/data"

    def library(self, allocator, directory):
        if not allocator.library or not self.account():
            return allocator.library
        # It may lie where only root may look.
        copy = pathlib.Path(directory) / allocator.library.name
        shutil.copy(allocator.library, copy)
        copy.chmod(0o755)
        return copy

    def prepare(self, directory):
        self._own(directory)
        run_beside(["cp", "-a", self._new_data(), f"{directory}/data"])

    def command(self, directory):
        options = [word for setting in self.SETTINGS for word in ("-c", setting)]
        return self._as_user([self.find("postgres"), "-D", f"{directory}/data", "-k", directory,
                              "-c", f"external_pid_file={directory}/pid", *options])

    def is_ready(self, directory):
        with contextlib.suppress(FileNotFoundError):
            lines = pathlib.Path(directory, "data", "postmaster.pid").read_text().splitlines()
            return len(lines) > 7 and lines[7].startswith("ready")
        return False

    def clients(self, directory, settings):
        reports = bench_files.source_directory() / "bench" / "programs" / "reports.sql"
        where = ["--host", directory, "--username", "postgres"]
        bench = [self.find("pgbench"), *where]
        writes, reads = ("50", "1") if settings.quick else ("1000", "3")
        yield Client([*bench, "--initialize", "--quiet", "postgres"])
        load = [*bench, "--no-vacuum", "--client", "4", "--random-seed", "7"]
        yield Client([*load, "--builtin", "simple-update", "--transactions", writes, "postgres"])
        yield Client([*load, "--file", reports, "--transactions", reads, "postgres"])
        yield Client([self.find("psql"), *where, "--no-psqlrc", "--quiet", "--tuples-only",
                      "--no-align", "--set", "ON_ERROR_STOP=1", "--file", reports, "postgres"],
                     is_compared=True)
