"""Threads that take turns under the interpreter's lock: each replaces strings of one live set, and
so frees what the others made.

usage: turns.py [SIZE]   about 10 ms each; default 100

16 threads; 57 MiB live. Run it with PYTHONMALLOC=malloc: CPython's own arenas would be between it
and the allocator. The output depends on the argument only.
"""

import sys
import threading

THREADS, LIVE, LARGEST = 16, 100_000, 1200
live = [b""] * LIVE


def work(x, count):
    for _ in range(count):
        x = (x * 1103515245 + 12345) % 2 ** 31
        live[x % LIVE] = bytes(16 + x // LIVE % LARGEST)


def main(arguments):
    size = int(arguments[0]) if arguments else 100
    threads = [threading.Thread(target=work, args=(seed, 600 * size))
               for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{len(live):x}")


main(sys.argv[1:])
