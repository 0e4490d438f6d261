#!/usr/bin/env python3
"""Finds functions that allocate on the thread's own stack without a scope.

usage: check_t_scope.py FILE-OR-DIRECTORY…

The convention of cairn/scope.h: a function that calls t_alloc, t_new, t_strdup or any other t_…
function opens a scope first (t_scope, t_push, or a cairn::scope in C++), or is itself named t_…,
which says that it returns memory of its caller's frame. The names that these are short for,
cairn_scope_… and CAIRN_SCOPE, count alike.

A scope counts from where it is declared to the end of its block: a call before it, or after its
block has ended, is found too. The check reads the text, not the program: macros that hide a call or
a scope are not seen through. A line with the comment "t_scope: not needed" is taken by its word.

One line a finding on stdout; the exit status is 1 when there is one.
"""

import pathlib
import re
import sys

SUFFIXES = {".c", ".h", ".cc", ".cpp", ".hpp", ".cxx"}
OPENERS = {"t_scope", "t_push", "CAIRN_SCOPE", "cairn_scope_push"}
CLOSERS = {"t_pop", "cairn_scope_pop", "cairn_scope_end"}
OURS = ("t_", "cairn_scope_")
NO_FUNCTIONS = {"if", "for", "while", "switch", "return", "sizeof", "catch", "alignof", "_Alignof"}
EXCUSE = "t_scope: not needed"

TOKEN = re.compile(r"cairn::scope\b|[A-Za-z_]\w*|[{}();=,]|->|\.|::|\S")


def blank_out(text):
    """The text with comments, strings, character constants and directives blanked, lines kept."""
    pattern = re.compile(r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\""
                         r"|(?<!\w)'(?:\\.|[^'\\\n])*'", re.S)
    text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    return re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                  lambda match: re.sub(r"[^\n]", " ", match.group()), text)


class Block:
    def __init__(self, function=None, scoped=False):
        self.function = function  # name of the innermost function, None outside of all
        self.scoped = scoped


def function_name(head):
    """The name of the function whose body follows the tokens, or None."""
    depth = 0
    for i, token in enumerate(head):
        if token == "(" and depth == 0 and i > 0 and re.match(r"[A-Za-z_]", head[i - 1]):
            name = head[i - 1]
            if name not in NO_FUNCTIONS and name not in ("__attribute__", "noexcept", "alignas"):
                return name
        depth += {"(": 1, ")": -1}.get(token, 0)
    return None


def findings(text):
    """(line, function, call) of every call without a scope."""
    excused = {number for number, line in enumerate(text.splitlines(), 1) if EXCUSE in line}
    code = blank_out(text)
    blocks = [Block()]
    head = []
    tokens = [(match.group(), match.start()) for match in TOKEN.finditer(code)]
    line, counted = 1, 0
    for i, (token, offset) in enumerate(tokens):
        line += code.count("\n", counted, offset)
        counted = offset
        inside = blocks[-1]
        if token == "{":
            name = function_name(head) if inside.function is None and "=" not in head else None
            blocks.append(Block(name or inside.function, inside.scoped and not name))
            head = []
        elif token == "}":
            if len(blocks) > 1:
                blocks.pop()
            head = []
        elif token == ";":
            head = []
        else:
            head.append(token)
        if inside.function is None:
            continue
        if token in OPENERS or token == "cairn::scope":
            inside.scoped = True
        elif token in CLOSERS:
            inside.scoped = False
        elif is_call(tokens, i) and not inside.scoped:
            if not inside.function.startswith(OURS) and line not in excused:
                yield line, inside.function, token


def is_call(tokens, i):
    token = tokens[i][0]
    before = tokens[i - 1][0] if i > 0 else ""
    after = tokens[i + 1][0] if i + 1 < len(tokens) else ""
    return (re.fullmatch(r"(t|cairn_scope)_\w+", token) is not None
            and token not in OPENERS | CLOSERS and after == "(" and before not in (".", "->", "::"))


def files(arguments):
    for argument in arguments:
        path = pathlib.Path(argument)
        if path.is_dir():
            yield from (file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES)
        else:
            yield path


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 2
    count = 0
    for path in files(arguments):
        for line, function, call in findings(path.read_text()):
            print(f"{path}:{line}: {function} calls {call} without a scope, and is not named t_…")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
