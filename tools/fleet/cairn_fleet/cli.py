"""The command line `cairn-fleet`."""

import typer

from cairn import cli
from cairn_fleet import export, parquet, push

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
                  help="Watches the heaps of many processes and machines with Cairn.")
app.command()(export.export)
app.command()(push.push)
app.command()(parquet.profile)
app.command()(parquet.stats)


def main():
    cli.main(app, "cairn-fleet")
