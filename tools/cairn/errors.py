"""The errors that the tool reports to its user, one sentence each."""

import errno
import functools
import signal

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
LONGEST_S = 1e6


class UserError(Exception):
    """An error that the user can correct; its text is shown without a traceback."""

    status = 2


def check_seconds(option, seconds, shortest):
    """Raises UserError for a time that is too short, or longer than the system can wait."""
    if not shortest <= seconds <= LONGEST_S:
        raise UserError(f"{option} {seconds:g}: write between {shortest} and {LONGEST_S:.0f} "
                        "seconds")


class Interrupt(KeyboardInterrupt):
    """SIGTERM or SIGHUP. Measurements so far are kept, as after an interrupt from the terminal."""

    def __init__(self, number):
        super().__init__()
        self.number = number


class Interrupted(UserError):
    """The end of an interrupted command that has already printed its results."""

    def __init__(self, interrupt, text="interrupted"):
        super().__init__(text)
        self.status = status_of(interrupt)


def status_of(interrupt):
    """The exit status after an interrupt, as a shell reports it."""
    return 128 + getattr(interrupt, "number", signal.SIGINT)


def os_sentence(error):
    """The text of an OSError, with its file."""
    words = error.strerror or str(error)
    if error.filename is None:
        return words
    return f"{error.filename or repr('')}: {words}"


def listen_to_signals():
    """Turns SIGTERM and SIGHUP into interrupts. An ignored signal (nohup) stays ignored."""
    def interrupt(number, _frame):
        raise Interrupt(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, interrupt)


def signal_name(number):
    """The name of a signal; a real-time signal is SIGRTMIN+1."""
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending(status):
    """How a process ended, by the status that subprocess gives: negative for a signal."""
    return f"was ended by {signal_name(-status)}" if status < 0 else f"ended with status {status}"


def is_of_output(error):
    """Whether the error is one of the standard output: an error of a file has the file's name."""
    return isinstance(error, OSError) and not error.filename and error.errno in NO_ROOM


def output_sentence(error):
    return f"cannot write the output: {os_sentence(error)}"


def as_sentences(function):
    """Decorates a command so that its interrupts and system errors become UserError. Without it
    click would catch an interrupt and print only Aborted. A closed pipe is left to click."""
    @functools.wraps(function)
    def command(*arguments, **options):
        try:
            return function(*arguments, **options)
        except KeyboardInterrupt as interrupt:
            raise Interrupted(interrupt) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            text = output_sentence(error) if is_of_output(error) else os_sentence(error)
            raise UserError(text) from error
    return command
