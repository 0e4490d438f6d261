"""A burst for redis-server: connections that write values of mixed size, read some and delete most.
The tenth that stays is deleted by a later burst with the same keys. Prints the times of the median
and the 99th percentile of the batches.

usage: PYTHONPATH=tools/workloads redis_load.py SOCKET BATCHES CONNECTIONS PERCENT PAUSE_MS
"""

import random
import socket
import sys
import time

import documents_load

BATCH = 200  # commands
BYTES_MAX = 12_000
KEPT = 10  # one key in KEPT stays


def command(*words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Client:
    """One connection."""

    def __init__(self, path, number, batches, percent, pause_s):
        self.path, self.number, self.batches, self.pause_s = path, number, batches, pause_s
        self.rng = random.Random(number)
        self.bytes_max = BYTES_MAX * percent // 100
        self.seconds, self.error = [], None

    def value(self):
        # As many values of 20 bytes as of 12,000: the sizes have equal shares of the octaves.
        return b"x" * int(20 * (self.bytes_max / 20) ** self.rng.random())

    def ask(self, connection, answers, commands):
        started = time.perf_counter()
        connection.sendall(b"".join(commands))
        for _ in commands:
            line = answers.readline()
            if line[:1] in (b"-", b""):
                raise OSError(line.decode(errors="replace").strip() or "the server has ended")
            if line[:1] == b"$" and line[1:2] != b"-":
                answers.read(int(line[1:]) + 2)
        self.seconds.append(time.perf_counter() - started)

    def run(self):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(300)
                connection.connect(self.path)
                answers = connection.makefile("rb")
                keys = []
                for _ in range(self.batches):
                    time.sleep(self.pause_s)
                    batch = [b"%d:%d" % (self.number, len(keys) + place) for place in range(BATCH)]
                    keys += batch
                    self.ask(connection, answers,
                             [command(b"SET", key, self.value()) for key in batch])
                    self.ask(connection, answers,
                             [command(b"GET", self.rng.choice(keys)) for _ in range(BATCH // 4)])
                self.rng.shuffle(keys)
                for place in range(0, len(keys) - len(keys) // KEPT, BATCH):
                    self.ask(connection, answers, [command(b"DEL", *keys[place:place + BATCH])])
        except (OSError, ValueError) as error:
            self.error = error


def main(path, batches, connections, percent, pause_ms):
    clients = [Client(path, number, -(-batches // connections), percent, pause_ms / 1000)
               for number in range(connections)]
    documents_load.run("redis_load", clients)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        raise SystemExit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:]))
