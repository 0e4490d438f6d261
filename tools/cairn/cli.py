"""The command line: its commands, its version, and its exit status."""

import os
import re
import sys
import traceback

import click
import typer

from cairn import (VERSION, advise_command, inspect_command, leaks_command, persist_command,
                   profile_command, purge_command, replay_command, run_command, stats_command,
                   trace_command)
from cairn.console import note, out
from cairn.errors import UserError, is_of_output, listen_to_signals, output_sentence

BUG_STATUS = 70  # EX_SOFTWARE of sysexits.h

app = typer.Typer(help="Tools around Cairn's memory allocators.", no_args_is_help=True,
                  pretty_exceptions_enable=False)


def _print_version(wanted: bool):
    if wanted:
        out.print(f"cairn {VERSION}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(  # pylint: disable=unused-argument
        False, "--version", callback=_print_version, is_eager=True,
        help="Print the version and exit."),
):
    pass


app.command(context_settings={"allow_interspersed_args": False})(run_command.run)
app.command(context_settings={"allow_interspersed_args": False})(advise_command.advise)
app.command()(inspect_command.inspect)
app.command()(leaks_command.leaks)
app.command()(purge_command.purge)
app.command()(stats_command.stats)
app.command("replay")(replay_command.replay_command)
app.add_typer(persist_command.app, name="persist")
app.add_typer(profile_command.app, name="profile")
app.add_typer(trace_command.app, name="trace")


def _close_stdout(name):
    """Returns whether all output was written. The rest is dropped: at its exit Python would try
    again, and fail with a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            note(f"{name}: {output_sentence(error)}", style="red")
        return False
    return True


def _usage_sentence(error, name):
    """A sentence that describes the error in the arguments and names the help text."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else name
    text = " ".join(error.format_message().split()).rstrip(".")
    text = re.sub(r"\\udc([89a-f][0-9a-f])", r"\\x\1", text)  # click quotes with repr()
    text = text[:1].lower() + text[1:]
    return f"{command}: {text}; see {command} --help"


def _run(commands=app, name="cairn"):
    """Runs the command that the arguments name; returns the exit status."""
    try:
        status = commands(prog_name=name, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except SystemExit as leave:
        return leave.code
    except click.ClickException as error:
        note(_usage_sentence(error, name), style="red")
        return error.exit_code
    except click.Abort:
        return 130
    except UserError as error:
        note(f"{name}: {error}", style="red")
        return error.status
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # pylint: disable=broad-except
        if is_of_output(error):
            note(f"{name}: {output_sentence(error)}", style="red")
            return UserError.status
        place = traceback.extract_tb(error.__traceback__)[-1]
        note(f"{name}: internal error: {type(error).__name__}: {error} "
             f"({os.path.basename(place.filename)}:{place.lineno}). Please report it with the "
             "output of CAIRN_TRACEBACK=1.", style="red")
        if os.environ.get("CAIRN_TRACEBACK"):
            traceback.print_exc()
        return BUG_STATUS


def main(commands=app, name="cairn"):
    """Runs the tool with this name, and ends the process with its status."""
    listen_to_signals()
    status = _run(commands, name)
    raise SystemExit(status if _close_stdout(name) else status or 1)
