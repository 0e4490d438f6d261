"""Every public header compiles alone, without a warning, in each language that it is for and with
each compiler of this machine that the project supports; and the names can be opted out of."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted(path.name for path in (ROOT / "include/cairn").glob("*.h"))
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wundef", "-Werror"]
C_STANDARDS = ("c11", "c17", "c2x")
CXX_STANDARDS = ("c++17", "c++20")
EXAMPLE = re.compile(r"^(?: \*|//) Example:\n((?:(?: \*|//)(?:     .*)?\n)+)", re.M)
CXX_MODES = ([], ["-fno-exceptions", "-fno-rtti"])


def compilers(own, *others):
    """The one that builds the project, and the first of the others that is there."""
    found = [os.environ.get("CC" if own == "cc" else "CXX", own)]
    return found + [other for other in others if shutil.which(other)][:1]


def compile_text(command, language, text):
    done = subprocess.run([*command, *WARNINGS, "-fsyntax-only", f"-I{ROOT / 'include'}",
                           f"-x{language}", "-"],
                          input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


class HeadersTest(unittest.TestCase):
    def setUp(self):
        self.jobs = []

    def expect_clean(self, command, language, text):
        """Noted here; done, some at a time, and judged by judge()."""
        self.jobs.append((command, language, text))

    def judge(self):
        self.assertGreater(len(self.jobs), 0)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(lambda job: compile_text(*job), self.jobs))
        for (command, _, text), result in zip(self.jobs, results):
            with self.subTest(" ".join(command), text=text.splitlines()[0]):
                self.assertEqual(result, (0, ""))

    def test_each_header_alone_in_c(self):
        for compiler in compilers("cc", "clang-19", "clang", "clang-14"):
            for standard in C_STANDARDS:
                for header in HEADERS:
                    self.expect_clean([compiler, f"-std={standard}"], "c",
                                      f"#include <cairn/{header}>\nint own;\n")
        self.judge()

    def test_each_header_alone_in_cplusplus(self):
        everything = "".join(f"#include <cairn/{header}>\n" for header in HEADERS)
        for compiler in compilers("c++", "clang++-19", "clang++", "clang++-14"):
            for header in HEADERS:
                self.expect_clean([compiler, "-std=c++17"], "c++", f"#include <cairn/{header}>\n")
            self.expect_clean([compiler, "-std=c++20"], "c++", everything)
        self.judge()

    def test_the_example_of_each_header(self):
        """The code under "Example:" in the introduction of each header that programs include."""
        for path in sorted((ROOT / "include/cairn").glob("*.h*")):
            found = EXAMPLE.search(path.read_text().split("\n#ifndef")[0])
            if not found:
                self.assertEqual(path.name, "persist_containers.hpp")
                continue
            code = re.sub(r"^(?: \*|//) ?(?:    )?", "", found.group(1), flags=re.M)
            self.assertIn(f"#include <cairn/{path.name}>\n", code)
            language, own, standard = (("c", "cc", "c17") if path.suffix == ".h" else
                                       ("c++", "c++", "c++17"))
            for compiler in compilers(own, *(f"clang{'++' * (own != 'cc')}{version}"
                                             for version in ("-19", "", "-14"))):
                self.expect_clean([compiler, f"-std={standard}"], language, code)
        self.judge()

    def test_cairn_hpp(self):
        text = (ROOT / "test/headers/uses.cc").read_text()
        self.expect_clean([compilers("c++")[0], "-std=c++17"], "c++",
                          "#include <cairn/containers.hpp>\ncairn::allocator<int> *allocator;\n")
        self.expect_clean([compilers("c++")[0], "-std=c++17"], "c++",
                          "#include <cairn/offset_ptr.hpp>\ncairn::offset_ptr<int> pointer;\n")
        self.expect_clean([compilers("c++")[0], "-std=c++17"], "c++",
                          "#include <cairn/persist.hpp>\ncairn::persistent_heap heap;\n")
        for compiler in compilers("c++", "clang++-19", "clang++", "clang++-14"):
            for standard in CXX_STANDARDS:
                for mode in CXX_MODES:
                    self.expect_clean([compiler, f"-std={standard}", *mode], "c++", text)
        self.judge()

    def test_containers_with_plain_pointers_do_not_compile_in_a_heap_that_moves(self):
        told = ("forward_list<int, X<int>>", "vector<bool, X<bool>>",
                "unordered_set<int, std::hash<int>, std::equal_to<int>, X<int>>")
        untold = ("list<int, X<int>>", "set<int, std::less<int>, X<int>>")
        command = [compilers("c++")[0], "-std=c++17"]

        def compile_copy(container, allocator):
            text = (f"#include <cairn/persist.hpp>\n#include <{container.split('<')[0]}>\n"
                    f"template <class T> using X = cairn::{allocator}<T>;\n"
                    f"void copy(const std::{container} &from)\n"
                    f"{{ std::{container} other(from); }}\n")
            return compile_text(command, "c++", text)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            good = pool.submit(compile_copy, told[0], "fixed_allocator")
            results = list(pool.map(lambda container: compile_copy(container,
                                                                   "persistent_allocator"),
                                    told + untold))
        self.assertEqual(good.result(), (0, ""))
        for container, (code, output) in zip(told + untold, results):
            with self.subTest(container):
                self.assertNotEqual(code, 0)
                if container in told:
                    self.assertIn("holds plain pointers: cairn::fixed_allocator", output)

    def test_the_short_names_are_optional(self):
        mine = "".join(f"struct t_{name};\nint t_{name};\n" for name in
                       ("push", "pop", "alloc", "new", "dup", "strdup", "printf", "scope", "defer"))
        text = "#define CAIRN_NO_SHORT_NAMES\n#include <cairn/scope.h>\n" + mine + """
        char *cairn_scope_twice(const char *text)
        {
            return cairn_scope_printf("%s%s", text, text);
        }
        int main(void)
        {
            CAIRN_SCOPE;
            int *numbers = cairn_scope_new_zero(int, 10);
            return numbers != 0 && cairn_scope_twice("x") != 0 ? numbers[9] : 1;
        }
        """
        code, output = compile_text([compilers("cc")[0], "-std=c17"], "c", text)
        self.assertEqual((code, output), (0, ""))

    def test_no_t_name_without_its_long_one(self):
        text = (ROOT / "include/cairn/scope.h").read_text()
        short = set(re.findall(r"\bt_([a-z_]+)\(", text.split("#ifndef CAIRN_NO_SHORT_NAMES")[1]))
        self.assertGreaterEqual(len(short), 15)
        for name in short:
            self.assertIn(f"cairn_scope_{name}(", text)


if __name__ == "__main__":
    unittest.main()
