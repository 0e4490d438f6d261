"""Speaking to the control socket of a process: docs/CONTROL.md has the protocol."""

import contextlib
import json
import os
import pathlib
import socket
import stat
import struct

from cairn.errors import UserError, os_sentence

ANSWER_SECONDS = 120  # a purge of much memory takes its time
ANSWER_MOST = 1 << 20


def is_socket(path):
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _number_inside(pid):
    """The process's number where it runs, which may be a container."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("NSpid:"):
                return line.split()[-1]
    return str(pid)


def path_of(pid, place):
    """The socket that a process serves, as a path that works here. `place` is what cairn-look read
    of it, None for none. A child of a fork has the memory of its parent, whose socket is not its
    own."""
    if place is None or str(place["owner"]) != _number_inside(pid):
        return None
    return f"/proc/{pid}/root{place['path']}"


class Control:
    """A connection. `pid` is the process that listens, by its number here."""

    def __init__(self, path, shown=None):
        self.shown = shown or str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_SECONDS)
        self._rest = b""
        folder = None
        try:
            # An address has 107 bytes at most; by its folder any path is short enough.
            folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_PATH | os.O_DIRECTORY)
            self._socket.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
            credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            self.pid = struct.unpack("3i", credentials)[0]
        except OSError as error:
            self._socket.close()
            raise UserError(f"the control socket {self.shown}: {error.strerror or error}") \
                from error
        finally:
            if folder is not None:
                os.close(folder)

    def close(self):
        self._socket.close()

    def _line(self):
        while b"\n" not in self._rest:
            piece = self._socket.recv(1 << 16)
            if not piece or len(self._rest) > ANSWER_MOST:
                raise UserError(f"the control socket {self.shown}: ended without an answer")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def ask(self, request):
        """The answer's members; UserError where it is a refusal."""
        try:
            self._socket.sendall(request.encode() + b"\n")
            answer = json.loads(self._line())
            if not isinstance(answer, dict):
                raise ValueError
        except OSError as error:
            raise UserError(f"the control socket {self.shown}: {os_sentence(error)}") from error
        except ValueError as error:
            raise UserError(f"the control socket {self.shown}: the answer is none of Cairn's") \
                from error
        if not answer.get("ok"):
            raise UserError(f"the control socket {self.shown}: "
                            f"{answer.get('message') or answer.get('error')}")
        return answer
