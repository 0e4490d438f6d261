"""examples/key_value_server.c: the protocol, and that what it acknowledged survives kill -9."""

import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

SERVER = os.environ["CAIRN_TEST_SERVER"]
KILLS = 6
WRITERS = 4


class Client:
    """As much of the protocol as the tests need. A reply: bytes, a number, None, or an error as
    a string."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=200)
        self._file = self._socket.makefile("rb")

    def close(self):
        self._file.close()
        self._socket.close()

    def send(self, data):
        self._socket.sendall(data)

    def reply(self):
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError(line)
        kind, value = line[:1], line[1:-2]
        if kind == b"$":
            return None if value == b"-1" else self._file.read(int(value) + 2)[:-2]
        return {b"+": lambda: value, b":": lambda: int(value), b"-": value.decode}[kind]()

    def __call__(self, *words):
        self.send(request(*words))
        return self.reply()

    def at_end(self):
        return self._file.read(1) == b""


def request(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class KeyValueServerTest(unittest.TestCase):
    def setUp(self):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        base = os.environ.get("CAIRN_PERSIST_DIRECTORY", memory)
        folder = tempfile.TemporaryDirectory(dir=base)  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.heap = pathlib.Path(folder.name) / "the.heap"
        self.server = None
        self.start()

    def start(self, *more, **options):
        for _ in range(5):  # another one may take the port first
            self.port = free_port()
            # pylint: disable=consider-using-with
            self.server = subprocess.Popen([SERVER, self.heap, str(self.port), *more],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           text=True, **options)
            self.addCleanup(self.stop, self.server)
            ready = self.server.stdout.readline()
            if ready:
                return int(ready.split()[1])
            said = self.server.stderr.read()
            if "address already in use" not in said.lower():
                self.fail(said)
        self.fail("no port")

    @staticmethod
    def stop(server, number=signal.SIGKILL):
        if server.poll() is None:
            server.send_signal(number)
        server.wait(60)
        server.stdout.close()
        server.stderr.close()
        return server.returncode

    def client(self):
        client = Client(self.port)
        self.addCleanup(client.close)
        return client

    def test_commands(self):
        client = self.client()
        self.assertEqual(client("PING"), b"PONG")
        self.assertIsNone(client("GET", "a"))
        self.assertEqual(client("SET", "a", b"\0\r\n\xff"), b"OK")
        self.assertEqual(client("get", "a"), b"\0\r\n\xff")
        self.assertEqual(client("SET", "a", ""), b"OK")
        self.assertEqual(client("GET", "a"), b"")
        self.assertEqual(client("SET", "", "empty key"), b"OK")
        self.assertEqual([client("INCR", "n") for _ in range(11)], list(range(1, 12)))
        self.assertEqual(client("DBSIZE"), 3)
        self.assertEqual(client("DEL", "a", "b", "", "a"), 2)
        self.assertEqual(client("DBSIZE"), 1)
        self.assertEqual(client("SET", "n", 2**63 - 2), b"OK")
        self.assertEqual(client("INCR", "n"), 2**63 - 1)
        for text in ("INCR n", "SET n 01", "INCR n", "SET n +1", "INCR n", "SET n -5", "INCR n"):
            reply = client(*text.split())
        self.assertEqual(reply, -4)
        client("SET", "n", " 1")
        self.assertRegex(client("INCR", "n"), "not an integer")
        self.assertRegex(client("GET"), "wrong number of arguments for 'get'")
        self.assertRegex(client("CONFIG", "GET", "save"), "unknown command")
        self.assertRegex(client("HGETALL", "x"), "unknown command")

    def test_many_keys_come_and_go(self):
        generator = random.Random(1)
        client, model = self.client(), {}
        for start in range(0, 20_000, 500):
            keys = [b"key:%d" % generator.randrange(3000) for _ in range(500)]
            expected = []
            for key in keys:
                value = generator.randbytes(generator.randrange(60))
                kind = generator.randrange(3)
                client.send(request(*(("SET", key, value), ("DEL", key), ("GET", key))[kind]))
                expected.append((b"OK", int(key in model), model.get(key))[kind])
                if kind == 0:
                    model[key] = value
                elif kind == 1:
                    model.pop(key, None)
            self.assertEqual([client.reply() for _ in keys], expected, start)
        self.assertEqual(client("DBSIZE"), len(model))
        self.stop(self.server)
        self.assertEqual(self.start(), len(model))
        client = self.client()
        for key, value in model.items():
            self.assertEqual(client("GET", key), value)

    def test_a_pipeline_in_pieces_of_any_size(self):
        requests = b"".join(request("SET", f"k{i}", "v" * (i % 70)) + b"GET k%d\r\n" % i +
                            b"\r\n  incr   n \r\n*0\r\n" for i in range(300))
        for piece in (1, 7, 1000, len(requests)):
            client = self.client()
            client("DEL", "n")
            for at in range(0, len(requests), piece):
                client.send(requests[at:at + piece])
            for i in range(300):
                self.assertEqual([client.reply() for _ in range(3)],
                                 [b"OK", b"v" * (i % 70), i + 1])

    def test_large_values(self):
        client, value = self.client(), os.urandom(20 << 20)
        self.assertEqual(client("SET", "large", value), b"OK")
        self.assertEqual(client("GET", "large"), value)
        client.send(request("GET", "large") * 10)  # more than is kept for who does not read
        with self.assertRaises((EOFError, ConnectionError, AssertionError)):
            for _ in range(10):
                self.assertEqual(client.reply(), value)
        self.assertEqual(self.client()("DEL", "large"), 1)

    def test_broken_requests_end_their_connection_only(self):
        other = self.client()
        broken = (b"*a\r\n", b"*-1\r\n", b"*1025\r\n", b"*1\r\n+PING\r\n", b"*1\n$4\nPING\n",
                  b"*2\r\n$3\r\nGET\r\n$-1\r\n", b"*1\r\n$99999999999999999999\r\n",
                  b"*1\r\n$67108865\r\n", b"x" * 70_000, b"*" + b"1" * 70_000, b"*\r\n",
                  b"*1\r\n\r\n")
        for i, text in enumerate(broken):
            client = self.client()
            client.send(request("SET", f"before{i}", i) + text)
            self.assertEqual(client.reply(), b"OK")
            self.assertRegex(client.reply(), "^ERR Protocol error: ", text[:40])
            self.assertTrue(client.at_end(), text[:40])
            self.assertEqual(other("GET", f"before{i}"), str(i).encode())
        generator = random.Random(2)
        for _ in range(200):
            client = self.client()
            text = bytearray(request("SET", "a", "b") * 3)
            for _ in range(3):
                text[generator.randrange(len(text))] = generator.randrange(256)
            client.send(bytes(text))
            client.close()
        self.assertEqual(other("PING"), b"PONG")
        self.assertIsNone(self.server.poll())

    def test_a_client_that_ends_its_side_gets_its_replies(self):
        client = self.client()
        client.send(b"SET a b\r\nGET a\r\nGET")
        client._socket.shutdown(socket.SHUT_WR)  # pylint: disable=protected-access
        self.assertEqual([client.reply(), client.reply()], [b"OK", b"b"])
        self.assertTrue(client.at_end())

    def test_out_of_memory_is_a_reply(self):
        self.stop(self.server)
        self.start("2")
        client, stored = self.client(), 0
        while (reply := client("SET", f"k{stored}", "x" * 50_000)) == b"OK":
            stored += 1
        self.assertRegex(reply, "^OOM ")
        self.assertGreater(stored, 20)
        self.assertEqual(client("DBSIZE"), stored)
        self.assertEqual(client("GET", f"k{stored - 1}"), b"x" * 50_000)
        self.assertEqual(client("DEL", "k0"), 1)
        self.assertEqual(client("SET", "again", "x" * 50_000), b"OK")

    def test_a_commit_that_finds_no_room_is_undone(self):
        self.stop(self.server)
        limit = 1500 << 10  # of the log's files: the heap's own is smaller
        self.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        client = self.client()
        client("SET", "first", 1)
        for i in range(12):
            client("SET", f"k{i}", "x" * 50_000)
        # All of these in one commit, which does not fit.
        count, replies = 0, []
        while not any("not committed" in str(reply) for reply in replies) and count < 60:
            client.send(b"".join(request("SET", f"k{i}", str(count) * 50_000) for i in range(12)))
            replies = [client.reply() for _ in range(12)]
            count += 1
        self.assertRegex(str(replies), "not committed, so undone: File too large")
        self.assertEqual(client("GET", "first"), b"1")
        before = client("DBSIZE")
        self.assertEqual(self.stop(self.server, signal.SIGTERM), 0)
        self.assertEqual(self.start(), before)

    def test_sigterm_ends_it(self):
        self.assertEqual(self.client()("SET", "a", 1), b"OK")
        self.assertEqual(self.stop(self.server, signal.SIGTERM), 0)
        self.assertFalse(self.heap.with_name("the.heap.log0").exists())
        self.assertEqual(self.start(), 1)

    def write(self, number, acknowledged):
        """Counts a key of its own up, five at a time, until the server is gone."""
        client = Client(self.port)
        try:
            while True:
                first = acknowledged[number] + 1
                client.send(b"".join(request("SET", f"count{number}", i) +
                                     request("SET", f"{number}:{i}", "x" * (i % 400))
                                     for i in range(first, first + 5)))
                for i in range(first, first + 5):
                    if client.reply() != b"OK" or client.reply() != b"OK":
                        return
                    acknowledged[number] = i
        except (OSError, EOFError):
            pass
        finally:
            client.close()

    def test_what_was_acknowledged_survives_kill_9(self):
        acknowledged = [0] * WRITERS
        for kill in range(KILLS):
            writers = [threading.Thread(target=self.write, args=(i, acknowledged))
                       for i in range(WRITERS)]
            for writer in writers:
                writer.start()
            end = time.monotonic() + 60
            while min(acknowledged) == 0 and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.1 + random.random() / 5)
            self.assertEqual(self.stop(self.server), -signal.SIGKILL)
            for writer in writers:
                writer.join()
            self.start()
            client = self.client()
            for i in range(WRITERS):
                count = int(client("GET", f"count{i}") or 0)
                self.assertGreaterEqual(count, acknowledged[i], kill)
                self.assertLessEqual(count, acknowledged[i] + 5, kill)
                for n in range(max(1, count - 300), count):
                    self.assertEqual(client("GET", f"{i}:{n}"), b"x" * (n % 400))
                acknowledged[i] = count
        self.assertGreater(min(acknowledged), 0)

    @unittest.skipUnless(shutil.which("redis-cli"), "redis-cli is not installed")
    def test_redis_cli(self):
        def cli(*words):
            return subprocess.run(["redis-cli", "-p", str(self.port), *words], text=True,
                                  timeout=200, capture_output=True, check=True).stdout.strip()
        self.assertEqual(cli("set", "a", "b c"), "OK")
        self.assertEqual(cli("get", "a"), "b c")
        self.assertEqual(cli("incr", "n"), "1")

    @unittest.skipUnless(shutil.which("redis-benchmark"), "redis-benchmark is not installed")
    def test_redis_benchmark(self):
        run = subprocess.run(["redis-benchmark", "-p", str(self.port), "-t", "ping,set,get,incr",
                              "-n", "2000", "-c", "20", "-P", "4", "-r", "100", "--csv"],
                             capture_output=True, text=True, timeout=120, check=True).stdout
        for name in ("PING_INLINE", "PING_MBULK", "SET", "GET", "INCR"):
            self.assertIn(f'"{name}"', run)
        client = self.client()
        total = sum(int(client("GET", f"counter:{i:012}") or 0) for i in range(100))
        self.assertEqual(total, 2000)


if __name__ == "__main__":
    unittest.main()
