"""Where Cairn's own compiled files lie, in a source tree and in an installation."""

import hashlib
import os
import pathlib

from cairn.errors import UserError

# In the source tree: tools/; installed: PREFIX/share/cairn.
PACKAGE_PARENT = pathlib.Path(__file__).resolve().parent.parent
DIGEST_CHUNK_BYTES = 1 << 20


def _directories():
    if PACKAGE_PARENT.name == "tools":
        yield PACKAGE_PARENT.parent / "build" / "release"
    else:
        prefix = PACKAGE_PARENT.parent.parent
        yield prefix / "libexec" / "cairn"
        yield prefix / "lib"
        yield prefix / "lib64"
        yield from sorted((prefix / "lib").glob("*-linux-gnu"))


def _find(name):
    for directory in _directories():
        if (directory / name).exists():
            return directory / name
    raise UserError(f"{name} is not there; looked in "
                    + ", ".join(str(directory) for directory in _directories())
                    + ". In the source tree, `make build` builds it.")


def measure_program():
    """The path of cairn-measure; CAIRN_MEASURE in the environment overrides it."""
    override = os.environ.get("CAIRN_MEASURE")
    return pathlib.Path(override) if override else _find("cairn-measure")


def persist_program():
    """The path of cairn-persist; CAIRN_PERSIST in the environment overrides it."""
    override = os.environ.get("CAIRN_PERSIST")
    return pathlib.Path(override) if override else _find("cairn-persist")


def look_program():
    """The path of cairn-look; CAIRN_LOOK in the environment overrides it."""
    override = os.environ.get("CAIRN_LOOK")
    return pathlib.Path(override) if override else _find("cairn-look")


def probe_library():
    """The path of the library that tells which malloc serves a process."""
    beside = measure_program().parent / "libcairn-probe.so"
    return beside if beside.exists() else _find("libcairn-probe.so")


def malloc_library(hardened=False):
    """The path of the shared library that replaces malloc."""
    return _find("libcairn-malloc-hardened.so" if hardened else "libcairn-malloc.so")


def built_program(name):
    """A program that a build makes beside its libraries."""
    return _find(name)


def digest(file):
    """The SHA-256 of an open binary file, from its start."""
    file.seek(0)
    total = hashlib.sha256()
    while chunk := file.read(DIGEST_CHUNK_BYTES):
        total.update(chunk)
    return total
