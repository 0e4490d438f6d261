"""dev/check_rules.py on small trees, each with one fault."""

import pathlib
import tempfile
import unittest

import dev_path  # noqa: F401
from check_rules import Checker, c_functions


def check(files):
    """The findings in a tree of the given files, without the place's directory."""
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Checker(root).check()


class LayersTest(unittest.TestCase):
    def test_lower_layers_through_their_header(self):
        self.assertEqual(check({"src/heap/x.h": '#include "page/page.h"\n#include "base/bits.h"\n'
                                                '#include "heap/y.h"\n#include "cairn/heap.h"\n'
                                                "#include <stddef.h>\n"}), [])

    def test_higher_layer(self):
        self.assertEqual(check({"src/page/x.h": '\n#include "heap/heap.h"\n'}),
                         ["src/page/x.h:2: layers: page (rank 2) includes heap/heap.h (rank 3)"])

    def test_sibling(self):
        self.assertEqual(len(check({"src/frame/x.h": '#include "region/region.h"\n'})), 1)

    def test_private_header(self):
        self.assertEqual(check({"src/heap/x.h": '#include "page/span.h"\n'}),
                         ["src/heap/x.h:1: layers: page/span.h is private to its layer; "
                          "include page/page.h"])

    def test_open_header(self):
        self.assertEqual(check({"src/front/x.h": '#include "heap/fast.h"\n'}), [])

    def test_public_header(self):
        self.assertEqual(len(check({"include/cairn/x.h": '#include "base/bits.h"\n'})), 1)

    def test_unknown_layer(self):
        self.assertEqual(
            check({"src/misc/x.h": ""}), ["src/misc/x.h:1: layers: src/misc is no layer"])

    def test_source_file(self):
        self.assertEqual(check({"test/heap/x_test.cc": '# include "../src/x.c"\n'}),
                         ["test/heap/x_test.cc:1: source: includes ../src/x.c"])


class ConditionalsTest(unittest.TestCase):
    def test_guard_and_cplusplus(self):
        text = "/* Why. */\n#ifndef A_H\n#define A_H\n#ifdef __cplusplus\n#endif\n#endif\n"
        self.assertEqual(check({"include/cairn/a.h": text, "src/heap/b.h": text}), [])

    def test_feature(self):
        text = "int x;\n# if CAIRN_DEBUG\n#endif\n#ifndef A\n#define B\n#endif\n"
        self.assertEqual([finding.split(":")[1] for finding in check({"src/heap/a.h": text})],
                         ["2", "4"])

    def test_lower_layers_may(self):
        text = "#if defined(__x86_64__)\n#endif\n"
        self.assertEqual(check({"src/base/a.h": text, "src/os/b.h": text}), [])

    def test_nothing_in_the_fast_path(self):
        self.assertEqual(len(check({"src/heap/fast.h": "#ifdef __cplusplus\n#endif\n"})), 1)

    def test_comment_is_no_conditional(self):
        self.assertEqual(check({"src/heap/a.h": "/*\n#if 0\n*/\n"}), [])

    def test_public_headers_may_ask_the_program_and_its_compiler(self):
        text = "#ifdef __cpp_exceptions\n#endif\n#ifndef CAIRN_NO_SHORT_NAMES\n#endif\n"
        text += "#ifdef __cpp_char8_t\n#endif\n#ifdef __GLIBCXX__\n#endif\n"
        self.assertEqual(check({"include/cairn/a.h": text}), [])
        self.assertEqual(len(check({"src/heap/a.h": text})), 4)


