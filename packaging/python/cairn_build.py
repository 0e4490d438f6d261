"""The build backend (PEP 517) of the Python package. CMake compiles and installs into a folder, and
this module packs a part of it into a wheel. It needs no network if CMake 3.25 and a C and a C++
compiler are installed.

The wheel contains the Python packages cairn and cairn_fleet; cairn/native, with the stripped
programs and libraries that the command uses; manual pages and shell completion below data/share, if
the build made them.

Settings (pip's --config-settings): build-dir=DIR packs an existing build of CMake.

With SOURCE_DATE_EPOCH, two builds have equal bytes.
"""

import base64
import gzip
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile

try:
    import tomllib
except ModuleNotFoundError:  # Python before 3.11
    import tomli as tomllib

# The top of the source tree, and the parts of it that a source distribution contains.
ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("CHANGELOG.md", "CMakeLists.txt", "LICENSE", "README.md", "cmake", "dev", "docs",
           "examples", "include", "packaging/python", "pyproject.toml", "src", "tools")
LIBRARIES = ("libcairn.so", "libcairn-malloc.so", "libcairn-malloc-hardened.so",
             "libcairn-malloc-hardened-light.so")
# The libraries that we link and that every manylinux platform has.
PROMISED = re.compile(r"^(libc|libm|libdl|libpthread|librt|libgcc_s|ld-linux-[\w-]+)\.so\.\d$")
OLDEST_GLIBC_MINOR = 17  # older versions have no tag with their number


def _project():
    """The table [project] of pyproject.toml, in an exported tree or in the repository."""
    for place in (ROOT, ROOT / "packaging" / "python"):
        if (place / "pyproject.toml").is_file():
            return tomllib.loads((place / "pyproject.toml").read_text())["project"]
    raise FileNotFoundError("pyproject.toml")


def _version():
    text = (ROOT / "include/cairn/api.h").read_text()
    return ".".join(re.search(rf"#define CAIRN_VERSION_{part} (\d+)", text).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def _name():
    return f"{_project()['name'].replace('-', '_')}-{_version()}"


def _extras(groups):
    for name, wanted in groups.items():
        yield f"Provides-Extra: {name}"
        yield from (f"Requires-Dist: {words}; extra == '{name}'" for words in wanted)


def _metadata():
    project = _project()
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {_version()}",
             f"Summary: {project['description']}", f"Author: {project['authors'][0]['name']}",
             f"License: {project['license']['text']}", f"Keywords: {','.join(project['keywords'])}",
             *(f"Classifier: {words}" for words in project["classifiers"]),
             f"Requires-Python: {project['requires-python']}",
             *(f"Requires-Dist: {words}" for words in project["dependencies"]),
             *_extras(project["optional-dependencies"]),
             "Description-Content-Type: text/markdown", "",
             (ROOT / project["readme"]).read_text()]
    return "\n".join(lines)


def _entry_points():
    lines = [f"{name} = {place}" for name, place in _project()["scripts"].items()]
    return "\n".join(["[console_scripts]", *lines, ""])


def _epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))


def _run(*words):
    subprocess.run([str(word) for word in words], check=True)


def _installed(build, prefix):
    """Installs a build into a folder; builds first if there is no build."""
    if not (build / "CMakeCache.txt").is_file():
        _run("cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
             "-DCAIRN_HARDENED_LIBRARIES=ON", "-DCAIRN_WERROR=OFF", "-DCAIRN_TESTS=OFF",
             "-DCAIRN_BENCH=OFF", "-DCAIRN_EXAMPLES=OFF")
        _run("cmake", "--build", build, "--parallel", os.cpu_count() or 1)
    _run("cmake", "--install", build, "--prefix", prefix, "--strip")


def _contents(prefix, version_name):
    """{path within the wheel: file} of the installed files."""
    tools = prefix / "share/cairn"
    found = {str(path.relative_to(tools)): path for pattern in ("*.py", "page/*")
             for path in (tools / "cairn").glob(pattern)}
    found.update({f"cairn/native/{path.name}": path
                  for path in (prefix / "libexec/cairn").iterdir()})
    found.update({f"cairn_fleet/{path.name}": path
                  for path in (tools / "fleet").rglob("*") if path.is_file()})
    for name in LIBRARIES:
        found[f"cairn/native/{name}"] = next(prefix.glob(f"lib*/**/{name}")).resolve()
    for folder in ("man/man1", "man/man7", "bash-completion", "zsh", "fish"):
        for path in (prefix / "share" / folder).rglob("*"):
            if path.is_file():
                found[f"{version_name}.data/data/{path.relative_to(prefix)}"] = path
    return found


