#!/usr/bin/env python3
"""cairn leaks compared with LeakSanitizer and heaptrack: time, memory, findings.

usage: leaks_beside.py BUILD [--rounds N]

BUILD is a build folder (build/release) with leak_target in it. The script prints two tables: a
program with planted leaks of 20 kinds, and ten programs that lose nothing. The programs are those
of the system: Cairn and LeakSanitizer (gcc's liblsan.so) are preloaded, heaptrack preloads itself.
Each program does its work, reports that, and waits. Time and peak memory are measured up to this
point and divided by those on the system's malloc. Then Cairn looks at the stopped process; the
others report when the program ends. Programs that are not installed are left out, which is
reported.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TOOLS = ("system", "Cairn", "LeakSanitizer", "heaptrack")
ROOT = pathlib.Path(__file__).resolve().parents[1]
SQL = ("create table t(a integer primary key, b text);"
       "with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) "
       "insert into t select i, hex(i * 7919) from n;\n.print ready\n")
TCL = ('for {set i 0} {$i < 100000} {incr i} {set h($i) [list $i v$i]}; puts ready; '
       "flush stdout; gets stdin")
# name: (command, its input at the start, its output when its work is done)
PROGRAMS = {
    "python3": (["/usr/bin/python3", "-c", "x = [{i: [str(i), i * 1.5]} for i in range(100000)]\n"
                 "print('ready', flush=True)\ninput()"], "", "ready"),
    "perl": (["perl", "-e", '$| = 1; my %h; $h{"key$_"} = [$_, "v" x ($_ % 50)] for 1..100000; '
              'print "ready\\n"; <STDIN>'], "", "ready"),
    "bash": (["bash", "-c", "declare -A h; for i in {1..30000}; do h[$i]=v$i; done; echo ready; "
              "read x; true"], "", "ready"),
    "dash": (["dash", "-c", "i=0; while [ $i -lt 20000 ]; do eval v$i=$i; i=$((i+1)); done; "
              "echo ready; read x"], "", "ready"),
    "sqlite3": (["sqlite3", ":memory:"], SQL, "ready"),
    "lua": (["lua5.4", "-e", "local t = {} for i = 1, 200000 do t[i] = {tostring(i)} end "
             "print('ready') io.stdout:flush() io.read()"], "", "ready"),
    "tclsh": (["tclsh"], TCL + "\n", "ready"),
    "jq": (["jq", "-nr", "--unbuffered", "[range(60000) | {a: tostring}] as $x | \"ready\", "
            "(inputs | length), ($x | length)"], "", "ready"),
    "git": (["git", "-C", str(ROOT), "cat-file", "--batch-check"], "x\n", "missing"),
    "bc": (["bc", "-q"], 'for (i = 0; i < 60000; i++) x[i] = 2 ^ (i % 200)\n"ready\n"\n', "ready"),
}


def peak_kilobytes(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return int(re.search(r"VmHWM:\s+(\d+)", text).group(1))


def program_of(process, name):
    """Finds the program under heaptrack, which starts it as a child of a shell."""
    pids = [process.pid]
    for pid in pids:
        if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name[:15]:
            return pid
        pids += map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return process.pid


class Run:
    """One program under one tool, up to its ready state, and then the tool's report."""

    def __init__(self, tool, build, folder, command, words, ready):
        self.tool, self.build = tool, build
        self.log = pathlib.Path(folder) / "log"
        name = pathlib.Path(command[0]).name
        environment = {**os.environ, "PYTHONMALLOC": "malloc"}
        if tool == "Cairn":
            environment["LD_PRELOAD"] = str(build / "libcairn-malloc.so")
        elif tool == "LeakSanitizer":
            environment["LD_PRELOAD"] = subprocess.run(
                ["gcc", "-print-file-name=liblsan.so"], capture_output=True, text=True,
                check=True).stdout.strip()
            environment["LSAN_OPTIONS"] = f"log_path={self.log}:exitcode=0:report_objects=1"
        elif tool == "heaptrack":
            command = ["heaptrack", "-o", str(self.log), *command]
        begin = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=environment, text=True,
                                        cwd=folder)
        with contextlib.suppress(BrokenPipeError):  # the program ended; its output has the reason
            self.process.stdin.write(words)
            self.process.stdin.flush()
        self.text = ""
        while ready not in self.text:
            line = self.process.stdout.readline()
            if not line:
                self.process.wait()
                raise RuntimeError(f"does not run under {tool}: status {self.process.returncode}")
            self.text += line
        self.seconds = time.monotonic() - begin
        self.pid = program_of(self.process, name)
        self.kilobytes = peak_kilobytes(self.pid)

    def end(self, number=None):
        """Lets the program end; returns the seconds that its end takes."""
        begin = time.monotonic()
        if number:
            os.kill(self.pid, number)
        self.text += self.process.communicate()[0]
        return time.monotonic() - begin

    def look(self):
        """Runs cairn leaks: (its seconds, its report)."""
        os.kill(self.pid, signal.SIGSTOP)
        begin = time.monotonic()
        done = subprocess.run([str(ROOT / "tools/bin/cairn"), "leaks", str(self.pid), "--json",
                               "--all"], capture_output=True, text=True, check=True)
        seconds = time.monotonic() - begin
        self.process.kill()
        self.process.communicate()
        return seconds, json.loads(done.stdout)

    def reported(self):
        """The text that LeakSanitizer has written."""
        return "".join(path.read_text() for path in self.log.parent.glob("log.*"))

    def findings(self, number=None):
        """(seconds of the search, blocks named)"""
        if self.tool == "Cairn":
            seconds, value = self.look()
            return seconds, value["lost"]["direct_blocks"] + value["lost"]["held_blocks"]
        seconds = self.end(number)
        if self.tool == "LeakSanitizer":
            return seconds, sum(map(int, re.findall(r"leaked in (\d+) allocation",
                                                    self.reported())))
        if self.tool == "heaptrack":
            return seconds, int(re.search(r"leaked allocations:\s+(\d+)", self.text).group(1))
        return seconds, 0


