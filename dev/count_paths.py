#!/usr/bin/env python3
"""Counts the cost of paths other than malloc and free: realloc, calloc, large cycles, threads.

usage: count_paths.py [--paths PATTERN] [--jobs N] NAME=LIBRARY...

Runs each path of path_probe.c under each library N times and 2 N times. An empty LIBRARY is the
system's malloc. The difference is the cost of N operations: instructions (by valgrind's callgrind,
including the loop of the probe), page faults and system calls (by strace). The peak RSS is printed
too. No clock is used, so the figures are valid on a busy machine. Repeated string instructions
count once per repetition.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TIMES = {"40M": 20, "16M": 20, "4M": 200, "1M": 200, "thread": 200}
USUAL_TIMES = 2000
SELDOM = 0.005


def times_of(path):
    return next((times for part, times in TIMES.items() if part in path), USUAL_TIMES)


class Counter:
    def __init__(self, probe, library):
        self.probe = probe
        self.environment = dict(os.environ)
        if library:
            self.environment["LD_PRELOAD"] = str(pathlib.Path(library).resolve())

    def instructions(self, path, times):
        with tempfile.NamedTemporaryFile() as out:
            text = subprocess.run(
                ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}",
                 str(self.probe), path, str(times)],
                env=self.environment, capture_output=True, text=True, check=False).stderr
        found = re.search(r"Collected : (\d+)", text)
        return int(found.group(1)) if found else None

    def faults(self, path, times):
        """(page faults, peak RSS in KiB)"""
        process = subprocess.Popen([str(self.probe), path, str(times)], env=self.environment)
        usage = os.wait4(process.pid, 0)[2]
        return usage.ru_minflt, usage.ru_maxrss

    def system_calls(self, path, times):
        with tempfile.NamedTemporaryFile(mode="r") as out:
            subprocess.run(["strace", "-f", "-qq", "-o", out.name,
                            *(f"-E{name}={value}" for name, value in self.environment.items()
                              if name == "LD_PRELOAD"),
                            str(self.probe), path, str(times)], check=False)
            return collections.Counter(re.findall(r"^\d+ +(\w+)\(", out.read(), re.M))


def line_of(name, counter, path):
    times = times_of(path)
    once, twice = (counter.instructions(path, n) for n in (times, 2 * times))
    instructions = f"{(twice - once) / times:12.1f}" if once and twice else f"{'?':>12}"
    faults = (counter.faults(path, 2 * times)[0] - counter.faults(path, times)[0]) / times
    rss = counter.faults(path, times)[1]
    calls = counter.system_calls(path, 2 * times)
    calls.subtract(counter.system_calls(path, times))
    seen = " ".join(f"{call} {count / times:.2f}" for call, count in sorted(calls.items())
                    if abs(count) / times >= SELDOM)
    return f"{path:26} {name:12} {instructions} {faults:10.2f} {rss:8}  {seen}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", default=".", metavar="PATTERN")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("libraries", nargs="+", metavar="NAME=LIBRARY")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        probe = pathlib.Path(directory) / "path_probe"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", "-std=gnu17", "-Wall",
                        "-Wextra", "-Werror", str(HERE / "path_probe.c"), "-o", str(probe),
                        "-pthread"], check=True)
        paths = subprocess.run([str(probe)], check=True, stdout=subprocess.PIPE,
                               text=True).stdout.split()
        print(f"{'path':26} {'library':12} {'instructions':>12} {'faults':>10} {'KiB':>8}  "
              "system calls")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for line in pool.map(lambda unit: line_of(*unit),
                                 [(name, Counter(probe, library), path) for path in paths
                                  if re.search(options.paths, path)
                                  for name, library in (word.split("=", 1)
                                                        for word in options.libraries)]):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
