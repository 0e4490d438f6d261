#!/usr/bin/env python3
"""Checks the external properties of a shared library, with readelf.

usage: library_shape.py (prefixed|replacing) LIBRARY

The library must depend on the libc alone; have no executable stack, no text relocations, no segment
that is both writable and executable, and no segment without a part of the file; need at most 64
bytes of static TLS; call its own functions without a lookup of their names at each start, except
for the few that a program may replace; and export the names of its API only: `prefixed` libraries
those that begin with cairn_, `replacing` ones also those of libc and C++.
"""

import os
import re
import subprocess
import sys

LIBC_NAMES = {
    "malloc", "free", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc",
    "memalign", "valloc", "pvalloc", "malloc_usable_size", "free_sized", "free_aligned_sized",
    "malloc_trim", "mallinfo", "mallinfo2", "mallopt", "malloc_stats", "malloc_info",
    "dlopen",
}
# Names that a libc exports for internal callers. Some programs use them, too.
LIBC_INNER_NAMES = {
    "__libc_malloc", "__libc_free", "__libc_calloc", "__libc_realloc", "__libc_memalign",
    "__libc_valloc", "__libc_pvalloc", "__posix_memalign", "__libc_cfree", "cfree",
    "__libc_mallinfo", "__libc_mallopt", "__libc_reallocarray", "__libc_freeres",
}
# operator new, new[], delete, delete[]: plain, nothrow, sized, aligned, and their combinations.
OPERATOR_NAMES = {
    "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv", "_ZdaPv", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t",
    "_ZdlPvm", "_ZdaPvm", "_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t",
}
# Functions that a program may replace and that the library calls: looked up once, at the start.
REPLACEABLE_NAMES = {
    "malloc", "free", "realloc", "aligned_alloc",
    "_Znwm", "_Znam", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t",
    "_ZdlPv", "_ZdaPv", "_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t",
}
STATIC_TLS_BYTES_MOST = 64

problems = []


def readelf(*arguments):
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    environment["LC_ALL"] = "C"
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True,
                          text=True, env=environment).stdout


def exported(path):
    """The exported names, and whether each is a function."""
    names = {}
    for line in readelf("--dyn-syms", path).splitlines():
        field = line.split()
        if len(field) >= 8 and field[0].endswith(":") and field[4] in ("GLOBAL", "WEAK") \
                and field[6] != "UND":
            # The node of a version script is a symbol of its own, at ABS.
            if field[6] == "ABS" and field[3] == "OBJECT":
                continue
            names[field[7].split("@")[0]] = field[3] == "FUNC"
    return names


def check(condition, message):
    if not condition:
        problems.append(message)


def check_exports(kind, names):
    allowed = {name for name in names if re.match(r"cairn_", name)}
    if kind == "replacing":
        allowed |= LIBC_NAMES | LIBC_INNER_NAMES | OPERATOR_NAMES
        for name in sorted((LIBC_NAMES | OPERATOR_NAMES) - names):
            problems.append(f"does not export {name}")
    for name in LIBC_NAMES - {"dlopen"}:
        check("cairn_" + name in names, f"does not export cairn_{name}")
    for name in sorted(names - allowed):
        problems.append(f"exports {name}, which is no name of its API")


def check_dynamic(path):
    dynamic = readelf("-d", path)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    # The dynamic linker is part of the libc.
    others = [name for name in needed if not re.match(r"(libc\.so|ld-linux)", name)]
    check(not others, f"depends on {', '.join(others)}")
    check("(TEXTREL)" not in dynamic, "has text relocations")
    check(not re.search(r"\((RPATH|RUNPATH)\)", dynamic), "carries a path of the build machine")


def check_segments(path):
    has_stack_note = False
    for line in readelf("-l", path).splitlines():
        field = line.split()
        if len(field) < 7 or not field[1].startswith("0x"):
            continue
        flags = "".join(field[6:-1])
        if field[0] == "GNU_STACK":
            has_stack_note = True
            check("E" not in flags, "asks for an executable stack")
        if field[0] == "LOAD":
            check(not ("W" in flags and "E" in flags), "has a writable and executable segment")
            check(int(field[4], 16) != 0,
                  "has a segment without a part of the file: Valgrind ignores all symbols then")
        if field[0] == "TLS":
            size = int(field[5], 16)
            check(size <= STATIC_TLS_BYTES_MOST,
                  f"takes {size} bytes of static TLS, more than {STATIC_TLS_BYTES_MOST}")
    check(has_stack_note, "has no GNU_STACK note, which means an executable stack")


def check_own_calls(kind, path, names):
    looked_up = set()
    for line in readelf("-r", path).splitlines():
        field = line.split()
        if len(field) >= 5 and re.search("GLOB_DAT|JUMP_SLO|_ABS64|X86_64_64", field[2]):
            name = field[4].split("@")[0]
            if names.get(name):
                looked_up.add(name)
    for name in sorted(looked_up - REPLACEABLE_NAMES):
        check(False, f"has its own {name} looked up by name")
    if kind == "replacing":
        for name in sorted(REPLACEABLE_NAMES - looked_up):
            check(False, f"does not ask for the program's {name}")


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("prefixed", "replacing"):
        sys.exit(__doc__)
    kind, path = sys.argv[1:]
    names = exported(path)
    check_exports(kind, set(names))
    check_own_calls(kind, path, names)
    check_dynamic(path)
    check_segments(path)
    for problem in problems:
        print(f"{path}: {problem}")
    sys.exit(1 if problems else 0)


main()
