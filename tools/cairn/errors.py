"""The errors that the tool reports to its user, each as one sentence."""

import functools
import signal


class UserError(Exception):
    """Something that the user can fix; its text is shown as it is, without a traceback."""

    status = 2


class Interrupt(KeyboardInterrupt):
    """SIGTERM or SIGHUP: what was measured is kept, as after the terminal's interrupt."""

    def __init__(self, number):
        super().__init__()
        self.number = number


class Interrupted(UserError):
    """The end of a command that was interrupted; what it had to say has been said."""

    def __init__(self, interrupt, text="interrupted"):
        super().__init__(text)
        self.status = status_of(interrupt)


def status_of(interrupt):
    """The exit status after an interrupt, as a shell would give it."""
    return 128 + getattr(interrupt, "number", signal.SIGINT)


def os_sentence(error):
    """An OSError in words."""
    words = error.strerror or str(error)
    return f"{error.filename}: {words}" if error.filename else words


def listen_to_signals():
    """Makes SIGTERM and SIGHUP interrupts. One that is ignored (nohup) stays so."""
    def interrupt(number, _frame):
        raise Interrupt(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, interrupt)


def signal_name(number):
    """A signal's name; the real-time ones have numbers instead: SIGRTMIN+1."""
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def as_sentences(function):
    """A command whose interrupts and system errors end as UserError; click would catch the former
    and say nothing but Aborted. A closed pipe stays click's."""
    @functools.wraps(function)
    def command(*arguments, **options):
        try:
            return function(*arguments, **options)
        except KeyboardInterrupt as interrupt:
            raise Interrupted(interrupt) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(os_sentence(error)) from error
    return command
