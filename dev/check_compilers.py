#!/usr/bin/env python3
"""Checks that compilers take the sources without a warning.

usage: check_compilers.py [--tests] [--jobs N] COMPILER…

A compiler is the name of the C one: clang-14, gcc-12; its C++ twin is found beside it. Every source
of the libraries, plain and hardened, is read with the warnings of the build as errors; with --tests
those of tests, benchmark, examples and tools too, each with its own includes only, and once where
several programs are made of it. clang gives its warnings without generating code; gcc gives some of
them only when it optimises, and does.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DCAIRN_HARDENED_LIBRARIES=ON", "-DCAIRN_INSTALL=OFF",
           "-DCAIRN_TEST_HEADERS=OFF"]


def twin(compiler):
    return compiler.replace("clang", "clang++").replace("gcc", "g++")


def configure(compiler, tests):
    build = ROOT / "build" / "compilers" / pathlib.Path(compiler).name
    parts = [f"-DCAIRN_{part}={'ON' if tests else 'OFF'}"
             for part in ("TESTS", "BENCH", "EXAMPLES")]
    subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *OPTIONS, *parts,
                    f"-DCMAKE_C_COMPILER={compiler}", f"-DCMAKE_CXX_COMPILER={twin(compiler)}"],
                   check=True, stdout=subprocess.DEVNULL)
    entries = json.loads((build / "compile_commands.json").read_text())
    library = [entry for entry in entries if (ROOT / "src") in pathlib.Path(entry["file"]).parents]
    others = {entry["file"]: entry for entry in entries if entry not in library}
    return library + list(others.values())


def take(entry, compiler):
    """One source. What the compiler says of it when it does not take it."""
    words = shlex.split(entry["command"])
    if "clang" in compiler:
        words += ["-fsyntax-only", "-Wno-unused-command-line-argument"]
    else:
        words[words.index("-o") + 1] = os.devnull
    done = subprocess.run(words, cwd=entry["directory"], text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return "" if done.returncode == 0 else done.stdout or f"{entry['file']}: {done.returncode}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("compilers", nargs="+", metavar="COMPILER")
    arguments = parser.parse_args()
    refused = 0
    for compiler in arguments.compilers:
        entries = configure(compiler, arguments.tests)
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            texts = [text for text in pool.map(lambda entry: take(entry, compiler), entries)
                     if text]
        print("".join(texts), end="")
        print(f"check_compilers: {compiler}: {len(entries)} sources, {len(texts)} refused",
              flush=True)
        refused += len(texts)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
