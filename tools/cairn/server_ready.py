"""Whether a server answers: a port that accepts connections, a command that succeeds, or, if
neither is given, any socket on which one of its processes listens."""

import contextlib
import os
import socket

from cairn import measure
from cairn.errors import UserError
from cairn.server_memory import read_text

LOOPBACK = ("127.0.0.1", "::1")  # a bare system cannot look up localhost
CONNECT_S = 1
COMMAND_S = 5
NOT_FOUND = 127  # status of a shell
TCP_LISTENS = "0A"
UNIX_LISTENS = 0x10000


def _listening_inodes(pid):
    """The inodes of all listening sockets in the network namespace of a process."""
    for name in ("net/tcp", "net/tcp6"):
        for line in (read_text(pid, name) or "").splitlines()[1:]:
            words = line.split()
            if words[3] == TCP_LISTENS:
                yield words[9]
    for line in (read_text(pid, "net/unix") or "").splitlines()[1:]:
        words = line.split()
        if int(words[3], 16) & UNIX_LISTENS:
            yield words[6]


def _listens(pid):
    with contextlib.suppress(OSError):  # the process has ended
        sockets = set()
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(f"/proc/{pid}/fd/{number}"))
        return any(f"socket:[{inode}]" in sockets for inode in _listening_inodes(pid))
    return False


def _accepts(port):
    for address in LOOPBACK:
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), CONNECT_S).close()
            return True
    return False


def _succeeds(command):
    run = measure.measure(["/bin/sh", "-c", command], limit_s=COMMAND_S, grace_s=0.5)
    if run.status == NOT_FOUND:
        raise UserError(f"--ready {command}: the command was not found")
    return not run.stopped and run.status == 0


def port_of(ready):
    """The port of --ready, or None."""
    if not ready or not ready.isdigit():
        return None
    if not 0 < int(ready) < 1 << 16:
        raise UserError(f"--ready {ready}: not a port")
    return int(ready)


def answers(ready, tree):
    """Whether the server answers, in the way that --ready names."""
    if port_of(ready):
        return _accepts(port_of(ready))
    if ready:
        return _succeeds(ready)
    return any(map(_listens, tree.pids()))


def check_nothing_answers(ready):
    """Raises UserError if another server would be mistaken for the one that is started."""
    if port_of(ready) and _accepts(port_of(ready)):
        raise UserError(f"port {ready} is taken: another process answers there")
    if ready and not port_of(ready) and _succeeds(ready):
        raise UserError(f"--ready {ready}: the command succeeds before the server runs")
