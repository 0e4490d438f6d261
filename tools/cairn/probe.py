"""Which malloc served the processes of a run: reads and interprets the lines of libcairn-probe.so.
"""

import contextlib
import os
import pathlib
import tempfile
from typing import NamedTuple

from cairn import measure
from cairn.errors import UserError

LIBC_NAMES = ("libc.so", "libc-", "ld-musl")
KNOWN = ("jemalloc", "tcmalloc", "mimalloc", "snmalloc", "hardened_malloc", "cairn")


class Process(NamedTuple):
    """One process of a run."""

    name: str  # the name by which it was called
    program: str  # the file that it executes
    malloc: str  # the file that its malloc comes from
    without: str  # the file that malloc would come from without the tested library


@contextlib.contextmanager
def probe_file():
    """The path of a new file that processes of any user may append to."""
    with tempfile.TemporaryDirectory(prefix="cairn-probe-") as directory:
        os.chmod(directory, 0o755)
        path = pathlib.Path(directory) / "processes"
        path.touch()
        path.chmod(0o666)
        yield path


def read(path):
    """The distinct processes in a run's probe file, the command's own first."""
    found = {}
    for line in path.read_text(errors="surrogateescape").splitlines():
        fields = line.split("\t")
        if len(fields) == 4:
            found[Process(*fields)] = None
    return list(found)


def is_libc(path):
    return pathlib.PurePath(path).name.startswith(LIBC_NAMES)


def _same(path, other):
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def serves(process, library):
    """Whether the process's malloc is that of the library."""
    return _same(process.malloc, library)


def _brings_its_own(process, owner):
    """Whether the program has its own malloc. The linker names a program as it was called, so not
    always by its full path."""
    return not os.path.isabs(owner) or _same(owner, process.program)


def allocator_name(path):
    name = pathlib.PurePath(path).name
    return next((known for known in KNOWN if known in name), name)


def check_served(side_name, command, library, processes):
    """Raises UserError unless the command itself took its malloc from the library."""
    if not processes:
        raise UserError(f"{command[0]} did not load the library of {side_name}: its "
                        "dynamic linker ignores LD_PRELOAD, so there is nothing to compare")
    first = processes[0]
    if serves(first, library):
        return
    if _brings_its_own(first, first.malloc):
        raise UserError(f"{first.program} has its own malloc, which LD_PRELOAD cannot replace: "
                        f"{side_name} cannot be measured")
    raise UserError(f"under {side_name}, malloc came from {first.malloc} instead of {library}")


def _names(processes):
    return ", ".join(sorted({process.name for process in processes}))


def remarks(side_name, library, processes):
    """Sentences about processes that the library did not serve."""
    others = [process for process in processes if not serves(process, library)]
    for owner in dict.fromkeys(process.malloc for process in others):
        names = _names(process for process in others if process.malloc == owner)
        yield f"{side_name} did not serve {names}: malloc came from {owner} there"


def system_remarks(side_name, processes):
    """Sentences about processes that have another malloc than libc's without a preloaded library,
    as seen under a library."""
    others = [process for process in processes if process.without and not is_libc(process.without)]
    for owner in dict.fromkeys(process.without for process in others):
        those = [process for process in others if process.without == owner]
        if _brings_its_own(those[0], owner):
            yield f"{side_name} is not libc's malloc for {_names(those)}: that brings its own"
        else:
            yield (f"{side_name} is {allocator_name(owner)} for {_names(those)}, not libc's "
                   f"malloc: {owner} is linked or preloaded there")


def malloc_of(library):
    """The file that malloc comes from in a small program that preloads the library, or None."""
    with probe_file() as path:
        measure.measure(["true"], library, probe_file=path)
        processes = read(path)
    return processes[0].malloc if processes else None
