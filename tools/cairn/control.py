"""Client of the control socket of a process; docs/reference/OPTIONS.md documents the protocol."""

import contextlib
import json
import os
import pathlib
import socket
import stat
import struct

from cairn.errors import UserError, os_sentence

ANSWER_SECONDS = 120  # a purge of much memory takes long
ANSWER_MOST = 1 << 20
SETTING = "CAIRN_OPTIONS=background:on,control:/tmp/cairn.%p"  # for a process without a socket


class Refused(UserError):
    """A request was refused; `error` is the name of its cause."""

    def __init__(self, shown, answer):
        self.error = answer.get("error")
        self.words = answer.get("message") or self.error
        super().__init__(f"the control socket {shown}: {self.words}")


def is_socket(path):
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _status(pid, name):
    """The words of a line in the process's status; none if the line cannot be read."""
    with contextlib.suppress(OSError):
        text = pathlib.Path(f"/proc/{pid}/status").read_text(errors="surrogateescape")
        for line in text.splitlines():
            if line.startswith(name + ":"):
                return line.split()[1:]
    return []


def _number_inside(pid):
    """The process's number in its own PID namespace, which may be that of a container."""
    return (_status(pid, "NSpid") or [str(pid)])[-1]


def _is_stopped(pid):
    """Whether the process waits for SIGCONT or for a debugger."""
    return _status(pid, "State")[:1] in (["T"], ["t"])


def path_of(pid, place):
    """The path of the socket that a process serves, as seen from here. `place` is what cairn-look
    read, or None. A child of a fork has a copy of its parent's memory, but not its socket."""
    if place is None or str(place["owner"]) != _number_inside(pid):
        return None
    return f"/proc/{pid}/root{place['path']}"


class Control:
    """A connection. `pid` is the number of the listening process in this namespace."""

    def __init__(self, path, shown=None):
        self.shown = shown or str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_SECONDS)
        self._rest = b""
        folder = None
        try:
            # A socket address has at most 107 bytes; relative to its folder every path is short
            # enough.
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
                raise UserError(f"the control socket {self.shown}: the process closed it without "
                                "an answer")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def ask(self, request):
        """Returns the members of the answer. Raises Refused when the request is refused."""
        if _is_stopped(self.pid):
            raise UserError(f"process {self.pid} is stopped and cannot answer: kill -CONT "
                            f"{self.pid} lets it continue")
        try:
            self._socket.sendall(request.encode() + b"\n")
            answer = json.loads(self._line())
            if not isinstance(answer, dict):
                raise ValueError
        except OSError as error:
            raise UserError(f"the control socket {self.shown}: {os_sentence(error)}") from error
        except ValueError as error:
            raise UserError(f"the control socket {self.shown}: the answer is not Cairn's; "
                            "another program may own this socket") \
                from error
        if not answer.get("ok"):
            raise Refused(self.shown, answer)
        return answer


def connected(pid, place):
    """A connection to the socket that a process serves; None if it serves none. `place` as in
    path_of."""
    path = path_of(pid, place)
    if path is None:
        return None
    connection = Control(path)
    if connection.pid != pid:
        connection.close()
        raise UserError(f"the control socket {path} belongs to process {connection.pid}, not to "
                        f"{pid}")
    return connection
