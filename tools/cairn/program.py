"""Checks whether LD_PRELOAD reaches a command.

The dynamic linker silently ignores LD_PRELOAD for programs that are linked statically or gain
privileges; a comparison of two allocators would compare one with itself. And exec passes a file
that is no complete ELF program to the shell, so that its failure would be measured.
"""

import os
import pathlib
import shutil
import struct
from typing import NamedTuple

from cairn.errors import UserError, os_sentence

ELF_MAGIC = b"\x7fELF"
ET_REL, ET_CORE = 1, 4
PT_LOAD, PT_INTERP = 1, 3
MACHINES = {3: "i386", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv"}
SCRIPT_DEPTH = 4  # the kernel's own limit on interpreters of interpreters
SCRIPT_HEAD_BYTES = 256  # bytes of the first line that the kernel reads


class Elf(NamedTuple):
    """The properties that a preload depends on."""

    bits: int
    machine: int
    has_dynamic_linker: bool

    def kind(self):
        return f"{MACHINES.get(self.machine, f'machine {self.machine}')} {self.bits} bits"


def resolve(command):
    """The file that exec would run for a command's first word."""
    if not command:
        raise UserError("the command's name is empty")
    found = shutil.which(command)
    if found is None:
        path = pathlib.Path(command)
        if os.sep in command and path.is_dir():
            raise UserError(f"{command} is a folder")
        if os.sep in command and path.exists():
            raise UserError(f"{command} is not executable")
        raise UserError(f"{command}: no such program")
    path = pathlib.Path(found)
    if not path.is_file():
        raise UserError(f"{path} is not a regular file")
    return path


def interpreter_of_script(head):
    """The interpreter that a script's first line names, or None."""
    if not head.startswith(b"#!"):
        return None
    words = head[2:].split(b"\n", 1)[0].split()
    if not words:
        return None
    if pathlib.PurePath(os.fsdecode(words[0])).name == "env":
        names = [word for word in words[1:] if not word.startswith(b"-") and b"=" not in word]
        return os.fsdecode(names[0]) if names else None
    return os.fsdecode(words[0])


def _program_headers(header, bits, order, size):
    """(offset, size of an entry, number) of the table of program headers; None when it is not
    inside the file."""
    layout = (order + "Q", 32, 54, 56) if bits == 64 else (order + "I", 28, 42, 32)
    table, = struct.unpack_from(layout[0], header, layout[1])
    entry_size, count = struct.unpack_from(order + "HH", header, layout[2])
    if count and (entry_size < layout[3] or table + count * entry_size > size):
        return None
    return table, entry_size, count


def _segments(file, table, entry_size, count, layout):
    """(type, offset in the file, bytes in the file) of each program header."""
    for index in range(count):
        file.seek(table + index * entry_size)
        entry = file.read(entry_size)
        kind, = struct.unpack_from(layout[0], entry, 0)
        offset, = struct.unpack_from(layout[1], entry, layout[2])
        length, = struct.unpack_from(layout[1], entry, layout[3])
        yield kind, offset, length


def read_elf(file, path):
    """Reads the headers of an open ELF file. Raises UserError unless it is a complete program."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header = file.read(64)
    bits = {1: 32, 2: 64}.get(header[4] if len(header) > 4 else None)
    if bits is None or len(header) < (64 if bits == 64 else 52):
        raise UserError(f"{path} is damaged: it ends within its ELF header" if len(header) < 64
                        else f"{path} is damaged: an ELF file of unknown class")
    order = "<" if header[5] == 1 else ">"
    kind, machine = struct.unpack_from(order + "HH", header, 16)
    if kind in (ET_REL, ET_CORE):
        raise UserError(f"{path} is {'an object' if kind == ET_REL else 'a core'} file, not a "
                        "program")
    headers = _program_headers(header, bits, order, size)
    if headers is None:
        raise UserError(f"{path} is damaged: its program headers are incomplete")
    layout = (order + "I", order + "Q", 8, 32) if bits == 64 else (order + "I", order + "I", 4, 16)
    has_dynamic_linker = False
    for segment, offset, length in _segments(file, *headers, layout):
        if segment in (PT_LOAD, PT_INTERP) and offset + length > size:
            raise UserError(f"{path} is damaged: its segments are incomplete")
        has_dynamic_linker |= segment == PT_INTERP
    return Elf(bits, machine, has_dynamic_linker)


def gains_privileges(path):
    """Whether the dynamic linker would ignore the environment (AT_SECURE)."""
    status = path.stat()
    if status.st_mode & 0o4000 and status.st_uid != os.getuid():
        return True
    if status.st_mode & 0o2000 and status.st_gid != os.getgid():
        return True
    try:
        os.getxattr(path, "security.capability")
    except OSError:
        return False
    return os.getuid() != 0


def _check_elf(file, path, libraries):
    elf = read_elf(file, path)
    if not elf.has_dynamic_linker:
        raise UserError(f"{path} is linked statically: LD_PRELOAD cannot reach it; "
                        "link it with Cairn instead")
    if gains_privileges(path):
        raise UserError(f"{path} gains privileges when it starts (set-user-ID or similar): the "
                        "dynamic linker ignores LD_PRELOAD there")
    for library in libraries:
        with open(library, "rb") as library_file:
            if library_file.read(4) == ELF_MAGIC:
                other = read_elf(library_file, library)
                if (elf.bits, elf.machine) != (other.bits, other.machine):
                    raise UserError(f"{path} is built for {elf.kind()}, {library} for "
                                    f"{other.kind()}: the program cannot load the library")


def check_preloadable(command, libraries=()):
    """Raises UserError when nothing can be preloaded into the command."""
    path = resolve(command)
    for _ in range(SCRIPT_DEPTH):
        try:
            with path.open("rb") as file:
                head = file.read(SCRIPT_HEAD_BYTES)
                if head.startswith(ELF_MAGIC):
                    _check_elf(file, path, libraries)
                    return
        except OSError as error:
            raise UserError(f"{os_sentence(error)}; cannot determine whether LD_PRELOAD reaches "
                            f"the program") from error
        interpreter = interpreter_of_script(head)
        if interpreter is None:
            return  # a script without a first line, or another binary format: exec decides
        try:
            path = resolve(interpreter)
        except UserError as error:
            raise UserError(f"{path}: its interpreter: {error}") from None
