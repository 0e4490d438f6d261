#!/usr/bin/env python3
"""Checks the rules for the layout of the code.

usage: check_rules.py [ROOT]

 layers   a file of src/ includes lower layers only, and those only through their layer's header;
          the layers of one rank do not include each other; public headers include no internal one
 source   no .c file is included
 if       no #if outside src/base, src/os and src/unwind but for include guards, #ifdef
          __cplusplus and what public headers may ask for
 size     a file has at most 800 lines, a function at most 60, a line at most 100 columns
 name     the file names within src/ are unique, those within test/ too; the names of static
          functions within src/ are unique and have two words or more; no constant there says
          MOST or LEAST
 tested   if src/a/b.c and b.h have 100 lines or more together, test/a/b_test.cc exists, or a file
          of test/ includes a/b.h or names a function of b.c: tests follow behaviour

One line a finding on stdout; the exit status is 1 when there is one.
"""

import ast
import pathlib
import re
import sys

RANKS = {"base": 0, "os": 1, "unwind": 2, "page": 2, "heap": 3, "frame": 3, "region": 3, "watch": 4,
         "front": 5}

# Headers of a layer that other layers may include, next to <layer>/<layer>.h. The layers base and
# os are sets of tools without one header over them.
OPEN_HEADERS = {"heap/fast.h": "the fast path, inlined into the entry points of front"}
OPEN_LAYERS = {"base", "os"}

# The conditions that public headers may use besides __cplusplus: properties of the program and of
# its compiler.
HEADER_CONDITIONS = {("ifdef", "__cpp_exceptions"), ("ifdef", "__cpp_char8_t"),
                     ("ifdef", "__GLIBCXX__"), ("ifndef", "CAIRN_NO_SHORT_NAMES")}

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
UNTESTED_LINES_MAX = 99
COLUMNS_MAX = 100

C_SUFFIXES = {".c", ".h", ".cc", ".hpp"}
CODE_ROOTS = ("src", "include", "test", "tools", "bench", "fuzz", "examples", "dev", "packaging")
RUST = ".rs"  # its functions are clippy's to judge


def blank_out(text):
    """The C text with comments, strings and character constants blanked, lines kept."""
    pattern = re.compile(r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\""
                         r"|(?<![\w])'(?:\\.|[^'\\\n])*'", re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def c_functions(text):
    """(name, first line, last line) of every function in the C or C++ text.

    A function is a brace block outside of functions whose head ends like a parameter list;
    blocks of classes, namespaces and extern "C" are looked into. Preprocessor lines are skipped.
    """
    text = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()),
                  blank_out(text))
    found = []
    head_start = 0  # where the declaration before the next brace begins
    inside = []  # open braces: None for blocks that are looked into, else (name, start offset)
    for match in re.finditer(r"[{};]", text):
        at, token = match.start(), match.group()
        in_function = any(entry is not None for entry in inside)
        if token == "{":
            entry = None
            if not in_function:
                head = text[head_start:at]
                name = _function_name(head)
                start = head_start + len(head) - len(head.lstrip())
                entry = (name, start) if name else None
                if not name and re.search(r"=\s*$|\benum\b[^()]*$", head):
                    entry = ("", start)  # an initialiser or an enumeration: nothing to look into
            elif in_function:
                entry = ("", at)
            inside.append(entry)
        elif token == "}":
            entry = inside.pop() if inside else None
            if entry and entry[0]:
                found.append((entry[0], text.count("\n", 0, entry[1]) + 1,
                              text.count("\n", 0, at) + 1))
        if not any(entry is not None for entry in inside):
            head_start = match.end()
    return found


def _function_name(head):
    if re.search(r"=\s*$", head) or re.search(r"\b(?:enum|struct|union|class|namespace)\b[^()]*$",
                                              head):
        return None
    match = re.search(r"([\w:~]+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", head))
    return match.group(1) if match else None


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno


