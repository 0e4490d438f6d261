"""Where the benchmark's programs lie, and how they come to be: packages, CMake, cargo."""

import os
import pathlib
import shutil
import subprocess

from cairn.errors import UserError
from cairn.files import PACKAGE_PARENT

# Targets of CMake that a benchmark needs; the micro-benchmarks are built where their library is.
TARGETS = ("cairn-malloc", "cairn-malloc-hardened", "cairn-malloc-hardened-light",
           "cairn-measure", "cairn-probe", "cairn-workloads", "cairn-nothing", "cairn-containers",
           "cairn-replay", "cairn-replay-prepare")
MICRO_TARGETS = ("cairn-bench-libc", "cairn-bench-api")
LOG_TAIL_LINES = 30


def source_directory():
    """The root of the source tree that the tool runs from."""
    root = PACKAGE_PARENT.parent
    if not (root / "bench" / "CMakeLists.txt").exists():
        raise UserError("the benchmark runs from Cairn's source tree only: its programs are not "
                        "installed")
    return root


def build_directory():
    """The build that is measured; CAIRN_BUILD in the environment overrides it."""
    override = os.environ.get("CAIRN_BUILD")
    return pathlib.Path(override) if override else source_directory() / "build" / "release"


def program_path(name):
    """Where a program of the benchmark lies when it is built."""
    return build_directory() / "bench" / name


def program(name):
    path = program_path(name)
    if not path.exists():
        raise UserError(f"{path} is not built")
    return path


def rust_program():
    return program_path("rust") / "release" / "cairn-collections"


def _lines(name):
    return (source_directory() / "bench" / name).read_text(encoding="utf-8").splitlines()


def listed_rows():
    """What `cairn-workloads --list` prints, so that the rows are known before it is built."""
    return _lines("rows.tsv")


def listed_micro_benchmarks():
    """What `cairn-bench-libc --benchmark_list_tests` prints."""
    return _lines("micro.txt")


def _run(command, what, **options):
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, errors="replace", check=False, **options)
    except FileNotFoundError:
        raise UserError(f"{what}: {command[0]} is not installed") from None
    if result.returncode != 0:
        tail = "\n".join(result.stdout.splitlines()[-LOG_TAIL_LINES:])
        raise UserError(f"{what} failed ({' '.join(map(str, command))}):\n{tail}")


def install_packages():
    """Installs what is missing; returns what the installer said where it could not."""
    result = subprocess.run([str(source_directory() / "dev" / "install-packages"), "bench"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            errors="replace", check=False)
    return result.stderr.strip() if result.returncode != 0 else ""


def build():
    """Builds the release preset's part that the benchmark needs."""
    root, directory = source_directory(), build_directory()
    jobs = str(len(os.sched_getaffinity(0)))
    _run(["cmake", "--preset", "release", "-B", str(directory)], "configuring the build", cwd=root)
    targets = list(TARGETS)
    if "CAIRN_BENCH_MICRO:INTERNAL=ON" in (directory / "CMakeCache.txt").read_text():
        targets += MICRO_TARGETS
    _run(["cmake", "--build", str(directory), "-j", jobs, "--target", *targets], "the build",
         cwd=root)


def build_rust():
    """Builds the one row that needs cargo; returns what it said where it could not."""
    if not shutil.which("cargo"):
        return ""
    manifest = source_directory() / "bench" / "rust" / "Cargo.toml"
    try:
        _run(["cargo", "build", "--release", "--offline", "--manifest-path", str(manifest)],
             "cargo", env={**os.environ,
                           "CARGO_TARGET_DIR": str(build_directory() / "bench" / "rust")})
    except UserError as error:
        return str(error)
    return ""
