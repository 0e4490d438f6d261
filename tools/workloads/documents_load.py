"""A burst of requests for documents.py: each connection sends orders, files and questions for
results, the same at each start. Prints the number of requests, and the times of the median and the
99th percentile as `cairn run --load` reads them. PERCENT scales the sizes; PAUSE_MS is the pause
before each request of a connection.

usage: documents_load.py PORT [REQUESTS [CONNECTIONS [PERCENT [PAUSE_MS]]]]
"""

import base64
import http.client
import json
import random
import sys
import threading
import time

SEED = 20261128
CITIES = 40
ORDERS_BYTES = [5_000 << step for step in range(8)]  # 5 KB to 640 KB
FILES_BYTES = [30_000 << step for step in range(8)]  # 30 KB to 3.8 MB
WORDS = ["paper", "lamp", "chair", "kettle", "window", "garden", "letter", "bicycle", "stone"]


def make_orders(rng, size_bytes):
    orders, size = [], 0
    while size < size_bytes:
        order = {"id": rng.randrange(10**9), "city": f"city {rng.randrange(CITIES)}",
                 "cents": rng.randrange(100_000),
                 "note": " ".join(rng.choices(WORDS, k=rng.randrange(3, 30)))}
        orders.append(order)
        size += 70 + len(order["note"])
    return json.dumps(orders).encode()


def make_file(rng, size_bytes):
    line = " ".join(rng.choices(WORDS, k=2000)).encode()
    content = (line * (1 + size_bytes // len(line)))[:size_bytes // 2] + rng.randbytes(
        size_bytes // 2)
    text = base64.b64encode(content).decode("ascii")
    return json.dumps({"name": f"file of {size_bytes} bytes", "content": text}).encode()


class Client:
    """One connection, which sends its requests one after the other."""

    def __init__(self, port, requests, pause_s):
        self.port, self.requests, self.pause_s = port, requests, pause_s
        self.seconds, self.error = [], None

    def ask(self, connection, method, path, body=None):
        started = time.perf_counter()
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read()
        self.seconds.append(time.perf_counter() - started)
        if answer.status != 200:
            raise http.client.HTTPException(f"{path}: status {answer.status}")
        return text

    def run(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
            for path, body in self.requests:
                time.sleep(self.pause_s)
                key = json.loads(self.ask(connection, "POST", path, body))["key"]
                self.ask(connection, "GET", f"/results/{key}")
            connection.close()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.error = error


def show(seconds):
    """Prints the number of requests and their times."""
    ordered = sorted(seconds)
    print(f"{len(ordered)} requests")
    for percentile in (50, 99):
        place = min(len(ordered) - 1, len(ordered) * percentile // 100)
        print(f"{percentile}% {1000 * ordered[place]:.1f}ms")


def run(program, clients):
    """Runs the clients at the same time. Prints their times, or ends the program with an error."""
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [client.error for client in clients if client.error]
    if errors:
        raise SystemExit(f"{program}: {len(errors)} of {len(clients)} connections failed: "
                         f"{errors[0]}")
    show(second for client in clients for second in client.seconds)


def main(port, requests=60, connections=20, percent=100, pause_ms=0):
    rng = random.Random(SEED)
    bodies = [("/orders", make_orders(rng, size * percent // 100)) for size in ORDERS_BYTES]
    bodies += [("/files", make_file(rng, size * percent // 100)) for size in FILES_BYTES]
    chosen = [rng.choice(bodies) for _ in range(requests)]
    clients = [Client(port, chosen[place::connections], pause_ms / 1000)
               for place in range(connections)]
    run("documents_load", clients)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 6:
        raise SystemExit(__doc__)
    main(*map(int, sys.argv[1:]))
