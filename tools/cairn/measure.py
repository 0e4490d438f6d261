"""Measures one run of a command."""

import contextlib
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass

from cairn import files
from cairn.errors import Interrupt, UserError, signal_name

STDERR_TAIL_BYTES = 4000
INTERRUPT_GRACE_S = 1  # a command that the terminal's interrupt has reached may end by itself
STOP_S = 10  # cairn-measure ends a command within five seconds
GRACE_S = 5  # from SIGTERM to SIGKILL


@dataclass(frozen=True)
class Run:
    """The cost of one run, and its end."""

    wall_s: float
    cpu_s: float  # user and system time of the command and the children it waited for
    peak_rss_mib: float  # of the largest single process
    faults: int  # minor and major page faults
    exit_code: int
    signal: int  # 0 when the command ended by itself
    output: bytes  # a digest of the standard output
    stderr_tail: str
    stopped: bool = False  # the time limit was reached, and the command received SIGTERM
    killed: bool = False  # the command did not end after SIGTERM and received SIGKILL

    @property
    def failed_signal(self):
        """The signal that ended the command, or 0; an end at the time limit counts as 0."""
        return 0 if self.stopped and self.signal in (15, 9) else self.signal

    @property
    def status(self):
        """The exit status as a shell reports it; 0 for an end at the time limit."""
        if self.stopped and self.exit_code == 128 + 15:
            return 0
        return 128 + self.failed_signal if self.failed_signal else self.exit_code


def _tail(file):
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - STDERR_TAIL_BYTES))
    return file.read().decode(errors="surrogateescape")


def preload_value(libraries, environment):
    """The value of LD_PRELOAD for a run: the libraries, then those that the user preloads.

    A Cairn library that the user preloads is left out, so that "system" is the system's malloc.
    """
    others = [entry for entry in environment.get("LD_PRELOAD", "").replace(":", " ").split()
              if not os.path.basename(entry).startswith("libcairn-malloc")]
    return ":".join([*map(str, libraries), *others])


def options_value(options):
    given = os.environ.get("CAIRN_OPTIONS")
    return f"{given},{options}" if given else options


def with_cairn(library, options):
    """The environment of a program on this library, with these options after the user's."""
    return {**os.environ, "LD_PRELOAD": preload_value([library], os.environ),
            "CAIRN_OPTIONS": options_value(options)}


def run_through(command, environment, last_signal=signal.SIGKILL):
    """Runs the command with the tool's own input and output to its end. Returns its process number
    and exit status. The first interrupt ends the command, and the tool continues with its results;
    the second one kills the command, with `last_signal`, and ends the tool."""
    # An interrupt between the start of the command and the `try` below would leave the command
    # without its tool. So the signals are blocked in between. The command itself begins with the
    # former mask.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM,
                                                       signal.SIGHUP})
    try:
        process = subprocess.Popen(
            command, env=environment,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, former))
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
        raise UserError(f"{command[0]} cannot be started: {error.strerror}") from error
    # An interrupt inside Popen.wait may lose the status, so Popen waits only for a command that has
    # ended.
    with process:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt, Interrupt):  # the terminal's reaches the command too
                process.send_signal(interrupt.number)
            try:
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            except KeyboardInterrupt:
                process.send_signal(last_signal)
                raise
    return process.pid, process.returncode


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
        raise UserError(f"{files.program('cairn-measure')} does not belong to this version of the "
                        f"tool: it wrote {text.strip()!r}") from None


def _environment(library, probe_file, options):
    """(environment of cairn-measure, LD_PRELOAD of the command)"""
    libraries = [library] if library else []
    environment = dict(os.environ)
    if options:
        environment["CAIRN_OPTIONS"] = options_value(options)
    environment.pop("LD_PRELOAD", None)  # cairn-measure itself runs without it
    environment.pop("CAIRN_PROBE_FILE", None)
    if probe_file:
        environment["CAIRN_PROBE_FILE"] = str(probe_file)
        libraries.append(files.probe_library())
    return environment, preload_value(libraries, os.environ)


