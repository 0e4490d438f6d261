#!/usr/bin/env python3
"""Cairn's profiler compared with jemalloc's: instructions, and the sum of all allocations.

usage: profile_beside.py BUILD JEMALLOC [--interval BYTES] [--runs N]

BUILD is a build folder (build/release) with libcairn-malloc.so in it, JEMALLOC a libjemalloc.so
that was configured with --enable-prof. Two programs run under each: in valgrind without and with
the profiler, which counts instructions; then N times with the profiler, for its estimate of all
allocated bytes. The truth is a run of that allocator in which every block is a sample, since each
rounds sizes in its own way. bench/profile_accuracy.py compares single sites. The interval is a
power of two.
"""

import argparse
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

# pylint: disable=wrong-import-position
from cairn.profile_file import read

SQL = ("create table t(a integer primary key, b text);"
       "with recursive c(x) as (select 1 union all select x+1 from c where x<20000)"
       " insert into t select x, printf('%0100d', x) from c;"
       "create index i on t(b);"
       "select count(*), sum(length(g)) from (select group_concat(b) as g from t group by a%500);")
PROGRAMS = {
    "perl": ["perl", "-e", 'my %h; $h{"k$_"} = [map { $_ * 3 } 1..8] for 1..20000;'
             'my @a = map { "x" x ($_ % 700) } 1..20000;'],
    "sqlite3": ["sqlite3", ":memory:", SQL],
}


def run(command, library, folder, **settings):
    """Runs the command; returns its stderr."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PERL_HASH_SEED": "0",
                   "LD_PRELOAD": str(library), **settings}
    done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, env=environment, check=True)
    return done.stderr


def instructions(command, library, folder, **settings):
    text = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command],
               library, folder, **settings)
    return int(re.search(r"Collected : (\d+)", text).group(1))


def conf(interval):
    return f"prof:true,lg_prof_sample:{interval.bit_length() - 1}"


class Jemalloc:
    name = "jemalloc"

    def __init__(self, library, interval):
        self.library = library
        self.on = {"MALLOC_CONF": conf(interval)}
        self.interval = interval

    def truth(self, command, folder):
        return self.dump(command, folder, 1)

    def estimate(self, command, folder):
        return self.dump(command, folder, self.interval)

    def dump(self, command, folder, interval):
        """Reads a dump, with jeprof's own correction for each stack."""
        for old in folder.glob("je.*"):
            old.unlink()
        run(command, self.library, folder, MALLOC_CONF=conf(interval) +
            f",prof_accum:true,prof_final:true,prof_prefix:{folder}/je")
        [dump] = folder.glob("je.*.heap")
        total = 0.0
        for stack in dump.read_text().split("\n@")[1:]:
            objects, size = map(int, re.search(r"t\*: \d+: \d+ \[(\d+): (\d+)\]", stack).groups())
            total += size / (1 - math.exp(-size / objects / interval)) if objects else 0
        return total


class Cairn:
    name = "Cairn"

    def __init__(self, library, interval):
        self.library = library
        self.on = {"CAIRN_OPTIONS": f"profile:{interval}"}
        self.interval = interval

    def dump(self, command, folder, interval):
        for old in folder.glob("cairn.*"):
            old.unlink()
        run(command, self.library, folder,
            CAIRN_OPTIONS=f"profile:{interval},profile_file:{folder}/cairn")
        [path] = folder.glob("cairn.*")
        return read(path).sum(False).bytes

    def truth(self, command, folder):
        return self.dump(command, folder, 2)

    def estimate(self, command, folder):
        return self.dump(command, folder, self.interval)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("jemalloc", type=pathlib.Path)
    parser.add_argument("--interval", type=int, default=512 << 10)
    parser.add_argument("--runs", type=int, default=20)
    arguments = parser.parse_args()
    tools = (Cairn((arguments.build / "libcairn-malloc.so").resolve(), arguments.interval),
             Jemalloc(arguments.jemalloc.resolve(), arguments.interval))
    print("| program | profiler | instructions, off | on | more | allocated | mean of estimates "
          "| standard deviation |\n|---|---|---|---|---|---|---|---|")
    for name, command in PROGRAMS.items():
        for tool in tools:
            with tempfile.TemporaryDirectory() as text:
                folder = pathlib.Path(text)
                off = instructions(command, tool.library, folder)
                on = instructions(command, tool.library, folder, **tool.on)
                truth = tool.truth(command, folder)
                found = [tool.estimate(command, folder) / truth - 1 for _ in range(arguments.runs)]
            print(f"| {name} | {tool.name} | {off / 1e6:.1f} million | {on / 1e6:.1f} | "
                  f"{on / off - 1:.2%} | {truth / 2**20:.1f} MiB | {statistics.fmean(found):+.1%} "
                  f"| {statistics.stdev(found):.1%} |", flush=True)


if __name__ == "__main__":
    os.environ.pop("MALLOC_CONF", None)
    main()