def one_run(tool, build, name):
    """(seconds until ready, peak memory, seconds of the search, blocks named)"""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(tool, build, folder, *PROGRAMS[name])
        return (run.seconds, run.kilobytes,
                *run.findings())


def clean_programs(build, rounds):
    sums = {tool: {"time": [], "memory": [], "search": [], "named": []} for tool in TOOLS}
    for name, (command, *_) in PROGRAMS.items():
        if not shutil.which(command[0]):
            print(f"{name} is not installed: left out\n")
            continue
        measured = {}
        for tool in TOOLS:
            try:
                runs = [one_run(tool, build, name) for _ in range(rounds)]
            except RuntimeError as error:
                print(f"{name} {error}\n")
                continue
            measured[tool] = [statistics.median(column) for column in zip(*runs)]
            row = sums[tool]
            row["time"].append(measured[tool][0] / measured["system"][0])
            row["memory"].append(measured[tool][1] / measured["system"][1])
            row["search"].append(measured[tool][2])
            row["named"].append((name, int(measured[tool][3])))
    print("| ten clean programs | time | peak memory | the search | blocks named, none of them "
          "lost |\n|---|---|---|---|---|")
    for tool in TOOLS[1:]:
        row = sums[tool]
        named = ", ".join(f"{name} {count}" for name, count in row["named"] if count)
        mean = [math.exp(statistics.fmean(map(math.log, row[key]))) for key in ("time", "memory")]
        print(f"| {tool} | {mean[0]:.2f} | {mean[1]:.2f} | {max(row['search']):.2f} s at most "
              f"| {named or 'none'} |")


def planted(build):
    target = build / "test/tools/leak_target"
    print("| planted leaks | kinds found of 20 | blocks found | others named |\n|---|---|---|---|")
    for tool in TOOLS[1:]:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(tool, build, folder, [str(target), "stop"], "", "main-stack")
            while "State:\tT" not in pathlib.Path(f"/proc/{run.pid}/status").read_text():
                time.sleep(0.01)
            notes = [line.split() for line in run.text.splitlines()
                     if re.match(r"(lost|kept) \S+ 0x", line)]
            lost = {address: kind for state, kind, address in notes if state == "lost"}
            if tool == "heaptrack":
                _, count = run.findings(signal.SIGCONT)
                found = f"all, but not told from the others | {len(lost)} | {count - len(lost)}"
            else:
                if tool == "Cairn":
                    value = run.look()[1]
                    named = {hex(row["address"]) for row in value["leaks"] + value["held"]}
                else:
                    run.end(signal.SIGCONT)
                    named = {hex(int(word, 16)) for word in
                             re.findall(r"(?m)^(0x[0-9a-f]+) \(\d+ bytes\)", run.reported())}
                kinds = {lost[address] for address in named if address in lost}
                found = (f"{len(kinds)} | {len(named & set(lost))} of {len(lost)} "
                         f"| {len(named - set(lost))}")
                missing = set(lost.values()) - kinds
                if missing:
                    found += f" (not found: {', '.join(sorted(missing))})"
        print(f"| {tool} | {found} |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    planted(arguments.build.resolve())
    clean_programs(arguments.build.resolve(), arguments.rounds)


if __name__ == "__main__":
    main()
