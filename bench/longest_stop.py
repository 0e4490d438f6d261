#!/usr/bin/env python3
"""The time for which a process stops while cairn looks at it or steers it.

usage: longest_stop.py BUILD [--threads N]... [--blocks N] [--rounds N] [--hold] [--no-maps]
                       [--first] [--only WORDS]

BUILD is a build folder (build/release) with libcairn-malloc.so and cairn-look in it; a C compiler
is needed. A target has N threads and the given number of live blocks. Each thread wakes once in a
period, allocates, frees, maps and touches memory, and reports its lateness by CLOCK_MONOTONIC: the
time from its due wake-up to the end of its work. Each command then looks at the target, in turn
with an equal time without a command (the baseline). On a busy machine a thread is late also without
a command, and less so when root runs this, since the target then has precedence over other programs
(SCHED_FIFO). A library before ptrace records the stops of each thread by the tool. They are exact,
except for the time in which the tool itself had to wait for a processor, which --first, as root,
avoids.

Columns: the number of threads that the tool stopped in a run, and the longest and the median stop
of one thread; then the greatest lateness of a thread in a run, as median and maximum over the
rounds; and the lateness without a command.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CAIRN = [sys.executable, str(ROOT / "tools/bin/cairn")]
TARGET = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PIECE = 1 << 16 };
static _Atomic long latest_ns;
static long period_ns;
static int maps;
static void **kept;

static void *work(void *unused)
{
    struct timespec due, now;
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (unsigned turn = 0;; turn++) {
        due.tv_nsec += period_ns;
        due.tv_sec += due.tv_nsec / 1000000000;
        due.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        for (size_t i = 0; i < 20; i++)
            free(memset(malloc(16 << i % 8), 1, 16));
        if (maps) {
            char *piece =
                mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            piece[0] = piece[PIECE - 1] = 1;
            munmap(piece, PIECE);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        long late = (now.tv_sec - due.tv_sec) * 1000000000 + now.tv_nsec - due.tv_nsec;
        long most = atomic_load(&latest_ns);
        while (late > most && !atomic_compare_exchange_weak(&latest_ns, &most, late)) {
        }
        if (late > period_ns)
            clock_gettime(CLOCK_MONOTONIC, &due); /* what was missed is not made up for */
    }
    return unused;
}

int main(int argc, char **argv)
{
    int threads = atoi(argv[1]), blocks = atoi(argv[2]);
    period_ns = atol(argv[3]);
    maps = argc > 4;
    kept = calloc(blocks, sizeof *kept);
    for (int i = 0; i < blocks; i++) {
        kept[i] = memset(malloc(16 + rand() % 200), 1, 16);
        if (i % 3 != 0)
            *(void **)kept[i] = kept[i / 2];
    }
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            return 1;
    }
    pthread_t first;
    if (pthread_create(&first, NULL, work, NULL) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) { /* each byte: how late was the latest since the last one? */
        printf("%ld\n", atomic_exchange(&latest_ns, 0));
        fflush(stdout);
    }
    return 0;
}
"""
COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <time.h>

enum { MOST = 100000 };
static struct { int thread; double since; } stopped[MOST];
static int count;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list list;
    va_start(list, request);
    int thread = va_arg(list, int);
    void *address = va_arg(list, void *), *data = va_arg(list, void *);
    va_end(list);
    if (request == PTRACE_INTERRUPT && count < MOST) {
        stopped[count].thread = thread;
        stopped[count++].since = now_us();
    }
    long (*real)(enum __ptrace_request, ...) = dlsym(RTLD_NEXT, "ptrace");
    long answer = real(request, thread, address, data);
    for (int i = count - 1; request == PTRACE_DETACH && i >= 0; i--)
        if (stopped[i].thread == thread) {
            FILE *file = fopen(getenv("LONGEST_STOP_FILE"), "a");
            fprintf(file, "%f\n", now_us() - stopped[i].since);
            fclose(file);
            break;
        }
    return answer;
}
"""


def compiled(folder, name, text, *options):
    source = (folder / name).with_suffix(".c")
    source.write_text(text)
    subprocess.run(["cc", "-O2", "-w", "-o", folder / name, source, *options], check=True)
    return folder / name


def first_in_line():
    """Gives the target precedence, as root; it rarely needs a processor."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


