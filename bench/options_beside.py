#!/usr/bin/env python3
"""Compares real programs on Cairn under several settings of CAIRN_OPTIONS.

usage: options_beside.py BUILD OPTIONS... [--rounds N] [--only NAME]...

BUILD is a build folder (build/release) with libcairn-malloc.so in it. OPTIONS are in the form of
CAIRN_OPTIONS; the others are compared with the first, and an empty text is no option at all. Each
round runs each program once under each setting, in reverse order every other time. Columns: the
medians of processor time, user and system, and of peak memory; then the medians of the ratios to
the first setting in each round, and page faults. Programs that are not installed are left out,
which is reported. The machine should be quiet.

    options_beside.py build/release "" profile:512K
    options_beside.py build/release huge_pages:off huge_pages:auto huge_pages:on
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SQL = ("create table t(a integer primary key, b text);"
       "with recursive c(x) as (select 1 union all select x+1 from c where x<300000)"
       " insert into t select x, printf('%0100d', x) from c;"
       "create index i on t(b);"
       "select count(*), sum(length(g)) from (select group_concat(b) as g from t group by a%500);")
PYTHON = ("import json\n"
          "d = {i: str(i) * 3 for i in range(500000)}\n"
          "l = [{'a': i, 'b': [i]} for i in range(100000)]\n"
          "print(len(json.loads(json.dumps(l))) + len(d))\n")
PERL = ('my %h; $h{"k$_"} = [map { $_ * 3 } 1..8] for 1..200000;'
        'my @a = map { "x" x ($_ % 700) } 1..200000; print scalar(keys %h) + @a, "\\n";')
PROGRAMS = {
    "python3": ["/usr/bin/python3", "-c", PYTHON],
    "python3, all by malloc": ["/usr/bin/env", "PYTHONMALLOC=malloc", "/usr/bin/python3", "-c",
                               PYTHON],
    "perl": ["perl", "-e", PERL],
    "sqlite3": ["sqlite3", ":memory:", SQL],
    "lua": ["lua5.4", "-e", "local t = {} for i = 1, 1500000 do t[i] = {i, tostring(i)} end"],
    "git": ["git", "-C", str(ROOT), "log", "--stat", "--max-count=300"],
    "gcc": ["gcc", "-O2", "-c", "-std=gnu17", "-I", str(ROOT / "include"), "-I", str(ROOT / "src"),
            "-o", "/dev/null", str(ROOT / "src/heap/large.c")],
    "g++": ["g++", "-O1", "-x", "c++", "-c", "-o", "/dev/null", "-"],
    "node": ["node", "-e", "let t = []; for (let i = 0; i < 1e6; i++) t.push({a: i, b: [i]});"
             "console.log(JSON.stringify(t).length)"],
}
CXX = b"#include <regex>\n#include <map>\n#include <iostream>\n" \
      b"int main() { std::regex r(\"a*b\"); std::map<int, std::string> m; m[1] = \"x\"; }\n"


def run(command, lib, options):
    """(processor seconds, peak KiB, page faults)"""
    environment = {**os.environ, "LD_PRELOAD": str(lib), "CAIRN_OPTIONS": options}
    with tempfile.TemporaryFile() as text:
        text.write(CXX)
        text.seek(0)
        process = subprocess.Popen(command, env=environment, stdin=text,
                                   stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} with {options!r} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss, usage.ru_minflt


def measure(name, command, lib, settings, rounds):
    """Prints the program's lines; the ratios of time, one a setting."""
    runs = {options: [] for options in settings}
    for turn in range(rounds + 1):
        for options in settings[:: 1 if turn % 2 else -1]:
            figures = run(command, lib, options)
            if turn > 0:  # the first round only fills caches
                runs[options].append(figures)
    time_ratios = []
    for options in settings:
        seconds, peak, faults = (statistics.median(each[i] for each in runs[options])
                                 for i in range(3))
        time_ratio, peak_ratio = (
            statistics.median(own[i] / other[i] for own, other
                              in zip(runs[options], runs[settings[0]])) for i in range(2))
        print(f"| {name} | `{options or 'none'}` | {seconds:.3f} s | {time_ratio:.3f} "
              f"| {peak / 1024:.1f} MiB | {peak_ratio:.3f} | {faults:.0f} |", flush=True)
        time_ratios.append(time_ratio)
    return time_ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("options", nargs="+")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", action="append", metavar="NAME")
    arguments = parser.parse_args()
    lib = (arguments.build / "libcairn-malloc.so").resolve(strict=True)
    print(f"{arguments.rounds} rounds; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} "
          "processors\n\n| program | options | time | over the first | peak | over the first "
          "| page faults |\n|---|---|---|---|---|---|---|")
    ratios = []
    for name, command in PROGRAMS.items():
        if arguments.only and name not in arguments.only:
            continue
        if shutil.which(command[0]) is None:
            print(f"{command[0]} is not installed: left out", file=sys.stderr)
            continue
        ratios.append(measure(name, command, lib, arguments.options, arguments.rounds))
    means = [statistics.geometric_mean(column) for column in zip(*ratios)]
    print("\ntime over the first, geometric mean: " + ", ".join(
        f"{options or 'none'} {mean:.4f}" for options, mean in zip(arguments.options, means)))


if __name__ == "__main__":
    main()