def _platform(files):
    """The tag of the system that these ELF files need: manylinux if its platforms have it."""
    machine = platform.machine()
    minors = [OLDEST_GLIBC_MINOR]
    for path in files:
        if shutil.which("readelf") is None:
            return f"linux_{machine}"
        text = subprocess.run(["readelf", "--wide", "--dynamic", "--version-info", str(path)],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
        versions = re.findall(r"Name: GLIBC_2\.(\d+)", text)
        if not all(map(PROMISED.match, needed)) or "GLIBC_PRIVATE" in text or not versions:
            return f"linux_{machine}"
        minors += map(int, versions)
    return f"manylinux_2_{max(minors)}_{machine}"


class _Wheel:
    """A wheel's archive, and the list of its files, which is its last file."""

    def __init__(self, path):
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._date = time.gmtime(max(_epoch(), 315532800))[:6]  # zip dates begin in 1980
        self._record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, self._date)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        self._zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}\n")

    def close(self, record):
        self._record.append(f"{record},,\n")
        self.add(record, "".join(self._record).encode())
        self._zip.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    del metadata_directory
    given = (config_settings or {}).get("build-dir")
    name = _name()
    with tempfile.TemporaryDirectory() as scratch:
        prefix = pathlib.Path(scratch) / "prefix"
        _installed(pathlib.Path(given) if given else pathlib.Path(scratch) / "build", prefix)
        files = _contents(prefix, name)
        tag = f"py3-none-{_platform(path for at, path in files.items() if '/native/' in at)}"
        file_name = f"{name}-{tag}.whl"
        wheel = _Wheel(pathlib.Path(wheel_directory) / file_name)
        for at in sorted(files):
            program = "/native/" in at
            wheel.add(at, files[at].read_bytes(), 0o755 if program else 0o644)
        information = f"{name}.dist-info"
        wheel.add(f"{information}/LICENSE", (ROOT / "LICENSE").read_bytes())
        wheel.add(f"{information}/METADATA", _metadata().encode())
        wheel.add(f"{information}/WHEEL", ("Wheel-Version: 1.0\nGenerator: cairn_build\n"
                                           f"Root-Is-Purelib: false\nTag: {tag}\n").encode())
        wheel.add(f"{information}/entry_points.txt", _entry_points().encode())
        wheel.close(f"{information}/RECORD")
    return file_name


def _is_source(path):
    return path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"


def build_sdist(sdist_directory, config_settings=None):
    del config_settings
    name = _name()
    path = pathlib.Path(sdist_directory) / f"{name}.tar.gz"
    files = {f"{name}/PKG-INFO": (_metadata().encode(), 0o644)}
    for source in SOURCES:
        top = ROOT / source
        for one in filter(_is_source, [top] if top.is_file() else top.rglob("*")):
            mode = 0o755 if one.stat().st_mode & 0o100 else 0o644
            files[f"{name}/{one.relative_to(ROOT)}"] = (one.read_bytes(), mode)
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=_epoch()) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for at in sorted(files):
            data, mode = files[at]
            entry = tarfile.TarInfo(at)
            entry.size, entry.mode, entry.mtime = len(data), mode, _epoch()
            archive.addfile(entry, io.BytesIO(data))
    return path.name


def get_requires_for_build_sdist(config_settings=None):
    del config_settings
    return []


def get_requires_for_build_wheel(config_settings=None):
    """CMake from PyPI if the system has none that is new enough."""
    del config_settings
    cmake = shutil.which("cmake")
    text = subprocess.run([cmake, "--version"], check=True, stdout=subprocess.PIPE,
                          text=True).stdout if cmake else ""
    version = re.search(r"version (\d+)\.(\d+)", text)
    new_enough = version and (int(version.group(1)), int(version.group(2))) >= (3, 25)
    generator = shutil.which("make") or shutil.which("ninja")
    return ([] if new_enough else ["cmake>=3.25"]) + ([] if generator else ["ninja"])
