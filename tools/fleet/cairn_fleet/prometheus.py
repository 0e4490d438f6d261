"""Prometheus's side of `cairn export`: its text format, and the HTTP server."""

import socket
import socketserver
import wsgiref.simple_server

from cairn.errors import UserError, os_sentence
from cairn.metrics import METRICS, family_text
from cairn.texts import ESCAPED

PAGE = b"Cairn's metrics, for Prometheus: /metrics\n"
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(fleet, by_size):
    """The text format, version 0.0.4, of one look at the fleet."""
    look = fleet.look()
    parts = [family_text(metric.prometheus_name, metric.kind, metric.about,
                         [({**seen.labels, **more}, value) for seen in look.processes if seen.census
                          for more, value in metric.samples(seen.census)])
             for metric in METRICS if by_size or not metric.by_size]
    parts += [
        family_text("cairn_process_up", "gauge", "Whether the heap of a process could be read",
                    [(seen.labels, int(seen.census is not None)) for seen in look.processes]),
        family_text("cairn_export_processes", "gauge", "Processes with Cairn that were found",
                    [({}, len(look.processes))]),
        family_text("cairn_export_refused_processes", "gauge",
                    "Processes of which it may not be read whether they have Cairn",
                    [({}, look.refused)]),
        family_text("cairn_export_look_seconds", "gauge", "Duration of the look at them",
                    [({}, look.seconds)])]
    return "".join(parts)


class _Handler(wsgiref.simple_server.WSGIRequestHandler):
    timeout = 30  # seconds that a silent client is waited for

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        """Says nothing: a scrape is no news."""


class _Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class _SixServer(_Server):
    address_family = socket.AF_INET6


def _application(fleet, by_size):
    def answer(environment, start):
        path = environment.get("PATH_INFO", "/")
        if environment["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return [b"GET it\n"]
        if path == "/metrics":
            body = text(fleet, by_size).encode(errors=ESCAPED)
            start("200 OK", [("Content-Type", TEXT_TYPE), ("Content-Length", str(len(body)))])
            return [body]
        start("200 OK" if path == "/" else "404 Not Found", [("Content-Type", "text/plain")])
        return [PAGE]
    return answer


def address_of(word):
    """(host, port) of ADDRESS:PORT, [ADDRESS]:PORT or :PORT."""
    host, colon, port = word.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UserError(f"--listen {word}: write ADDRESS:PORT, as in 127.0.0.1:9913")
    return host.strip("[]"), int(port)


def server(word, fleet, by_size):
    """A server that listens already; serve_forever() is the caller's."""
    host, port = address_of(word)
    kind = _SixServer if ":" in host else _Server
    try:
        made = wsgiref.simple_server.make_server(
            host, port, _application(fleet, by_size), kind, _Handler)
    except (OSError, UnicodeError) as error:
        words = os_sentence(error) if isinstance(error, OSError) else "is no address"
        raise UserError(f"--listen {word}: {words}") from error
    return made
