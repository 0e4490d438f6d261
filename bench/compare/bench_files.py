"""The places of the benchmark's programs, and their build: packages, CMake, cargo."""

import os
import pathlib
import shutil
import subprocess

from cairn.errors import UserError

# Targets of CMake that a benchmark needs; the micro-benchmarks are built where their library is.
TARGETS = ("cairn-malloc", "cairn-malloc-hardened", "cairn-malloc-hardened-light",
           "cairn-measure", "cairn-probe", "cairn-workloads", "cairn-nothing", "cairn-containers",
           "cairn-replay", "cairn-replay-prepare")
MICRO_TARGETS = ("cairn-bench-libc", "cairn-bench-api")
LOG_TAIL_LINES = 30


def source_directory():
    return pathlib.Path(__file__).resolve().parents[2]


def build_directory():
    """The build that is measured; CAIRN_BUILD in the environment overrides it."""
    override = os.environ.get("CAIRN_BUILD")
    return pathlib.Path(override or source_directory() / "build" / "release").absolute()


def program_path(name):
    """The path of a program of the benchmark after its build."""
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
    """The output of `cairn-workloads --list`, so that the rows are known before its build."""
    return _lines("rows.tsv")


def listed_micro_benchmarks():
    """The output of `cairn-bench-libc --benchmark_list_tests`."""
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
    """Installs missing packages; returns the installer's messages after a failure."""
    result = subprocess.run([str(source_directory() / "dev" / "install-packages"), "bench"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            errors="replace", check=False)
    return result.stderr.strip() if result.returncode != 0 else ""


def build():
    """Builds the targets of the release preset that the benchmark needs."""
    root, directory = source_directory(), build_directory()
    jobs = str(len(os.sched_getaffinity(0)))
    _run(["cmake", "--preset", "release", "-B", str(directory)], "configuring the build", cwd=root)
    targets = list(TARGETS)
    if "CAIRN_BENCH_MICRO:INTERNAL=ON" in (directory / "CMakeCache.txt").read_text():
        targets += MICRO_TARGETS
    _run(["cmake", "--build", str(directory), "-j", jobs, "--target", *targets], "the build",
         cwd=root)


def build_rust():
    """Builds the one row that needs cargo; returns cargo's messages after a failure."""
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
