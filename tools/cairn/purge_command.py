"""`cairn purge`: what a process can give back, then done, and what it came to."""

import typer

from cairn import control
from cairn.console import out, print_json, say
from cairn.errors import UserError, as_sentences
from cairn.plan import Plan, rss_of
from cairn.plan_report import print_plan
from cairn.texts import bytes_text

HOW_TO = ("it was not purged: process {pid} has no control socket that is known here. Start it "
          "with CAIRN_OPTIONS=background:on,control:/tmp/cairn.%p, or name the socket: cairn purge "
          "SOCKET (docs/CONTROL.md)")


def _given(target):
    """A connection to the socket that the user named; None where it is none."""
    if not control.is_socket(target):
        return None
    connection = control.Control(target)
    if connection.pid <= 0:
        raise UserError(f"{target}: is of a process outside this container: give its number where "
                        "it runs, or look from there")
    return connection


def _found(plan):
    """A connection to the socket of the process that was looked at; None where it has none."""
    pid = plan.target.get("pid")
    path = control.path_of(pid, plan.socket) if pid else None
    if path is None:
        return None
    connection = control.Control(path)
    if connection.pid != pid:
        raise UserError(f"the control socket {path}: is of process {connection.pid}, not of {pid}")
    return connection


def _purge(connection, plan):
    """The figures of a purge."""
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
        word = "more" if off >= 0 else "less"
        say(f"Forecast: {bytes_text(forecast)}; it is {bytes_text(abs(off))} {word}, "
            f"{100 * abs(off) / max(forecast, 1):.1f} %.")


@as_sentences
def purge(
        target: str = typer.Argument(..., metavar="PID|SOCKET|CORE", show_default=False,
                                     help="A process, its control socket, or a core file."),
        plan_only: bool = typer.Option(False, "--plan", help="Print the plan and do nothing."),
        every: bool = typer.Option(False, "--all", help="Show all sizes, sites and heaps."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """Give free memory of a process back to the system, after saying how much that is.

    The plan is read from outside; the purge is asked for by the process's control socket. Of a core
    file there is the plan.
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
