"""The rows of the benchmark and the units that measure them.

A unit is what one process does: mostly one row, for the micro-benchmarks all of theirs. A unit's
run gives, for each of its rows, the figures by name; two of them, which the row names, are compared
as its time and its memory.
"""

import fnmatch
import json
import pathlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from typing import NamedTuple

from cairn import bench_files, measure, probe
from cairn.bench_allocators import API, Allocator
from cairn.errors import UserError

PEAK_RSS = "peak_rss"
PEAK_PSS = "peak_pss"  # of a server's processes together
NODES = 100_000_000
NODES_QUICK = 1_000_000
NODES_FEWEST = 1000
# Rows that wait for memory to go back.
WAITING = ("returned", "producer-idle", "all-idle")
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
    """What the user asked for, as far as a unit needs to know."""

    quick: bool = False
    seconds: float = 1.0
    threads: int = 0
    nodes: int = 0
    memory_mib: int = 4096
    timeout_s: int = 300

    @property
    def scale(self):
        return 0.1 if self.quick else 1.0

    @property
    def pass_seconds(self):
        return min(self.seconds, 0.02) if self.quick else self.seconds


class RunFailed(Exception):
    """One run ended badly; its text tells how."""


def limited(command, settings):
    """The command under the time limit."""
    # In the foreground, or the terminal's interrupt would end this tool and leave the run behind.
    return ["timeout", "--foreground", "-k", "2", str(settings.timeout_s), *map(str, command)]


def last_line(text):
    return (text.strip().splitlines() or [""])[-1][-200:]


def run_measured(command, library, settings, probe_file=None):
    """measure.measure under a time limit; raises RunFailed unless the command ended well."""
    run = measure.measure(limited(command, settings), library, probe_file=probe_file)
    if run.status == 124:
        raise RunFailed(f"not done after {settings.timeout_s} s")
    if run.status:
        said = last_line(run.stderr_tail)
        raise RunFailed(f"exit status {run.status}" + (f": {said}" if said else ""))
    return run


def run_beside(command):
    """A command that is not measured."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          errors="replace", cwd="/", check=False)
    if done.returncode:
        raise RunFailed(f"{command[0]}: {last_line(done.stderr)}")


def process_figures(run):
    return {"wall_s": Figure(run.wall_s, "s"), "cpu_s": Figure(run.cpu_s, "s"),
            PEAK_RSS: Figure(run.peak_rss_mib, "MiB"), "faults": Figure(run.faults, "")}


class Unit:
    """What is run at once."""

    rows = ()
    extra_allocators = ()  # beside those that are compared everywhere
    output = None  # a digest of what its first run wrote, where all must write the same

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

    def skip_reason(self, settings):  # pylint: disable=unused-argument
        """Why this unit cannot or should not run here, or None."""
        return None


class WorkloadUnit(Unit):
    """One row of cairn-workloads."""

    def __init__(self, row):
        self.row = row
        self.rows = (row,)

    def nodes(self, settings):
        """The nodes of the list, as many as asked for or as the memory allows."""
        if self.row.name not in NODE_BYTES:
            return 0
        wanted = settings.nodes or (NODES_QUICK if settings.quick else NODES)
        allowed = settings.memory_mib * 2**20 // NODE_BYTES[self.row.name]
        return max(min(wanted, allowed), NODES_FEWEST)

    def remark(self, settings):
        """A sentence where the row runs smaller than asked for, or None."""
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
    """(file that the allocator came from, its function, figures) of what cairn-workloads wrote."""
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
    """A preload that does not take effect would measure the wrong allocator, unnoticed."""
    served = pathlib.Path(path)
    if allocator.library is None:
        right = served.name.startswith(("libc.so", "libc-", "ld-musl"))
    else:
        right = served.exists() and served.samefile(allocator.library)
    if not right:
        raise UserError(f"{allocator.name}: malloc came from {path} instead of "
                        f"{allocator.library or 'libc'}")


def check_function(function, row, allocator):
    """A row about another allocator of Cairn's must not measure its malloc, unnoticed."""
    if allocator.is_ours and row.instead and function != row.instead:
        raise UserError(f"{row.name}, {allocator.name}: {function} served instead of "
                        f"{row.instead}")


def processes_under(command, library):
    """The processes of a run and where the malloc of each comes from; how it ends is no matter."""
    with probe.probe_file() as path:
        measure.measure(list(map(str, command)), library, probe_file=path)
        return probe.read(path)


def check_processes(processes, library, allocator):
    """A program that brings its own malloc, or a child that does not get the preload, would measure
    the wrong allocator, unnoticed."""
    if not processes:
        raise UserError(f"{allocator.name}: the program does not load what is preloaded")
    for process in processes:
        if not (probe.serves(process, library) if library else probe.is_libc(process.malloc)):
            raise UserError(f"{allocator.name}: malloc of {process.name} came from "
                            f"{process.malloc} instead of {library or 'libc'}")


class CommandUnit(Unit):
    """A real program; its output has to be the same under all allocators. In its first run under
    each of them every process of it says where its malloc comes from."""

    def __init__(self, name, title, command, quick_command, needs, otherwise=None):
        self.rows = (Row(name, "programs", title, "cpu_s", PEAK_RSS),)
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

    extra_allocators = (Allocator(API, None, "libcairn's own names"),)

    def __init__(self, program, api_program, listed):
        self._program, self._api_program = program, api_program
        self._names = {micro_row_name(name): name for name in listed}
        self.rows = tuple(Row(row, "micro", name, "cpu_ns" if "real_time" not in name
                              else "real_ns", "") for row, name in self._names.items())

    def skip_reason(self, settings):
        if self._program.exists() and self._api_program.exists():
            return None
        return "Google Benchmark is not installed (Debian package libbenchmark-dev)"

    def restrict(self, names):
        """Leaves only the rows of these names."""
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
    """The row's name of a benchmark's: malloc_free/64 is micro-malloc-free-64."""
    return "micro-" + name.replace("/real_time", "").replace("/", "-").replace("_", "-")


def micro_figures(entry):
    """Nanoseconds an operation; a benchmark of batches tells its operations a second."""
    cpu_ns, real_ns = entry["cpu_time"], entry["real_time"]
    if "items_per_second" in entry:
        by_cpu = "real_time" not in entry["name"]
        operations = entry["items_per_second"] * (cpu_ns if by_cpu else real_ns) / 1e9
        cpu_ns, real_ns = cpu_ns / operations, real_ns / operations
    return {"cpu_ns": Figure(cpu_ns, "ns"), "real_ns": Figure(real_ns, "ns")}


def select(units, patterns):
    """The units with rows whose name or group matches a pattern of the shell's kind."""
    if not patterns:
        return units
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
