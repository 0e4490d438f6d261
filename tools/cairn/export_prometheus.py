"""Prometheus's side of `cairn export`: a collector for its Python client, and the HTTP server."""

import socket
import socketserver
import wsgiref.simple_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from cairn.errors import UserError, os_sentence
from cairn.metrics import METRICS

PAGE = b"Cairn's metrics, for Prometheus: /metrics\n"


class _Collector:
    """Asks the fleet anew at every scrape."""

    def __init__(self, fleet, by_size):
        self._fleet, self._by_size = fleet, by_size

    @staticmethod
    def _family(metric, processes):
        rows = [({**seen.labels, **more}, value) for seen in processes if seen.census
                for more, value in metric.samples(seen.census)]
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.prometheus_name, metric.about + ".",
                      labels=list(rows[0][0]) if rows else ())
        for labels, value in rows:
            family.add_metric(list(labels.values()), value)
        return family

    def collect(self):
        look = self._fleet.look()
        for metric in METRICS:
            if self._by_size or not metric.by_size:
                yield self._family(metric, look.processes)
        names = list(look.processes[0].labels) if look.processes else ()
        up = GaugeMetricFamily("cairn_process_up",
                               "Whether the heap of a process could be read.", labels=names)
        for seen in look.processes:
            up.add_metric(list(seen.labels.values()), seen.census is not None)
        yield up
        yield GaugeMetricFamily("cairn_export_processes", "Processes with Cairn that were found.",
                                value=len(look.processes))
        yield GaugeMetricFamily("cairn_export_refused_processes",
                                "Processes of which it may not be read whether they have Cairn.",
                                value=look.refused)
        yield GaugeMetricFamily("cairn_export_look_seconds", "What the look at them took.",
                                value=look.seconds)


def registry(fleet, by_size):
    """What the client writes out."""
    made = CollectorRegistry()
    collector = _Collector(fleet, by_size)
    # The registry asks a collector once for its names, which takes no look.
    collector.describe = lambda: []
    made.register(collector)
    return made


def text(fleet, by_size):
    """The text format, of one look."""
    return generate_latest(registry(fleet, by_size)).decode()


class _Handler(wsgiref.simple_server.WSGIRequestHandler):
    timeout = 30  # seconds that a silent client is waited for

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        """Says nothing: a scrape is no news."""


class _Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class _SixServer(_Server):
    address_family = socket.AF_INET6


def _application(made):
    metrics = make_wsgi_app(made)

    def answer(environment, start):
        path = environment.get("PATH_INFO", "/")
        if environment["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return [b"GET it\n"]
        if path == "/metrics":
            return metrics(environment, start)
        start("200 OK" if path == "/" else "404 Not Found", [("Content-Type", "text/plain")])
        return [PAGE]
    return answer


def address_of(word):
    """(host, port) of ADDRESS:PORT, [ADDRESS]:PORT or :PORT."""
    host, colon, port = word.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UserError(f"--listen {word}: ADDRESS:PORT, as in 127.0.0.1:9913")
    return host.strip("[]"), int(port)


def server(word, fleet, by_size):
    """A server that listens already; serve_forever() is the caller's."""
    host, port = address_of(word)
    kind = _SixServer if ":" in host else _Server
    try:
        made = wsgiref.simple_server.make_server(
            host, port, _application(registry(fleet, by_size)), kind, _Handler)
    except (OSError, UnicodeError) as error:
        words = os_sentence(error) if isinstance(error, OSError) else "is no address"
        raise UserError(f"--listen {word}: {words}") from error
    return made
