"""nginx under load from ab: every body is correct, every request is counted and answered with 200,
through sendfile, gzip, server-side includes and a proxied connection, and across a reload of the
workers.
"""

import concurrent.futures
import gzip
import hashlib
import http.client
import os
import pwd
import re
import signal

import preload
from preload import CAIRN, SYSTEM

REQUESTS = 15_000

CONFIGURATION = """
{user}
daemon off;
worker_processes 2;
pid {directory}/nginx.pid;
error_log stderr notice;
events {{ worker_connections 512; }}
http {{
    access_log {directory}/access.log;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    root {directory}/root;
    keepalive_requests 100000;
    upstream itself {{
        server unix:{directory}/nginx.sock;
        keepalive 16;
    }}
    server {{
        listen 127.0.0.1:{port};
        sendfile on;
        gzip on;
        gzip_types *;
        gzip_min_length 100;
        location /proxied/ {{
            proxy_pass http://itself/;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffers 16 4k;
        }}
        location /included/ {{ ssi on; ssi_types *; alias {directory}/root/; }}
        location = /status {{ stub_status; access_log off; }}
    }}
    server {{
        listen unix:{directory}/nginx.sock;
        access_log off;
    }}
}}
"""


class NginxTest(preload.RealProgramTest):
    def setUp(self):
        super().setUp()
        self.nginx = self.need("nginx", "nginx")
        self.ab = self.need("ab", "apache2-utils")
        self.port = preload.free_port()
        root = self.directory / "root"
        root.mkdir()
        self.bodies = {}
        for size in (1, 100, 4_000, 60_000, 1_000_000):
            line = hashlib.sha256(str(size).encode()).hexdigest() + "\n"
            self.bodies[f"{size}.txt"] = (line * (size // len(line) + 1))[:size].encode()
        for name, body in self.bodies.items():
            (root / name).write_bytes(body)
        (root / "page.html").write_text("<!--#include virtual=\"/4000.txt\" -->|"
                                        "<!--#include virtual=\"/proxied/60000.txt\" -->")
        self.expected = {f"/{way}{name}": body for name, body in self.bodies.items()
                         for way in ("", "proxied/")}
        self.expected["/included/page.html"] = (
            self.bodies["4000.txt"] + b"|" + self.bodies["60000.txt"])
        self.configuration = self.directory / "nginx.conf"
        # Only root can choose a user, and has to: the workers read files of this user.
        user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
        self.configuration.write_text(CONFIGURATION.format(
            directory=self.directory, port=self.port, user=user))

    def fetch(self, path, compressed):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        encoding = "gzip" if compressed else "identity"
        try:
            connection.request("GET", path, headers={"Accept-Encoding": encoding})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        self.assertEqual(response.status, 200, path)
        if response.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        self.assertTrue(body == self.expected[path], f"wrong body of {path}")

    def fetch_all(self, rounds):
        """Fetches all bodies by eight clients at once; returns the number of requests."""
        requests = [(path, compressed) for path in self.expected for compressed in (False, True)]
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            for done in [clients.submit(self.fetch, *request) for request in requests * rounds]:
                done.result()
        return len(requests) * rounds

    def load(self, path, headers=()):
        """Makes REQUESTS requests by 32 connections; ab is on Cairn, too, and compares lengths."""
        result = self.run_program(
            [self.ab, "-q", "-k", "-n", REQUESTS, "-c", 32, *headers,
             f"http://127.0.0.1:{self.port}{path}"], CAIRN).text
        facts = dict(re.findall(r"^([A-Z][^:]+): +(\d+)", result, re.M))
        self.assertEqual(int(facts["Complete requests"]), REQUESTS, result)
        self.assertEqual(int(facts["Failed requests"]), 0, result)
        self.assertNotIn("Non-2xx", result)
        return REQUESTS

    def status(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("GET", "/status")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return text

    def answers(self):
        try:
            return "Active connections" in self.status()
        except OSError:
            return False

    def test_bodies_and_counts_under_load(self):
        self.run_program([self.nginx, "-t", "-q", "-e", "stderr", "-c", self.configuration], SYSTEM)
        server = self.start_server([self.nginx, "-e", "stderr", "-c", self.configuration], CAIRN)
        self.wait_until(self.answers, "nginx answers", server)
        self.check_server(server)

        with concurrent.futures.ThreadPoolExecutor(1) as aside:
            fetched = aside.submit(self.fetch_all, 20)
            count = self.load("/4000.txt")
            count += self.load("/proxied/60000.txt", ["-H", "Accept-Encoding: gzip"])
            count += self.load("/included/page.html")
            count += fetched.result()

        # New workers are forked and the old ones end; the access log continues to count.
        server.send_signal(signal.SIGHUP)
        self.wait_until(lambda: self.server_output(server).count(b"exited with code 0") == 2,
                        "the old workers have ended", server)
        count += self.fetch_all(5)
        count += self.load("/proxied/4000.txt")

        self.stop_server(server, signal.SIGQUIT)
        log = (self.directory / "access.log").read_text().splitlines()
        self.assertEqual(len(log), count)
        self.assertEqual([line for line in log if '" 200 ' not in line], [])
        for level in (b"[warn]", b"[error]", b"[crit]", b"[alert]", b"[emerg]"):
            self.assertNotIn(level, self.server_output(server))


if __name__ == "__main__":
    preload.main()
