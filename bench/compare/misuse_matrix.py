"""The misuse matrix: the results of every fault of cairn-faults under every allocator."""

import concurrent.futures
import csv
import io
import os
import signal
import subprocess
from dataclasses import dataclass

from cairn.errors import UserError, os_sentence

# The results of a fault, the worst first.
SILENT = "silent"  # the program continues, and was harmed
HANGS = "hangs"
CRASH = "crash"  # the allocator's own code faulted or failed: an accident, not a check
LATE = "late"  # detected, but the program continued after the fault, and may have been harmed
PREVENTED = "prevented"  # not detected; no harm was done
REPORTED = "prevented, reported"  # detected after the program continued, but before any harm
AT_ONCE = "at once"  # the faulty call or access does not return
RANKS = (SILENT, HANGS, CRASH, LATE, PREVENTED, REPORTED, AT_ONCE)
NONE = "–"  # the allocator lacks the function
UNKNOWN = "?"  # it was not committed, or the program did not reach it

SECONDS_MAX = 20
TRAPS = (signal.SIGSEGV, signal.SIGBUS)


@dataclass(frozen=True)
class Fault:
    name: str
    group: str
    title: str
    bad_free: bool

    @property
    def is_access(self):
        """Whether the fault is an access, which a trap detects; in a call a trap is an accident."""
        return not self.bad_free and self.group in ("next to a block", "after free",
                                                    "content of freed blocks")


def classify(fault, marks, status):
    """The result of a fault, from its marks (see test/matrix/faults.h) and the process's status."""
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
        return REPORTED if "s" in marks and not harmed else LATE
    if "p" in marks or harmed:
        return SILENT if harmed else PREVENTED
    if "c" in marks:
        return NONE
    return CRASH


def worst(results):
    if UNKNOWN in results:
        return UNKNOWN
    return min(results, key=lambda result: RANKS.index(result) if result in RANKS else len(RANKS))


def is_worse(result, expected):
    if UNKNOWN in (result, expected):
        return False  # it is reported by itself
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
                              text=True, errors="replace", timeout=SECONDS_MAX, check=False)

    def _ask(self, argument, library):
        """The program's output for an option of the tool."""
        try:
            return self._run(argument, library).stdout
        except subprocess.TimeoutExpired:
            under = f" under {library}" if library else ""
            raise UserError(f"{self.path} {argument}: no answer after {SECONDS_MAX} s{under}") \
                from None
        except OSError as error:
            raise UserError(os_sentence(error)) from None

    def faults(self):
        lines = [line.split("\t") for line in self._ask("--list", None).splitlines()]
        if not lines or any(len(fields) != 4 for fields in lines):
            raise UserError(f"{self.path} is not cairn-faults: it lists no faults")
        return [Fault(name, group, title, bad_free == "1")
                for name, group, title, bad_free in lines]

    def check_owner(self, allocator):
        """Refuses a library that was not loaded or does not define malloc."""
        owner = os.path.realpath(self._ask("--owner", allocator.library).strip())
        wanted = os.path.realpath(allocator.library) if allocator.library else None
        if wanted and owner != wanted:
            raise UserError(f"{allocator.name}: malloc comes from {owner}, not from {wanted}")

    def commit(self, fault, library):
        try:
            run = self._run(fault.name, library)
        except subprocess.TimeoutExpired:
            return HANGS  # its own alarm did not end it either
        return classify(fault, run.stdout, run.returncode)


def run_all(program, faults, allocators, runs, advance):
    """({allocator name: {fault name: its worst result}}, sentences on faults that did not happen,
    the interrupt that ended it early or None). `advance` is called after each fault."""
    results = {allocator.name: dict.fromkeys((fault.name for fault in faults), UNKNOWN)
               for allocator in allocators}
    problems = []

    def run_one(allocator, fault):
        try:
            result = worst([program.commit(fault, allocator.library) for _ in range(runs)])
        except UserError as error:
            problems.append(f"{allocator.name}: {error}")
            result = UNKNOWN
        return allocator.name, fault.name, result

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [pool.submit(run_one, allocator, fault)
                 for allocator in allocators for fault in faults]
        try:
            for task in concurrent.futures.as_completed(tasks):
                name, fault, result = task.result()
                results[name][fault] = result
                advance()
        except KeyboardInterrupt as interrupt:
            pool.shutdown(wait=True, cancel_futures=True)
            return results, problems, interrupt
        except OSError:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return results, problems, None


def read_expectation(path, names=()):
    """{allocator name: {fault name: result}}; the file must have the allocators of these names."""
    expected = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                fault = row.pop("fault")
                for name, result in row.items():
                    if result not in (*RANKS, NONE):
                        raise ValueError(f"{fault}, {name}: {result!r} is no result")
                    expected.setdefault(name, {})[fault] = result
    except OSError as error:
        raise UserError(f"--expect {os_sentence(error)}") from None
    except (KeyError, ValueError, csv.Error) as error:
        raise UserError(f"--expect {path}: it is no table of faults: {error}") from None
    for name in names:
        if name not in expected:
            raise UserError(f"--expect {path}: nothing is expected of {name}")
    return expected


def expectation_text(faults, results):
    """The columns of Cairn's builds only, since Cairn promises nothing about peers."""
    text = io.StringIO()
    names = [name for name in results if name.startswith("cairn")]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["fault", *names])
    for fault in faults:
        writer.writerow([fault.name, *(results[name][fault.name] for name in names)])
    return text.getvalue()


def regressions(program, allocators, faults, results, expected, again=3):
    """Sentences on results that are worse than expected. Some results depend on chance (the places
    of blocks), so a line counts as worse only when it is worse in several runs."""
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
    """Faults with a worse result under Cairn than under the other, both {fault: result}."""
    return [fault for fault in ours
            if theirs[fault] != NONE and is_worse(ours[fault], theirs[fault])]


def undetected_frees(faults, results):
    """Bad frees that one of Cairn's own builds does not detect at once."""
    return [f"{fault.name}: {results[name][fault.name]} under {name}"
            for name in results if name.startswith("cairn")
            for fault in faults
            if fault.bad_free and results[name][fault.name] not in (AT_ONCE, UNKNOWN)]
