"""The Debian packages, as far as a build without dpkg-buildpackage can say: what they are made of
is compared with what `cmake --install` puts into a prefix, and with the libraries."""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "dev"), str(ROOT / "tools")]
# pylint: disable=wrong-import-position
import debian_symbols
from cairn import VERSION, files

BUILD = pathlib.Path(os.environ["CAIRN_TEST_BUILD"])
PREFIX = pathlib.Path(os.environ["CAIRN_TEST_PREFIX"])
DEBIAN = ROOT / "packaging" / "debian"
# Debian's folders, which debhelper and debian/rules choose, by those of a plain installation.
FOLDERS = ((r"^lib(64)?/", "lib/ARCHITECTURE/"),
           (r"/zsh/site-functions/", "/zsh/vendor-completions/"))
# Files that are made only if lowdown and typer are installed.
OPTIONAL = ("usr/share/man/man1", "usr/share/man/man7", "usr/share/zsh", "usr/share/fish",
            "usr/share/bash-completion")


def installed():
    """The files of a plain installation, by the names that they have in a Debian system."""
    for path in sorted(PREFIX.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        name = str(path.relative_to(PREFIX))
        for pattern, folder in FOLDERS:
            name = re.sub(pattern, folder, name)
        yield f"usr/{name}"


def patterns():
    """(package, pattern) of each line of the .install files; None and that of not-installed."""
    for path in [*sorted(DEBIAN.glob("*.install")), DEBIAN / "not-installed"]:
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                yield (None if path.name == "not-installed" else path.stem), line


def matches(name, pattern):
    """As dh_install reads it: a * stays within a folder, a folder means all in it."""
    names, wanted = name.split("/"), pattern.split("/")
    return len(names) >= len(wanted) and all(map(fnmatch.fnmatchcase, names, wanted))


class DebianTest(unittest.TestCase):
    def test_every_installed_file_is_in_exactly_one_package(self):
        lines, names = list(patterns()), list(installed())
        self.assertGreater(len(names), 100)
        for name in names:
            owners = [package for package, pattern in lines if matches(name, pattern)]
            self.assertEqual(len(owners), 1, f"{name}: {owners}")

    def test_every_line_of_a_package_finds_files(self):
        names = list(installed())
        for package, pattern in patterns():
            found = any(matches(name, pattern) for name in names)
            self.assertTrue(found or pattern in OPTIONAL, f"{package}: {pattern}")

    def test_packages_that_are_described_are_those_with_files(self):
        described = set(re.findall(r"^Package: (.*)$", (DEBIAN / "control").read_text(), re.M))
        self.assertEqual(described, {package for package, _ in patterns() if package})

    def test_symbols_are_those_of_the_libraries(self):
        for package in debian_symbols.LIBRARIES:
            self.assertEqual(list(debian_symbols.differences(package, BUILD)), [])

    def test_every_shared_library_has_its_symbols_listed(self):
        known = {name for names in debian_symbols.LIBRARIES.values() for name in names}
        built = {path.stem for path in PREFIX.glob("lib*/**/lib*.so") if path.is_symlink()}
        self.assertEqual(built, known)

    def test_a_symbol_that_is_new_or_gone_is_found(self):
        listed = debian_symbols.listed
        self.addCleanup(setattr, debian_symbols, "listed", listed)

        def other(package):
            libraries = listed(package)
            names = libraries["libcairn-malloc.so.1"]
            names["cairn_gone@Base"] = names.pop("malloc@Base", None) or names.popitem()[1]
            return libraries
        debian_symbols.listed = other
        found = list(debian_symbols.differences("libcairn-malloc1", BUILD))
        self.assertEqual(len(found), 2, found)

    def test_versions_agree(self):
        changelog = (DEBIAN / "changelog").read_text()
        self.assertRegex(changelog, rf"^cairn \({re.escape(VERSION)}-")
        self.assertEqual(debian_symbols.upstream_version(), VERSION)

    def test_the_number_of_the_binary_interface_is_one(self):
        text = (ROOT / "cmake" / "CairnLibraries.cmake").read_text()
        number = re.search(r"set\(CAIRN_ABI (\d+)\)", text).group(1)
        self.assertEqual(number, str(files.ABI))
        for package, names in debian_symbols.LIBRARIES.items():
            self.assertTrue(package.endswith(number), package)
            for name in names:
                self.assertEqual(debian_symbols.soname(BUILD / f"{name}.so"), f"{name}.so.{number}")

    def test_the_tool_takes_the_library_of_this_machine(self):
        # It has only the name with the number there, and other machines' folders come first.
        multiarch = sysconfig.get_config_var("MULTIARCH")
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder)
            shutil.copytree(PREFIX / "share/cairn", prefix / "share/cairn")
            for name in (multiarch, "aaa-linux-gnu"):
                (prefix / "lib" / name).mkdir(parents=True)
                (prefix / "lib" / name / f"libcairn-malloc.so.{files.ABI}").touch()
            question = ("from cairn import errors, files; print(files.malloc_library())\n"
                        "try: files.malloc_library(hardened=True)\n"
                        "except errors.UserError as error: print(error)")
            said = subprocess.run(["/usr/bin/python3", "-B", "-c", question], text=True, check=True,
                                  env={**os.environ, "PYTHONPATH": str(prefix / "share/cairn")},
                                  stdout=subprocess.PIPE).stdout.splitlines()
            self.assertEqual(said[0], str(prefix / "lib" / multiarch / "libcairn-malloc.so.1"))
            self.assertIn("libcairn-malloc-hardened1", said[1])


if __name__ == "__main__":
    unittest.main()
