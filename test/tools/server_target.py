"""A server for tests: answers "ok" on a TCP port, a number, or on a Unix socket, a path.

usage: server_target.py PORT|PATH [WORD…]

plain      nothing more
grow       at each connection 20 MiB more, until the word `shrink` is sent
lazy       at the first connection 20 MiB that the kernel may take, and that it need not
child      a child in a session of its own, with 20 MiB
stubborn   it and its child ignore SIGTERM
abort      at the second connection it ends by SIGABRT
leave      at the second connection it ends five seconds later, with exit status 5
leave-soon as leave, half a second later
"""

import mmap
import os
import signal
import socket
import sys
import threading
import time

BYTES = 20 << 20


def filled():
    memory = mmap.mmap(-1, BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, BYTES, mmap.PAGESIZE):
        memory[at] = 1
    return memory


def start_child():
    """Returns once the child has its memory."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        memory = filled()
        os.write(writer, b"full")
        while memory:
            time.sleep(1)
    os.read(reader, 4)


def main(place, words):
    if "stubborn" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in words:
        start_child()
    family = socket.AF_INET if place.isdigit() else socket.AF_UNIX
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", int(place)) if place.isdigit() else place)
        server.listen()
        held, count = [], 0
        while True:
            connection, _ = server.accept()
            said = connection.recv(100)
            if said:
                count += 1
            if said and "grow" in words:
                held.append(filled())
            if said == b"shrink":
                held.clear()
            if count == 1 and said and "lazy" in words:
                held.append(filled())
                held[-1].madvise(mmap.MADV_FREE)
                held.append(filled())
            if count == 2 and "abort" in words:
                os.abort()
            for word, seconds in (("leave", 5), ("leave-soon", 0.5)):
                if count == 2 and word in words:
                    threading.Timer(seconds, os._exit, [5]).start()
            connection.sendall(b"ok")
            connection.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
