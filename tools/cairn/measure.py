"""One measured run of a command."""

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass

from cairn.errors import UserError
from cairn.files import measure_program

STDERR_TAIL_BYTES = 4000


@dataclass(frozen=True)
class Run:
    """What one run cost and how it ended."""

    wall_s: float
    cpu_s: float  # user and system time of the command and the children it waited for
    peak_rss_mib: float  # of the largest single process
    faults: int  # page faults, minor and major
    exit_code: int
    signal: int  # 0 when the command ended by itself
    output: bytes  # of the standard output, a digest
    stderr_tail: str

    @property
    def status(self):
        """The exit status as a shell would give it."""
        return 128 + self.signal if self.signal else self.exit_code


def _digest(file):
    file.seek(0)
    return hashlib.file_digest(file, "sha256").digest()


def _tail(file):
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - STDERR_TAIL_BYTES))
    return file.read().decode(errors="replace")


def preload_value(library, environment):
    """LD_PRELOAD for a run: the library before what the user preloads, or that alone.

    A Cairn that the user preloads already is left out, so that "system" means system.
    """
    others = [entry for entry in environment.get("LD_PRELOAD", "").replace(":", " ").split()
              if not os.path.basename(entry).startswith("libcairn-malloc")]
    return ":".join(([str(library)] if library else []) + others)


def measure(command, library=None, stdin=None, show_output=False):
    """Runs the command, under a library that replaces malloc if one is given."""
    environment = dict(os.environ)
    preload = preload_value(library, environment)
    environment.pop("LD_PRELOAD", None)  # cairn-measure itself runs without

    result_read, result_write = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, \
            open(stdin or os.devnull, "rb") as stdin_file, os.fdopen(result_read) as result:
        arguments = [str(measure_program())]
        if preload:
            arguments += ["--preload", preload]
        arguments += [str(result_write), *command]
        try:
            outcome = subprocess.run(arguments, env=environment, stdin=stdin_file,
                                     stdout=None if show_output else out,
                                     stderr=None if show_output else err,
                                     pass_fds=[result_write], check=False)
        finally:
            os.close(result_write)
        if outcome.returncode != 0:
            raise UserError(_tail(err).strip() or f"{command[0]} could not be started")
        fields = dict(word.split("=") for word in result.read().split())
        return Run(
            wall_s=int(fields["wall_ns"]) / 1e9,
            cpu_s=(int(fields["user_us"]) + int(fields["system_us"])) / 1e6,
            peak_rss_mib=int(fields["peak_rss_kib"]) / 1024,
            faults=int(fields["minor_faults"]) + int(fields["major_faults"]),
            exit_code=int(fields["exit_code"]),
            signal=int(fields["signal"]),
            output=_digest(out),
            stderr_tail=_tail(err))


def check_loads(library):
    """Raises UserError when the dynamic linker cannot preload the library into a program."""
    probe = subprocess.run([str(measure_program())], env={**os.environ, "LD_PRELOAD": str(library)},
                           capture_output=True, text=True, check=False)
    if "cannot be preloaded" in probe.stderr:
        raise UserError(probe.stderr.splitlines()[0])
