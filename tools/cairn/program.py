"""Can LD_PRELOAD reach a command?

The dynamic linker ignores LD_PRELOAD silently for programs that are linked statically or that
gain privileges; comparing two allocators there would compare one with itself.
"""

import os
import pathlib
import shutil
import struct

from cairn.errors import UserError

PT_INTERP = 3
SCRIPT_DEPTH = 4  # the kernel's own limit on interpreters of interpreters


def resolve(command):
    """The file that exec would run for a command's first word."""
    found = shutil.which(command)
    if found is None:
        if os.sep in command and pathlib.Path(command).exists():
            raise UserError(f"{command} is not executable")
        raise UserError(f"{command}: no such program")
    return pathlib.Path(found)


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


def has_dynamic_linker(file):
    """Whether an open ELF file asks for a dynamic linker (has a PT_INTERP header)."""
    header = file.read(64)
    wide = header[4] == 2
    order = "<" if header[5] == 1 else ">"
    if wide:
        table, = struct.unpack_from(order + "Q", header, 32)
        entry_size, count = struct.unpack_from(order + "HH", header, 54)
    else:
        table, = struct.unpack_from(order + "I", header, 28)
        entry_size, count = struct.unpack_from(order + "HH", header, 42)
    for index in range(count):
        file.seek(table + index * entry_size)
        if struct.unpack(order + "I", file.read(4))[0] == PT_INTERP:
            return True
    return False


def gains_privileges(path):
    """Whether the dynamic linker would distrust the environment (AT_SECURE)."""
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


def check_preloadable(command):
    """Raises UserError when the command cannot be preloaded into."""
    path = resolve(command)
    for _ in range(SCRIPT_DEPTH):
        with path.open("rb") as file:
            head = file.read(256)
            if head.startswith(b"\x7fELF"):
                file.seek(0)
                if not has_dynamic_linker(file):
                    raise UserError(f"{path} is linked statically: LD_PRELOAD cannot reach it; "
                                    "link it with Cairn instead")
                if gains_privileges(path):
                    raise UserError(f"{path} gains privileges when it starts (set-user-ID or "
                                    "alike): the dynamic linker ignores LD_PRELOAD there")
                return
        interpreter = interpreter_of_script(head)
        if interpreter is None:
            return  # a script without a first line, or another binary format: exec decides
        path = resolve(interpreter)
