"""The driver itself: it must detect a program that does not use the library under test, a wrong
exit, and a message on stderr, and leave no process.
"""

import preload
from preload import CAIRN, SYSTEM


class PreloadTest(preload.RealProgramTest):
    def use_library(self, path):
        self.addCleanup(setattr, preload, "library", preload.library)
        preload.library = str(path)

    def compile(self, source, name, *options):
        text = self.directory / f"{name}.c"
        text.write_text(source)
        path = self.directory / name
        self.run_program([self.need("gcc", "gcc"), text, "-o", path, *options], SYSTEM)
        return path

    def assert_noticed(self, pattern, argv, **options):
        with self.assertRaisesRegex(AssertionError, pattern):
            self.run_program(argv, CAIRN, **options)

    def test_accepts_a_program_on_the_library(self):
        self.assertEqual(self.run_program(["echo", "ok"], CAIRN).stdout, b"ok\n")

    def test_notices_a_library_that_cannot_be_loaded(self):
        self.use_library(self.directory / "missing.so")
        self.assert_noticed("cannot be preloaded", ["echo", "ok"])

    def test_notices_a_library_that_is_loaded_but_defines_no_malloc(self):
        self.use_library(self.compile("int unused;", "unused.so", "-shared", "-fPIC"))
        self.assert_noticed("bound `malloc' to .*libc.so.6", ["echo", "ok"])

    def test_notices_a_library_that_lacks_a_function(self):
        self.use_library(self.compile(
            "#include <stddef.h>\nvoid *__libc_malloc(size_t);\nvoid __libc_free(void *);\n"
            "void *malloc(size_t size) { return __libc_malloc(size); }\n"
            "void free(void *block) { __libc_free(block); }\n",
            "half.so", "-shared", "-fPIC"))
        self.assert_noticed("bound `calloc' to .*libc.so.6", ["echo", "ok"])

    def test_notices_a_static_program(self):
        program = self.compile("#include <stdlib.h>\nint main(void) { free(malloc(9)); }\n",
                               "static", "-static")
        self.assert_noticed("no program", [program])

    def test_notices_a_child_without_the_library(self):
        self.assert_noticed("sleep: .* bound `malloc' to .*libc.so.6",
                            ["sh", "-c", "env -u LD_PRELOAD sleep 0; echo ok"])

    def test_notices_a_child_that_did_not_run(self):
        self.assert_noticed("perl did not run", ["sh", "-c", "echo ok"], expect_programs=["perl"])

    def test_notices_a_wrong_end(self):
        self.assert_noticed("exit status 3", ["sh", "-c", "exit 3"])
        self.assert_noticed("killed by SIGABRT", ["sh", "-c", "kill -ABRT $$"])
        self.assert_noticed("no end after 1 s", ["sleep", "60"], timeout=1)

    def test_notices_a_complaint_of_the_allocator(self):
        self.assert_noticed("double free of 0x1",
                            ["sh", "-c", "echo cairn: double free of 0x1 >&2"])

    def test_notices_a_server_that_ended(self):
        server = self.start_server(["sh", "-c", "echo told why; exit 4"], CAIRN)
        with self.assertRaisesRegex(AssertionError, "(?s)exit status 4.*told why"):
            self.wait_until(lambda: False, "it answers", server)

    def test_leaves_nothing_running(self):
        mark = self.directory / "pid"
        self.run_program(["sh", "-c", f"sleep 60 >/dev/null 2>&1 & echo $! > {mark}"], SYSTEM)
        left = int(mark.read_text())
        self.wait_until(lambda: not preload.is_running(left), "the child in the background is gone",
                        seconds=5)


if __name__ == "__main__":
    preload.main()
