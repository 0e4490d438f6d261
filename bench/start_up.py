#!/usr/bin/env python3
"""The cost that a preloaded library adds to the start and end of a program that does nothing.

usage: start_up.py LIB... [--rounds N] [--program PATH]

Each round has one run without a library and one with each LIB, in reverse order every other time.
Columns: the median of the microseconds from the spawn to the end; the median of the differences to
the run with the first LIB in each round; page faults. The machine should be quiet: differences of
less than 1 % take thousands of rounds.
"""

import argparse
import os
import pathlib
import statistics
import time


def run(program, lib):
    """(microseconds, page faults)"""
    environment = {} if lib is None else {"LD_PRELOAD": str(lib)}
    begin = time.perf_counter_ns()
    process = os.posix_spawn(program, [program], environment)
    _, status, usage = os.wait4(process, 0)
    took = (time.perf_counter_ns() - begin) / 1000
    if status != 0:
        raise SystemExit(f"{program} with {lib} ended with status {status}")
    return took, usage.ru_minflt


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libs", type=pathlib.Path, nargs="+", metavar="LIB")
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--program", default="/bin/true")
    arguments = parser.parse_args()
    libs = [lib.resolve(strict=True) for lib in arguments.libs]
    first = libs[0]
    runs = {lib: [] for lib in [*libs, None]}
    for turn in range(arguments.rounds):
        for lib in list(runs)[:: 1 if turn % 2 else -1]:
            runs[lib].append(run(arguments.program, lib))
    print(f"{arguments.program}, {arguments.rounds} rounds; load {os.getloadavg()[0]:.1f} on "
          f"{os.cpu_count()} processors\n")
    print("| library | us | more than the first | page faults |\n|---|---|---|---|")
    for lib, each in runs.items():
        more = statistics.median(own[0] - other[0] for own, other in zip(each, runs[first]))
        print(f"| {lib or 'none'} | {statistics.median(own[0] for own in each):.1f} "
              f"| {more:+.1f} | {statistics.median(own[1] for own in each):.0f} |")


if __name__ == "__main__":
    main()
