#!/usr/bin/env python3
"""Compares the binary interface of the libraries with that of the last release, by abidiff.

usage: check_abi.py BUILD            exit status 1 when a program built before would not run
       check_abi.py BUILD --update   writes dev/abi/MACHINE/LIBRARY.abi from the build

BUILD contains the shared libraries with debug information (-g). The interface is the set of
declarations in the installed headers; added functions are not a difference. Needs Debian's
abigail-tools.
"""
import pathlib
import platform
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIBRARIES = ("libcairn", "libcairn-malloc")
# abidiff's exit status is a set of bits.
ERROR, USAGE, CHANGE, INCOMPATIBLE = 1, 2, 4, 8


def baseline(library):
    return ROOT / "dev" / "abi" / platform.machine() / f"{library}.abi"


def run(*command):
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return done.returncode, done.stdout


def read_interface(library):
    """The interface as abidw writes it, without what differs from place to place."""
    status, text = run("abidw", "--headers-dir", ROOT / "include", "--drop-private-types",
                       "--drop-undefined-syms", "--no-show-locs", "--no-corpus-path",
                       "--no-comp-dir-path", library)
    if status:
        sys.exit(f"check_abi: abidw: {text}")
    return text.replace(f"{ROOT}/", "")


def compare(library, old):
    """(is as it was or grew, abidiff's words)."""
    status, text = run("abidiff", "--no-added-syms", old, library)
    if status & (ERROR | USAGE):
        sys.exit(f"check_abi: abidiff: {text}")
    return not status & (CHANGE | INCOMPATIBLE), text.strip()


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--update"]):
        sys.exit(__doc__)
    if not shutil.which("abidiff"):
        sys.exit("check_abi: abidiff is missing; on Debian: apt-get install abigail-tools")
    same = True
    for name in LIBRARIES:
        library, old = pathlib.Path(sys.argv[1]) / f"{name}.so", baseline(name)
        if sys.argv[2:]:
            old.parent.mkdir(parents=True, exist_ok=True)
            old.write_text(read_interface(library))
        elif not old.exists():
            sys.exit(f"check_abi: no {old.relative_to(ROOT)}: --update writes it")
        else:
            as_before, words = compare(library, old)
            same = same and as_before
            print(f"{name}: {'as in the last release' if as_before else 'changed'}")
            if words and not as_before:
                print(words)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
