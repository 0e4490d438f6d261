"""`cairn profile start`, `stop` and `dump`: controls the profiler of a running process through its
control socket (docs/reference/OPTIONS.md)."""

import pathlib
import re
from typing import Optional

import typer

from cairn import control, output
from cairn.console import say
from cairn.errors import UserError, as_sentences
from cairn.look import look

HOW_TO = (f"no control socket of process {{pid}} found: start it with {control.SETTING}, or name "
          "the socket (docs/reference/OPTIONS.md)")
NEVER_STARTED = "the profiler of {target} was never started: run cairn profile start {target}"
CANNOT_WRITE = ("EACCES", "ENOENT", "ENOTDIR", "EISDIR", "ENOSPC", "EROFS", "EIO")
TARGET = typer.Argument(..., metavar="PID|SOCKET", show_default=False,
                        help="A process, or its control socket.")


def _connection(target):
    if control.is_socket(target):
        return control.Control(target)
    if not target.isdigit():
        raise UserError(f"{target}: neither a process number nor a socket")
    socket = next((values for kind, values in look("plan", target) if kind == "socket"), None)
    connection = control.connected(int(target), socket)
    if connection is None:
        raise UserError(HOW_TO.format(pid=target))
    return connection


def _do(target, request, sentences, file=None):
    """Sends a request to the process. `sentences` maps names of errors to messages."""
    connection = _connection(target)
    try:
        connection.ask(f"do {request}")
    except control.Refused as refused:
        if refused.error in sentences:
            raise UserError(sentences[refused.error].format(
                target=target, words=refused.words, file=file)) from refused
        raise
    finally:
        connection.close()


@as_sentences
def start(target: str = TARGET,
          interval: str = typer.Option("512K", "--interval", metavar="BYTES",
                                       help="Take one sample for about every BYTES allocated.")):
    """Start the profiler of a process, or change its interval."""
    if not re.fullmatch(r"\w+", interval):
        raise UserError(f"--interval {interval}: write a number of bytes, such as 64K")
    _do(target, f"profile.start {interval}",
        {"EINVAL": f"--interval {interval}: write a number of bytes above 0, such as 64K"})
    say(f"The profiler of {target} is on.")


@as_sentences
def stop(target: str = TARGET):
    """Stop the profiler of a process. Its samples are kept, and their frees are recorded."""
    _do(target, "profile.stop", {})
    say(f"The profiler of {target} is off.")


@as_sentences
def dump(target: str = TARGET,
         file: Optional[pathlib.Path] = typer.Argument(
             None, metavar="[FILE]", show_default=False,
             help="File that the process writes; default: the next file of its option "
                  "profile_file.")):
    """Make a process write a dump, for `cairn profile show`."""
    if file is None:
        _do(target, "profile.dump", {
            "EINVAL": "{target} runs without the option profile_file, which names its dumps: "
                      "write cairn profile dump {target} FILE",
            "ENODATA": NEVER_STARTED,
            **dict.fromkeys(CANNOT_WRITE, "the process cannot write the dump to its option "
                                          "profile_file: {words}")})
        say(f"Process or socket {target} has written the next dump of its profile_file.")
    else:
        output.check_writable("FILE", file)
        # The process may run as another user or in another root, and so be unable to write the
        # file.
        cannot = dict.fromkeys(CANNOT_WRITE, "{file}: the process cannot write it: {words}")
        _do(target, f"profile.dump {file.absolute()}", {**cannot, "ENODATA": NEVER_STARTED},
            file=file)
        say(f"Dump: {file}")
