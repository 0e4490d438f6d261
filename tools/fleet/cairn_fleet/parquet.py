"""`cairn-fleet profile` and `cairn-fleet stats`: rows of columns, as Parquet files."""

import pathlib
import re
import time
from typing import List, Optional

import typer

from cairn import output
from cairn.console import note
from cairn.errors import UserError, as_sentences, os_sentence
from cairn.look import Census
from cairn.profile_file import read_any
from cairn.profile_merge import merged, newest
from cairn.profile_symbols import Symbols
from cairn_fleet import find, need

OUT = typer.Option(..., "--output", "-o", metavar="OUT", show_default=False,
                   help="Parquet file to write. In a folder, it gets a unique name.")
HOST = typer.Option(None, "--host", metavar="NAME", show_default=False,
                    help="Machine of the rows. Default: this machine's name.")
RELEASE = typer.Option(None, "--release", metavar="NAME", show_default=False,
                       help="Release of the program. Default: CAIRN_RELEASE of the environment.")


def _path(out, kind, program, pid, host, seconds):
    if not out.is_dir():
        return out
    name = re.sub(r"[^\w.-]", "_", f"{kind}-{host}-{program}-{pid or 0}-{seconds * 1000:.0f}")
    return out / f"{name}.parquet"


def _check(out):
    """Refuses at the start what would fail at the end."""
    need("pyarrow.parquet", "--output")
    if not out.is_dir():
        output.check_writable("--output", out)


def _write(table, path):
    from cairn_fleet import columns  # pylint: disable=import-outside-toplevel
    try:
        output.replace(path, lambda new: columns.write(table, new))
    except OSError as error:
        raise UserError(f"--output {path}: {os_sentence(error)}") from error


def build_id_of(profile):
    """That of the program itself among a dump's files."""
    return next((place.build_id for place in profile.maps
                 if place.path.rpartition("/")[2] == profile.program), "")


def release_of(profile):
    """The default release: from the environment of the process, or of this command for a file."""
    return (find.Finder().variable(profile.pid, find.RELEASE) if profile.is_of_process
            else find.own_release())


def _write_profile(out, profile, symbols, host, release):
    """Its time is that at which the dump was written."""
    from cairn_fleet import columns  # pylint: disable=import-outside-toplevel
    host, seconds = host or find.host_name(), profile.written_ns / 1e9
    who = (columns.instant(seconds), host, profile.pid, profile.program,
           build_id_of(profile), release or release_of(profile), profile.version)
    _write(columns.sites_table(profile, symbols, who),
           _path(out, "profile", profile.program, profile.pid, host, seconds))


def _write_stats(out, census, target, host, release):
    """Of a process the release is that of its environment; a core file's time is its own."""
    from cairn_fleet import columns  # pylint: disable=import-outside-toplevel
    finder, seen = find.Finder(), census.target
    host, pid, build_id, seconds = host or find.host_name(), None, "", time.time()
    if seen["kind"] == "process":
        pid, build_id = seen["pid"], finder.build_id(seen["pid"])
        release = release or finder.variable(pid, find.RELEASE)
    else:
        seconds = pathlib.Path(target).stat().st_mtime
        release = release or find.own_release()
    who = (columns.instant(seconds), host, pid, seen["program"], build_id, release,
           seen["version"])
    _write(columns.stats_table(census, who),
           _path(out, "stats", seen["program"], pid, host, seconds))


@as_sentences
def profile(
        sources: List[str] = typer.Argument(
            ..., metavar="FILE|PID|CORE...", show_default=False,
            help="Dumps of the profiler, processes or core files. Several are merged."),
        out: pathlib.Path = OUT, host: Optional[str] = HOST, release: Optional[str] = RELEASE,
        symbols: Optional[List[pathlib.Path]] = typer.Option(
            None, "--symbols", metavar="FOLDER", show_default=False,
            help="Look here first for the files that were mapped. May be repeated.")):
    """Write a row for each stack of a profile."""
    _check(out)
    output.check_folders("--symbols", symbols)
    seen = merged(newest([read_any(source) for source in sources]))
    found = Symbols(seen, symbols or ())
    _write_profile(out, seen, found, host, release)
    for remark in found.remarks:
        note(remark)


@as_sentences
def stats(
        target: str = typer.Argument(..., metavar="PID|CORE", show_default=False,
                                     help="A process or a core file."),
        out: pathlib.Path = OUT, host: Optional[str] = HOST, release: Optional[str] = RELEASE):
    """Write one row: the sums of a heap."""
    _check(out)
    _write_stats(out, Census(target), target, host, release)
