"""gcc and clang compile GoogleTest and a large part of the standard library, link with link-time
optimisation, and must write the same bytes as on the system's malloc.

A compiler that depends on addresses, or reads memory that it has not written, would fail here.
"""

import preload
from preload import CAIRN, HERE, SYSTEM

GOOGLETEST = "/usr/src/googletest/googletest"


class CompilerTest(preload.RealProgramTest):
    def build(self, argv, output, allocator, **options):
        """Builds in one directory under the same names, since the output contains paths."""
        path = self.directory / output
        self.run_program([*argv, "-o", output], allocator, **options)
        data = path.read_bytes()
        path.unlink()
        return data

    def compare(self, argv, output, expect_programs):
        expected = self.build(argv, output, SYSTEM)
        actual = self.build(argv, output, CAIRN, expect_programs=expect_programs)
        self.assertGreater(len(expected), 10_000)
        self.assertTrue(actual == expected, f"{output} differs from the system malloc's")
        return actual

    def compare_googletest(self, compiler, expect_programs=()):
        source = self.need_file(f"{GOOGLETEST}/src/gtest-all.cc", "googletest")
        self.compare([compiler, "-std=c++17", "-O1", "-g", "-c", f"-I{GOOGLETEST}",
                      f"-I{GOOGLETEST}/include", source], "gtest.o", expect_programs)

    def compare_program(self, compiler, options, expect_programs):
        program = self.compare([compiler, "-std=c++17", "-O1", "-pthread", "-frandom-seed=1",
                                *options, HERE / "compilers_work.cc"], "work", expect_programs)
        path = self.directory / "built"
        path.write_bytes(program)
        path.chmod(0o755)
        expected, actual = self.run_on_both([path])
        self.assertRegex(actual.text, "^([0-9a-f]{16}[ \n]){4}$")
        self.assertEqual(actual.text, expected.text)


class GccTest(CompilerTest):
    def setUp(self):
        super().setUp()
        self.compiler = self.need("g++", "g++")

    def test_googletest_object_has_the_same_bytes(self):
        self.compare_googletest(self.compiler, ["cc1plus", "as"])

    def test_program_has_the_same_bytes(self):
        self.compare_program(self.compiler, ["-flto=2"],
                             ["cc1plus", "lto-wrapper", "lto1", "as", "collect2", "ld"])


class ClangTest(CompilerTest):
    def setUp(self):
        super().setUp()
        self.compiler = self.need("clang++", "clang")
        self.need("ld.lld", "lld")

    def test_googletest_object_has_the_same_bytes(self):
        self.compare_googletest(self.compiler)

    def test_program_has_the_same_bytes(self):
        self.compare_program(self.compiler, ["-flto=thin", "-fuse-ld=lld"], ["ld.lld"])


if __name__ == "__main__":
    preload.main()
