"""Cairn for Conan 2: `conan create packaging/conan` in the source tree (docs/INSTALL.md)."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

SOURCES = ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*", "tools/*")


class CairnConan(ConanFile):
    name = "cairn"
    description = "Memory allocators for Linux: a general heap and allocators for known lifetimes"
    license = "MIT"
    topics = ("malloc", "allocator", "arena", "tlsf", "persistent-memory")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "hardening": ["off", "light", "full"]}
    default_options = {"shared": False, "hardening": "off"}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        api = load(self, os.path.join(self._root, "include/cairn/api.h"))
        self.version = ".".join(re.search(rf"#define CAIRN_VERSION_{part} (\d+)", api).group(1)
                                for part in ("MAJOR", "MINOR", "PATCH"))

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, self._root, self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("Cairn runs on Linux only")
        if self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("Cairn needs x86-64 or aarch64")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({
            "CAIRN_HARDENING": str(self.options.hardening), "CAIRN_TESTS": False,
            "CAIRN_EXAMPLES": False, "CAIRN_BENCH": False, "CAIRN_WERROR": False,
            "CAIRN_INSTALL": False})
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        form = "" if self.options.shared else "-static"
        for target in ("cairn", "cairn-malloc"):
            cmake.build(target=target + form)

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*", os.path.join(self.source_folder, "include"),
             os.path.join(self.package_folder, "include"))
        pattern = "libcairn*.so*" if self.options.shared else "libcairn*.a"
        copy(self, pattern, self.build_folder, os.path.join(self.package_folder, "lib"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "cairn")
        form = "" if self.options.shared else "-static"
        for component, library in (("cairn", "cairn"), ("malloc", "cairn-malloc")):
            info = self.cpp_info.components[component]
            info.libs = [library]
            info.system_libs = ["pthread"]
            info.set_property("cmake_target_name", f"cairn::{component}")
            info.set_property("cmake_target_aliases", [f"cairn::{component}{form}"]
                              if form else [])
            info.set_property("pkg_config_name", library)
        # A program that names no function of the heap itself must still get the library.
        flags = ["-Wl,-u,malloc", "-Wl,-u,_Znwm"]
        self.cpp_info.components["malloc"].exelinkflags = flags
        self.cpp_info.components["malloc"].sharedlinkflags = flags
