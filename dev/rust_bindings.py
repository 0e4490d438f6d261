#!/usr/bin/env python3
"""Writes the Rust declarations of the public C headers: packaging/rust/cairn-sys/src/types.rs
and functions.rs, and the list of what tests/layout.rs compares.

usage: rust_bindings.py            writes the files
       rust_bindings.py --check    says whether they are what the headers make; exit status 1 if not

The headers are preprocessed ($CC, or cc). Each declaration is translated: structs, enumerations,
function types, functions, and macros that are plain numbers. Inline functions have no symbol and
are omitted; those that Rust needs have one in cairn-sys/shim.c. Functions with a va_list and
variables are omitted too.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = sorted(path.name for path in (ROOT / "include/cairn").glob("*.h"))
# Which those include.
DETAILS = sorted(f"detail/{path.name}" for path in (ROOT / "include/cairn/detail").glob("*.h"))
TARGET = ROOT / "packaging/rust/cairn-sys"
SHIM = ROOT / "packaging/rust/cairn-sys/shim.c"

HEAD = """\
// Made by dev/rust_bindings.py from the headers in include/cairn: change those.
use core::ffi::{c_char, c_int, c_uint, c_void};
"""
USES = "#![allow(clippy::wildcard_imports)]\nuse crate::types::*;\n"

SCALARS = {"void": "c_void", "char": "c_char", "int": "c_int", "unsigned": "c_uint",
           "unsigned char": "u8", "size_t": "usize", "uintptr_t": "usize", "bool": "bool",
           "_Bool": "bool", "int32_t": "i32", "uint32_t": "u32", "uint64_t": "u64",
           "FILE": "c_void"}


def preprocessed(text):
    """The C text after the preprocessor, reduced to our own headers and the shim."""
    compiler = os.environ.get("CC", "cc").split()
    done = subprocess.run([*compiler, "-std=gnu17", "-E", f"-I{ROOT / 'include'}",
                           "-xc", "-"], input=text, capture_output=True, text=True, check=True)
    lines, ours = [], False
    for line in done.stdout.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = "include/cairn/" in marker.group(1) or marker.group(1) == "<stdin>"
        elif ours and not line.startswith("#"):
            lines.append(line)
    return "\n".join(lines)


def without_attributes(text):
    """The text without __attribute__((…)), however deep its parentheses."""
    kept, at = [], 0
    for match in re.finditer(r"__attribute__\s*\(", text):
        if match.start() < at:
            continue
        kept.append(text[at:match.start()])
        depth, at = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
    return "".join(kept) + text[at:]


def declarations(text):
    """Top-level declarations, one string each; the bodies of functions are left out."""
    text = re.sub(r'extern\s+"C"\s*\{', "", without_attributes(text))
    depth, start, found = 0, 0, []
    for at, char in enumerate(text):
        if char == "{":
            if depth == 0 and text[start:at].rstrip().endswith(")"):
                found.append(" ".join(text[start:at].split()) + " {}")
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0 and found and found[-1].endswith("{}") and text[start:at].find(")") >= 0 \
                    and re.match(r"[^{;]*\)\s*\{", text[start:at + 1]):
                start = at + 1
        elif char == ";" and depth == 0:
            one = " ".join(text[start:at].split())
            if one:
                found.append(one)
            start = at + 1
    return found


def rust_type(c_type):
    """`const struct cairn_x *` and alike in Rust."""
    c_type = re.sub(r"\b(struct|enum|volatile)\s+", "", c_type).strip()
    if c_type.endswith("*"):
        inner = c_type[:-1].strip()
        const = re.match(r"const\s+([^*]*)$|(.*\*)\s*const$", inner)
        if const:
            return "*const " + rust_type(const.group(1) or const.group(2))
        if inner.split("*")[0].strip() in FUNCTION_TYPES:
            return f"Option<{inner}>"
        return "*mut " + rust_type(inner)
    c_type = re.sub(r"^const\s+", "", c_type)
    if c_type in SCALARS:
        return SCALARS[c_type]
    if not c_type.startswith("cairn_"):
        raise ValueError(f"no Rust type for '{c_type}'")
    return c_type


FUNCTION_TYPES = set()


def split_parameters(text):
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip() and part.strip() != "void"]


def named(text, unnamed):
    """(name, Rust type) of a parameter or field."""
    pointer = re.match(r"(.*?)\(\s*\*\s*(\w*)\s*\)\s*\((.*)\)$", text)
    if pointer:
        result, name, parameters = pointer.groups()
        return name or unnamed, f"Option<{function_type(result, parameters)}>"
    array = re.match(r"(.*?)(\w+)\s*\[([^\]]*)\]$", text)
    if array:
        length = array.group(3).strip()
        length = length if length.isdigit() else f"{length} as usize"
        return array.group(2), f"[{rust_type(array.group(1))}; {length}]"
    match = re.match(r"(.*?[\s*])(\w+)$", text)
    if not match or match.group(2) in SCALARS:
        return unnamed, rust_type(text)
    return match.group(2), rust_type(match.group(1))


def parameter_list(text, names=True):
    parts = []
    for number, parameter in enumerate(split_parameters(text)):
        if parameter == "...":
            parts.append("...")
        else:
            name, kind = named(parameter, f"argument{number}")
            parts.append(f"{name}: {kind}" if names else kind)
    return ", ".join(parts)


def function_type(result, parameters):
    return f'unsafe extern "C" fn({parameter_list(parameters, False)}){returned(result)}'


def returned(result):
    result = result.strip()
    return "" if result == "void" else " -> " + rust_type(result)


def struct_fields(body):
    for field in (part.strip() for part in body.split(";")):
        if not field:
            continue
        many = re.match(r"(\w+)\s+(\w+(?:\s*,\s*\w+)+)$", field)  # int a, b
        if many:
            for name in many.group(2).split(","):
                yield name.strip(), rust_type(many.group(1))
        else:
            yield named(field, "")


# The fields of each struct, for the test of the layout.
LAYOUT = {}


def write_struct(name, body):
    fields = [f"    pub {field}: {kind}," for field, kind in struct_fields(body)]
    LAYOUT[name] = [field for field, _ in struct_fields(body)]
    return "\n".join(["#[repr(C)]", "#[derive(Clone, Copy, Debug)]", f"pub struct {name} {{",
                      *fields, "}"])


def write_opaque(name):
    return "\n".join(["#[repr(C)]", "#[derive(Debug)]", f"pub struct {name} {{",
                      "    _opaque: [u8; 0],",
                      "    _marker: core::marker::PhantomData<(*mut u8,"
                      " core::marker::PhantomPinned)>,", "}"])


def write_enum(name, body):
    lines, value = [], -1
    known = {}
    for entry in (part.strip() for part in body.split(",")):
        if not entry:
            continue
        key, _, expression = (part.strip() for part in entry.partition("="))
        value = int(eval(expression, {}, known)) if expression else value + 1  # plain numbers
        known[key] = value
        lines.append(f"pub const {key}: {name or 'c_uint'} = {value};")
    return "\n".join(([f"pub type {name} = c_uint;"] if name else []) + lines)


FUNCTION = re.compile(r"(?P<result>[\w\s*]*?[\s*])(?P<name>cairn_\w+)\s*\((?P<parameters>.*)\)$")


class Bindings:
    def __init__(self):
        self.types = {}
        self.functions = {}

    def add(self, text):
        if text.startswith("_Static_assert") or text.endswith("{}"):
            return
        text = re.sub(r"^extern\s+", "", text)
        if re.match(r"(static|inline)\b", text) or "va_list" in text:
            return
        for pattern, adder in ((r"(?:typedef )?struct (\w+) \{(.*)\} ?\w*$", self.add_struct),
                               (r"typedef struct (\w+) \w+$", self.add_opaque),
                               (r"(?:typedef )?enum ?(\w*) ?\{(.*)\} ?\w*$", self.add_enum),
                               (r"typedef (.*?)(cairn_\w+)\((.*)\)$", self.add_function_type),
                               (r"typedef ([\w ]+) (cairn_\w+)$", self.add_alias)):
            match = re.match(pattern, text)
            if match:
                adder(*match.groups())
                return
        match = FUNCTION.match(text)
        if match:
            name = match["name"]
            self.functions[name] = (f"    pub fn {name}({parameter_list(match['parameters'])})"
                                    f"{returned(match['result'])};")

    def add_struct(self, name, body):
        self.types[name] = write_struct(name, body)

    def add_opaque(self, name):
        self.types.setdefault(name, write_opaque(name))

    def add_enum(self, name, body):
        self.types[name or body] = write_enum(name, body)

    def add_function_type(self, result, name, parameters):
        FUNCTION_TYPES.add(name)
        self.types[name] = f"pub type {name} = {function_type(result, parameters)};"

    def add_alias(self, kind, name):
        self.types[name] = f"pub type {name} = {rust_type(kind)};"


def macro_constants():
    for header in (*HEADERS, *DETAILS):
        text = (ROOT / "include/cairn" / header).read_text()
        for name, value in re.findall(r"(?m)^#define (CAIRN_\w+)\s+(\d+)$", text):
            yield f"pub const {name}: usize = {value};"


def version_text():
    api = (ROOT / "include/cairn/api.h").read_text()
    return ".".join(re.search(rf"CAIRN_VERSION_{part} (\d+)", api).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def make_bindings():
    found = Bindings()
    includes = "".join(f"#include <cairn/{header}>\n" for header in HEADERS)
    for text in declarations(preprocessed(includes)):
        found.add(text)
    shim = Bindings()
    for text in declarations(preprocessed(SHIM.read_text())):
        if re.search(r"\bcairn_sys_\w+\(.*\{\}$", text):
            shim.add(text[:-2].strip())
    types = [HEAD, "\n".join(macro_constants()), *found.types.values()]
    parts = [USES + HEAD,
             'unsafe extern "C" {\n' + "\n".join(found.functions.values()) + "\n}",
             "// Inline functions that the library also has as symbols, in cairn-sys/shim.c.\n"
             'unsafe extern "C" {\n' + "\n".join(shim.functions.values()) + "\n}"]
    constants = re.findall(r"pub const (\w+)", "\n".join(types))
    return {"src/types.rs": formatted("\n".join(types) + "\n"),
            "src/functions.rs": formatted("\n".join(parts) + "\n"),
            "tests/layout/fields.rs": layout_list(constants)}


def layout_list(constants):
    """The file that tests/layout.rs includes: a macro call for every field and constant."""
    lines = ["// Made by dev/rust_bindings.py.", "{", "    layout!(text:"]
    for name, fields in LAYOUT.items():
        lines.append(f"        {name} {{")
        lines += [f"            {field}{',' if field != fields[-1] else ''}" for field in fields]
        lines.append("        }")
    lines += ["    );", "    constants!(text:", *(f"        {name}" for name in constants),
              "    );", "}"]
    return "\n".join(lines) + "\n"


def formatted(text):
    """Long lines in rustfmt's form, without rustfmt: one parameter a line."""
    lines = []
    for line in text.splitlines():
        match = re.match(r"(\s*pub fn \w+\()(.*)(\)[^()]*;)$", line)
        if len(line) > 100 and line.startswith("pub type"):
            line = line.replace(" = ", " =\n    ")
        if len(line) <= 100 or not match:
            lines.append(line)
            continue
        lines.append(match.group(1))
        lines += [f"        {part}," for part in split_parameters(match.group(2))]
        lines.append("    " + match.group(3))
    return "\n".join(lines) + "\n"


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    stale = 0
    for name, text in make_bindings().items():
        path = TARGET / name
        if not arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.relative_to(ROOT)} is not what the headers make: run"
                  " dev/rust_bindings.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
