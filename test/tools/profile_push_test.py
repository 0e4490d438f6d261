"""`cairn-fleet push`: the data that it sends by the protocol of Pyroscope's push.v1, and the
message when a server refuses. dev/prove-fleet pushes to Pyroscope itself."""

import base64
import gzip
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest
import uuid

from tool_path import TOOLS

# pylint: disable=wrong-import-position
from cairn.profile_elf import Elf

COMMAND = TOOLS / "bin" / "cairn-fleet"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
PROGRAM = os.environ["CAIRN_TEST_TARGET"]
TIME = 1_700_000_000


class _Server(http.server.BaseHTTPRequestHandler):
    """Accepts a push as Pyroscope does: only in connect's JSON."""

    received = []
    refusal = None  # (status, text)

    def do_POST(self):  # pylint: disable=invalid-name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, text = self.refusal or (200, "{}")
        if self.path != "/push.v1.PusherService/Push":
            status, text = 404, "404 page not found\n"
        elif self.headers["Content-Type"] != "application/json":
            status, text = 415, ""
        else:
            self.received.append((self.headers, json.loads(body)))
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_arguments):  # pylint: disable=arguments-differ
        pass


class PushTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        place = pathlib.Path(cls.folder.name)
        subprocess.run([PROGRAM], check=True, env={
            **os.environ, "LD_PRELOAD": LIBRARY,
            "CAIRN_OPTIONS": f"profile:64K,profile_file:{place / 'dump'}"})
        cls.dump, = place.glob("dump.*")
        os.utime(cls.dump, (TIME, TIME))
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.url = f"http://127.0.0.1:{cls.server.server_port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()
        cls.folder.cleanup()

    def setUp(self):
        _Server.received, _Server.refusal = [], None

    def push(self, *arguments, url=None, **environment):
        return subprocess.run(
            [str(COMMAND), "push", *map(str, arguments), "--to", url or self.url],
            capture_output=True, text=True, check=False, timeout=100,
            env={**os.environ, "LC_ALL": "C.UTF-8", **environment})

    def test_the_request(self):
        done = self.push(self.dump, "--name", "shop", "--host", "h", "--label", "zone=b",
                         "--tenant", "t", CAIRN_RELEASE="7", CAIRN_PUSH_AUTHORIZATION="Bearer x")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        (headers, body), = _Server.received
        self.assertEqual((headers["X-Scope-OrgID"], headers["Authorization"]), ("t", "Bearer x"))
        series, = body["series"]
        labels = {each["name"]: each["value"] for each in series["labels"]}
        self.assertEqual(labels, {
            "__name__": "memory", "service_name": "shop", "host": "h", "zone": "b",
            "release": "7", "program": pathlib.Path(PROGRAM).name,
            "pid": self.dump.name.split(".")[1], "build_id": Elf(PROGRAM).build_id})
        sample, = series["samples"]
        uuid.UUID(sample["ID"])
        raw = gzip.decompress(base64.b64decode(sample["rawProfile"], validate=True))
        # The output of --pprof, except for the time in field 9, which is that of the dump here.
        other = pathlib.Path(self.folder.name) / "other"
        subprocess.run([str(TOOLS / "bin" / "cairn"), "profile", str(self.dump), "--pprof",
                        str(other)], check=True)
        written = gzip.decompress(other.read_bytes())
        at = next(at for at in range(len(raw)) if raw[at] != written[at])
        stamp, shift = 0, 0
        start = raw.rindex(b"\x48", 0, at + 1) + 1
        for byte in raw[start:start + 10]:
            stamp |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        self.assertEqual(stamp, TIME * 10**9)
        self.assertEqual((len(raw), raw[start + 9:]), (len(written), written[start + 9:]))

    def test_several_dumps_are_one_request(self):
        second = self.dump.with_name("second")
        shutil.copy(self.dump, second)
        self.assertEqual(self.push(self.dump, second).returncode, 0)
        (_, body), = _Server.received
        self.assertEqual(len(body["series"]), 2)
        names = [label["value"] for label in body["series"][1]["labels"]
                 if label["name"] == "service_name"]
        self.assertEqual(names, [pathlib.Path(PROGRAM).name])

    def test_a_process_is_read_from_outside(self):
        process = subprocess.Popen([PROGRAM, "stop"], env={
            **os.environ, "LD_PRELOAD": LIBRARY, "CAIRN_OPTIONS": "profile:64K",
            "CAIRN_RELEASE": "9"})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.waitpid(process.pid, os.WUNTRACED)
        done = self.push(process.pid)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        (_, body), = _Server.received
        series, = body["series"]
        labels = {each["name"]: each["value"] for each in series["labels"]}
        self.assertEqual((labels["pid"], labels["release"], labels["build_id"]),
                         (str(process.pid), "9", Elf(PROGRAM).build_id))
        raw = gzip.decompress(base64.b64decode(series["samples"][0]["rawProfile"]))
        self.assertIn(b"keep_small", raw)

    def test_a_refusal_is_one_sentence(self):
        for refusal, sentence in (
                ((400, '{"code":"invalid_argument","message":"too old"}'),
                 "HTTP 400 Bad Request: too old"),
                ((503, "no ingester\nmore\n"), "HTTP 503 Service Unavailable: no ingester"),
                ((401, ""), "HTTP 401 Unauthorized"), ((400, "[]"), "HTTP 400 Bad Request: []")):
            _Server.refusal = refusal
            done = self.push(self.dump)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr, f"cairn-fleet: --to {self.url}: {sentence}\n")

    def test_what_it_refuses(self):
        for url, arguments, sentence in (
                ("127.0.0.1:4040", [self.dump], "the server's address"),
                ("http://", [self.dump], "the server's address"),
                ("http://127.0.0.1:1", [self.dump], "Connection refused"),
                (self.url + "/other", [self.dump], "HTTP 404"),
                (self.url, [__file__], "not a dump"),
                (self.url, ["/dev/null"], "without its first lines"),
                (self.url, ["/bin/true"], "not a core file"),
                (self.url, [self.dump, "--label", "service_name=x"], "is reserved")):
            done = self.push(*arguments, url=url)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(sentence, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertEqual(_Server.received, [])


if __name__ == "__main__":
    unittest.main()
