"""Facts about the machine, the build and the versions that a result belongs to."""

import contextlib
import datetime
import mmap
import os
import pathlib
import platform
import re
import shutil
import subprocess

import bench_files


def _output(*command, cwd=None):
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    except OSError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def _first_line(*command):
    return _output(*command).partition("\n")[0]


def _read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def touch_memory(mib):
    """Writes to new memory of this size and frees it: in huge pages, then in small ones.

    The kernel takes small pages from pieces of free memory that are shorter than a huge page. In
    huge pages alone these stay cold: afterwards 64 MiB in small pages took 3 to 30 times as long.
    """
    for advice in (mmap.MADV_HUGEPAGE, mmap.MADV_NOHUGEPAGE) if mib else ():
        with mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            with contextlib.suppress(OSError):  # a kernel without huge pages
                memory.madvise(advice)
            for at in range(0, len(memory), mmap.PAGESIZE):
                memory[at] = 1


def commit():
    """The commit of the source tree, marked where tracked files differ from it."""
    root = bench_files.source_directory()
    name = _output("git", "rev-parse", "--short=12", "HEAD", cwd=root)
    if not name:
        return "unknown"
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", cwd=root)
    return name + (" with changes" if changed else "")


def available_mib():
    match = re.search(r"^MemAvailable:\s+(\d+)", _read("/proc/meminfo"), re.M)
    return int(match.group(1)) // 1024 if match else 0


def _processor():
    match = re.search(r"^model name\s*:\s*(.*)$", _read("/proc/cpuinfo"), re.M)
    return match.group(1) if match else platform.machine()


def _compiler():
    cache = _read(bench_files.build_directory() / "CMakeCache.txt")
    match = re.search(r"^CMAKE_C_COMPILER:\w+=(.*)$", cache, re.M)
    return _first_line(match.group(1), "--version") if match else ""


def _build_options():
    cache = _read(bench_files.build_directory() / "CMakeCache.txt")
    keys = ("CMAKE_BUILD_TYPE", "CAIRN_NATIVE", "CMAKE_C_FLAGS", "CMAKE_C_FLAGS_RELEASE")
    found = {key: value for key, value in re.findall(r"^(\w+):\w+=(.*)$", cache, re.M)}
    return " ".join(f"{key}={found[key]}" for key in keys if found.get(key))


def _system():
    match = re.search(r"^PRETTY_NAME=[\"']?(.*?)[\"']?$", _read("/etc/os-release"), re.M)
    return match.group(1) if match else ""


# The commands that print the versions of the programs that are rows.
VERSIONS = {
    "redis": ("redis-server", "--version"),
    "ruby": ("ruby", "--version"),
    "postgres": ("psql", "--version"),
    "nginx": ("sh", "-c", "PATH=$PATH:/usr/sbin nginx -v 2>&1"),
    "sqlite3": ("sqlite3", "--version"),
    "python3": ("/usr/bin/python3", "--version"),
    "perl": ("/usr/bin/perl", "-e", "print $^V"),
    "lua": ("/usr/bin/lua5.4", "-v"),
    "node": ("node", "--version"),
    "git": ("git", "--version"),
    "g++": ("g++", "--version"),
    "clang++": ("clang++", "--version"),
}


def facts():
    """The facts to write with the results, in order, without those that the machine hides."""
    total = re.search(r"^MemTotal:\s+(\d+)", _read("/proc/meminfo"), re.M)
    told = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "processor": _processor(),
        "processors": str(len(os.sched_getaffinity(0))),
        "virtual machine": _output("systemd-detect-virt", "--vm"),
        "memory": f"{int(total.group(1)) / 2**20:.1f} GiB" if total else "",
        "page size": str(os.sysconf("SC_PAGE_SIZE")),
        "huge pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "overcommit": _read("/proc/sys/vm/overcommit_memory"),
        "kernel": platform.release(),
        "system": _system(),
        "libc": _output("getconf", "GNU_LIBC_VERSION"),
        "compiler": _compiler(),
        "build": _build_options(),
        "rustc": _first_line("rustc", "--version") if shutil.which("rustc") else "",
        **{name: _first_line(*command) for name, command in VERSIONS.items()},
        "load at start": " ".join(_read("/proc/loadavg").split()[:3]),
    }
    return {key: value for key, value in told.items() if value}
