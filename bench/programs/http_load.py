"""A client of an HTTP server on a Unix socket: connections that request several pages at once.

usage: http_load.py SOCKET REQUESTS PATH...

Every connection requests all paths in turn, a batch at a time (pipelined), and reads the answers.
The client fails unless every answer is 200, and prints a digest of all bodies.
"""

import hashlib
import socket
import sys

CONNECTIONS = 100
BATCH = 20


class Answers:
    """Reads answers from a connection."""

    def __init__(self, connection):
        self._file = connection.makefile("rb", buffering=1 << 18)

    def _chunks(self):
        while size := int(self._file.readline(), 16):
            yield self._file.read(size)
            self._file.readline()
        self._file.readline()

    def body(self):
        """The body of the next answer; None unless its status is 200."""
        status = self._file.readline().split()[1]
        length = None
        while (line := self._file.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = b"".join(self._chunks()) if length is None else self._file.read(length)
        return body if status == b"200" else None


def batch_of(paths, start):
    asked = [paths[(start + number) % len(paths)] for number in range(BATCH)]
    return "".join(f"GET {path} HTTP/1.1\r\nHost: bench\r\nAccept-Encoding: gzip\r\n\r\n"
                   for path in asked).encode()


def main(path, requests, *paths):
    connections = []
    for _ in range(CONNECTIONS):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        connections.append((connection, Answers(connection)))
    digest = hashlib.sha256()
    for start in range(0, int(requests), BATCH * CONNECTIONS):
        for connection, _ in connections:
            connection.sendall(batch_of(paths, start))
        for _, answers in connections:
            for _ in range(BATCH):
                body = answers.body()
                if body is None:
                    sys.exit("http_load.py: an answer other than 200")
                digest.update(body)
    print(digest.hexdigest())


main(*sys.argv[1:])
