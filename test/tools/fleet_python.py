"""For tests that need libraries from PyPI: they run in the Python that dev/fleet-python makes."""

import importlib.util
import os
import pathlib
import sys

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
FOLDER = pathlib.Path(os.environ.get("CAIRN_FLEET_PYTHON") or CACHE / "cairn" / "fleet-python")


def _is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def enter(*modules):
    """Restarts in that Python if this one lacks a module. Returns the reason to skip, or None."""
    lacking = [name for name in modules if not _is_there(name)]
    if not lacking:
        return None
    other = FOLDER / "bin" / "python3"
    if other.exists() and pathlib.Path(sys.prefix) != FOLDER:
        os.execv(other, [str(other), "-B", *sys.argv])
    reason = f"{', '.join(lacking)} is not installed: dev/fleet-python does it"
    print(f"skipped: {reason}", flush=True)
    return reason
