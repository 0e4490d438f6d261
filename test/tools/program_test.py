"""cairn.program: the commands that LD_PRELOAD affects."""

import os
import pathlib
import shutil
import struct
import tempfile
import unittest
from unittest import mock

import tool_path  # noqa: F401
from cairn import program
from cairn.errors import UserError


def elf(dynamic):
    """The beginning of a 64-bit little-endian ELF file with one program header."""
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 32, 64)
    struct.pack_into("<HH", header, 54, 56, 1)
    return bytes(header) + struct.pack("<I", program.PT_INTERP if dynamic else 1) + bytes(52)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def file(self, name, content, mode=0o755):
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(mode)
        return str(path)

    def test_real_programs(self):
        program.check_preloadable("ls")
        program.check_preloadable(shutil.which("ls"))

    def test_missing(self):
        with self.assertRaisesRegex(UserError, "no such program"):
            program.check_preloadable("no-such-program-here")

    def test_not_executable(self):
        with self.assertRaisesRegex(UserError, "not executable"):
            program.check_preloadable(self.file("text", b"text", 0o644))

    def test_static(self):
        with self.assertRaisesRegex(UserError, "statically"):
            program.check_preloadable(self.file("static", elf(dynamic=False)))
        program.check_preloadable(self.file("dynamic", elf(dynamic=True)))

    def test_cut_elf_files(self):
        whole = pathlib.Path("/bin/ls").read_bytes()
        header, headers = "it ends within its ELF header", "its program headers are incomplete"
        segments = "its segments are incomplete"
        for size, text in ((4, header), (5, header), (20, header), (40, header), (63, header),
                           (64, headers), (300, headers), (5000, segments),
                           (len(whole) // 2, segments)):
            with self.assertRaisesRegex(UserError, f"cut{size} is damaged: {text}"):
                program.check_preloadable(self.file(f"cut{size}", whole[:size]))
        program.check_preloadable(self.file("whole", whole))

    def test_elf_files_of_any_bytes_give_a_sentence_or_pass(self):
        whole = bytearray(pathlib.Path("/bin/ls").read_bytes()[:4096])
        for at in range(4, 64):
            for value in (0, 1, 0x7f, 0xff):
                damaged = bytearray(whole)
                damaged[at] = value
                try:
                    program.check_preloadable(self.file("damaged", bytes(damaged)))
                except UserError:
                    pass

    def test_object_file(self):
        content = bytearray(elf(dynamic=True))
        struct.pack_into("<H", content, 16, 1)
        with self.assertRaisesRegex(UserError, "is an object file, not a program"):
            program.check_preloadable(self.file("object", bytes(content)))

    def test_program_for_another_machine(self):
        content = bytearray(elf(dynamic=True))
        struct.pack_into("<H", content, 18, 183)
        library = self.file("library.so", elf(dynamic=True))
        with self.assertRaisesRegex(UserError, "built for aarch64 64 bits"):
            program.check_preloadable(self.file("foreign", bytes(content)), [library])
        program.check_preloadable(self.file("own", elf(dynamic=True)), [library])

    def test_empty_name(self):
        with self.assertRaisesRegex(UserError, "the command's name is empty"):
            program.check_preloadable("")

    def test_folder(self):
        with self.assertRaisesRegex(UserError, "is a folder"):
            program.check_preloadable(str(self.directory))

    def test_pipe(self):
        path = self.directory / "pipe"
        os.mkfifo(path, 0o755)
        with self.assertRaisesRegex(UserError, "not a regular file"):
            program.check_preloadable(str(path))

    def test_unreadable(self):
        path = self.file("secret", elf(dynamic=True), 0o111)
        refusal = PermissionError(13, "Permission denied", path)
        with mock.patch("pathlib.Path.open", side_effect=refusal):  # root could read it
            with self.assertRaisesRegex(UserError, "secret: Permission denied; cannot determine "
                                                   "whether LD_PRELOAD"):
                program.check_preloadable(path)

    def test_script_without_its_interpreter(self):
        script = self.file("script", b"#!/no/such/interpreter\n")
        with self.assertRaisesRegex(UserError, "script: its interpreter: /no/such/interpreter: no"):
            program.check_preloadable(script)

    def test_script_of_a_static_interpreter(self):
        interpreter = self.file("static", elf(dynamic=False))
        outer = self.file("inner", b"#!" + interpreter.encode() + b" -x\n")
        with self.assertRaisesRegex(UserError, "static is linked statically"):
            program.check_preloadable(self.file("outer", b"#! " + outer.encode() + b"\nrest"))

    def test_env_in_the_first_line(self):
        self.assertEqual(program.interpreter_of_script(b"#!/usr/bin/env python3\n"), "python3")
        self.assertEqual(program.interpreter_of_script(b"#!/usr/bin/env -S A=1 perl -w\n"), "perl")
        self.assertEqual(program.interpreter_of_script(b"#!/bin/sh\n"), "/bin/sh")
        self.assertIsNone(program.interpreter_of_script(b"plain text"))

    def test_script_without_first_line(self):
        program.check_preloadable(self.file("script", b"exit 0\n"))

    def test_set_user_id(self):
        path = self.file("privileged", elf(dynamic=True), 0o4755)
        with mock.patch("os.getuid", return_value=pathlib.Path(path).stat().st_uid + 1):
            with self.assertRaisesRegex(UserError, "gains privileges"):
                program.check_preloadable(path)
        program.check_preloadable(path)  # a user's own set-user-ID program gains no rights


if __name__ == "__main__":
    unittest.main()
