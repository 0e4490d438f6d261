#!/usr/bin/env python3
"""Counts the machine instructions of the fast paths of malloc and free.

usage: check_fast_path.py BUILD [--size BYTES] [--pairs N] [--malloc-most N] [--free-most N]
                          [--usable-most N] [--realloc-most N] [--calloc-most N] [--no-others]
                          [--show]

Steps through a steady state of free(malloc(BYTES)) in both shared libraries of a release build.
The path that most calls take is the fast path; the check fails when that path is longer than
allowed (both ends included), uses stack (a frame, a saved register or a call), or serves fewer
than 90 % of the calls. malloc_usable_size, a realloc to the same size and calloc are counted in
the same way, unless --no-others is given; calloc may use stack, and memset is part of it. So are
the operators new and delete and their array forms, with the library preloaded: elsewhere they are
not the process's. --show prints the instructions.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SHARE_LEAST = 0.9


def compile_probe(directory):
    probe = pathlib.Path(directory) / "fast_path_probe"
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-std=gnu17", "-Wall", "-Wextra", "-Werror",
                    "-rdynamic", str(HERE / "fast_path_probe.c"), "-o", str(probe), "-ldl"],
                   check=True)
    return probe


def trace(probe, library, names, others, size, pairs):
    """The calls as {function: Counter of (stack bytes, path)}."""
    environment = dict(os.environ)
    if names[0].startswith("_Zn"):
        environment["LD_PRELOAD"] = str(library)
    text = subprocess.run([str(probe), str(library), *names, str(size), str(pairs), *others],
                          check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    calls = collections.defaultdict(collections.Counter)
    for line in text.splitlines():
        function, stack, *path = line.split()
        calls[function][int(stack), tuple(path)] += 1
    return calls


def disassemble(library):
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(library)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return {match.group(1): match.group(2).strip()
            for match in re.finditer(r"^\s*([0-9a-f]+):\t(.*)$", text, re.M)}


def problems_of(name, paths, most, stack_is_fine):
    """(report line, fast path, problems) of one function."""
    (stack, path), count = paths.most_common(1)[0]
    calls = paths.total()
    mean = sum(len(path) * times for (_, path), times in paths.items()) / calls
    report = (f"{name}: {len(path)} instructions (at most {most}), {stack} bytes of stack, "
              f"{count / calls:.1%} of {calls} calls; mean over all calls {mean:.1f}")
    problems = []
    if len(path) > most:
        problems.append(f"{name}: {len(path)} instructions, over {most}")
    if stack and not stack_is_fine:
        problems.append(f"{name}: the fast path uses {stack} bytes of stack")
    if count < SHARE_LEAST * calls:
        problems.append(f"{name}: only {count / calls:.1%} of the calls take the same path")
    return report, path, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--malloc-most", type=int, default=19)
    parser.add_argument("--free-most", type=int, default=27)
    parser.add_argument("--usable-most", type=int, default=29)
    parser.add_argument("--realloc-most", type=int, default=45)
    parser.add_argument("--calloc-most", type=int, default=40)
    parser.add_argument("--no-others", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()

    problems = []
    with tempfile.TemporaryDirectory() as directory:
        probe = compile_probe(directory)
        subjects = [("libcairn.so", ("cairn_malloc", "cairn_free")),
                    ("libcairn-malloc.so", ("malloc", "free"))]
        if not options.no_others:
            subjects += [("libcairn-malloc.so", ("_Znwm", "_ZdlPv")),
                         ("libcairn-malloc.so", ("_Znam", "_ZdaPv"))]
        for library, names in subjects:
            file = (options.build / library).resolve()
            is_malloc = names[0].endswith("malloc")
            prefix = names[0].removesuffix("malloc") if is_malloc else ""
            limits = [("malloc", names[0].removeprefix(prefix), options.malloc_most, False),
                      ("free", names[1].removeprefix(prefix), options.free_most, False)]
            if is_malloc and not options.no_others:
                limits += [("usable", "malloc_usable_size", options.usable_most, False),
                           ("realloc", "realloc", options.realloc_most, False),
                           ("calloc", "calloc", options.calloc_most, True)]
            others = [prefix + name for _, name, *_ in limits[2:]]
            calls = trace(probe, file, names, others, options.size, options.pairs)
            listing = disassemble(file)
            for function, name, most, stack_is_fine in limits:
                report, path, found = problems_of(f"{library} {prefix}{name}", calls[function],
                                                  most, stack_is_fine)
                print(report)
                problems += found
                if options.show or found:
                    for offset in path:
                        print(f"  {offset:>8}  {listing.get(offset, '(outside of the library)')}")
    for problem in problems:
        print(f"check_fast_path: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
