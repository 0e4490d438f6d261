"""redis-server under load: digests, counts, snapshots by fork, and memory accounting.

Debian's redis-server is linked with jemalloc, but its calls are bound to the preloaded library.
"""

import socket

import preload
from preload import CAIRN, SYSTEM

PIPELINE = 16  # redis-benchmark rounds the number of requests up to a multiple of it
REQUESTS = 6_000 * PIPELINE
VALUE_BYTES = 300
KIB = 1024


class Connection:
    """A client with the parts of the Redis protocol that the test needs."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(120)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rb")

    def close(self):
        self._file.close()
        self._socket.close()

    def __call__(self, command):
        return self.pipeline([command])[0]

    def pipeline(self, commands):
        self._socket.sendall("".join(command + "\r\n" for command in commands).encode())
        return [self._reply() for _ in commands]

    def _reply(self):
        line = self._file.readline()
        kind, value = line[:1], line[1:-2].decode()
        if kind == b"+":
            return value
        if kind == b":":
            return int(value)
        if kind == b"$":
            return None if value == "-1" else self._file.read(int(value) + 2)[:-2].decode()
        if kind == b"*":
            return [self._reply() for _ in range(int(value))]
        raise AssertionError(f"redis answered {line!r}")


def data_set():
    """Commands that fill every type, with small encodings and large ones, in a fixed order."""
    commands = []
    for i in range(20_000):
        commands.append(f"SET string:{i} {'v' * (i * 7 % 600)}{i}")
        commands.append(f"HSET hash:{i % 300} field:{i} {'h' * (i % 90)}{i}")
        commands.append(f"RPUSH list:{i % 50} {'l' * (i % 200)}{i}")
        commands.append(f"SADD set:{i % 40} member:{i * 31 % 9973}")
        commands.append(f"ZADD sorted:{i % 20} {i * 17 % 5003} member:{i % 4001}")
        commands.append(f"APPEND grown:{i % 10} {'a' * (i % 50)}b")
    for i in range(2_000):
        commands.append(f"XADD stream:{i % 5} {i + 1}-1 field {'x' * (i % 120)}{i}")
        commands.append(f"DEL string:{i * 3}")
        commands.append(f"LTRIM list:{i % 50} 1 -1")
        commands.append(f"PFADD log:{i % 3} element:{i}")
        commands.append(f"SETBIT bits {i * 977} 1")
        commands.append(f"SETRANGE range:{i % 7} {i * 13} part{i}")
    commands.append("ZUNIONSTORE union 3 sorted:1 sorted:2 sorted:3")
    commands.append("SORT list:1 ALPHA STORE alphabetical")
    return commands


class RedisTest(preload.RealProgramTest):
    def setUp(self):
        super().setUp()
        self.server_path = self.need("redis-server", "redis-server")
        self.benchmark_path = self.need("redis-benchmark", "redis-tools")
        self.socket = self.directory / "redis.sock"

    def start(self, allocator):
        server = self.start_server(
            [self.server_path, "--port", "0", "--unixsocket", self.socket, "--dir", self.directory,
             "--save", "", "--io-threads", "2", "--io-threads-do-reads", "yes",
             "--enable-debug-command", "yes", "--list-max-listpack-size", "16",
             "--auto-aof-rewrite-percentage", "0"], allocator)
        self.wait_until(self.answers, "redis answers", server)
        redis = Connection(self.socket)
        self.addCleanup(redis.close)
        return server, redis

    def answers(self):
        try:
            redis = Connection(self.socket)
        except OSError:
            return False
        try:
            # The server answers with an error while it loads a snapshot.
            return redis("PING") == "PONG"
        except AssertionError:
            return False
        finally:
            redis.close()

    def benchmark(self, tests, requests=REQUESTS, keys=1000):
        """redis-benchmark itself runs on Cairn as well: two threads, many connections."""
        self.run_program([self.benchmark_path, "-s", self.socket, "-t", tests, "-n", requests,
                          "-r", keys, "-d", VALUE_BYTES, "-c", 50, "-P", PIPELINE, "--threads", "2",
                          "-q"], CAIRN)

    @staticmethod
    def info(redis, name):
        facts = redis("INFO everything").splitlines()
        return next(line.split(":", 1)[1] for line in facts if line.startswith(name + ":"))

    def used_memory(self, redis):
        return int(self.info(redis, "used_memory"))

    def snapshot(self, redis):
        """BGSAVE: a forked child walks the whole data set and writes it."""
        redis("BGSAVE")
        self.wait_for_children(redis)

    def wait_for_children(self, redis):
        for name in ("rdb_bgsave_in_progress", "aof_rewrite_in_progress"):
            self.wait_until(lambda: self.info(redis, name) == "0", f"{name} is over")
        self.assertEqual(self.info(redis, "rdb_last_bgsave_status"), "ok")
        self.assertEqual(self.info(redis, "aof_last_bgrewrite_status"), "ok")

    def fill(self, redis):
        redis("FLUSHALL")
        commands = data_set()
        for start in range(0, len(commands), 1000):
            redis.pipeline(commands[start:start + 1000])
        return redis("DBSIZE"), redis("DEBUG DIGEST")

    def test_same_data_on_both_and_through_snapshots(self):
        server, redis = self.start(SYSTEM)
        expected = self.fill(redis)
        redis.close()
        self.stop_server(server)

        server, redis = self.start(CAIRN)
        empty_bytes = self.used_memory(redis)
        self.assertEqual(self.fill(redis), expected)
        self.check_server(server)

        redis("DEBUG RELOAD")
        self.assertEqual((redis("DBSIZE"), redis("DEBUG DIGEST")), expected)
        self.snapshot(redis)

        # Redis counts memory by malloc_usable_size: freed bytes must equal the allocated ones.
        full_bytes = self.used_memory(redis)
        self.assertGreater(full_bytes, empty_bytes + 8 * KIB * KIB)
        redis("FLUSHALL SYNC")
        self.assertLess(abs(self.used_memory(redis) - empty_bytes), 512 * KIB)
        redis.close()
        self.stop_server(server)

        # A child of the server on Cairn writes the file, a server on the system's malloc reads it.
        server, redis = self.start(SYSTEM)
        self.assertEqual((redis("DBSIZE"), redis("DEBUG DIGEST")), expected)
        redis.close()
        self.stop_server(server)

    def test_benchmark_counts_with_forks_under_load(self):
        server, redis = self.start(CAIRN)
        self.benchmark("incr", keys=1000)
        counters = redis("KEYS counter:*")
        self.assertLessEqual(len(counters), 1000)
        self.assertEqual(sum(int(n) for n in redis("MGET " + " ".join(counters))), REQUESTS)

        # Rewriting the append-only file and snapshots fork while two threads serve clients.
        redis("CONFIG SET appendonly yes")
        redis('CONFIG SET save "1 1"')
        redis("FLUSHALL")
        requests = REQUESTS // 4
        self.benchmark("set,get,lpush,rpush,lpop,sadd,hset,zadd,mset", requests)
        self.assertEqual(redis("LLEN mylist"), requests)  # two pushes and one pop
        keys = redis("KEYS key:*")
        self.assertEqual(len(keys), 1000)
        self.assertEqual(set(redis.pipeline([f"STRLEN {key}" for key in keys])), {VALUE_BYTES})
        redis('CONFIG SET save ""')
        self.wait_for_children(redis)
        self.snapshot(redis)
        self.assertGreaterEqual(int(self.info(redis, "total_forks")), 3)

        digest = redis("DEBUG DIGEST")
        redis("DEBUG LOADAOF")
        self.assertEqual(redis("DEBUG DIGEST"), digest)
        self.check_server(server)
        redis.close()
        self.stop_server(server)


if __name__ == "__main__":
    preload.main()
