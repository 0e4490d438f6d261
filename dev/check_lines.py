#!/usr/bin/env python3
"""Checks that variables which threads write at run time have cache lines of their own.

usage: check_lines.py BUILD

When a thread writes a variable, each other thread that uses the same cache line fetches the line
again, also for another variable in it. So a variable begins on a line and fills its last one
(cache_aligned in base/compiler.h), or it is among those of shared_lines.txt that may share lines,
with the reason. A new variable needs this decision. The name of a static variable has its file in
front. A listed name that no library has is reported, too.

One line a finding on stdout; the exit status is 1 when there is one. BUILD is a release build with
the hardened libraries.
"""

import argparse
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIST = HERE / "shared_lines.txt"
LINE_BYTES = 64
SECTIONS = (".data", ".bss")  # .data.rel.ro and .got are read-only after the start
# Variables of the compiler and of the linker.
FOREIGN = re.compile(r"completed$|DW\.ref\.|__dso_handle$|__TMC_END__$|_edata$|__bss_start$")


def read_list():
    """The listed names."""
    names = set()
    for line in LIST.read_text().splitlines():
        if line.startswith(" "):
            names.update(line.split())
    return names


def readelf(option, library):
    return subprocess.run(["readelf", "-W", option, str(library)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.splitlines()


def read_variables(library):
    """(address, bytes, name) of the variables that can be written at run time."""
    sections = {match[1] for match in (re.match(r"\s*\[\s*(\d+)\] (\S+)", line)
                                       for line in readelf("-S", library))
                if match and match[2] in SECTIONS}
    found = []
    file = ""
    for line in readelf("-s", library):
        words = line.split()
        if len(words) < 7 or not words[0].endswith(":"):
            continue
        kind, section = words[3], words[6]
        name = words[7] if len(words) > 7 else ""
        if kind == "FILE":
            file = name
        elif kind == "OBJECT" and section in sections:
            name = re.sub(r"\.\d+$", "", name)  # of a variable within a function
            is_static = words[4] == "LOCAL" and file != ""
            if not FOREIGN.match(name):
                found.append((int(words[1], 16), int(words[2], 0),
                              f"{file}:{name}" if is_static else name))
    return sorted(set(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    options = parser.parse_args()
    may_share = read_list()
    names, findings = set(), set()
    libraries = sorted(options.build.glob("libcairn*.so"))
    for library in libraries:
        for address, size, name in read_variables(library):
            names.add(name)
            if name not in may_share and (address % LINE_BYTES or size % LINE_BYTES):
                findings.add(f"{name} may share a cache line: see dev/check_lines.py")
    if not libraries:
        findings.add(f"{options.build} has no library")
    findings.update(f"{name} is listed in {LIST.name}, and no library has it"
                    for name in may_share - names)
    for finding in sorted(findings):
        print(finding)
    print(f"check_lines: {len(libraries)} libraries, {len(names)} variables, "
          f"{len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
