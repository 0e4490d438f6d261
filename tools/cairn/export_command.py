"""`cairn export`: the sums of many heaps, for Prometheus to fetch or pushed by OTLP."""

import threading
from typing import List, Optional

import typer

from cairn import extras, fleet_find
from cairn.console import note, out
from cairn.errors import UserError, as_sentences
from cairn.fleet_look import Fleet

LISTEN = "127.0.0.1:9913"
SHORTEST_SECONDS = 1


def _serve(word, fleet, by_size):
    from cairn import export_prometheus  # pylint: disable=import-outside-toplevel
    server = export_prometheus.server(word, fleet, by_size)
    host, port = server.server_address[:2]
    host = f"[{host}]" if ":" in host else host
    note(f"cairn: http://{host}:{port}/metrics")
    return server


def _pusher(url, fleet, by_size, seconds):
    from cairn import export_otlp  # pylint: disable=import-outside-toplevel
    return export_otlp.Pusher(url, fleet, by_size, seconds)


def _once(fleet, by_size, pusher):
    for seen in fleet.look().processes:
        if seen.failure:
            note(f"cairn: process {seen.labels['pid']}: {seen.failure}")
    if pusher is None:
        from cairn import export_prometheus  # pylint: disable=import-outside-toplevel
        out.file.write(export_prometheus.text(fleet, by_size))
    elif not pusher.push():
        raise UserError("--otlp: it did not arrive")


def _stay(server):
    if server is None:
        threading.Event().wait()
    else:
        server.serve_forever()


def _check(pids, otlp, interval):
    for pid in pids or ():
        if pid <= 0:
            raise UserError(f"{pid} is no process")
    if not interval >= SHORTEST_SECONDS:
        raise UserError(f"--interval: at least {SHORTEST_SECONDS} second")
    if otlp is not None and not otlp.startswith(("http://", "https://")):
        raise UserError(f"--otlp {otlp}: the whole address, as in http://127.0.0.1:4318/v1/metrics")


@as_sentences
def export(
        pids: Optional[List[int]] = typer.Argument(
            None, metavar="[PID]...", show_default=False,
            help="These processes; without any, at each look all that have Cairn."),
        listen: Optional[str] = typer.Option(
            None, "--listen", metavar="ADDRESS:PORT", show_default=False,
            help=f"Serve Prometheus's text format there; {LISTEN} where --otlp is not given. "
                 "Port 0 takes a free one."),
        otlp: Optional[str] = typer.Option(
            None, "--otlp", metavar="URL", show_default=False,
            help="Push OTLP metrics to this address of a collector."),
        interval: float = typer.Option(15, "--interval", metavar="SECONDS",
                                       help="So long between two pushes."),
        host: Optional[str] = typer.Option(None, "--host", metavar="NAME", show_default=False,
                                           help="The label host; this machine's name without it."),
        release_variable: str = typer.Option(
            fleet_find.RELEASE, "--release-variable", metavar="NAME",
            help="The label release is this variable of the process's environment."),
        label: Optional[List[str]] = typer.Option(
            None, "--label", metavar="NAME=VALUE", show_default=False,
            help="One more label for all. May be repeated."),
        by_size: bool = typer.Option(False, "--by-size",
                                     help="Also the series for each size of blocks."),
        once: bool = typer.Option(False, "--once",
                                  help="Print the text, or with --otlp push, once.")):
    """Serve the sums of heaps to Prometheus, or push them by OTLP, of all processes with Cairn.

    Read from outside: nothing runs in the processes.
    """
    _check(pids, otlp, interval)
    if once and listen is not None:
        raise UserError("--once and --listen exclude one another")
    if listen is not None or otlp is None:
        extras.need("prometheus_client", "cairn export")
    if otlp is not None:
        extras.need("opentelemetry.sdk.metrics", "--otlp")
        extras.need("opentelemetry.exporter.otlp.proto.http", "--otlp")
    fleet = Fleet(pids, host or fleet_find.host_name(), release_variable,
                  fleet_find.labels_of_options(label))
    server = None
    if not once and (listen is not None or otlp is None):
        server = _serve(listen or LISTEN, fleet, by_size)
    pusher = None if otlp is None else _pusher(otlp, fleet, by_size, interval)
    if once:
        _once(fleet, by_size, pusher)
        return
    try:
        _stay(server)
    finally:
        if pusher is not None:
            pusher.close()
        if server is not None:
            server.server_close()
