#!/usr/bin/env python3
"""The profiler's estimates compared with the tracer's full count, site by site, on real programs.

usage: profile_accuracy.py BUILD [--interval BYTES] [--runs N] [PROGRAM...]

BUILD is a build folder (build/release) with libcairn-malloc.so and cairn-trace in it. Each program
runs twice under the tracer, which gives the truth, and N times under the profiler alone. A site is
a call stack of up to 40 frames, as files and offsets. The bytes that a site has allocated, and
those in use at the end, are compared with the estimate of each run:

    z = (estimate - truth) / sigma,   sigma^2 = sum over its blocks of s^2 (1 - p) / p,
                                      p = 1 - exp(-s / interval)

s is the size of the block: the requested size as cairn_good_size rounds it, and for realloc the
size that src/heap/resize.c requests. Three kinds of sites are left out, and their number is
printed: those with fewer than 10 expected samples, which are not normally distributed; those of
large blocks, of which nearly all are samples, where sigma is below 1 % of the truth; and those that
differ between the two traces, since a third run would differ as well. The last line is the result
of chance alone: the sites with samples drawn by this script. The last column is the sum of all z
divided by its own sigma, which is large if estimates are biased. Programs that are not installed
are left out, which is reported.
"""

import argparse
import collections
import ctypes
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

# pylint: disable=wrong-import-position
from cairn.profile_file import read

DEPTH = 40  # PROFILE_DEPTH
SMALL_MAX, MEDIUM_MAX = 1024, 32768  # src/heap/size_class.h
GROWING_MIN = 2 << 20  # src/heap/large.c: from here on a block that grows gets an eighth more
SAMPLES_LEAST = 10
DRAWS = 100  # of each site, for the result of chance alone
SQL = ("create table t(a integer primary key, b text);"
       "with recursive c(x) as (select 1 union all select x+1 from c where x<30000)"
       " insert into t select x, printf('%0100d', x) from c;"
       "create index i on t(b);"
       "select count(*), sum(length(g)) from (select group_concat(b) as g from t group by a%500);")
CPP = """
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main() { std::map<std::string, std::vector<int>> all; std::regex word("[a-z]+");
    std::cout << all.size() << std::regex_match("word", word); }
"""
PROGRAMS = {
    "python3": ["/usr/bin/python3", "-I", "-S", "-c",
                "d = {str(i): ['x' * (i % 90)] * 5 for i in range(40000)}\n"
                "t = ' '.join(d); e = t.split()\n"
                "b = [bytearray(i % 3000) for i in range(40000)]\n"
                "w = [str(i) * 20 for i in range(60000)]\n"],
    "perl": ["perl", "-e", 'my %h; $h{"k$_"} = [map { $_ * 3 } 1..8] for 1..40000;'
             'my @a = map { "x" x ($_ % 700) } 1..40000;'],
    "sqlite3": ["sqlite3", ":memory:", SQL],
    "jq": ["jq", "-n", "[range(60000) | {a: tostring, b: [., . * 2]}] | map(.a + \"x\") | length"],
    "git": ["git", "diff", "--no-index", "--stat", "left", "right"],
    "bash": ["bash", "-c", "declare -A h; for i in {1..30000}; do h[$i]=v$i; x=${h[$i]}y; done"],
    "lua": ["lua5.4", "-e", "local t = {} for i = 1, 150000 do t[i] = {tostring(i)} end"],
    "cc1plus": ["g++", "-fsyntax-only", "many.cc"],
}
PROCESS = {"cc1plus": "cc1plus", "lua": "lua5.4"}  # whose dump it is; else the program's own name


