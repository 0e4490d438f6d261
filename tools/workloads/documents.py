"""A service that stores documents for other programs: HTTP with a thread for each connection, JSON,
zlib, base64 and a cache of small results. It needs Python's standard library only.

usage: documents.py PORT

POST /orders  a JSON list of orders; the answer has the sums of each city, and the sorted orders as
              compressed JSON in base64
POST /files   {"name", "content" in base64}; the answer has the sizes, checksum and preview, and the
              compressed content in base64
GET /results/KEY  the small part of such an answer again, from the cache
"""

import base64
import collections
import http.server
import json
import sys
import threading
import zlib

CACHED_MAX = 5000
PREVIEW_BYTES = 1500


class Cache:
    """The small results of the last requests, by key."""

    def __init__(self):
        self.lock, self.results = threading.Lock(), collections.OrderedDict()

    def put(self, key, result):
        with self.lock:
            self.results[key] = result
            self.results.move_to_end(key)
            while len(self.results) > CACHED_MAX:
                self.results.popitem(last=False)

    def get(self, key):
        with self.lock:
            return self.results.get(key)


CACHE = Cache()


def packed(data):
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def sort_orders(body):
    """(small result, large result) of a list of orders."""
    orders = json.loads(body)
    sums = collections.Counter()
    for order in orders:
        sums[order["city"]] += order["cents"]
    orders.sort(key=lambda order: (order["city"], -order["cents"]))
    text = json.dumps(orders).encode()
    return {"orders": len(orders), "sums": dict(sums.most_common(20))}, packed(text)


def store_file(body):
    """(small result, large result) of a file."""
    document = json.loads(body)
    content = base64.b64decode(document["content"])
    preview = content[:PREVIEW_BYTES].decode("latin-1")
    return {"name": document["name"], "bytes": len(content), "crc": zlib.crc32(content),
            "preview": preview}, packed(content)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # the head and the body of an answer are written together
    work = {"/orders": sort_orders, "/files": store_file}

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):  # pylint: disable=invalid-name
        result = CACHE.get(self.path.rpartition("/")[2])
        if result is None:
            self.answer(404, {"error": "no such result"})
        else:
            self.answer(200, json.loads(result))

    def do_POST(self):  # pylint: disable=invalid-name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = f"{zlib.crc32(body):08x}"
        small, large = self.work[self.path](body)
        CACHE.put(key, json.dumps(small))
        self.answer(200, {"key": key, **small, "packed": large})

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with Server(("127.0.0.1", int(sys.argv[1])), Handler) as server:
        server.serve_forever()
