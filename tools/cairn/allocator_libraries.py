"""The allocators that a benchmark compares: the system's, Cairn's builds and the peers."""

import pathlib
import subprocess
from dataclasses import dataclass
from typing import Optional

from cairn import files, measure, probe
from cairn.errors import UserError

SYSTEM = "system"
OURS = "cairn"
API = "cairn-api"  # Cairn's own names instead of libc's; for the micro-benchmarks only

BUILDS = {
    OURS: "libcairn-malloc.so",
    OURS + "-hardened": "libcairn-malloc-hardened.so",
    OURS + "-hardened-light": "libcairn-malloc-hardened-light.so",
}
BY_NAME_ONLY = {OURS + "-hardened-light"}

# name, file, Debian package
PACKAGED = (
    ("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    ("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
    ("tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
)
LIBRARY_DIRECTORIES = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


@dataclass(frozen=True)
class Allocator:
    name: str
    library: Optional[pathlib.Path]  # the preloaded library; None: none
    version: str = ""
    setting: str = ""  # NAME=VALUE for the environment of programs

    @property
    def is_ours(self):
        """Whether it is Cairn's. Cairn's allocators are compared with the best peer, and are no
        peers."""
        return self.name.startswith(OURS)


def _command_output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False,
                              errors="surrogateescape").stdout.strip()
    except OSError:
        return ""


def package_version(package):
    return _command_output("dpkg-query", "-W", "-f", "${Version}", package)


def fingerprint(path):
    with path.open("rb") as file:
        return "sha256 " + files.digest(file).hexdigest()[:12]


def find_file(name):
    for pattern in LIBRARY_DIRECTORIES:
        for directory in sorted(pathlib.Path("/").glob(pattern.lstrip("/"))):
            if (directory / name).exists():
                return directory / name
    return None


def _parse_peer(text):
    name, separator, path = text.partition("=")
    name, _, version = name.partition("@")
    if not separator or not name or not path:
        raise UserError(f"--peer {text}: write NAME=/path/library.so or NAME@VERSION=/path")
    if name.startswith(OURS) or name == SYSTEM:
        raise UserError(f"--peer {text}: the name {name} is taken")
    library = pathlib.Path(path).resolve()
    if not library.is_file():
        raise UserError(f"--peer {text}: no such file")
    return Allocator(name, library, f"{version} {fingerprint(library)}".lstrip())


def read_peers(path):
    """The peers of a file, as --peer has them: a line has the name, the version and the library."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise UserError(f"--peers {path}: {error.strerror}") from None
    words = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    if any(len(each) != 3 for each in words):
        raise UserError(f"--peers {path}: a line has a name, a version and a library")
    return [f"{name}@{version}={library}" for name, version, library in words]


def _is_replaced(name, peers):
    """Whether a peer, such as mimalloc3, takes the place of the packaged allocator."""
    return any(text.startswith(name) for text in peers)


def libc_version():
    return _command_output("getconf", "GNU_LIBC_VERSION")


def find_all(build, commit, peers):
    """Returns all allocators of this machine in a fixed order, and sentences about those not found.
    """
    found = [Allocator(SYSTEM, None, libc_version())]
    missing = []
    for name, file in BUILDS.items():
        library = build / file
        if library.exists():
            found.append(Allocator(name, library.resolve(), commit))
        else:
            missing.append(f"{name}: {library} is not built")
    for name, file, package in PACKAGED:
        library = find_file(file)
        if _is_replaced(name, peers):
            continue
        if library:
            found.append(Allocator(name, library, package_version(package)))
        else:
            missing.append(f"{name}: {file} is not installed (Debian package {package})")
    for text in peers:
        found.append(_parse_peer(text))
    return found, missing


def check_names(names, peers):
    """Refuses names that cannot exist whatever is installed or built."""
    known = {SYSTEM, *BUILDS,
             *(name for name, _, _ in PACKAGED if not _is_replaced(name, peers))}
    for text in peers:
        peer = _parse_peer(text)
        if peer.name in known:
            raise UserError(f"--peer {text}: the name {peer.name} is taken; choose another one")
        known.add(peer.name)
    _check_known(names, known)


def _check_known(names, known):
    for name in names:
        if name not in known:
            raise UserError(f"--allocators: {name}: no such allocator; choose from "
                            + ", ".join(sorted(known)))


def choose(found, names):
    """The allocators with these names, or the usual ones, in the order of `found`."""
    _check_known(names, {allocator.name for allocator in found})
    return [allocator for allocator in found
            if allocator.name in (names or {each.name for each in found} - BY_NAME_ONLY)]


def check_in_effect(allocators):
    """Refuses a library that does not load or has no malloc: otherwise another malloc would be
    measured."""
    for allocator in allocators:
        if allocator.library:
            measure.check_loads(allocator.library)
            owner = probe.malloc_of(allocator.library)
            if not owner or not pathlib.Path(owner).samefile(allocator.library):
                raise UserError(f"{allocator.name}: malloc came from {owner} instead of "
                                f"{allocator.library}")
