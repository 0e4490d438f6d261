"""`cairn-fleet export`: the metrics for Prometheus, those in OTLP, and the processes it finds."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import fleet_python
from tool_path import TOOLS

OTLP_MISSING = fleet_python.enter("opentelemetry.sdk.metrics",
                                  "opentelemetry.exporter.otlp.proto.http")

# pylint: disable=wrong-import-position
from prometheus_client.parser import text_string_to_metric_families

from cairn.profile_elf import Elf

COMMAND = TOOLS / "bin" / "cairn"
LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
PROGRAM = os.environ["CAIRN_TEST_TARGET"]
STATIC = os.environ["CAIRN_TEST_STATIC_TARGET"]
FLEET = TOOLS / "fleet"
# The interpreter of this test, which may have modules that the system's one lacks.
CAIRN = [os.sys.executable, "-B", str(COMMAND)]
EXPORT = [os.sys.executable, "-B", str(TOOLS / "bin" / "cairn-fleet"), "export"]
SECONDS = 60


def cairn(*arguments):
    return run(CAIRN, *arguments)


def export(*arguments):
    return run(EXPORT, *arguments)


def run(command, *arguments):
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True,
                          check=False, timeout=100, env={**os.environ, "LC_ALL": "C.UTF-8"})


@contextlib.contextmanager
def stopped(program=PROGRAM, library=LIBRARY, prefix=(), **environment):
    """The number of a process that has made its blocks and stopped."""
    if library:
        environment["LD_PRELOAD"] = str(library)
    with subprocess.Popen([*prefix, str(program)], stdout=subprocess.DEVNULL,
                          env={**os.environ, **environment}) as process:
        try:
            os.waitpid(process.pid, os.WUNTRACED)
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def exporting(*arguments):
    """The address of a running exporter."""
    with subprocess.Popen([*EXPORT, "--listen", "127.0.0.1:0", *map(str, arguments)],
                          stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            yield re.search(r"http://(\S+)/metrics", line).group(1)
        finally:
            process.terminate()


def fetch(address, path="/metrics", **more):
    request = urllib.request.Request(f"http://{address}{path}", **more)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return answer.read().decode()


def samples_of(text):
    """{(name, pid or None, call or size): sample}"""
    return {(sample.name, sample.labels.get("pid"),
             sample.labels.get("call", sample.labels.get("size"))): sample
            for family in text_string_to_metric_families(text) for sample in family.samples}


class PrometheusTest(unittest.TestCase):
    def test_a_scrape_has_what_stats_says(self):
        with stopped(CAIRN_RELEASE='4.2 "beta"') as pid, \
                exporting(pid, "--host", "h1", "--label", "zone=b", "--by-size") as address:
            stats = json.loads(cairn("stats", pid, "--json").stdout)
            seen = samples_of(fetch(address))
        for word in ("allocated", "active", "dirty", "kept", "mapped", "retained", "metadata",
                     "resident"):
            self.assertEqual(seen[f"cairn_{word}_bytes", str(pid), None].value, stats[word])
        self.assertEqual(seen["cairn_allocated_blocks", str(pid), None].value,
                         stats["allocated_blocks"])
        self.assertEqual(seen["cairn_purged_bytes_total", str(pid), None].value, stats["purged"])
        self.assertEqual(seen["cairn_system_calls_total", str(pid), "map"].value,
                         stats["map_calls"])
        self.assertGreater(seen["cairn_class_live_blocks", str(pid), "48"].value, 0)
        self.assertEqual(seen["cairn_process_up", str(pid), None].value, 1)
        self.assertEqual(seen["cairn_allocated_bytes", str(pid), None].labels,
                         {"host": "h1", "pid": str(pid), "program": pathlib.Path(PROGRAM).name,
                          "build_id": Elf(PROGRAM).build_id, "release": '4.2 "beta"',
                          "zone": "b"})

    def test_names_are_those_of_stats(self):
        with stopped() as pid:
            exported = export(pid, "--once", "--by-size").stdout
            shown = cairn("stats", pid, "--prometheus").stdout
        names = [{name for name, _, _ in samples_of(text)} for text in (exported, shown)]
        self.assertEqual({name for name in names[0] - names[1]
                          if not re.match("cairn_(export|process)_", name)}, set())
        self.assertEqual(names[1] - names[0], set())

    def test_all_with_cairn_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            renamed = pathlib.Path(folder) / "libother.so"
            shutil.copy(LIBRARY, renamed)
            with stopped() as plain, stopped(library=renamed) as other, \
                    stopped(STATIC, library=None) as static, \
                    stopped(library=None) as without, stopped() as ended, \
                    exporting() as address:
                renamed.unlink()  # only the mapping remains
                first = samples_of(fetch(address))
                os.kill(ended, 9)
                # The child is a zombie until it is waited for.
                time.sleep(1.1)
                second = samples_of(fetch(address))
        for pid in (plain, static, ended):
            self.assertIn(("cairn_allocated_bytes", str(pid), None), first)
        if os.geteuid() == 0:
            self.assertIn(("cairn_allocated_bytes", str(other), None), first)
        self.assertNotIn(("cairn_process_up", str(without), None), first)
        self.assertIn(("cairn_allocated_bytes", str(plain), None), second)
        self.assertNotIn(("cairn_allocated_bytes", str(ended), None), second)
        self.assertGreaterEqual(first["cairn_export_processes", None, None].value, 3)

    def test_a_process_in_another_mount_namespace(self):
        with tempfile.TemporaryDirectory() as folder:
            hidden = pathlib.Path(folder) / "libhidden.so"
            script = (f"mount -t tmpfs none {folder} && cp {LIBRARY} {hidden} && "
                      f"LD_PRELOAD={hidden} exec {PROGRAM}")
            probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", folder],
                                   check=False, capture_output=True)
            if probe.returncode:
                self.skipTest("no mount namespace may be made here")
            with subprocess.Popen(["unshare", "-m", "sh", "-c", script],
                                  stdout=subprocess.DEVNULL) as process:
                try:
                    os.waitpid(process.pid, os.WUNTRACED)
                    self.assertFalse(hidden.exists())
                    seen = samples_of(export("--once").stdout)
                finally:
                    process.kill()
        self.assertGreater(seen["cairn_allocated_bytes", str(process.pid), None].value, 0)

    def test_one_that_ended_is_down(self):
        with stopped() as pid:
            pass
        result = export(pid, "--once")
        seen = samples_of(result.stdout)
        self.assertEqual(seen["cairn_process_up", str(pid), None].value, 0)
        self.assertNotIn(("cairn_allocated_bytes", str(pid), None), seen)
        self.assertIn("no process", result.stderr)

    def test_other_paths_and_methods(self):
        with exporting(1) as address:
            self.assertIn("/metrics", fetch(address, "/"))
            for status, path, more in ((404, "/other", {}), (405, "/metrics", {"data": b"x"})):
                with self.assertRaises(urllib.error.HTTPError) as raised:
                    fetch(address, path, **more)
                self.assertEqual(raised.exception.code, status)
                raised.exception.close()

    def test_what_it_refuses(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for words, sentence in (
                    (["--listen", f"127.0.0.1:{port}"], "Address already in use"),
                    (["--listen", "9913"], "ADDRESS:PORT"),
                    (["--listen", "127.0.0.1:99999"], "ADDRESS:PORT"),
                    (["--label", "pid=1", "--once"], "label pid is reserved"),
                    (["--label", "a-b=1", "--once"], "NAME=VALUE"),
                    (["--interval", "0", "--once"], "at least 1 second"),
                    (["--otlp", "127.0.0.1:4318", "--once"], "the whole address"),
                    (["--once", "--listen", "127.0.0.1:0"], "cannot be combined"),
                    (["0", "--once"], "not the number of a process")):
                with self.subTest(words):
                    result = export(*words)
                    self.assertEqual((result.returncode, result.stdout), (2, ""))
                    self.assertIn(sentence, result.stderr)
                    self.assertEqual(len(result.stderr.splitlines()), 1)


class MissingTest(unittest.TestCase):
    def test_what_is_not_installed_is_one_sentence(self):
        # An isolated interpreter ignores PYTHONPATH; a finder that refuses replaces a bare one.
        script = ("import sys, runpy\n"
                  "class Refuse:\n"
                  "    def find_spec(self, name, *rest):\n"
                  "        if name.partition('.')[0] in ('prometheus_client', 'opentelemetry'):\n"
                  "            raise ModuleNotFoundError(name, name=name)\n"
                  "sys.meta_path.insert(0, Refuse())\n"
                  f"runpy.run_path({EXPORT[2]!r}, run_name='__main__')\n")
        def export(*words):
            return subprocess.run([os.sys.executable, "-c", script, "export", *words],
                                  capture_output=True, text=True, check=False)
        done = export("--otlp", "http://x/", "--once")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("needs the Python package opentelemetry", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        with stopped() as pid:
            done = export(str(pid), "--once")
        self.assertEqual((done.returncode, done.stderr), (0, ""), "Prometheus's text needs nothing")
        self.assertIn("cairn_process_up{", done.stdout)


class _Collector(http.server.BaseHTTPRequestHandler):
    """An OTLP receiver that keeps the posted data."""

    received = []
    status = 200

    def do_POST(self):  # pylint: disable=invalid-name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, self.headers.get_content_type(), body))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments):  # pylint: disable=arguments-differ
        pass


@unittest.skipIf(OTLP_MISSING, OTLP_MISSING)
class OtlpTest(unittest.TestCase):
    def setUp(self):
        _Collector.received = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/metrics"

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def points(body):
        # pylint: disable=import-outside-toplevel,no-name-in-module
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest)
        request = ExportMetricsServiceRequest.FromString(body)
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    data = getattr(metric, metric.WhichOneof("data"))
                    for point in data.data_points:
                        yield metric, point, {each.key: each.value.string_value
                                              for each in point.attributes}

    def test_the_values_and_labels(self):
        with stopped(CAIRN_RELEASE="7") as pid:
            stats = json.loads(cairn("stats", pid, "--json").stdout)
            done = export(pid, "--once", "--otlp", self.url, "--host", "h")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        path, kind, body = _Collector.received[0]
        self.assertEqual((path, kind), ("/v1/metrics", "application/x-protobuf"))
        found = {(metric.name, labels.get("call")): (metric, point, labels)
                 for metric, point, labels in self.points(body)}
        metric, point, labels = found["cairn.allocated", None]
        self.assertEqual((metric.unit, point.as_int), ("By", stats["allocated"]))
        self.assertEqual(labels, {"host": "h", "pid": str(pid), "release": "7",
                                  "program": pathlib.Path(PROGRAM).name,
                                  "build_id": Elf(PROGRAM).build_id})
        metric, point, _ = found["cairn.system_calls", "map"]
        self.assertTrue(metric.sum.is_monotonic)
        self.assertEqual(point.as_int, stats["map_calls"])

    def test_pushes_go_on_until_the_end(self):
        with stopped() as pid:
            process = subprocess.Popen([*EXPORT, str(pid), "--otlp", self.url,
                                        "--interval", "1"], stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + SECONDS
            while len(_Collector.received) < 2 and time.monotonic() < deadline:
                time.sleep(0.1)
            process.terminate()
            self.assertEqual(process.communicate(timeout=SECONDS)[1], "cairn-fleet: interrupted\n")
        self.assertGreaterEqual(len(_Collector.received), 2)

    def test_a_collector_that_refuses(self):
        _Collector.status = 400
        self.addCleanup(setattr, _Collector, "status", 200)
        done = export(os.getpid(), "--once", "--otlp", self.url)
        self.assertEqual(done.returncode, 2)
        self.assertIn("push failed", done.stderr)


@unittest.skipUnless(shutil.which("prometheus"), "Debian's prometheus is not installed")
class RealPrometheusTest(unittest.TestCase):
    def ask(self, address, path):
        with contextlib.suppress(urllib.error.URLError, OSError):
            return json.loads(fetch(address, path))["data"]
        return {}

    def wait_for(self, question, address, path):
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            found = question(self.ask(address, path))
            if found:
                return found
            time.sleep(0.1)
        return self.fail(f"nothing at {path}")

    def test_it_scrapes_and_knows_the_alerts(self):
        with tempfile.TemporaryDirectory() as folder, stopped() as pid, \
                exporting(pid) as exporter:
            configuration = pathlib.Path(folder) / "prometheus.yml"
            text = (FLEET / "prometheus.yml").read_text()
            text = text.replace("127.0.0.1:9913", exporter)
            text = re.sub(r"scrape_interval: \w+", "scrape_interval: 1s", text)
            text = re.sub(r"rule_files: .*", f"rule_files: ['{FLEET / 'alerts.yml'}']", text)
            configuration.write_text(text)
            with socket.create_server(("127.0.0.1", 0)) as free:
                address = f"127.0.0.1:{free.getsockname()[1]}"
            with subprocess.Popen(
                    ["prometheus", f"--config.file={configuration}",
                     f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}"],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
                try:
                    path = f"/api/v1/query?query=cairn_allocated_bytes%7Bpid%3D%22{pid}%22%7D"
                    result = self.wait_for(lambda data: data.get("result"), address, path)
                    stats = json.loads(cairn("stats", pid, "--json").stdout)
                    self.assertEqual(float(result[0]["value"][1]), stats["allocated"])
                    self.assertEqual(result[0]["metric"]["job"], "cairn")
                    groups = self.ask(address, "/api/v1/rules")["groups"]
                    self.assertGreater(sum(len(group["rules"]) for group in groups), 3)
                finally:
                    server.kill()


if __name__ == "__main__":
    unittest.main()
