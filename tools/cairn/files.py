"""Where Cairn's own compiled files lie, in a source tree and in an installation."""

import hashlib
import os
import pathlib
import sysconfig

from cairn.errors import UserError

# In the source tree: tools/; installed: PREFIX/share/cairn; of a wheel: site-packages, with the
# compiled files within the package.
PACKAGE = pathlib.Path(__file__).resolve().parent
PACKAGE_PARENT = PACKAGE.parent
IN_WHEEL = PACKAGE / "native"
ABI = 1  # that of cmake/CairnLibraries.cmake, which a test compares
DIGEST_CHUNK_BYTES = 1 << 20


def _directories():
    if PACKAGE_PARENT.name == "tools":
        yield PACKAGE_PARENT.parent / "build" / "release"
    elif IN_WHEEL.is_dir():
        yield IN_WHEEL
    else:
        prefix = PACKAGE_PARENT.parent.parent
        yield prefix / "libexec" / "cairn"
        yield prefix / "lib"
        yield prefix / "lib64"
        # Debian's folder for the libraries of this machine, not of another one beside it.
        multiarch = sysconfig.get_config_var("MULTIARCH")
        if multiarch:
            yield prefix / "lib" / multiarch


def _find(*names, advice="In the source tree, `make build` builds it."):
    """The first of these names that lies in one of the directories."""
    for directory in _directories():
        for name in names:
            if (directory / name).exists():
                return directory / name
    raise UserError(f"{names[0]} is not there; looked in "
                    + ", ".join(str(directory) for directory in _directories()) + f". {advice}")


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


def trace_program():
    """The path of cairn-trace; CAIRN_TRACE in the environment overrides it."""
    override = os.environ.get("CAIRN_TRACE")
    return pathlib.Path(override) if override else _find("cairn-trace")


def replay_program(name):
    """The path of one of the programs of a replay; CAIRN_REPLAY in the environment names the folder
    of all three."""
    override = os.environ.get("CAIRN_REPLAY")
    return pathlib.Path(override) / name if override else _find(name)


def advise_program():
    """The path of cairn-advise; CAIRN_ADVISE in the environment overrides it."""
    override = os.environ.get("CAIRN_ADVISE")
    return pathlib.Path(override) if override else _find("cairn-advise")


def probe_library():
    """The path of the library that tells which malloc serves a process."""
    beside = measure_program().parent / "libcairn-probe.so"
    return beside if beside.exists() else _find("libcairn-probe.so")


def malloc_library(hardened=False):
    """The path of the shared library that replaces malloc. Where there is no compiler there may be
    no name without a version."""
    name = "libcairn-malloc-hardened" if hardened else "libcairn-malloc"
    return _find(f"{name}.so", f"{name}.so.{ABI}",
                 advice="In the source tree, `make build` builds it; Debian's package is "
                        f"{name}{ABI}.")


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
