"""`cairn-fleet push`: dumps to a continuous profiler, by the protocol of Pyroscope's pushes.

push.v1.PusherService of https://github.com/grafana/pyroscope/blob/main/api/push/v1/push.proto, as
JSON over HTTP (https://connectrpc.com/docs/protocol): Pyroscope takes it, and Alloy.
"""

import base64
import json
import os
import pathlib
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import List, Optional

import typer

from cairn import VERSION, output
from cairn.console import note
from cairn.errors import UserError, as_sentences
from cairn.profile_file import read_any
from cairn.profile_pprof import pprof
from cairn.profile_symbols import Symbols
from cairn.texts import json_text
from cairn_fleet import find
from cairn_fleet.parquet import build_id_of, release_of

CALL = "/push.v1.PusherService/Push"
KIND = "memory"  # Pyroscope's name for profiles whose sample types are ours
AUTHORIZATION = "CAIRN_PUSH_AUTHORIZATION"
TIMEOUT_SECONDS = 30
ANSWER_BYTES_MOST = 1 << 16


def request_of(series):
    """The body: [(labels, pprof's bytes)]"""
    return json_text({"series": [{
        "labels": [{"name": name, "value": value} for name, value in labels.items() if value],
        "samples": [{"rawProfile": base64.b64encode(data).decode(), "ID": str(uuid.uuid4())}],
    } for labels, data in series]}).encode()


def _refusal(error):
    """The reason that the server gives: JSON with a message, or a line of text."""
    text = error.read(ANSWER_BYTES_MOST).decode(errors="surrogateescape").strip()
    try:
        text = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        text = text.partition("\n")[0][:200]
    return f"HTTP {error.code} {error.reason}" + (f": {text}" if text else "")


def send(url, body, tenant):
    """Posts it; UserError says what the server answered."""
    headers = {"Content-Type": "application/json", "User-Agent": f"cairn/{VERSION}"}
    if tenant:
        headers["X-Scope-OrgID"] = tenant
    if os.environ.get(AUTHORIZATION):
        headers["Authorization"] = os.environ[AUTHORIZATION]
    request = urllib.request.Request(url.rstrip("/") + CALL, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            answer.read(ANSWER_BYTES_MOST)
    except urllib.error.HTTPError as error:
        with error:
            raise UserError(f"--to {url}: {_refusal(error)}") from error
    except urllib.error.URLError as error:
        raise UserError(f"--to {url}: {error.reason}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"--to {url}: {error}") from error


def _check(url):
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"--to {url}: the server's address, as in http://127.0.0.1:4040")


@as_sentences
def push(
        sources: List[str] = typer.Argument(
            ..., metavar="FILE|PID|CORE...", show_default=False,
            help="Dumps of the profiler; processes and core files are read from outside."),
        url: str = typer.Option(..., "--to", metavar="URL", show_default=False,
                                help="Server to push to, such as http://127.0.0.1:4040."),
        name: Optional[str] = typer.Option(
            None, "--name", metavar="NAME", show_default=False,
            help="Label service_name. Default: the program's name."),
        host: Optional[str] = typer.Option(None, "--host", metavar="NAME", show_default=False,
                                           help="Label host. Default: this machine's name."),
        release: Optional[str] = typer.Option(
            None, "--release", metavar="NAME", show_default=False,
            help="Label release. Default: CAIRN_RELEASE of the environment."),
        label: Optional[List[str]] = typer.Option(
            None, "--label", metavar="NAME=VALUE", show_default=False,
            help="Add a label. May be repeated."),
        tenant: Optional[str] = typer.Option(
            None, "--tenant", metavar="NAME", show_default=False,
            help="Tenant, for a server that has several."),
        symbols: Optional[List[pathlib.Path]] = typer.Option(
            None, "--symbols", metavar="FOLDER", show_default=False,
            help="Look here first for the files that were mapped. May be repeated.")):
    """Push profiles to a continuous profiler: Pyroscope, or what speaks its protocol.

    Functions are looked up here, before. CAIRN_PUSH_AUTHORIZATION in the environment becomes the
    header Authorization.
    """
    _check(url)
    more = find.labels_of_options(label, (*find.OWN_LABELS, "service_name"))
    series = []
    output.check_folders("--symbols", symbols)
    for source in sources:
        profile = read_any(source)
        if not profile.version:
            raise UserError(f"{source}: a dump without its first lines")
        found = Symbols(profile, symbols or ())
        for remark in found.remarks:
            note(remark)
        labels = {"__name__": KIND, "service_name": name or profile.program,
                  "host": host or find.host_name(), "pid": str(profile.pid),
                  "program": profile.program, "build_id": build_id_of(profile),
                  "release": release or release_of(profile), **more}
        series.append((labels, pprof(profile, found, profile.written_ns)))
    send(url, request_of(series), tenant)
