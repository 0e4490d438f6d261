"""The rows of the benchmark and the units that measure them.

A unit is the work of one process: mostly one row, for the micro-benchmarks all of their rows. A run
of a unit gives the figures of each of its rows by name; two of them, which the row names, are
compared as its time and its memory.
"""

import fnmatch
import json
import pathlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from typing import NamedTuple

import bench_files
from cairn import measure, probe
from cairn.allocator_libraries import API, Allocator
from cairn.errors import UserError

PEAK_RSS = "peak_rss"
PEAK_PSS = "peak_pss"  # of a server's processes together
PROGRAM_MIB = 512  # more than a real program takes
NODES = 100_000_000
NODES_QUICK = 1_000_000
NODES_FEWEST = 1000
# Rows that wait until memory is released.
WAITING = ("returned", "returned-asleep", "producer-idle", "producer-idle-8", "all-idle",
           "longest-free-1g")
# glibc's 32 bytes a node, and in the contended forms nearly two lists at once.
NODE_BYTES = {"b-uncontended": 33, "b-contended": 66, "b-stack": 33, "b-fifo": 33, "b-ring": 33,
              "b-ring-contended": 66}


class Figure(NamedTuple):
    value: float  # None: not available on this machine
    unit: str


@dataclass(frozen=True)
class Row:
    name: str
    group: str
    title: str
    time: str  # name of the figure that is compared as time; "": none
    memory: str
    need_mib: int = 0
    instead: str = ""  # a function of the allocator that serves Cairn's column instead of malloc


@dataclass(frozen=True)
class Settings:
    """The options of the user that a unit needs."""

    quick: bool = False
    seconds: float = 1.0
    threads: int = 0
    nodes: int = 0
    memory_mib: int = 4096
    timeout_s: int = 300
    cold: bool = False  # without touching memory before each run

    @property
    def scale(self):
        return 0.1 if self.quick else 1.0

    @property
    def pass_seconds(self):
        return min(self.seconds, 0.02) if self.quick else self.seconds


class RunFailed(Exception):
    """A failed run; the text has the reason."""


def limited(command, settings):
    """The command under the time limit."""
    # In the foreground: otherwise an interrupt would end this tool but not the run.
    return ["timeout", "--foreground", "-k", "2", str(settings.timeout_s), *map(str, command)]


def last_line(text):
    return (text.strip().splitlines() or [""])[-1][-200:]


def run_measured(command, library, settings, probe_file=None, **more):
    """measure.measure under a time limit; raises RunFailed unless the command ended well."""
    run = measure.measure(list(map(str, command)), library, probe_file=probe_file,
                          limit_s=settings.timeout_s, **more)
    if run.stopped:
        raise RunFailed(f"not done after {settings.timeout_s} s")
    if run.status:
        said = last_line(run.stderr_tail)
        raise RunFailed(f"exit status {run.status}" + (f": {said}" if said else ""))
    return run


