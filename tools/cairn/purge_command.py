"""`cairn purge`: shows the memory that a process can return, makes it return it, and shows the
result."""

import typer

from cairn import control
from cairn.console import out, print_json, say
from cairn.errors import UserError, as_sentences
from cairn.plan import Plan, rss_of
from cairn.plan_report import print_plan
from cairn.texts import bytes_text

HOW_TO = ("cannot purge process {pid}: no control socket found. Start it with "
          f"{control.SETTING}, or name its socket: cairn purge SOCKET (docs/reference/OPTIONS.md)")


def _given(target):
    """A connection to the socket that the user named; None when the target is no socket."""
    if not control.is_socket(target):
        return None
    connection = control.Control(target)
    if connection.pid <= 0:
        raise UserError(f"{target}: its process is outside this container: run cairn purge there "
                        "with its process number")
    return connection


def _found(plan):
    """A connection to the socket of the planned process; None when it has none."""
    pid = plan.target.get("pid")
    return control.connected(pid, plan.socket) if pid else None


def _purge(connection, plan):
    """Purges the process. Returns the figures."""
    before = rss_of(connection.pid)
    answer = connection.ask("do purge")
    after = rss_of(connection.pid)
    if after is None:
        raise UserError(f"process {connection.pid} has ended")
    return {"before_bytes": before, "after_bytes": after, "forecast_bytes": plan.forecast_bytes,
            "off_bytes": after - plan.forecast_bytes if plan.is_measured else None,
            "answer": answer}


def _print_done(done):
    out.print()
    say(f"Purged: {bytes_text(done['before_bytes'])} before, {bytes_text(done['after_bytes'])} "
        "after.")
    if done["off_bytes"] is not None:
        off, forecast = done["off_bytes"], done["forecast_bytes"]
        say(f"Forecast was {bytes_text(forecast)} (error: {bytes_text(abs(off))}).")


@as_sentences
def purge(
        target: str = typer.Argument(..., metavar="PID|SOCKET|CORE", show_default=False,
                                     help="A process, its control socket, or a core file."),
        plan_only: bool = typer.Option(False, "--plan", help="Only print the plan."),
        every: bool = typer.Option(False, "--all", help="Show all sizes, sites and heaps."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """Return free memory of a process to the system, after showing how much that is.

    The plan is read from outside the process. The purge is requested through the control socket of
    the process. For a core file only the plan is shown.
    """
    connection = _given(target)
    done = None
    try:
        plan = Plan(str(connection.pid) if connection else target)
        if not as_json:
            print_plan(plan, every)
        if not plan_only:
            connection = connection or _found(plan)
            done = _purge(connection, plan) if connection else None
        if as_json:
            print_json({**plan.to_json(), "purge": done})
        elif done:
            _print_done(done)
    finally:
        if connection:
            connection.close()
    if not done and not plan_only and plan.target["kind"] == "process":
        raise UserError(HOW_TO.format(pid=plan.target["pid"]))
