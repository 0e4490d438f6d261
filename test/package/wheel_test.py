"""The Python package: packed of the build that is there, unpacked elsewhere and used from there,
with nothing of the source tree in reach. pip is not needed."""

import base64
import contextlib
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging" / "python"))
import cairn_build  # pylint: disable=wrong-import-position

BUILD = os.environ["CAIRN_TEST_BUILD"]
START = "import sys; sys.argv[0] = 'cairn'; from cairn.cli import main; main()"
WORK = ("@a = map { 'x' x $_ } 1 .. 3000; $| = 1; print qq(ready\\n); sleep $ARGV[0]")


def pack(directory):
    """Builds the wheel without showing CMake's output, and returns its path."""
    with open(os.devnull, "wb") as nothing, saved_stdout(nothing):
        name = cairn_build.build_wheel(directory, {"build-dir": BUILD})
    return pathlib.Path(directory) / name


@contextlib.contextmanager
def saved_stdout(other):
    kept = os.dup(1)
    os.dup2(other.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def unpack(wheel, directory):
    """As pip does it: programs stay programs."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = pathlib.Path(archive.extract(entry, directory))
            path.chmod(entry.external_attr >> 16 & 0o777)


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        cls.addClassCleanup(folder.cleanup)
        cls.place = pathlib.Path(folder.name)
        cls.wheel = pack(cls.place)
        unpack(cls.wheel, cls.place / "unpacked")

    def cairn(self, *words):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("CAIRN_")}
        environment["PYTHONPATH"] = str(self.place / "unpacked")
        return subprocess.run(["/usr/bin/python3", "-B", "-c", START, *words], cwd=self.place,
                              env=environment, text=True, capture_output=True, timeout=200,
                              check=True).stdout

    def library(self, name="libcairn-malloc.so"):
        return self.place / "unpacked/cairn/native" / name

    def test_the_version(self):
        self.assertEqual(self.cairn("--version").split()[1], self.wheel.name.split("-")[1])

    def test_run_takes_the_libraries_inside(self):
        plain = f"plain={self.library()}"
        said = self.cairn("run", "--rounds", "1", "--warm-up", "0", "--hardened", "--on", plain,
                          "--", "perl", "-e", WORK, "0")
        self.assertIn("Cairn hardened", said)
        self.assertIn("plain", said)

    def test_a_process_is_looked_into(self):
        with subprocess.Popen(["perl", "-e", WORK, "60"], stdout=subprocess.PIPE,
                              env={**os.environ, "LD_PRELOAD": str(self.library())}) as process:
            try:
                process.stdout.readline()
                self.assertIn("live in slabs", self.cairn("inspect", str(process.pid)))
                self.assertIn("allocated", self.cairn("stats", str(process.pid)))
            finally:
                process.kill()

    def test_the_list_of_files_is_true(self):
        with zipfile.ZipFile(self.wheel) as archive:
            record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
            lines = archive.read(record).decode().splitlines()
            self.assertEqual([line.split(",")[0] for line in lines], archive.namelist())
            for line in lines[:-1]:
                name, digest, size = line.split(",")
                data = archive.read(name)
                found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
                self.assertEqual(digest, "sha256=" + found.rstrip("="), name)
                self.assertEqual(int(size), len(data), name)

    def test_the_platform_is_what_the_files_need(self):
        promised = re.search(r"manylinux_2_(\d+)_", self.wheel.name)
        self.assertIsNotNone(promised, self.wheel.name)
        needed = set()
        for path in self.library().parent.iterdir():
            text = subprocess.run(["objdump", "-T", str(path)], text=True, check=True,
                                  stdout=subprocess.PIPE).stdout
            needed |= {int(minor) for minor in re.findall(r"\(GLIBC_2\.(\d+)", text)}
        self.assertEqual(int(promised.group(1)), max(needed))

    def test_a_file_that_needs_more_than_libc_is_not_promised_everywhere(self):
        # pylint: disable=protected-access
        self.assertRegex(cairn_build._platform(["/usr/bin/cmake"]), "^linux_")

    def test_the_same_build_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertEqual(pack(directory).read_bytes(), self.wheel.read_bytes())

    def test_the_source_distribution_has_what_cmake_asks_for(self):
        with tempfile.TemporaryDirectory() as directory:
            name = cairn_build.build_sdist(directory)
            with tarfile.open(pathlib.Path(directory) / name) as archive:
                archive.extractall(directory)
            tree = pathlib.Path(directory) / name[:-len(".tar.gz")]
            subprocess.run(["cmake", "-S", str(tree), "-B", f"{directory}/build",
                            "-DCAIRN_TESTS=OFF", "-DCAIRN_BENCH=OFF", "-DCAIRN_EXAMPLES=OFF"],
                           check=True, stdout=subprocess.DEVNULL)
            for source in ("src", "include", "tools", "cmake"):
                there = {path.relative_to(tree) for path in (tree / source).rglob("*")}
                for path in (ROOT / source).rglob("*.[chp]*"):
                    if "__pycache__" not in path.parts:
                        self.assertIn(path.relative_to(ROOT), there)


if __name__ == "__main__":
    unittest.main()
