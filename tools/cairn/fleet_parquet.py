"""The option --parquet: who a row is of, and the name of the file."""

import pathlib
import re
import time

import typer

from cairn import extras, fleet_find, output
from cairn.errors import UserError, os_sentence

OUT = typer.Option(None, "--parquet", metavar="OUT", show_default=False,
                   help="Write columns for DuckDB, Spark or ClickHouse: a Parquet file; in a "
                        "folder, one with a name of its own.")
HOST = typer.Option(None, "--host", metavar="NAME", show_default=False,
                    help="With --parquet: the machine it is of; this one's name without it.")
RELEASE = typer.Option(None, "--release", metavar="NAME", show_default=False,
                       help="With --parquet: the release; CAIRN_RELEASE of the environment "
                            "without it.")


def _path(out, kind, program, pid, host, seconds):
    if not out.is_dir():
        return out
    name = re.sub(r"[^\w.-]", "_", f"{kind}-{host}-{program}-{pid or 0}-{seconds * 1000:.0f}")
    return out / f"{name}.parquet"


def check(out, options):
    """Refuses at the start what would fail at the end."""
    if out is None:
        for option, value in options.items():
            if value is not None:
                raise UserError(f"{option} goes with --parquet")
        return
    extras.need("pyarrow.parquet", "--parquet")
    if not out.is_dir():
        output.check_writable("--parquet", out)


def _write(table, path):
    from cairn import fleet_columns  # pylint: disable=import-outside-toplevel
    try:
        output.replace(path.resolve(), lambda new: fleet_columns.write(table, new))
    except OSError as error:
        raise UserError(f"--parquet {path}: {os_sentence(error)}") from error


def build_id_of(profile):
    """That of the program itself among a dump's files."""
    return next((place.build_id for place in profile.maps
                 if place.path.rpartition("/")[2] == profile.program), "")


def release_of(profile):
    """Where nobody names it: of a process by its environment, else by our own."""
    return (fleet_find.Finder().variable(profile.pid, fleet_find.RELEASE) if profile.is_of_process
            else fleet_find.own_release())


def write_profile(out, profile, symbols, host, release):
    """Its time is that at which the dump was written."""
    from cairn import fleet_columns  # pylint: disable=import-outside-toplevel
    host, seconds = host or fleet_find.host_name(), profile.written_ns / 1e9
    who = (fleet_columns.instant(seconds), host, profile.pid, profile.program,
           build_id_of(profile), release or release_of(profile), profile.version)
    _write(fleet_columns.sites_table(profile, symbols, who),
           _path(out, "profile", profile.program, profile.pid, host, seconds))


def write_stats(out, census, target, host, release):
    """Of a process the release is that of its environment; a core file's time is its own."""
    from cairn import fleet_columns  # pylint: disable=import-outside-toplevel
    finder, seen = fleet_find.Finder(), census.target
    host, pid, build_id, seconds = host or fleet_find.host_name(), None, "", time.time()
    if seen["kind"] == "process":
        pid, build_id = seen["pid"], finder.build_id(seen["pid"])
        release = release or finder.variable(pid, fleet_find.RELEASE)
    else:
        seconds = pathlib.Path(target).stat().st_mtime
        release = release or fleet_find.own_release()
    who = (fleet_columns.instant(seconds), host, pid, seen["program"], build_id, release,
           seen["version"])
    _write(fleet_columns.stats_table(census, who),
           _path(out, "stats", seen["program"], pid, host, seconds))
