"""Finds Cairn's own compiled files, in a source tree and in an installation."""

import functools
import hashlib
import os
import pathlib
import sysconfig

from cairn.errors import UserError

# In the source tree: tools/; installed: PREFIX/share/cairn; from a wheel: site-packages, with the
# compiled files inside the package.
PACKAGE = pathlib.Path(__file__).resolve().parent
PACKAGE_PARENT = PACKAGE.parent
IN_WHEEL = PACKAGE / "native"
IN_SOURCE_TREE = PACKAGE_PARENT.name == "tools"
ABI = 1  # as in cmake/CairnLibraries.cmake; a test compares them
DIGEST_CHUNK_BYTES = 1 << 20


def _directories():
    build = os.environ.get("CAIRN_BUILD")
    if build:  # a build folder, in place of what follows
        yield pathlib.Path(build).absolute()
    elif IN_SOURCE_TREE:
        yield PACKAGE_PARENT.parent / "build" / "release"
    elif IN_WHEEL.is_dir():
        yield IN_WHEEL
    else:
        prefix = PACKAGE_PARENT.parent.parent
        yield prefix / "libexec" / "cairn"
        yield prefix / "lib"
        yield prefix / "lib64"
        # Debian's folder for the libraries of this architecture, not another one's.
        multiarch = sysconfig.get_config_var("MULTIARCH")
        if multiarch:
            yield prefix / "lib" / multiarch


def _find(*names, advice="In the source tree, `make build` builds it."):
    """The first of these names that exists in one of the directories."""
    for directory in _directories():
        for name in names:
            if (directory / name).exists():
                return directory / name
    raise UserError(f"{names[0]} not found; looked in "
                    + ", ".join(str(directory) for directory in _directories()) + f". {advice}")


def program(name):
    """The path of one of the programs that this tool runs."""
    return _find(name)


def probe_library():
    """The path of the library that records which malloc serves a process."""
    return _find("libcairn-probe.so")


def malloc_library(hardened=False):
    """The path of the shared library that replaces malloc. Without development files there may be
    only the name with a version."""
    name = "libcairn-malloc-hardened" if hardened else "libcairn-malloc"
    return _find(f"{name}.so", f"{name}.so.{ABI}",
                 advice="In the source tree, `make build` builds it; Debian's package is "
                        f"{name}{ABI}.")


def preloaded_library(lib, hardened=False):
    """The library of --lib, the one of --hardened, or the default one."""
    if lib and hardened:
        raise UserError("--lib and --hardened cannot be combined")
    library = (lib or malloc_library(hardened)).resolve()
    if not library.is_file():
        raise UserError(f"--lib {lib or library}: no such file")
    return library


def allocator_library():
    """The path of the shared library with Cairn's other allocators, which leaves malloc alone."""
    return _find("libcairn.so", f"libcairn.so.{ABI}",
                 advice="In the source tree, `make build` builds it; Debian's package is "
                        f"libcairn{ABI}.")


@functools.cache
def has_allocators(library):
    """Whether a shared library has Cairn's other allocators."""
    return b"\0cairn_private_heap_new\0" in pathlib.Path(library).read_bytes()


def digest(file):
    """The SHA-256 of an open binary file, from its start."""
    file.seek(0)
    total = hashlib.sha256()
    while chunk := file.read(DIGEST_CHUNK_BYTES):
        total.update(chunk)
    return total
