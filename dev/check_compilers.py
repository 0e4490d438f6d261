#!/usr/bin/env python3
"""Checks that compilers accept the sources without a warning.

usage: check_compilers.py [--programs] [--jobs N] COMPILER…

COMPILER is the name of a C compiler, such as clang-14 or gcc-12; the C++ compiler of the same
version is used for C++. Every source of the libraries, plain and hardened, is compiled with the
warnings of the build as errors. --programs adds the sources of benchmark and examples, each once.
The sanitizer builds of .ci/run compile those of the tests with the newest clang. clang reports its
warnings without generating code; gcc optimises, because some of its warnings depend on it.
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
           "-DCAIRN_TESTS=OFF"]


def twin(compiler):
    return compiler.replace("clang", "clang++").replace("gcc", "g++")


def configure(compiler, programs):
    build = ROOT / "build" / "compilers" / pathlib.Path(compiler).name
    parts = [f"-DCAIRN_{part}={'ON' if programs else 'OFF'}"
             for part in ("BENCH", "EXAMPLES")]
    subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *OPTIONS, *parts,
                    f"-DCMAKE_C_COMPILER={compiler}", f"-DCMAKE_CXX_COMPILER={twin(compiler)}"],
                   check=True, stdout=subprocess.DEVNULL)
    entries = json.loads((build / "compile_commands.json").read_text())
    library = [entry for entry in entries if (ROOT / "src") in pathlib.Path(entry["file"]).parents]
    others = {entry["file"]: entry for entry in entries if entry not in library}
    return library + list(others.values())


def take(entry, compiler):
    """Compiles one source, and returns the messages if the compiler rejects it."""
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
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("compilers", nargs="+", metavar="COMPILER")
    arguments = parser.parse_args()
    refused = 0
    for compiler in arguments.compilers:
        entries = configure(compiler, arguments.programs)
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
