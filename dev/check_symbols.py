#!/usr/bin/env python3
"""Checks that the shared libraries export exactly the names that are written down.

usage: check_symbols.py BUILD [--update]

dev/symbols/libcairn lists the prefixed names, which every library exports; dev/symbols/names
those of libc and C++ that libcairn-malloc adds. The former have a version (src/front/cairn.map),
the latter none, or a program's malloc would pass by them. --update writes the lists from the build,
so that a change of the interface shows in the history.
"""

import pathlib
import subprocess
import sys

LISTS = pathlib.Path(__file__).resolve().parent / "symbols"


def table(library):
    """(name, version or nothing) of each exported name."""
    text = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", str(library)],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    words = [line.split() for line in text.splitlines()]
    return [name.partition("@")[::2] for name, kind, *_ in words if kind != "A"]


def exported(library):
    return {name for name, _ in table(library)}


def wrong_versions(library):
    for name, version in table(library):
        if name.startswith("cairn_") != bool(version):
            yield f"{name} has {'a' if version else 'no'} version"


def differences(library, expected, actual):
    for name in sorted(actual - expected):
        yield f"{name} is exported and not listed", library
    for name in sorted(expected - actual):
        yield f"{name} is listed and not exported", library


def read_list(name):
    return set((LISTS / name).read_text().split())


def write_list(name, symbols):
    LISTS.mkdir(exist_ok=True)
    (LISTS / name).write_text("".join(f"{symbol}\n" for symbol in sorted(symbols)))


def main(arguments):
    update = arguments[1:] == ["--update"]
    if len(arguments) < 1 or (len(arguments) > 1 and not update):
        print(__doc__)
        return 2
    build = pathlib.Path(arguments[0])
    if update:
        prefixed = exported(build / "libcairn.so")
        write_list("libcairn", prefixed)
        write_list("names", exported(build / "libcairn-malloc.so") - prefixed)
        return 0

    prefixed, names = read_list("libcairn"), read_list("names")
    problems = {}  # message: the libraries with this problem
    for suffix in ("", "-hardened-light", "-hardened"):
        for base, expected in (("libcairn", prefixed), ("libcairn-malloc", prefixed | names)):
            library = f"{base}{suffix}.so"
            if suffix and not (build / library).exists():
                continue  # this build has no hardened libraries
            for problem, where in differences(library, expected, exported(build / library)):
                problems.setdefault(problem, []).append(where)
            for problem in wrong_versions(build / library):
                problems.setdefault(problem, []).append(library)
    for problem, libraries in problems.items():
        print(f"{problem}: {', '.join(libraries)}")
    if problems:
        print("check_symbols: a name that belongs to the interface is listed by --update")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
