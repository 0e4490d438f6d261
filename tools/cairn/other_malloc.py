"""Describes a process that does not run on Cairn, from /proc: its malloc, its memory by kind, and
the command that compares it with Cairn."""

import mmap
import os
import pathlib
import re
import shlex

from rich.table import Table

from cairn import probe, program
from cairn.console import out, say
from cairn.errors import UserError, os_sentence
from cairn.server_memory import read_text
from cairn.texts import bytes_text

LIBRARIES = (*probe.KNOWN[:-1], "rpmalloc", "scudo", "libhoard", "libmesh")
# Words in programs that contain an allocator: from its messages.
CONTAINED = {"jemalloc": b"<jemalloc>", "mimalloc": b"mimalloc: ", "tcmalloc": b"tcmalloc: "}
HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)")
ARENA_BYTES = 64 << 20  # glibc's arenas begin at multiples of this, as long as they fit into it
SHARED = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "[anon_shmem")
KINDS = {"heap": "heap (brk)", "anonymous": "anonymous mappings", "arenas": "  in glibc's arenas",
         "stacks": "stacks of threads", "files": "files", "shared": "shared memory"}
COMMAND_CHARACTERS_MAX = 300


class Mapping:
    """A mapping, with the fields of smaps in bytes."""

    def __init__(self, match):
        self.start, self.end = int(match[1], 16), int(match[2], 16)
        self.mode, self.path, self.sizes = match[3], match[4], {}

    def kind(self, stack_pointers):
        """A key of KINDS, or None for the kernel's own pages."""
        if self.path == "[heap]":
            return "heap"
        if self.path.startswith("[stack") or any(self.start <= place < self.end
                                                 for place in stack_pointers):
            return "stacks"
        if self.path.startswith(SHARED):
            return "shared"
        if not self.path or self.path.startswith("[anon"):
            return "anonymous"
        return "files" if self.path.startswith("/") else None

    def is_arena(self):
        """Whether the mapping has the form of a heap in one of glibc's further arenas."""
        return (not self.path and self.start % ARENA_BYTES == 0 and self.mode.startswith("rw")
                and self.end - self.start <= ARENA_BYTES)


def _mappings(pid):
    found = []
    for line in (read_text(pid, "smaps") or "").splitlines():
        match = HEADER.match(line)
        if match:
            found.append(Mapping(match))
        else:
            name, _, words = line.partition(":")
            if words.endswith("kB"):
                found[-1].sizes[name] = int(words.split()[0]) << 10
    return found


def _stack_pointers(pid):
    """Of the threads that sleep; a running one has none that could be read."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            words = (read_text(pid, f"task/{thread}/syscall") or "").split()
        except OSError:  # a debugger may, a reader may not
            return
        if len(words) > 2:
            yield int(words[-2], 16)


def _contained(path):
    """The name of an allocator in a program file, or None."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return next((name for name, words in CONTAINED.items() if text.find(words) >= 0), None)
    except (OSError, ValueError):
        return None


def malloc_name(pid, paths):
    """The allocator of a process with these mapped files, and where it is from."""
    for path in paths:
        name = next((each for each in LIBRARIES if each in pathlib.PurePath(path).name), None)
        if name:
            return f"{name.removeprefix('lib')} ({path})"
    name = _contained(f"/proc/{pid}/exe")
    if name:
        return f"{name}, which the program file contains"
    libc = next((path for path in paths if probe.is_libc(path)), None)
    if libc:
        return f"{'musl' if 'musl' in libc else 'glibc'} ({libc})"
    return "in the program file, which is linked statically"


class Memory:
    """The memory of a process."""

    def __init__(self, pid):
        self.pid = pid
        self.mappings = _mappings(pid)
        if not self.mappings:
            raise UserError(f"process {pid} has ended")
        paths = list(dict.fromkeys(mapping.path for mapping in self.mappings
                                   if mapping.path.startswith("/")))
        self.malloc = malloc_name(pid, paths)
        pointers = list(_stack_pointers(pid))
        self.kinds = {}  # by key of KINDS: [number, mapped, resident, lazily free, swapped]
        for mapping in self.mappings:
            kind = mapping.kind(pointers)
            for key in (kind, "arenas" if kind == "anonymous" and mapping.is_arena() and
                        self.malloc.startswith("glibc") else None):
                if key:
                    self._add(key, mapping)
        self.status = dict(line.split(":\t", 1) for line in
                           (read_text(pid, "status") or "").splitlines() if ":\t" in line)

    def _add(self, key, mapping):
        values = (1, mapping.end - mapping.start,
                  *(mapping.sizes.get(name, 0) for name in ("Rss", "LazyFree", "Swap")))
        self.kinds[key] = list(map(sum, zip(self.kinds.get(key, [0] * 5), values)))

    def status_bytes(self, name):
        return int(self.status.get(name, "0").split()[0]) << 10


def _table(memory):
    most = [max(values[place] for values in memory.kinds.values()) for place in range(5)]
    shown = [0, 1, 2, *(place for place in (3, 4) if most[place])]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for place in shown:
        table.add_column(("count", "mapped", "resident", "lazily free", "swapped")[place],
                         justify="right", no_wrap=True)
    for key, title in KINDS.items():
        if key in memory.kinds:
            values = memory.kinds[key]
            table.add_row(title, *(bytes_text(values[place]) if place else str(values[0])
                                   for place in shown))
    table.add_row("page tables", "", "", bytes_text(memory.status_bytes("VmPTE")))
    return table


def _printable(text):
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _comparison(pid):
    """Sentences on how to see this program's memory on Cairn."""
    try:
        program.check_preloadable(f"/proc/{pid}/exe")
    except UserError as error:
        yield f"cairn run cannot compare it: {error}"
        return
    words = (read_text(pid, "cmdline") or "").rstrip("\0").split("\0")
    # A single word with spaces is a title that the program has given itself.
    command = _printable(words[0] if len(words) == 1 else shlex.join(words))
    if len(command) > COMMAND_CHARACTERS_MAX:
        command = command[:COMMAND_CHARACTERS_MAX] + "…"
    yield "This shows what Cairn would change; COMMAND sends requests to it:"
    yield f'    cairn run --load "COMMAND" -- {command}'


def describe(pid):
    """Prints the description of a process without Cairn."""
    try:
        memory = Memory(pid)
    except PermissionError as error:
        raise UserError(os_sentence(error)) from error
    name = _printable(memory.status.get("Name", "").strip())
    say(f"process {pid} ({name}) does not run on Cairn. Its malloc: "
        f"{_printable(memory.malloc)}.")
    say(f"Resident now {bytes_text(memory.status_bytes('VmRSS'))}, at most "
        f"{bytes_text(memory.status_bytes('VmHWM'))} so far.")
    out.print()
    out.print(_table(memory))
    out.print()
    for sentence in _comparison(pid):
        say(sentence)
