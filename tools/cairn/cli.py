"""The command line: its commands, its version, and how it ends."""

import os
import sys
import traceback

import typer

from cairn import (VERSION, advise_command, bench_command, export_command, inspect_command,
                   leaks_command, matrix_command, persist_command, profile_command, purge_command,
                   replay_command, run_command, stats_command, trace_command)
from cairn.console import note, out
from cairn.errors import UserError, listen_to_signals, os_sentence

BUG_STATUS = 70  # EX_SOFTWARE of sysexits.h

app = typer.Typer(help="Tools around Cairn's memory allocators.", pretty_exceptions_enable=False)


def _print_version(wanted: bool):
    if wanted:
        out.print(f"cairn {VERSION}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(  # pylint: disable=unused-argument
        False, "--version", callback=_print_version, is_eager=True,
        help="Print the version and leave."),
):
    pass


app.command(context_settings={"allow_interspersed_args": False})(run_command.run)
app.command(context_settings={"allow_interspersed_args": False})(advise_command.advise)
app.command()(bench_command.bench)
app.command()(matrix_command.matrix)
app.command()(inspect_command.inspect)
app.command()(leaks_command.leaks)
app.command()(purge_command.purge)
app.command()(stats_command.stats)
app.command()(export_command.export)
app.command("replay")(replay_command.replay_command)
app.add_typer(persist_command.app, name="persist")
app.add_typer(profile_command.app, name="profile")
app.add_typer(trace_command.app, name="trace")


def _close_stdout():
    """Whether all that was printed got out. What did not is dropped: Python would try once more at
    its end, and fail there with a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            note(f"cairn: the output: {os_sentence(error)}", style="red")
        return False
    return True


def _run():
    """Runs the command that the arguments name; returns the exit status."""
    try:
        app(prog_name="cairn")
    except SystemExit as leave:
        return leave.code
    except UserError as error:
        note(f"cairn: {error}", style="red")
        return error.status
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # pylint: disable=broad-except
        place = traceback.extract_tb(error.__traceback__)[-1]
        note(f"cairn: a fault of this tool: {type(error).__name__}: {error} "
             f"({os.path.basename(place.filename)}:{place.lineno}); please report it, with the "
             "output under CAIRN_TRACEBACK=1", style="red")
        if os.environ.get("CAIRN_TRACEBACK"):
            traceback.print_exc()
        return BUG_STATUS
    return 0


def main():
    listen_to_signals()
    status = _run()
    raise SystemExit(status if _close_stdout() else status or 1)
