"""The packages for Rust, Meson and Conan agree with the C sources and CMake: what can be
compared in a moment and without a network. dev/prove-languages builds them."""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
CRATES = PACKAGING / "rust"


def version():
    api = (ROOT / "include/cairn/api.h").read_text()
    return ".".join(re.search(rf"#define CAIRN_VERSION_{part} (\d+)", api).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def words(text):
    return sorted(re.findall(r"[\"']([^\"']+)[\"']", text))


def cmake_layers():
    text = (ROOT / "src/CMakeLists.txt").read_text()
    return sorted(re.search(r"set\(layers ([\w ]+)\)", text).group(1).split())


def cmake_names():
    text = (ROOT / "src/CMakeLists.txt").read_text()
    names = re.search(r"file\(GLOB names CONFIGURE_DEPENDS ([^)]+)\)", text)
    return sorted(names.group(1).split())


def cmake_shared_names():
    text = (ROOT / "src/CMakeLists.txt").read_text()
    return re.findall(r"set\(shared \$\{CMAKE_CURRENT_SOURCE_DIR\}/([^)]+)\)", text)


def cmake_flags():
    text = (ROOT / "cmake/CairnFlags.cmake").read_text()
    part = re.search(r"target_compile_options\(cairn_library_flags INTERFACE([^)]+)\)", text)
    return sorted(part.group(1).split())


class RustTest(unittest.TestCase):
    def setUp(self):
        self.build = (CRATES / "cairn-sys/build.rs").read_text()

    def constant(self, name):
        return words(re.search(rf"const {name}: [^=]+=\s*\[(.*?)\];", self.build, re.S).group(1))

    def test_the_declarations_are_those_of_the_headers(self):
        done = subprocess.run([sys.executable, "-B", ROOT / "dev/rust_bindings.py", "--check"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_bindings_have_what_the_library_exports(self):
        exported = {name for name in (ROOT / "dev/symbols/libcairn").read_text().split()
                    if name.startswith("cairn_")}
        declared = set(re.findall(r"pub fn (cairn_\w+)",
                                  (CRATES / "cairn-sys/src/functions.rs").read_text()))
        without = {name for name in exported if name.endswith("_vprintf")}
        without.add("cairn_thread_stack_head")  # a variable of each thread
        self.assertEqual(exported - without - declared, set())

    def test_the_sources_and_flags_are_those_of_cmake(self):
        self.assertEqual(self.constant("LAYERS"), cmake_layers())
        names = [pathlib.PurePath(name).name for name in cmake_names() + cmake_shared_names()
                 if name.endswith(".c")]
        self.assertEqual(self.constant("NAMES"), sorted(names))
        self.assertEqual([flag for flag in self.constant("FLAGS") if flag != "-pthread"],
                         cmake_flags())

    def test_the_version_is_that_of_the_library(self):
        workspace = (CRATES / "Cargo.toml").read_text()
        self.assertIn(f'\nversion = "{version()}"\n', workspace)
        own = (CRATES / "cairn-alloc/Cargo.toml").read_text()
        self.assertIn(f'cairn-sys = {{ version = "={version()}"', own)
        lock = (CRATES / "Cargo.lock").read_text()
        for crate in ("cairn-sys", "cairn-alloc"):
            self.assertIn(f'name = "{crate}"\nversion = "{version()}"\n', lock)


class BuildSystemsTest(unittest.TestCase):
    def setUp(self):
        self.meson = (PACKAGING / "meson/meson.build").read_text()

    def list_of(self, name):
        return words(re.search(rf"^{name} = \[(.*?)\]", self.meson, re.S | re.M).group(1))

    def test_mesons_sources_and_flags_are_those_of_cmake(self):
        self.assertEqual(self.list_of("layers"), cmake_layers())
        self.assertEqual(self.list_of("names"), cmake_names())
        self.assertEqual(self.list_of("shared_names"), cmake_shared_names())
        self.assertEqual(self.list_of("flags"), cmake_flags())

    def test_mesons_soname_is_that_of_cmake(self):
        text = (ROOT / "cmake/CairnLibraries.cmake").read_text()
        abi = re.search(r"set\(CAIRN_ABI (\d+)\)", text).group(1)
        self.assertIn(f"\nabi = '{abi}'\n", self.meson)

    def test_every_layer_is_a_folder_with_sources(self):
        folders = {path.parent.name for path in (ROOT / "src").rglob("*.c")}
        self.assertEqual(sorted(folders), cmake_layers())
        self.assertEqual({path.parent.parent for path in (ROOT / "src").rglob("*.c")},
                         {ROOT / "src"})

    def test_the_versions_are_that_of_the_library(self):
        wrap = (PACKAGING / "meson/cairn.wrap").read_text()
        self.assertIn(f"directory = cairn-{version()}\n", wrap)
        self.assertIn(f"source_filename = cairn-{version()}.tar.gz\n", wrap)

    def test_the_options_that_the_recipe_sets_are_cmakes(self):
        text = (ROOT / "CMakeLists.txt").read_text()
        known = set(re.findall(r"(?:option|set)\((CAIRN_\w+)", text))
        text = (PACKAGING / "conan/conanfile.py").read_text()
        used = set(re.findall(r"(?:-D|\b)(CAIRN_[A-Z]+(?:_[A-Z]+)*)\b", text))
        self.assertEqual(used - known, set())
        self.assertGreater(len(used), 3)


if __name__ == "__main__":
    unittest.main()
