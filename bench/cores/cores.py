#!/usr/bin/env python3
"""Counts what many cores would exchange: builds and runs the simulator, and reports.

usage: cores.py build HEADERS [--out DIR]
       cores.py check [--out DIR]
       cores.py run NAME=LIBRARY… [--threads N,…] [--programs NAME,…] [--results DIR] …
       cores.py report [--results DIR] [--write FILE]
       cores.py sites|callers|holds RESULT …

See README.md. HEADERS is the folder of qemu-plugin.h. A NAME without =LIBRARY is libc's malloc. run
skips what --results has.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import cores_report
import cores_sites

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parents[1] / "build" / "cores"
PLUGIN = ["plugin.c", "lines.c", "turns.c", "result.c"]
FLAGS = ["-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Wshadow", "-Wconversion",
         "-Wno-sign-conversion"]
BASELINE = cores_report.BASELINE
# Percent of a program's operations, by program and threads, so that a run takes a minute or so.
PERCENT = {("growing", 2): 25, ("growing", 16): 15, ("growing", 64): 5, ("shorts", 16): 50,
           ("shorts", 64): 15, ("large", 16): 40, ("large", 64): 20, ("local", 64): 50,
           ("larson", 64): 50, ("pairs", 64): 50, ("many", 64): 50, ("medium", 64): 50,
           ("bursts", 64): 50, ("resizing", 64): 25, ("aligned", 64): 25, ("purging", 64): 25,
           ("forking", 64): 25}


def compile_to(target, sources, *flags):
    subprocess.run([os.environ.get("CC", "cc"), *FLAGS, "-o", str(target),
                    *(str(HERE / source) for source in sources), *flags], check=True)


def build_programs(out):
    """The programs and the baseline, which also run without the simulator."""
    out.mkdir(parents=True, exist_ok=True)
    compile_to(out / "programs", ["programs.c", "machine.c"], "-fno-builtin-malloc", "-rdynamic",
               "-pthread", "-ldl")
    compile_to(out / "known", ["known.c", "machine.c"], "-rdynamic", "-pthread", "-ldl")
    compile_to(out / "libbaseline.so", ["baseline.c"], "-fno-builtin", "-fPIC", "-shared")


def build(options):
    build_programs(options.out)
    compile_to(options.out / "simulator.so", PLUGIN, "-fPIC", "-shared", f"-I{options.headers}")
    print(f"built in {options.out}")


def simulate(out, result, program, library, environment=(), **settings):
    """The command that simulates a program; its result is written to `result`."""
    plugin = ",".join([str(out / "simulator.so"), f"out={result}",
                       f"alloc={os.path.basename(os.path.realpath(library))}",
                       *(f"{name}={value}" for name, value in settings.items() if value)])
    variables = [argument for text in environment for argument in ("-E", text)]
    return ["qemu-x86_64", "-cpu", "max", "-plugin", plugin, *variables, *program]


def check(options):
    """Runs threads with known transfers. Returns: whether all counts are what they must be."""
    expected = {  # locked and transfers of each round: from, to
        "shared": ((1, 1.1), (0.85, 1.05)), "false": ((1, 1.1), (0.85, 1.05)),
        "apart": ((1, 1.1), (0, 0.05)), "turns": ((0, 0.1), (1.9, 40))}
    right = True
    for name, (locked, transfers) in expected.items():
        for threads in (2, 16):
            result = options.out / "known.result"
            subprocess.run(simulate(options.out, result, [str(options.out / "known"), name,
                                                          str(threads)], "none", cores=64,
                                    quantum=20), check=True, stdout=subprocess.DEVNULL)
            found = cores_report.Result(result)
            figures = found.per_thousand("locked") / 1000, found.per_thousand("lines") / 1000
            fits = all(low <= figure <= high
                       for figure, (low, high) in zip(figures, (locked, transfers)))
            right = right and fits
            print(f"{name}, {threads} threads: {figures[0]:.2f} locked, {figures[1]:.2f} lines a "
                  f"round: {'right' if fits else 'WRONG'}")
    return 0 if right else 1


def malloc_of_libc():
    """The library of libc, and where its malloc is in it, by its debug symbols."""
    libc = next(path for path in pathlib.Path("/lib").glob("*/libc.so.6"))
    notes = subprocess.run(["readelf", "-n", str(libc)], check=True, capture_output=True, text=True)
    build_id = re.search(r"Build ID: (\w+)", notes.stdout).group(1)
    debug = pathlib.Path(f"/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug")
    if not debug.exists():
        return libc, {}
    symbols = subprocess.run(["nm", str(debug)], check=True, capture_output=True, text=True)
    places = sorted((int(words[0], 16), words[2]) for words in map(str.split,
                                                                   symbols.stdout.splitlines())
                    if len(words) == 3)
    low = next(at for at, name in places if name == "malloc_printerr")
    high = next(at for at, name in places if name.startswith("mtrace"))
    return libc, {"low": hex(low), "high": hex(high)}


def run_one(options, program, name, library, threads):
    result = options.results / f"{program}.{name}.{threads}"
    if result.exists():
        return
    settings = {"cores": max(threads, 2), "quantum": options.quantum, "cache": options.cache,
                "pause": options.pause, "lock": options.lock if name != BASELINE else ""}
    if library:
        environment = [f"LD_PRELOAD={library}"]
    else:
        library, part = malloc_of_libc()
        settings |= part
        environment = [f"GLIBC_TUNABLES=glibc.malloc.arena_max={8 * threads}"]
    percent = options.percent or PERCENT.get((program, threads), 100)
    part = result.with_name(result.name + ".part")
    begin = time.monotonic()
    try:
        done = subprocess.run(simulate(options.out, part, [str(options.out / "programs"), program,
                                                           str(threads), str(percent),
                                                           str(options.work)],
                                       library, environment, **settings),
                              capture_output=True, text=True, timeout=options.timeout, check=False)
        status, said = done.returncode, (done.stdout + done.stderr).strip()[-300:]
    except subprocess.TimeoutExpired:
        status, said = -1, "timeout"
    if status == 0:
        part.rename(result)
    print(f"{program} {name} {threads}: status {status}, {time.monotonic() - begin:.0f} s, {said}",
          flush=True)


def run(options):
    if shutil.which("qemu-x86_64") is None:
        sys.exit("cores: qemu-x86_64 is not installed (qemu-user)")
    options.results.mkdir(parents=True, exist_ok=True)
    libraries = [(BASELINE, options.out / "libbaseline.so")]
    libraries += [(name, pathlib.Path(path).resolve() if path else None)
                  for name, _, path in (text.partition("=") for text in options.allocators)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for threads in options.threads:
            for program in options.programs:
                for name, library in libraries:
                    pool.submit(run_one, options, program, name, library, threads)


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("build", "check", "run"):
        command = commands.add_parser(name)
        command.add_argument("--out", type=pathlib.Path, default=OUT, help="built files")
        if name == "build":
            command.add_argument("headers", help="the folder of qemu-plugin.h")
        if name == "run":
            command.add_argument("allocators", nargs="+", metavar="NAME=LIBRARY")
            command.add_argument("--threads", type=numbers, default=[16, 64, 2])
            command.add_argument("--programs", type=lambda text: text.split(","),
                                 default=cores_report.PROGRAMS)
            for option, default, text in (
                    ("quantum", 100, "cycles of a turn"),
                    ("cache", 0, "KiB of the cache of a core; 0: infinite"),
                    ("pause", 0, "cycles of a pause instruction; 0: 40"),
                    ("work", 0, "nanoseconds of other work after each free"),
                    ("percent", 0, "of the operations; 0: as the programs need"),
                    ("timeout", 900, "seconds of a run"), ("jobs", 2, "runs at the same time")):
                command.add_argument(f"--{option}", type=int, default=default, help=text)
            command.add_argument("--lock", default="", metavar="WORD:LOW:HIGH",
                                 help="offsets of a lock and of the function that takes it")
    command = commands.add_parser("report")
    command.add_argument("--write", type=pathlib.Path, metavar="FILE",
                         help="replace the tables of this document")
    for name in ("run", "report"):
        commands.choices[name].add_argument("--results", type=pathlib.Path,
                                            default=OUT / "results")
    for name in ("sites", "callers", "holds"):
        command = commands.add_parser(name)
        command.add_argument("result", type=pathlib.Path)
        if name == "callers":
            command.add_argument("function")
        command.add_argument("libraries", nargs="*", metavar="NAME=LIBRARY",
                             help="a part of a file name, and that file with line numbers")
    return parser.parse_args()


def main():
    options = parse()
    actions = {"build": build, "check": check, "run": run, "report": cores_report.report}
    action = actions.get(options.command) or getattr(cores_sites, options.command)
    return action(options) or 0


if __name__ == "__main__":
    sys.exit(main())