class SizesTest(unittest.TestCase):
    def test_limits_themselves_pass(self):
        function = "void f(void)\n{\n" + "    ;\n" * 57 + "}\n"
        self.assertEqual(check({"src/heap/a.h": function + "\n" * 739 + "x" * 100 + "\n"}), [])

    def test_file(self):
        self.assertEqual(check({"src/heap/a.h": "\n" * 801}),
                         ["src/heap/a.h:801: size: 801 lines, over 800"])

    def test_columns(self):
        self.assertEqual(check({"src/heap/a.h": "\n" + "é" * 101 + "\n"}),
                         ["src/heap/a.h:2: size: 101 columns, over 100"])

    def test_function(self):
        text = "int x;\n\nvoid f(void)\n{\n" + "    ;\n" * 58 + "}\n"
        self.assertEqual(check({"src/heap/a.h": text}),
                         ["src/heap/a.h:3: size: f: 61 lines, over 60"])

    def test_rust_files_and_columns(self):
        rust = "packaging/rust/own/src/lib.rs"
        self.assertEqual(check({rust: "//! 'quoted\n" * 801}),
                         [f"{rust}:801: size: 801 lines, over 800"])
        self.assertEqual(check({rust: "x" * 101 + "\n"}),
                         [f"{rust}:1: size: 101 columns, over 100"])

    def test_python_function(self):
        text = "def f():\n" + "    pass\n" * 60
        self.assertEqual(check({"tools/a.py": text}), ["tools/a.py:1: size: f: 61 lines, over 60"])


class FunctionsTest(unittest.TestCase):
    def names(self, text):
        return [name for name, _, _ in c_functions(text)]

    def test_functions_only(self):
        self.assertEqual(self.names("struct s { int a; };\nenum e { A = 1 };\n"
                                    "static const int t[] = { 1, 2 };\n"
                                    "struct s f(int a) { if (a) { } return t; }\n"
                                    "#define M(x) do { x } while (0)\n"
                                    "__attribute__((cold)) int g(void)\n{\n}\n"), ["f", "g"])

    def test_cpp(self):
        self.assertEqual(self.names('extern "C" { void a() {} }\nnamespace n {\n'
                                    "class C { C() {} void m() const { } };\n"
                                    "TEST(A, B) { auto l = [] { }; }\n}\n"),
                         ["a", "C", "m", "TEST"])

    def test_braces_in_text(self):
        self.assertEqual(c_functions('void f(void)\n{\n    g("}", \'{\'); // }\n}\n'),
                         [("f", 1, 4)])


class NamesTest(unittest.TestCase):
    def test_same_name(self):
        self.assertEqual(check({"src/heap/a.h": "", "src/page/a.h": ""}),
                         ["src/page/a.h:1: name: src/heap/a.h has the same name"])

    def test_public_header_may_be_called_like_an_internal_one(self):
        self.assertEqual(check({"src/heap/heap.h": "", "include/cairn/heap.h": ""}), [])


    def test_static_function_of_two_files(self):
        code = "static int a_b(void)\n{\n    return 1;\n}\n"
        self.assertEqual(check({"src/heap/a.c": code, "src/page/b.c": code}),
                         ["src/page/b.c:1: name: a_b is also a function of src/heap/a.c"])

    def test_static_function_of_one_word(self):
        self.assertEqual(check({"src/heap/a.c": "static void find(void)\n{\n}\n"}),
                         ["src/heap/a.c:1: name: find: begin with the module's name"])

    def test_most_and_least(self):
        self.assertEqual(check({"src/heap/a.h": "enum { A_MOST = 1 };\n/* LEAST */\n"}),
                         ["src/heap/a.h:1: name: A_MOST: MAX or MIN"])


class TestedTest(unittest.TestCase):
    SOURCES = {"src/heap/a.c": "int a_run(void)\n{\n}\n" + "\n" * 57, "src/heap/a.h": "\n" * 40}

    def test_missing(self):
        self.assertEqual(check({**self.SOURCES, "test/heap/b_test.cc": "// a_run\n"}),
                         ["src/heap/a.c:1: tested: no test has its name, its header or its "
                          "functions"])

    def test_by_its_name(self):
        self.assertEqual(check({**self.SOURCES, "test/heap/a_test.cc": ""}), [])

    def test_by_its_header(self):
        self.assertEqual(check({**self.SOURCES, "test/heap/b_test.cc": '#include "heap/a.h"\n'}),
                         [])

    def test_by_a_function(self):
        self.assertEqual(check({**self.SOURCES, "test/heap/b_test.cc": "int b = a_run();\n"}), [])

    def test_small_module(self):
        self.assertEqual(check({**self.SOURCES, "src/heap/a.h": "\n" * 39}), [])


if __name__ == "__main__":
    unittest.main()
