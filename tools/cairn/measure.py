"""One measured run of a command."""

import os
import subprocess
import tempfile
from dataclasses import dataclass

from cairn import files
from cairn.errors import UserError, signal_name
from cairn.files import measure_program

STDERR_TAIL_BYTES = 4000
INTERRUPT_GRACE_S = 1  # what the terminal's interrupt has reached may end by itself
STOP_S = 10  # cairn-measure ends a command within five
GRACE_S = 5  # from SIGTERM to SIGKILL


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
    stopped: bool = False  # the time limit was reached, and the command got SIGTERM
    killed: bool = False  # and then SIGKILL, since it did not end

    @property
    def failed_signal(self):
        """The signal that ended the command, unless its time was up; or 0."""
        return 0 if self.stopped and self.signal in (15, 9) else self.signal

    @property
    def status(self):
        """The exit status as a shell would give it; 0 for an end at the time limit."""
        if self.stopped and self.exit_code == 128 + 15:
            return 0
        return 128 + self.failed_signal if self.failed_signal else self.exit_code


def _tail(file):
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - STDERR_TAIL_BYTES))
    return file.read().decode(errors="replace")


def preload_value(libraries, environment):
    """LD_PRELOAD for a run: the libraries before what the user preloads, or that alone.

    A Cairn that the user preloads already is left out, so that "system" means system.
    """
    others = [entry for entry in environment.get("LD_PRELOAD", "").replace(":", " ").split()
              if not os.path.basename(entry).startswith("libcairn-malloc")]
    return ":".join([*map(str, libraries), *others])


def _options_value(options):
    given = os.environ.get("CAIRN_OPTIONS")
    return f"{given},{options}" if given else options


def with_cairn(library, options):
    """The environment of a program on this library, with these options behind the user's."""
    return {**os.environ, "LD_PRELOAD": preload_value([library], os.environ),
            "CAIRN_OPTIONS": _options_value(options)}


def _wait(process):
    """Waits for cairn-measure; an interrupt ends the command first, so that none is left behind."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        for seconds, end in ((INTERRUPT_GRACE_S, process.terminate), (STOP_S, process.kill)):
            try:
                process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                end()
        process.wait()
        raise


def _fields(text):
    fields = dict(word.split("=") for word in text.split())
    return {name: int(value) for name, value in fields.items()}


def _run_of(text, out, err):
    try:
        fields = _fields(text)
        return Run(
            wall_s=fields["wall_ns"] / 1e9,
            cpu_s=(fields["user_us"] + fields["system_us"]) / 1e6,
            peak_rss_mib=fields["peak_rss_kib"] / 1024,
            faults=fields["minor_faults"] + fields["major_faults"],
            exit_code=fields["exit_code"],
            signal=fields["signal"],
            output=files.digest(out).digest(),
            stderr_tail=_tail(err),
            stopped=bool(fields["stopped"]),
            killed=bool(fields["killed"]))
    except (KeyError, ValueError):
        raise UserError(f"{measure_program()} does not belong to this version of the tool: it "
                        f"wrote {text.strip()!r}") from None


def _environment(library, probe_file, options):
    """(environment of cairn-measure, what the command is to preload)"""
    libraries = [library] if library else []
    environment = dict(os.environ)
    if options:
        environment["CAIRN_OPTIONS"] = _options_value(options)
    environment.pop("LD_PRELOAD", None)  # cairn-measure itself runs without
    environment.pop("CAIRN_PROBE_FILE", None)
    if probe_file:
        environment["CAIRN_PROBE_FILE"] = str(probe_file)
        libraries.append(files.probe_library())
    return environment, preload_value(libraries, os.environ)


def measure(command, library=None, stdin=None, show_output=False, limit_s=None, probe_file=None,
            grace_s=GRACE_S, options=""):
    """Runs the command, under a library that replaces malloc if one is given. With a limit it gets
    SIGTERM after that time, and SIGKILL if that does not help. With a probe file, each of its
    processes writes there which malloc it has (cairn.probe), for some 0.1 ms and 0.2 MiB.
    `options` are Cairn's, behind the user's."""
    environment, preload = _environment(library, probe_file, options)
    arguments = [str(measure_program())]
    if preload:
        arguments += ["--preload", preload]
    if limit_s:
        arguments += ["--for", str(max(1, round(limit_s * 1000))),
                      "--grace", str(round(grace_s * 1000))]

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, \
            tempfile.TemporaryFile() as result, open(stdin or os.devnull, "rb") as stdin_file:
        arguments += [str(result.fileno()), *command]
        with subprocess.Popen(arguments, env=environment, stdin=stdin_file,
                              stdout=None if show_output else out,
                              stderr=None if show_output else err,
                              pass_fds=[result.fileno()]) as process:
            status = _wait(process)
        if status < 0:
            raise UserError(f"cairn-measure, which runs the command, was ended by "
                            f"{signal_name(-status)}")
        if status != 0:
            raise UserError(_tail(err).strip() or f"{command[0]} could not be started")
        result.seek(0)
        return _run_of(result.read().decode(), out, err)


def check_loads(library):
    """Raises UserError when the dynamic linker cannot preload the library into a program."""
    probe = subprocess.run([str(measure_program())], env={**os.environ, "LD_PRELOAD": str(library)},
                           capture_output=True, text=True, errors="replace", check=False)
    if "cannot be preloaded" in probe.stderr:
        raise UserError(probe.stderr.splitlines()[0])
    if probe.returncode < 0:
        raise UserError(f"{library}: a program that preloads it is ended by "
                        f"{signal_name(-probe.returncode)} at once")
