"""`cairn profile start`, `stop` and `dump`: the profiler of a process that runs, by its control
socket (docs/CONTROL.md)."""

import pathlib
from typing import Optional

import typer

from cairn import control
from cairn.console import say
from cairn.errors import UserError, as_sentences
from cairn.look import look

HOW_TO = ("process {pid} has no control socket that is known here. Start it with "
          "CAIRN_OPTIONS=background:on,control:/run/user/1000/cairn.%p, or name the socket "
          "(docs/CONTROL.md)")
TARGET = typer.Argument(..., metavar="PID|SOCKET", show_default=False,
                        help="A process, or its control socket.")


def _connection(target):
    if control.is_socket(target):
        return control.Control(target)
    if not target.isdigit():
        raise UserError(f"{target}: neither the number of a process nor a socket")
    socket = next((values for kind, values in look("plan", target) if kind == "socket"), None)
    path = control.path_of(int(target), socket)
    if path is None:
        raise UserError(HOW_TO.format(pid=target))
    connection = control.Control(path)
    if connection.pid != int(target):
        connection.close()
        raise UserError(f"the control socket {path}: is of process {connection.pid}, not of "
                        f"{target}")
    return connection


def _do(target, request):
    connection = _connection(target)
    try:
        return connection.ask(f"do {request}")
    finally:
        connection.close()


@as_sentences
def start(target: str = TARGET,
          interval: str = typer.Option("512K", "--interval", metavar="BYTES",
                                       help="A sample in about so many bytes allocated.")):
    """Start the profiler of a process, or change its interval."""
    _do(target, f"profile.start {interval}")
    say(f"The profiler of {target} is on.")


@as_sentences
def stop(target: str = TARGET):
    """Stop the profiler of a process: what it has found stays, and frees are followed."""
    _do(target, "profile.stop")
    say(f"The profiler of {target} is off.")


@as_sentences
def dump(target: str = TARGET,
         file: Optional[pathlib.Path] = typer.Argument(
             None, metavar="[FILE]", show_default=False,
             help="Where the process writes it; without: the next one of its profile_file.")):
    """Have a process write a dump, for `cairn profile show`."""
    if file is None:
        _do(target, "profile.dump")
        say(f"Process or socket {target} has written the next dump of its profile_file.")
    else:
        _do(target, f"profile.dump {file.absolute()}")
        say(f"Dump: {file}")