def run_beside(command):
    """Runs a command that is not measured."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          errors="replace", cwd="/", check=False)
    if done.returncode:
        raise RunFailed(f"{command[0]}: {last_line(done.stderr)}")


def process_figures(run):
    return {"wall_s": Figure(run.wall_s, "s"), "cpu_s": Figure(run.cpu_s, "s"),
            PEAK_RSS: Figure(run.peak_rss_mib, "MiB"), "faults": Figure(run.faults, "")}


class Unit:
    """The work of one process."""

    rows = ()
    by_name_only = False  # measured only if --rows names its row or group
    output = None  # the digest of the first run's output, where all outputs must be equal

    def check_output(self, digest):
        if self.output is None:
            self.output = digest
        if digest != self.output:
            raise RunFailed("its output differs from that of the first run")

    @property
    def name(self):
        return self.rows[0].name

    def run(self, allocator, settings):
        """The figures of each row: {row name: {figure name: Figure}}. Raises RunFailed."""
        raise NotImplementedError

    def more_allocators(self, allocators):  # pylint: disable=unused-argument
        """Allocators in addition to those that are compared everywhere."""
        return []

    def skip_reason(self, settings):  # pylint: disable=unused-argument
        """Why this unit cannot or should not run here, or None."""
        return None


class WorkloadUnit(Unit):
    """One row of cairn-workloads."""

    def __init__(self, row):
        self.row = row
        self.rows = (row,)

    def nodes(self, settings):
        """The nodes of the list: the requested number, or fewer where memory is short."""
        if self.row.name not in NODE_BYTES:
            return 0
        wanted = settings.nodes or (NODES_QUICK if settings.quick else NODES)
        allowed = settings.memory_mib * 2**20 // NODE_BYTES[self.row.name]
        return max(min(wanted, allowed), NODES_FEWEST)

    def remark(self, settings):
        """A sentence where the row is smaller than requested, or None."""
        wanted = settings.nodes or (NODES_QUICK if settings.quick else NODES)
        nodes = self.nodes(settings)
        if nodes in (0, wanted):
            return None
        need_gib = wanted * NODE_BYTES[self.row.name] / 2**30
        return (f"{self.row.name}: {nodes:,} nodes instead of {wanted:,}, which may take "
                f"{need_gib:.1f} GiB; --memory {need_gib + 0.1:.1f} allows them")

    def skip_reason(self, settings):
        need_mib = self.row.need_mib * settings.scale
        if need_mib > settings.memory_mib:
            return (f"may take {need_mib / 1024:.1f} GiB; --memory {need_mib / 1024 + 0.1:.1f} "
                    "allows it")
        if settings.quick and (self.row.need_mib > 1100 or self.row.name in WAITING):
            return "too long for --quick"
        return None

    def command(self, settings, output):
        command = [bench_files.program("cairn-workloads"), "--seconds", settings.pass_seconds,
                   "--scale", settings.scale, "--output", output]
        if settings.threads:
            command += ["--threads", settings.threads]
        if self.nodes(settings):
            command += ["--nodes", self.nodes(settings)]
        return [*command, self.row.name]

    def run(self, allocator, settings):
        with tempfile.NamedTemporaryFile("r", prefix="cairn-bench-") as output:
            run = run_measured(self.command(settings, output.name), allocator.library, settings)
            served_by, function, figures = parse_workload_output(output.read())
        check_served_by(served_by, allocator)
        check_function(function, self.row, allocator)
        return {self.row.name: {**figures, PEAK_RSS: Figure(run.peak_rss_mib, "MiB")}}


def parse_workload_output(text):
    """The output of cairn-workloads as (file of the allocator, its function, figures)."""
    served_by, function, figures = "", "", {}
    for line in text.splitlines():
        name, value, unit = line.split("\t")
        if name == "allocator":
            served_by, function = value, unit
        else:
            figures[name] = Figure(None if value == "not available" else float(value), unit)
    if not served_by or not figures:
        raise RunFailed("the workload reported nothing")
    return served_by, function, figures


def check_served_by(path, allocator):
    """Checks that the preload had an effect: otherwise the wrong allocator would be measured."""
    served = pathlib.Path(path)
    if allocator.library is None:
        right = served.name.startswith(("libc.so", "libc-", "ld-musl"))
    else:
        right = served.exists() and served.samefile(allocator.library)
    if not right:
        raise UserError(f"{allocator.name}: malloc came from {path} instead of "
                        f"{allocator.library or 'libc'}")


def check_function(function, row, allocator):
    """Checks that a row about another allocator of Cairn does not measure its malloc."""
    if allocator.is_ours and row.instead and function != row.instead:
        raise UserError(f"{row.name}, {allocator.name}: {function} served instead of "
                        f"{row.instead}")


def processes_under(command, library):
    """The processes of a run and the file of each malloc; the exit status is ignored."""
    with probe.probe_file() as path:
        measure.measure(list(map(str, command)), library, probe_file=path)
        return probe.read(path)


def check_processes(processes, library, allocator):
    """Checks every process of a run: a program with its own malloc, or a child without the preload,
    would measure the wrong allocator."""
    if not processes:
        raise UserError(f"{allocator.name}: the program does not load what is preloaded")
    for process in processes:
        if not (probe.serves(process, library) if library else probe.is_libc(process.malloc)):
            raise UserError(f"{allocator.name}: malloc of {process.name} came from "
                            f"{process.malloc} instead of {library or 'libc'}")


class CommandUnit(Unit):
    """A real program, whose output must be equal under all allocators. In its first run under each
    of them, the file of the malloc of every process is checked."""

    def __init__(self, name, title, command, quick_command, needs, otherwise=None,
                 group="programs"):
        self.rows = (Row(name, group, title, "cpu_s", PEAK_RSS, PROGRAM_MIB),)
        self._commands = (command, quick_command)
        self._needs = needs  # a program
        self._otherwise = otherwise or f"{needs} is not installed"
        self._checked = set()  # names of allocators that serve it

    def skip_reason(self, settings):
        return None if shutil.which(str(self._needs)) else self._otherwise

    def command(self, settings):
        return self._commands[settings.quick]

    def _measured(self, command, allocator, settings):
        if allocator.name in self._checked:
            return run_measured(command, allocator.library, settings)
        with probe.probe_file() as path:
            run = run_measured(command, allocator.library, settings, path)
            check_processes(probe.read(path), allocator.library, allocator)
        self._checked.add(allocator.name)
        return run

    def run(self, allocator, settings):
        run = self._measured(self.command(settings), allocator, settings)
        self.check_output(run.output.hex())
        return {self.name: process_figures(run)}


class MicroUnit(Unit):
    """The micro-benchmarks: one process of Google Benchmark gives all rows."""

    def __init__(self, program, api_program, listed):
        self._program, self._api_program = program, api_program
        self._names = {micro_row_name(name): name for name in listed}
        self.rows = tuple(Row(row, "micro", name, "cpu_ns" if "real_time" not in name
                              else "real_ns", "") for row, name in self._names.items())

    def skip_reason(self, settings):
        if self._program.exists() and self._api_program.exists():
            return None
        return "Google Benchmark is not installed (Debian package libbenchmark-dev)"

    def more_allocators(self, allocators):
        return [Allocator(API, None, "libcairn's own names")]

    def restrict(self, names):
        """Keeps only the rows with these names."""
        self.rows = tuple(row for row in self.rows if row.name in names)

    def run(self, allocator, settings):
        program = self._api_program if allocator.name == API else self._program
        wanted = "|".join(f"^{self._names[row.name]}$" for row in self.rows)
        with tempfile.NamedTemporaryFile("r", prefix="cairn-bench-") as output:
            run_measured([program, f"--benchmark_filter={wanted}",
                          f"--benchmark_min_time={settings.pass_seconds / 20:.4f}",
                          f"--benchmark_out={output.name}", "--benchmark_out_format=json"],
                         allocator.library, settings)
            entries = json.load(output)["benchmarks"]
        return {micro_row_name(entry["name"]): micro_figures(entry) for entry in entries
                if not entry.get("error_occurred")}


def micro_row_name(name):
    """The name of the row of a benchmark: malloc_free/64 is micro-malloc-free-64."""
    return "micro-" + name.replace("/real_time", "").replace("/", "-").replace("_", "-")


def micro_figures(entry):
    """Nanoseconds per operation; a benchmark of batches reports operations per second."""
    cpu_ns, real_ns = entry["cpu_time"], entry["real_time"]
    if "items_per_second" in entry:
        by_cpu = "real_time" not in entry["name"]
        operations = entry["items_per_second"] * (cpu_ns if by_cpu else real_ns) / 1e9
        cpu_ns, real_ns = cpu_ns / operations, real_ns / operations
    return {"cpu_ns": Figure(cpu_ns, "ns"), "real_ns": Figure(real_ns, "ns")}


def select(units, patterns):
    """The units with rows whose name or group matches a shell pattern."""
    if not patterns:
        return [unit for unit in units if not unit.by_name_only]
    matched = set()
    names = set()
    for unit in units:
        for row in unit.rows:
            for pattern in patterns:
                if row.group == pattern or fnmatch.fnmatchcase(row.name, pattern):
                    matched.add(pattern)
                    names.add(row.name)
    for pattern in patterns:
        if pattern not in matched:
            raise UserError(f"--rows: no row or group matches '{pattern}'; --list names them")
    chosen = []
    for unit in units:
        if any(row.name in names for row in unit.rows):
            if isinstance(unit, MicroUnit):
                unit.restrict(names)
            chosen.append(unit)
    return chosen