class Target:
    def __init__(self, folder, build, program, threads, arguments):
        self.socket = folder / "control"
        self.process = subprocess.Popen(
            [program, str(threads), str(arguments.blocks),
             str(max(1_000_000, threads * 500_000)), *([] if arguments.no_maps else ["maps"])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
            preexec_fn=first_in_line, env={
                **os.environ, "LD_PRELOAD": str(build / "libcairn-malloc.so"),
                "CAIRN_OPTIONS": f"control:{self.socket},profile_file:{folder}/dump"})
        self.process.stdout.readline()
        while not self.socket.exists():
            time.sleep(0.01)

    def latest(self):
        """The greatest lateness in milliseconds since the last call."""
        self.process.stdin.write("x")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()) / 1e6

    def end(self):
        self.process.communicate()


def commands(target, hold):
    pid, socket = str(target.process.pid), str(target.socket)
    yield "stats PID", ["stats", pid]
    yield "inspect PID", ["inspect", pid]
    yield "profile start SOCKET", ["profile", "start", socket, "--interval", "16K"]
    yield "inspect PID --pinned", ["inspect", pid, "--pinned"]
    yield "profile dump SOCKET", ["profile", "dump", socket]
    yield "profile stop SOCKET", ["profile", "stop", socket]
    yield "purge PID --plan", ["purge", pid, "--plan"]
    yield "leaks PID", ["leaks", pid]
    if hold:
        yield "leaks PID --hold", ["leaks", pid, "--hold"]
    yield "purge SOCKET", ["purge", socket]


def one_round(target, words, folder, counter, first):
    """(stops in microseconds, how late with the command, how late without)"""
    stops = folder / "stops"
    stops.write_text("")
    environment = {**os.environ, "LD_PRELOAD": str(counter), "LONGEST_STOP_FILE": str(stops)}
    target.latest()
    begin = time.monotonic()
    subprocess.run([*CAIRN, *words], check=True, stdout=subprocess.DEVNULL, env=environment,
                   preexec_fn=first)
    seconds = time.monotonic() - begin
    watched = target.latest()
    time.sleep(seconds)
    return list(map(float, stops.read_text().split())), watched, target.latest()


def measure(name, words, target, folder, counter, arguments):
    rounds = arguments.rounds
    first = first_in_line if arguments.first else None
    results = [one_round(target, words, folder, counter, first) for _ in range(rounds)]
    stops = [stop for each, _, _ in results for stop in each]
    exact = "0 | |"
    if stops:
        exact = (f"{len(stops) // rounds} | {max(stops) / 1000:.2f} ms "
                 f"| {statistics.median(stops) / 1000:.3f} ms")
    watched, alone = ([each[column] for each in results] for column in (1, 2))
    print(f"| `{name}` | {exact} | {statistics.median(watched):.1f}, {max(watched):.1f} ms "
          f"| {statistics.median(alone):.1f}, {max(alone):.1f} ms |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--hold", action="store_true", help="leaks --hold, too, which stops it all")
    parser.add_argument("--no-maps", action="store_true", help="the target maps nothing")
    parser.add_argument("--first", action="store_true", help="commands have precedence, too")
    parser.add_argument("--only", metavar="WORDS", help="the commands whose name has them")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    os.environ["CAIRN_BUILD"] = str(build)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = compiled(folder, "target", TARGET, "-pthread")
        counter = compiled(folder, "counter.so", COUNTER, "-shared", "-fPIC", "-ldl")
        for threads in arguments.threads or [1, 10, 100]:
            print(f"{threads} threads, {arguments.blocks} blocks; load "
                  f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
            print("| command | threads stopped | longest stop | middle stop "
                  "| latest thread: middle round, worst | without |\n|---|---|---|---|---|---|")
            target = Target(folder, build, program, threads, arguments)
            for label, words in commands(target, arguments.hold):
                if arguments.only and arguments.only not in label:
                    continue
                measure(label, words, target, folder, counter, arguments)
            target.end()
            print()


if __name__ == "__main__":
    main()