class Started:
    """A command that runs under cairn-measure."""

    def __init__(self, command, process, files_of):
        self.command, self.process = command, process
        self.out, self.err, self.result = files_of

    def has_ended(self, within_s=0):
        """Waits for at most that time. Returns whether the command has ended."""
        try:
            self.process.wait(within_s)
            return True
        except subprocess.TimeoutExpired:
            return False

    def wait(self):
        """Waits for the end. An interrupt ends the command first, so that it does not remain."""
        try:
            self.process.wait()
        except KeyboardInterrupt:
            for seconds, end in ((INTERRUPT_GRACE_S, self.process.terminate),
                                 (STOP_S, self.process.kill)):
                if self.has_ended(seconds):
                    break
                end()
            self.process.wait()
            raise

    def stop(self):
        """Ends the command and, with a limit, all processes that it left behind: SIGTERM, and
        SIGKILL after the grace time. An interrupt during the wait makes it SIGKILL at once."""
        interrupt = None
        while self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait()
            except KeyboardInterrupt as caught:
                interrupt = caught
        if interrupt:
            raise interrupt

    def stderr_tail(self):
        return _tail(self.err)

    def run(self):
        """The cost of the command, which has ended."""
        status = self.process.returncode
        if status < 0:
            raise UserError(f"cairn-measure, which runs the command, was ended by "
                            f"{signal_name(-status)}")
        if status != 0:
            raise UserError(_tail(self.err).strip() or f"{self.command[0]} could not be started")
        self.result.seek(0)
        return _run_of(self.result.read().decode(errors="surrogateescape"), self.out, self.err)


@contextlib.contextmanager
def started(command, library=None, stdin=None, show_output=False, limit_s=None, probe_file=None,
            grace_s=GRACE_S, options="", output=None, folder=None, session=False):
    """Starts the command, with the parameters of measure(), and yields it as Started. In a session
    of its own the terminal's interrupt does not reach it. It is stopped at the end of the block."""
    environment, preload = _environment(library, probe_file, options)
    arguments = [str(files.program("cairn-measure"))]
    if preload:
        arguments += ["--preload", preload]
    if limit_s:
        arguments += ["--for", str(max(1, round(limit_s * 1000))),
                      "--grace", str(round(grace_s * 1000))]

    own_output = contextlib.nullcontext(output) if output else tempfile.TemporaryFile()
    with own_output as out, tempfile.TemporaryFile() as err, \
            tempfile.TemporaryFile() as result, open(stdin or os.devnull, "rb") as stdin_file:
        arguments += [str(result.fileno()), *command]
        with subprocess.Popen(arguments, env=environment, stdin=stdin_file, cwd=folder,
                              stdout=None if show_output else out,
                              stderr=None if show_output else err,
                              start_new_session=session,
                              pass_fds=[result.fileno()]) as process:
            one = Started(command, process, (out, err, result))
            try:
                yield one
            finally:
                one.stop()


def measure(command, library=None, **parameters):
    """Runs the command, under a library that replaces malloc if one is given. With `limit_s` it
    receives SIGTERM after that time, and SIGKILL if it does not end. With `probe_file`, each of its
    processes records its malloc there (cairn.probe), which costs about 0.1 ms and 0.2 MiB.
    `options` are Cairn's, after the user's. Its standard output goes to `output`, an empty file
    that is open for writing and reading in bytes, if one is given; it runs in `folder`, if one is
    given."""
    with started(command, library, **parameters) as one:
        one.wait()
        return one.run()


def check_loads(library):
    """Raises UserError when the dynamic linker cannot preload the library into a program."""
    probe = subprocess.run([str(files.program("cairn-measure"))],
                           env={**os.environ, "LD_PRELOAD": str(library)},
                           capture_output=True, text=True, errors="surrogateescape", check=False)
    if "cannot be preloaded" in probe.stderr:
        raise UserError(probe.stderr.splitlines()[0])
    if probe.returncode < 0:
        raise UserError(f"{library}: a program that preloads it ends at once by "
                        f"{signal_name(-probe.returncode)}")
