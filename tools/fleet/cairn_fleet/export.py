"""`cairn-fleet export`: the sums of many heaps, for Prometheus to fetch or pushed by OTLP."""

import concurrent.futures
import dataclasses
import os
import threading
import time
from typing import List, Optional

import typer

from cairn.console import note, out
from cairn.errors import UserError, as_sentences
from cairn.look import Census
from cairn_fleet import find, need

LISTEN = "127.0.0.1:9913"
SHORTEST_SECONDS = 1
FRESH_SECONDS = 1  # two servers that ask at the same time get one look


@dataclasses.dataclass
class Seen:
    """A process: its census, or the sentence why there is none."""

    labels: dict
    census: Optional[Census]
    failure: str = ""


@dataclasses.dataclass
class Look:
    """The result of one look at all processes."""

    processes: list
    refused: int  # processes that the user may not examine
    seconds: float


class Fleet:  # pylint: disable=too-few-public-methods
    """The processes that were named, or at each look all that have Cairn."""

    def __init__(self, pids, host, release_variable, labels):
        self._pids, self._host, self._more = pids, host, labels
        self._release_variable = release_variable
        self._finder = find.Finder()
        self._lock = threading.Lock()
        self._last, self._last_time = None, 0.0
        self._workers = concurrent.futures.ThreadPoolExecutor(min(8, 2 * (os.cpu_count() or 1)))

    def _see(self, pid):
        labels = {"host": self._host, "pid": str(pid), "program": "",
                  "build_id": self._finder.build_id(pid),
                  "release": self._finder.variable(pid, self._release_variable), **self._more}
        try:
            census = Census(str(pid))
        except UserError as error:
            return Seen(labels, None, str(error))
        labels["program"] = census.target["program"]
        return Seen(labels, census)

    def look(self):
        """A look that is not older than a second."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last_time > FRESH_SECONDS:
                began = time.monotonic()
                pids, refused = (self._pids, 0) if self._pids else self._finder.find()
                processes = list(self._workers.map(self._see, pids))
                if not self._pids:  # one that was found and ended meanwhile is none
                    processes = [seen for seen in processes
                                 if seen.census or os.path.exists(f"/proc/{seen.labels['pid']}")]
                self._last_time = time.monotonic()
                self._last = Look(processes, refused, self._last_time - began)
            return self._last


def _serve(word, fleet, by_size):
    from cairn_fleet import prometheus  # pylint: disable=import-outside-toplevel
    server = prometheus.server(word, fleet, by_size)
    host, port = server.server_address[:2]
    host = f"[{host}]" if ":" in host else host
    note(f"cairn-fleet: http://{host}:{port}/metrics")
    return server


def _pusher(url, fleet, by_size, seconds):
    from cairn_fleet import otlp  # pylint: disable=import-outside-toplevel
    return otlp.Pusher(url, fleet, by_size, seconds)


def _once(fleet, by_size, pusher, url):
    for seen in fleet.look().processes:
        if seen.failure:
            note(f"cairn-fleet: process {seen.labels['pid']}: {seen.failure}")
    if pusher is None:
        from cairn_fleet import prometheus  # pylint: disable=import-outside-toplevel
        out.file.write(prometheus.text(fleet, by_size))
    elif not pusher.push():
        raise UserError(f"--otlp: push failed: no response from {url}")


def _stay(server):
    if server is None:
        threading.Event().wait()
    else:
        server.serve_forever()


def _check(pids, otlp, interval):
    for pid in pids or ():
        if pid <= 0:
            raise UserError(f"{pid} is not the number of a process")
    if not interval >= SHORTEST_SECONDS:
        raise UserError(f"--interval must be at least {SHORTEST_SECONDS} second")
    if otlp is not None and not otlp.startswith(("http://", "https://")):
        raise UserError(f"--otlp {otlp}: write the whole address, as in "
                        "http://127.0.0.1:4318/v1/metrics")


@as_sentences
def export(
        pids: Optional[List[int]] = typer.Argument(
            None, metavar="[PID]...", show_default=False,
            help="Processes to export. Default: all processes with Cairn, found anew each time."),
        listen: Optional[str] = typer.Option(
            None, "--listen", metavar="ADDRESS:PORT", show_default=False,
            help=f"Serve Prometheus's text format at this address. Default without --otlp: "
                 f"{LISTEN}. Port 0 selects a free port."),
        otlp: Optional[str] = typer.Option(
            None, "--otlp", metavar="URL", show_default=False,
            help="Push OTLP metrics to this address of a collector."),
        interval: float = typer.Option(15, "--interval", metavar="SECONDS",
                                       help="Time between two pushes."),
        host: Optional[str] = typer.Option(None, "--host", metavar="NAME", show_default=False,
                                           help="Label host. Default: this machine's name."),
        release_variable: str = typer.Option(
            find.RELEASE, "--release-variable", metavar="NAME",
            help="Variable of the process's environment that has the label release."),
        label: Optional[List[str]] = typer.Option(
            None, "--label", metavar="NAME=VALUE", show_default=False,
            help="Add a label to all series. May be repeated."),
        by_size: bool = typer.Option(False, "--by-size",
                                     help="Add series for each block size."),
        once: bool = typer.Option(False, "--once",
                                  help="Print the text once; with --otlp: push once.")):
    """Serve the sums of heaps to Prometheus, or push them by OTLP, of all processes with Cairn.

    Read from outside: nothing runs in the processes.
    """
    _check(pids, otlp, interval)
    if once and listen is not None:
        raise UserError("--once and --listen cannot be combined")
    if otlp is not None:
        need("opentelemetry.sdk.metrics", "--otlp")
        need("opentelemetry.exporter.otlp.proto.http", "--otlp")
    fleet = Fleet(pids, host or find.host_name(), release_variable,
                  find.labels_of_options(label))
    server = None
    if not once and (listen is not None or otlp is None):
        server = _serve(listen or LISTEN, fleet, by_size)
    pusher = None if otlp is None else _pusher(otlp, fleet, by_size, interval)
    if once:
        _once(fleet, by_size, pusher, otlp)
        return
    try:
        _stay(server)
    finally:
        if pusher is not None:
            pusher.close()
        if server is not None:
            server.server_close()
