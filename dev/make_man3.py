#!/usr/bin/env python3
"""Writes the manual pages of section 3 from the public headers: cairn(3), of what all of them
share, one for each header, and for each function a symbolic link to that of its header.

usage: make_man3.py DIRECTORY      writes DIRECTORY/man3/*.3

A page is the header's first comment, then each declaration with the comment above it. Parts with
"not for direct use" in its comment, and the headers in detail, are left out. Needs only Python.
"""
import os
import pathlib
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "include" / "cairn"
OVERVIEW = "api"
# Not for programs.
INTERNAL = re.compile(r"_(?:slow|slowly|end_page)$|^cairn_thread_stack_(?:head|push|alloc|realloc)$"
                      r"|^CAIRN_(?:[A-Z_]+_(?:H|ALLOCATES)|API|NODISCARD|NOEXCEPT|ALIGNOF)$"
                      r"|^CAIRN_VERSION_(?:TEXT|EXPAND)$")
OUTSIDE_USE = re.compile(r"not for direct use|^(?:Parts of|For CAIRN_|The slow halves|The start of|"
                         r"Everything that the inline)", re.M | re.I)
WORDS = re.compile(r"\b(?:CAIRN_API|CAIRN_NODISCARD|CAIRN_NOEXCEPT|static inline)\s*")
ATTRIBUTE = re.compile(r"\b(?:__attribute__|CAIRN_[A-Z_]*(?:ALLOCATES|RESIZES))\s*\(")
TAG = re.compile(r"(?:Returns|Threads|Cost): ")
ITEM = re.compile(r"(?P<comment>/\*.*?\*/)?[ \t]*\n?(?P<code>.*)", re.S)


def plain(comment):
    """A comment's lines without its marks."""
    text = comment.removeprefix("/*").removesuffix("*/")
    return re.sub(r"^ \* ?", "", text, flags=re.M).strip()


def chunks(text):
    """The parts of a header between blank lines; a body, a comment and a macro are not divided."""
    part, depth, inside = [], 0, False
    for line in text.splitlines():
        if not line.strip() and depth <= 0 and not inside:
            if part:
                yield "\n".join(part)
            part = []
            continue
        part.append(line)
        code = re.sub(r"/\*.*?\*/", "", line)
        inside = ("/*" in code) or (inside and "*/" not in code)
        if not inside and not line.startswith("extern \"C\""):
            depth += code.count("{") - code.count("}")
    if part:
        yield "\n".join(part)


def closed(text, place):
    """Behind the parenthesis or brace that closes the one before `place`."""
    depth = 1
    while depth and place < len(text):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[place], 0)
        place += 1
    return place


def without_attributes(text):
    text = WORDS.sub("", text)
    while match := ATTRIBUTE.search(text):
        text = text[:match.start()] + text[closed(text, match.end()):]
    text = re.sub(r"\s+", " ", text).strip()
    return text.replace("* cairn", "*cairn")


def declarations(code):
    """(kind, name, text) of what a part declares."""
    code = re.sub(r"^#(?!define)[^\n]*\n?", "", code, flags=re.M)
    code = re.sub(r'^extern "C" \{\n?|^\}\n?\Z', "", code, flags=re.M)
    while code.strip():
        code = code.lstrip("\n")
        if code.lstrip().startswith("/*"):
            code = code[code.index("*/") + 2:]
            continue
        if code.startswith("#define"):
            macro, _, code = re.split(r"((?<!\\)\n|\Z)", code, maxsplit=1)
            name = re.match(r"#define (\w+(?:\([^)]*\))?)", macro).group(1)
            yield "macro", name.split("(")[0], name
            continue
        match = re.match(r"(?P<head>[^;{]*)(?P<end>[;{])", code)
        if not match:
            return
        head, code = match.group("head"), code[match.end():]
        body = ""
        if match.group("end") == "{":
            place = closed(code, 0)
            body, code = code[:place], code[place:]
            is_function = head.rstrip().endswith(")") or "CAIRN_NOEXCEPT" in head
            if not is_function:
                rest, _, code = code.partition(";")
                yield "type", "", f"{head}{{{body}{rest};".strip()
                continue
        text = without_attributes(head)
        name = re.search(r"(\w+)\s*\(", text)
        if text.startswith(("typedef", "extern")) or not name:
            yield "type", "", f"{text};"
        elif name.group(1) not in ("_Static_assert", "static_assert"):
            yield "function", name.group(1), f"{text};"


