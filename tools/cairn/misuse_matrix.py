"""The misuse matrix: every fault of cairn-faults under every allocator, and what came of it."""

import concurrent.futures
import csv
import os
import signal
import subprocess
from dataclasses import dataclass

from cairn.errors import UserError

# What comes of a fault, the worst first.
SILENT = "silent"  # the program goes on, and was harmed
HANGS = "hangs"
CRASH = "crash"  # the allocator's own code faulted or failed: an accident, not a check
LATE = "late"  # detected, but the program has gone on after the fault, and may have been harmed
PREVENTED = "prevented"  # not detected; no harm was done
TOLD = "prevented, told"  # detected after the program has gone on, but before any harm was done
AT_ONCE = "at once"  # the faulty call or access does not return
RANKS = (SILENT, HANGS, CRASH, LATE, PREVENTED, TOLD, AT_ONCE)
NONE = "–"  # the allocator lacks the function

SECONDS_MOST = 20
TRAPS = (signal.SIGSEGV, signal.SIGBUS)


@dataclass(frozen=True)
class Fault:
    name: str
    group: str
    title: str
    bad_free: bool

    @property
    def is_access(self):
        """A trap is how an access is detected; in a call it is an accident."""
        return not self.bad_free and self.group in ("beside a block", "after free",
                                                    "content of freed blocks")


def classify(fault, marks, status):
    """What came of a fault from its marks (see test/matrix/faults.h) and the process's status."""
    harmed = "h" in marks
    if "b" not in marks:
        if "c" in marks:
            return NONE
        if "p" in marks or harmed:
            return SILENT if harmed else PREVENTED
        raise UserError(f"{fault.name} did not come to its fault (marks {marks!r}, "
                        f"status {status})")
    at_once = "d" not in marks
    if status == -signal.SIGALRM:
        return HANGS
    if -status in TRAPS:
        return AT_ONCE if at_once and fault.is_access else CRASH
    if status < 0:
        if at_once:
            return AT_ONCE
        return TOLD if "s" in marks and not harmed else LATE
    if "p" in marks or harmed:
        return SILENT if harmed else PREVENTED
    if "c" in marks:
        return NONE
    return CRASH


def worst(results):
    return min(results, key=lambda result: RANKS.index(result) if result in RANKS else len(RANKS))


def is_worse(result, expected):
    if NONE in (result, expected):
        return result != expected
    return RANKS.index(result) < RANKS.index(expected)


class Program:
    """cairn-faults, a program that is linked with no allocator."""

    def __init__(self, path):
        self.path = path
        if not path.is_file():
            raise UserError(f"{path}: no such file")

    def _run(self, argument, library):
        environment = dict(os.environ)
        environment.pop("LD_PRELOAD", None)
        if library:
            environment["LD_PRELOAD"] = str(library)
        return subprocess.run([self.path, argument], env=environment, capture_output=True,
                              text=True, errors="replace", timeout=SECONDS_MOST, check=False)

    def faults(self):
        lines = self._run("--list", None).stdout.splitlines()
        return [Fault(name, group, title, bad_free == "1")
                for name, group, title, bad_free in (line.split("\t") for line in lines)]

    def check_owner(self, allocator):
        """Refuses a library that was not loaded or does not define malloc."""
        owner = os.path.realpath(self._run("--owner", allocator.library).stdout.strip())
        wanted = os.path.realpath(allocator.library) if allocator.library else None
        if wanted and owner != wanted:
            raise UserError(f"{allocator.name}: malloc comes from {owner}, not from {wanted}")

    def commit(self, fault, library):
        try:
            run = self._run(fault.name, library)
        except subprocess.TimeoutExpired:
            return HANGS  # not even the alarm that it set ended it
        return classify(fault, run.stdout, run.returncode)


def run_all(program, allocators, runs, advance):
    """{allocator name: {fault name: its worst result}}; `advance` is called after each fault."""
    faults = program.faults()
    results = {allocator.name: {} for allocator in allocators}

    def run_one(task):
        allocator, fault = task
        result = worst([program.commit(fault, allocator.library) for _ in range(runs)])
        return allocator.name, fault.name, result

    tasks = [(allocator, fault) for allocator in allocators for fault in faults]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, fault, result in pool.map(run_one, tasks):
            results[name][fault] = result
            advance()
    return faults, results


def read_expectation(path):
    """{allocator name: {fault name: result}}"""
    expected = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            fault = row.pop("fault")
            for name, result in row.items():
                expected.setdefault(name, {})[fault] = result
    return expected


def write_expectation(path, faults, results):
    """Our own columns only: what peers do is no promise of ours."""
    names = [name for name in results if name.startswith("cairn")]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["fault", *names])
        for fault in faults:
            writer.writerow([fault.name, *(results[name][fault.name] for name in names)])


def regressions(program, allocators, faults, results, expected, again=3):
    """Sentences on what is worse than expected. Some results are a matter of chance (which block
    lies beside which), so a line counts as worse only when it stays so in several runs."""
    found = []
    for allocator in allocators:
        wanted = expected.get(allocator.name)
        if wanted is None:
            raise UserError(f"nothing is expected of {allocator.name}")
        for fault in faults:
            if fault.name not in wanted:
                found.append(f"{fault.name}: not in the expectation")
                continue
            result = results[allocator.name][fault.name]
            for _ in range(again):
                if is_worse(result, wanted[fault.name]):
                    result = program.commit(fault, allocator.library)
            if is_worse(result, wanted[fault.name]):
                found.append(f"{fault.name}: {result} under {allocator.name}, "
                             f"expected {wanted[fault.name]}")
        for name in sorted(set(wanted) - {fault.name for fault in faults}):
            found.append(f"{name}: in the expectation, but there is no such fault")
    return found


def behind(ours, theirs):
    """Faults of which something worse comes under ours than under theirs, both {fault: result}."""
    return [fault for fault in ours
            if theirs[fault] != NONE and is_worse(ours[fault], theirs[fault])]


def undetected_frees(faults, results):
    """Bad frees that one of Cairn's own builds does not detect at once."""
    return [f"{fault.name}: {results[name][fault.name]} under {name}"
            for name in results if name.startswith("cairn")
            for fault in faults
            if fault.bad_free and results[name][fault.name] != AT_ONCE]