class Checker:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.findings = []

    def find(self, path, line, rule, text):
        self.findings.append(f"{path.relative_to(self.root)}:{line}: {rule}: {text}")

    def files(self, *roots):
        for root in roots:
            for path in sorted((self.root / root).rglob("*")):
                if path.suffix in C_SUFFIXES | {".py", RUST} and "target" not in path.parts:
                    yield path

    def check(self):
        for path in self.files(*CODE_ROOTS):
            self.check_sizes(path, path.read_text())
        for path in self.files("src", "include"):
            if path.suffix in C_SUFFIXES:
                text = path.read_text()
                self.check_includes(path, text)
                self.check_conditionals(path, text)
        for path in self.files("test", "tools", "bench", "fuzz", "examples"):
            if path.suffix in C_SUFFIXES:
                self.check_source_includes(path, path.read_text())
        for root in ("src", "test"):
            self.check_names(root)
        self.check_identifiers()
        self.check_tested()
        return self.findings

    def includes(self, text):
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r"\s*#\s*include\s*([<\"])([^>\"]+)", line)
            if match:
                yield number, match.group(1) == '"', match.group(2)

    def check_source_includes(self, path, text):
        for number, _, name in self.includes(text):
            if name.endswith((".c", ".cc")):
                self.find(path, number, "source", f"includes {name}")

    def check_includes(self, path, text):
        self.check_source_includes(path, text)
        parts = path.relative_to(self.root).parts
        layer = parts[1] if parts[0] == "src" else None
        if layer is not None and layer not in RANKS:
            self.find(path, 1, "layers", f"src/{layer} is no layer")
            return
        for number, _, name in self.includes(text):
            other, _, _ = name.rpartition("/")
            if other in RANKS:
                self.check_layer_include(path, number, layer, other, name)

    def check_layer_include(self, path, number, layer, other, name):
        if layer is None:
            self.find(path, number, "layers", f"a public header includes {name}")
        elif other == layer:
            pass
        elif RANKS[other] >= RANKS[layer]:
            self.find(path, number, "layers",
                      f"{layer} (rank {RANKS[layer]}) includes {name} (rank {RANKS[other]})")
        elif (other not in OPEN_LAYERS and name != f"{other}/{other}.h"
              and name not in OPEN_HEADERS):
            self.find(path, number, "layers",
                      f"{name} is private to its layer; include {other}/{other}.h")

    def check_conditionals(self, path, text):
        parts = path.relative_to(self.root).parts
        if parts[:2] in (("src", "base"), ("src", "os"), ("src", "unwind")):
            return
        code = blank_out(text).splitlines()
        for number, line in enumerate(code, 1):
            match = re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b\s*(.*)", line)
            if not match:
                continue
            kind, condition = match.group(1), match.group(2).strip()
            following = code[number].split() if number < len(code) else []
            if kind == "ifndef" and following == ["#define", condition]:
                continue  # an include guard
            if kind == "ifdef" and condition == "__cplusplus" and path.name != "fast.h":
                continue
            if parts[0] == "include" and (kind, condition) in HEADER_CONDITIONS:
                continue
            self.find(path, number, "if", f"#{kind} {condition}: make it a config_ constant")

    def check_sizes(self, path, text):
        lines = text.splitlines()
        if len(lines) > FILE_LINES_MAX:
            self.find(path, len(lines), "size", f"{len(lines)} lines, over {FILE_LINES_MAX}")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                self.find(path, number, "size", f"{len(line)} columns, over {COLUMNS_MAX}")
        if path.suffix == RUST:
            return
        functions = python_functions(text) if path.suffix == ".py" else c_functions(text)
        for name, first, last in functions:
            if last - first + 1 > FUNCTION_LINES_MAX:
                self.find(path, first, "size",
                          f"{name}: {last - first + 1} lines, over {FUNCTION_LINES_MAX}")

    def check_names(self, root):
        seen = {}
        for path in self.files(root):
            if path.name in seen and path.name != "__init__.py":
                self.find(path, 1, "name", f"{seen[path.name]} has the same name")
            seen[path.name] = path.relative_to(self.root)

    def check_identifiers(self):
        """So that a name in a profile, a crash report or grep's output leads to one place."""
        seen = {}
        for path in self.files("src"):
            text = path.read_text()
            code = blank_out(text)
            lines = code.splitlines()
            for name, first, _ in c_functions(text) if path.suffix in (".c", ".h") else ():
                if not re.search(rf"\bstatic\b.*\b{name}\(", lines[first - 1]):
                    continue
                if name in seen:
                    self.find(path, first, "name", f"{name} is also a function of {seen[name]}")
                elif "_" not in name:
                    self.find(path, first, "name", f"{name}: begin with the module's name")
                seen[name] = path.relative_to(self.root)
            for number, line in enumerate(lines, 1):
                for name in re.findall(r"\b[A-Z_0-9]*(?:MOST|LEAST)[A-Z_0-9]*\b", line):
                    self.find(path, number, "name", f"{name}: MAX or MIN")

    def check_tested(self):
        words, included = set(), set()
        for path in self.files("test"):
            text = path.read_text()
            words.update(re.findall(r"\w+", blank_out(text)))
            included.update(re.findall(r'^#include "(.+)\.h"', text, re.M))
        for path in sorted((self.root / "src").glob("*/*.c")):
            name = f"{path.parent.name}/{path.stem}"
            functions = {function for function, _, _ in c_functions(path.read_text())}
            if (self.module_lines(path) > UNTESTED_LINES_MAX and name not in included
                    and not functions & words
                    and not (self.root / "test" / f"{name}_test.cc").exists()):
                self.find(path, 1, "tested", "no test has its name, its header or its functions")

    def module_lines(self, source):
        return sum(len(part.read_text().splitlines())
                   for part in (source, source.with_suffix(".h")) if part.exists())


def main(arguments):
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 2
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent
    findings = Checker(root).check()
    for finding in findings:
        print(finding)
    print(f"check_rules: {len(findings)} findings" if findings else "check_rules: no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