def items(text):
    """(comment, [(kind, name, text)]) of a header; a comment alone begins a section."""
    for part in chunks(text):
        match = ITEM.fullmatch(part)
        comment = plain(match.group("comment") or "")
        heading = re.fullmatch(r"-+ (.*?) -+", comment)
        if heading:
            yield heading.group(1), []
        if OUTSIDE_USE.search(comment):
            continue
        found = [one for one in declarations(match.group("code")) if not INTERNAL.search(one[1])
                 and (one[0] != "macro" or comment)]
        if found:
            yield ("" if heading else comment), found


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def paragraphs(text):
    """A comment's text as macros of man: paragraphs, lists, and indented text without filling."""
    for part in re.split(r"\n\s*\n", text):
        lines = part.splitlines()
        if all(line.startswith(("    ", "  -")) and not line.lstrip().startswith("- ")
               for line in lines):
            yield from (".PP", ".nf", ".RS 4", *(escaped(line[4:]) for line in lines), ".RE", ".fi")
            continue
        yield ".PP"
        for line in lines:
            if re.match(r" ?- ", line):
                yield ".IP \\(bu 2"
                line = re.sub(r"^ ?- ", "", line)
            if TAG.match(line) and line is not lines[0]:
                yield ".br"
            if line.strip():
                yield escaped(line.strip())


def shown(text):
    """A declaration in bold, without filling."""
    return [".PP", ".nf", *(f"\\fB{escaped(line)}\\fR" if line.strip() else "" for line in
                            text.splitlines()), ".fi"]


def sentence(text):
    """The first one, for the line NAME."""
    first = re.split(r"\.(?:\s|$)", re.sub(r"\s+", " ", text), maxsplit=1)[0]
    keeps = first[:2].isupper() or first.startswith("Cairn")
    return first if keeps else first[0].lower() + first[1:]


class Header:
    def __init__(self, path):
        self.name = path.stem
        self.page = "cairn" if self.name == OVERVIEW else f"cairn_{self.name}"
        text = path.read_text()
        end = text.index("*/") + 2
        self.about = plain(text[:end])
        self.items = list(items(text[end:]))
        self.functions = sorted({name for _, found in self.items for kind, name, _ in found
                                 if name and name != self.page})

    def body(self):
        yield from (".SH SYNOPSIS", ".nf", f"\\fB#include <cairn/{self.name}.h>\\fR", ".PP",
                    "\\fBcc program.c \\-lcairn\\fR", ".fi", ".SH DESCRIPTION")
        yield from paragraphs(self.about)
        yield ".SH DECLARATIONS"
        for comment, found in self.items:
            if not found:
                yield f".SS {escaped(comment[0].upper() + comment[1:])}"
                continue
            for kind, _, text in found:
                yield from shown(text)
            if comment:
                yield ".RS 4"
                yield from paragraphs(comment)
                yield ".RE"


def overview(headers):
    """The pages, each in a sentence, for that of what all share."""
    yield ".SH PAGES"
    for header in headers:
        if header.name != OVERVIEW:
            yield from (".TP", f".BR {header.page} (3)", escaped(sentence(header.about)))


def version():
    text = (INCLUDE / "api.h").read_text()
    return ".".join(re.search(rf"VERSION_{part} (\d+)", text).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def page_text(header, headers):
    now = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    day = time.strftime("%Y-%m-%d", time.gmtime(now))
    lines = [f'.TH "{header.page}" 3 "{day}" "Cairn {version()}"', ".SH NAME",
             f"{header.page} \\- {escaped(sentence(header.about))}", *header.body(),
             *(overview(headers) if header.name == OVERVIEW else ()), ".SH SEE ALSO"]
    others = [f".BR {one.page} (3)" for one in headers if one is not header]
    lines += [f"{line}," for line in others] + [".BR cairn (1),", ".BR cairn.options (7),",
                                                ".BR cairn.messages (7)"]
    text = "\n".join(lines) + "\n"
    text = re.sub(r"^(\.S[HS].*\n|\.RS 4\n)\.PP\n", r"\1", text, flags=re.M)
    return re.sub(r"^\.PP\n(?=\.IP|\.S[HS])", "", text, flags=re.M)


def read_headers(folder=INCLUDE):
    return [Header(path) for path in sorted(folder.glob("*.h"))]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[1], "man3")
    directory.mkdir(parents=True, exist_ok=True)
    headers = read_headers()
    pages = {header.page for header in headers}
    for header in headers:
        (directory / f"{header.page}.3").write_text(page_text(header, headers))
        for name in header.functions:
            if name not in pages:
                link = directory / f"{name}.3"
                link.unlink(missing_ok=True)
                link.symlink_to(f"{header.page}.3")


if __name__ == "__main__":
    main()