class Rounding:
    """Rounds sizes as the heap does."""

    def __init__(self, library):
        self.good_size = ctypes.CDLL(str(library)).cairn_good_size
        self.good_size.argtypes, self.good_size.restype = [ctypes.c_size_t], ctypes.c_size_t
        self.known = {}

    def new(self, asked):
        size = self.known.get(asked)
        if size is None:
            # The profiler needs a byte per block that packed slabs do not have.
            size = self.known[asked] = self.good_size(asked if asked > 8 else 16)
        return size

    def resized(self, old, asked):
        """(the new size, whether the profiler counts it as another block)"""
        if asked > MEDIUM_MAX and old > MEDIUM_MAX:
            size = self.new(asked)
            if size == old or (old >= GROWING_MIN and size <= old <= size + size // 4):
                return old, False
            if asked >= GROWING_MIN and asked > old:
                size = self.new(asked + asked // 8)
            return size, True
        suits = self.new(asked) == old or SMALL_MAX < asked <= old < asked / 0.75
        if old <= MEDIUM_MAX and suits:
            return old, False
        if old < asked and SMALL_MAX < asked < MEDIUM_MAX:
            asked = max(asked, min(old + (old // 16 * 3 if old < 4096 else old // 8), MEDIUM_MAX))
        return self.new(asked), True


class Truth:
    """By stack, the sizes and numbers of the blocks allocated and of those in use at the end."""

    def __init__(self, tool, path, rounding):
        self.rounding = rounding
        self.allocated = collections.defaultdict(collections.Counter)
        self.live = collections.defaultdict(collections.Counter)
        self.blocks, self.moving = {}, {}
        with subprocess.Popen([tool, "events", path], stdout=subprocess.PIPE, text=True) as process:
            next(process.stdout)
            for line in process.stdout:
                self.event(line.split("\t"))
        for stack, size in self.blocks.values():
            self.live[stack][size] += 1
        maps = [line.split(" ", 5) for line in self.lines(tool, "text", path)
                if line.startswith("map ")]
        maps = [(int(row[1], 16), int(row[2], 16), int(row[3], 16), row[5]) for row in maps]
        stacks = {}
        for line in self.lines(tool, "stacks", path):
            number, *frames = line.split("\t")
            stacks[number] = tuple(place(int(frame, 16), maps) for frame in frames[:DEPTH]
                                   if frame != "...")
        self.allocated, self.live = (self.by_frames(each, stacks)
                                     for each in (self.allocated, self.live))

    @staticmethod
    def lines(tool, what, path):
        return subprocess.run([tool, what, path], check=True, capture_output=True,
                              text=True).stdout.splitlines()

    def event(self, words):
        _, _, thread, operation, address, asked, _, stack, _ = words
        if operation.startswith("allocate"):
            self.add(address, stack, self.rounding.new(int(asked)))
        elif operation == "free":
            self.blocks.pop(address, None)
        elif operation == "resize-from":
            self.moving[thread] = self.blocks.pop(address, ("0", 0))
        elif operation == "resize-to":
            old = self.moving.pop(thread)
            size, is_other = self.rounding.resized(old[1], int(asked))
            if is_other:
                self.add(address, stack, size)
            else:
                self.blocks[address] = old
        elif operation == "resize-failed":
            self.blocks[address] = self.moving.pop(thread)

    def add(self, address, stack, size):
        self.blocks[address] = (stack, size)
        self.allocated[stack][size] += 1

    @staticmethod
    def by_frames(sizes, stacks):
        found = collections.defaultdict(collections.Counter)
        for stack, counts in sizes.items():
            found[stacks.get(stack, ())].update(counts)
        return found


def place(address, maps):
    """A return address as file and offset, which do not change between runs."""
    for start, end, offset, path in maps:
        if start <= address - 1 < end:
            return path, address - start + offset
    return "", address


class Runs:
    """The runs of one program, in a folder of its own."""

    def __init__(self, build, name, folder):
        self.build, self.name, self.folder = build, name, pathlib.Path(folder)
        (self.folder / "many.cc").write_text(CPP)
        for side, step in (("left", 1), ("right", 2)):
            (self.folder / side).mkdir()
            for number in range(20):
                (self.folder / side / f"file{number}").write_text(
                    "".join(f"line {i * (step if i % 5 == 0 else 1)}\n" for i in range(4000)))

    def run(self, options):
        """Runs the program, after it has removed the files of the run before."""
        for old in [*self.folder.glob("dump.*"), *self.folder.glob("trace.*")]:
            old.unlink()
        # Without address randomisation: some programs sort and hash by addresses.
        subprocess.run(["setarch", "-R", *PROGRAMS[self.name]], cwd=self.folder,
                       stdout=subprocess.DEVNULL, check=self.name != "git", timeout=600, env={
                           "PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(self.folder),
                           "LD_PRELOAD": str(self.build / "libcairn-malloc.so"),
                           "PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc", "PERL_HASH_SEED": "0",
                           "CAIRN_OPTIONS": f"{options},profile_file:{self.folder}/dump"})
        wanted = PROCESS.get(self.name, self.name)
        dumps = [read(path) for path in self.folder.glob("dump.*")]
        return next(dump for dump in dumps if dump.program == wanted)

    def truth(self, rounding):
        # The profiler runs too: its dump identifies the process, and sizes are rounded as with it.
        pid = self.run(f"profile:1G,trace:{self.folder}/trace").pid
        path = max(self.folder.glob(f"trace.{pid}.*"), key=lambda each: int(each.suffix[1:]))
        return Truth(str(self.build / "cairn-trace"), str(path), rounding)

    def estimates(self, interval):
        profile = self.run(f"profile:{interval}")
        maps = [(each.start, each.end, each.offset, each.path) for each in profile.maps]
        allocated, live = collections.Counter(), collections.Counter()
        for site in profile.sites:
            key = tuple(place(frame, maps) for frame in site.frames)
            allocated[key] += site.allocated.bytes
            live[key] += site.live.bytes
        return allocated, live, profile


def sums(sizes, interval):
    """(bytes, sigma, samples expected) of a site"""
    total, variance, samples = 0, 0.0, 0.0
    for size, count in sizes.items():
        chance = 1 - math.exp(-size / interval)
        total += size * count
        variance += size * size * (1 - chance) / chance * count if size else 0
        samples += chance * count
    return total, math.sqrt(variance), samples


def chosen(one, other, interval):
    """({stack: (bytes, sigma)}, number of sites that differ between runs, and with large blocks)"""
    sites, differ, large = {}, 0, 0
    for key, sizes in one.items():
        total, sigma, samples = sums(sizes, interval)
        if samples < SAMPLES_LEAST:
            continue
        if sizes != other.get(key):
            differ += 1
        elif sigma < total / 100:
            large += 1
        else:
            sites[key] = total, sigma
    return sites, differ, large


def drawn(sizes, interval):
    """An estimate by chance alone: each block is a sample or not."""
    estimate = 0.0
    for size, count in sizes.items():
        chance = 1 - math.exp(-size / interval)
        hit = -1
        while size:
            hit += 1 + int(math.log(1 - random.random()) * -interval / size)
            if hit >= count:
                break
            estimate += size / chance
    return estimate


def row(name, what, deviations, sites, differ, large):
    if not deviations:
        print(f"| {name} | {what} | 0 | {differ} | {large} | | | | | |")
        return
    count = len(deviations)
    shares = [sum(abs(each) <= most for each in deviations) / count for most in (1, 2, 3)]
    mean = sum(deviations) / count
    print(f"| {name} | {what} | {sites} | {differ} | {large} | {count} "
          f"| {' | '.join(f'{share:.1%}' for share in shares)} "
          f"| {max(deviations, key=abs):+.1f} | {mean * math.sqrt(count):+.1f} |", flush=True)


def compare(build, name, arguments, rounding, every):
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(build, name, folder)
        one, other = runs.truth(rounding), runs.truth(rounding)
        profiles = [runs.estimates(arguments.interval) for _ in range(arguments.runs)]
    for number, what in enumerate(("allocated", "in use")):
        truths = [each.live if number else each.allocated for each in (one, other)]
        sites, differ, large = chosen(*truths, arguments.interval)
        deviations = [(profile[number][key] - total) / sigma for profile in profiles
                      for key, (total, sigma) in sites.items()]
        every[what] += deviations
        row(name, what, deviations, len(sites), differ, large)
        every["by chance"] += [(drawn(truths[0][key], arguments.interval) - total) / sigma
                               for key, (total, sigma) in sites.items() for _ in range(DRAWS)]
    whole = collections.Counter()
    for sizes in one.allocated.values():
        whole.update(sizes)
    total, sigma, _ = sums(whole, arguments.interval)
    row(name, "the whole", [(sum(profile[0].values()) - total) / sigma for profile in profiles],
        1, 0, 0)
    for _, _, profile in profiles:
        if profile.lost_stacks or profile.lost_blocks:
            print(f"{name}: without room: {profile.lost_stacks} stacks, "
                  f"{profile.lost_blocks} blocks")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--interval", type=int, default=512 << 10)
    parser.add_argument("--runs", type=int, default=20)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    rounding = Rounding(build / "libcairn-malloc.so")
    every = {"allocated": [], "in use": [], "by chance": []}
    print("| program | bytes | sites | differ | large | estimates | within 1 sigma | 2 | 3 | worst "
          "| sum |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for name in arguments.programs:
        if name not in PROGRAMS:
            parser.error(f"{name}: is none of {', '.join(PROGRAMS)}")
        if not shutil.which(PROGRAMS[name][0]):
            print(f"{name} is not installed: left out", file=sys.stderr)
            continue
        compare(build, name, arguments, rounding, every)
    for what, deviations in every.items():
        row("all", what, deviations, "", "", "")


if __name__ == "__main__":
    os.environ.pop("CAIRN_OPTIONS", None)
    main()
