#!/usr/bin/env python3
"""Compares the documents with the sources.

options   the page of options names exactly the options that src/front/options.c parses; README.md
          names some of them
messages  every line that src prints is on the page of messages; every line on that page, in
          README.md and in docs/HARDENING.md is printed by src
files     each file that a comment or a document names exists
links     each file that a document links exists
blocks    each block of commands is run by dev/run_docs.py, or states why not
book      mkdocs.yml contains every page of docs/ once
decisions  each number is used once, and the heading of a page has the number of its file
names     each `name_like_this` in a document, and each name_like_this in a comment of src, is a
          word of the sources
places    the functions in `file.c: one, another` are words of that file

usage: check_docs.py [ROOT]      prints one line for each finding; exit status 1 if there are any
"""
import pathlib
import re
import sys

from doc_blocks import unmarked

CODE = ("src", "include", "test", "bench", "tools", "examples", "dev", "cmake", "packaging")
C_SUFFIXES = {".c", ".h", ".cc", ".hpp"}
SUFFIXES = {".c", ".h", ".cc", ".hpp", ".py", ".sh", ".txt", ".cmake", ".rs", ""}
# The functions that print a line, and which of their arguments is its format.
PRINTING = {"die": 0, "report": 0, "report_error": 0, "report_misuse": 1, "report_guarded": 2}
CALL = re.compile(rf"\b({'|'.join(PRINTING)})\(")
LITERALS = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\s*"((?:[^"\\]|\\.)*)")*')
CONVERSION = re.compile(r"%(?:zu|[supxd%])")
FILE_NAME = re.compile(r"(?<![\w<./*-])((?:[\w-]+/)*[A-Za-z][\w-]*\.(?:c|h|cc|hpp|md|py))\b"
                       r"(?![\w(]|\.\w)")
OPTIONS = "docs/reference/OPTIONS.md"
MESSAGES = "docs/reference/MESSAGES.md"
DECISIONS = "docs/dev/decisions"
# Pages that quote some of the messages.
QUOTING = ("README.md", "docs/HARDENING.md")
# Headers and names that are not ours.
OUTSIDE = {"asan_interface.h", "malloc.h", "memcheck.h", "valgrind.h", "xxhash_spec.md"}
OUTSIDE_FOLDERS = {"linux", "sys"}
OUTSIDE_NAMES = {"libgcc_s", "nothrow_t", "rt_sigprocmask"}
# Pages that are full of other allocators' names.
FOREIGN = ("SWITCHING.md",)
# Lines that are described in words: the statistics and settings of `verbose`, which begin with whom
# they are of, the frames of a stack, and a line that is put together before.
IN_WORDS = re.compile(r"%s(?![ :])|\s|%s$")


def literal_groups(text):
    """String literals, those side by side joined."""
    for match in LITERALS.finditer(text):
        parts = re.findall(r'"((?:[^"\\]|\\.)*)"', match.group(0))
        yield "".join(parts).replace('\\"', '"').replace("\\n", "\n")


def arguments(text, start):
    """Those of a call whose opening parenthesis ends at `start`."""
    depth = 1
    begin = start
    found = []
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[(),]', text[start:]):
        depth += {"(": 1, ")": -1}.get(match.group(0), 0)
        if depth == 0 or (depth == 1 and match.group(0) == ","):
            found.append(text[begin:start + match.start()])
            begin = start + match.end()
        if depth == 0:
            return found
    return []


def printed_lines(root):
    """(place, format) of each line that the sources print on stderr."""
    for path in sorted((root / "src").rglob("*.[ch]")):
        text = without_comments(path.read_text())
        for call in CALL.finditer(text):
            given = arguments(text, call.end())
            place = PRINTING[call.group(1)]
            for line in literal_groups(given[place] if len(given) > place else ""):
                if " " in line and not IN_WORDS.match(line):
                    yield f"{path.name}:{text.count(chr(10), 0, call.start()) + 1}", line
    for path in sorted((root / "include").rglob("*.h*")):
        for line in literal_groups(without_comments(path.read_text())):
            if line.startswith("cairn: "):
                yield path.name, line[len("cairn: "):].rstrip("\n")


def without_comments(text):
    def blank(match):
        found = match.group(0)
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|//[^\n]*', blank, text, flags=re.S)


def comments(text):
    """The same text with all but its comments blank."""
    inside = re.sub(r"[^\n]", " ", text)
    for match in re.finditer(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|//[^\n]*', text, flags=re.S):
        if not match.group(0).startswith('"'):
            inside = inside[:match.start()] + match.group(0) + inside[match.end():]
    return inside


def as_pattern(line):
    """A regular expression of the documented forms of a format: # is any value."""
    pattern = ""
    end = 0
    for match in CONVERSION.finditer(line):
        pattern += re.escape(line[end:match.start()])
        pattern += {"%s": ".+", "%%": "%"}.get(match.group(0), "#")
        end = match.end()
    return re.compile(pattern + re.escape(line[end:]))


def documented_lines(root):
    """(page, text, text with # for values) of each line that a page quotes."""
    for page in (root / name for name in (MESSAGES, *QUOTING)):
        for text in re.findall(r"`cairn: ([^`]+)`", page.read_text() if page.is_file() else ""):
            yield page.name, text, re.sub(r"0x…|\b(?:[APQNSKTV]|LINE|\d+)\b", "#", text)


def check_messages(root):
    printed = [(place, line, as_pattern(line)) for place, line in printed_lines(root)]
    documented = list(documented_lines(root))
    tables = [form for page, *forms in documented if page.startswith("MESSAGES") for form in forms]
    for place, line, pattern in printed:
        if not any(pattern.fullmatch(form) for form in tables):
            yield f"{place}: messages: not in {MESSAGES}: {line}"
    for page, text, form in documented:
        if not any(pattern.fullmatch(text) or pattern.fullmatch(form) for _, _, pattern in printed):
            yield f"{page}: messages: nothing prints: {text}"


def check_options(root):
    source = (root / "src/front/options.c").read_text()
    parsed = set(re.findall(r'\{"(\w+)", (?:\w*parse_\w+|NULL), ', source))
    for page in (OPTIONS, "README.md"):
        table = re.search(r"^\| key \|.*\n(?:\|.*\n)+", (root / page).read_text(), re.M)
        rows = set(re.findall(r"^\| `(\w+)` \|", table.group(0), re.M)) if table else set()
        for option in sorted(parsed - rows) if page != "README.md" else ():
            yield f"{page}: options: {option} is missing"
        for option in sorted(rows - parsed):
            yield f"{page}: options: nothing parses {option}"


def code_files(root):
    for folder in CODE:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def documents(root):
    """(path, text) of the pages, what is quoted in blocks left out; no measured results."""
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if path.is_file():
            text = path.read_text()
            yield path, re.sub(r"^```.*?^```", lambda block: "\n" * block.group(0).count("\n"),
                               text, flags=re.S | re.M)


def check_files(root):
    there = {path.name for folder in (*CODE, "docs") for path in (root / folder).rglob("*")}
    there |= {path.name for path in root.glob("*")} | OUTSIDE
    texts = [(path, comments(path.read_text())) for path in code_files(root)
             if path.suffix in C_SUFFIXES]
    for path, text in [*texts, *documents(root)]:
        for match in FILE_NAME.finditer(text):
            folder, _, name = match.group(1).rpartition("/")
            moved = folder.startswith("docs") and not (root / match.group(1)).is_file()
            if moved or name not in there and folder not in OUTSIDE_FOLDERS:
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(root)}:{line}: files: no {match.group(1)}"


def check_links(root):
    for path, text in documents(root):
        for match in re.finditer(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", text):
            if not (path.parent / match.group(1)).exists():
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(root)}:{line}: links: no {match.group(1)}"


def check_blocks(root):
    for page, line, what in unmarked(root):
        yield f"{page.relative_to(root)}:{line}: blocks: {what}"


def check_book(root):
    book = root / "mkdocs.yml"
    listed = re.findall(r"- ([\w/.-]+\.md)$", book.read_text() if book.is_file() else "", re.M)
    pages = set(listed)
    there = {str(path.relative_to(root / "docs")) for path in (root / "docs").rglob("*.md")}
    for page in sorted(there ^ pages) if pages else []:
        yield f"mkdocs.yml: book: {page} is {'missing' if page in there else 'not in docs/'}"
    for page in sorted(page for page in pages if listed.count(page) > 1):
        yield f"mkdocs.yml: book: {page} is listed twice"


def check_decisions(root):
    numbers = []
    for path in sorted((root / DECISIONS).glob("[0-9][0-9][0-9][0-9]-*.md")):
        numbers.append(path.name[:4])
        if not path.read_text().startswith(f"# {int(numbers[-1])}. "):
            yield f"{DECISIONS}/{path.name}:1: decisions: the heading has another number"
    for number in sorted(number for number in set(numbers) if numbers.count(number) > 1):
        yield f"{DECISIONS}: decisions: {numbers.count(number)} files have the number {number}"


def check_names(root):
    words = set(OUTSIDE_NAMES)
    for path in code_files(root):
        text = path.read_text(errors="replace")
        code = without_comments(text) if path.suffix in C_SUFFIXES else text
        words |= set(re.findall(r"\w+", code))
        words |= set(path.stem.split("."))
        for match in re.finditer(r'#include\s*[<"]([\w/]+)', text):
            words |= set(match.group(1).split("/"))
    for path in code_files(root):
        if path.suffix in C_SUFFIXES and path.relative_to(root).parts[0] == "src":
            text = comments(path.read_text())
            for match in re.finditer(r"(?<![\w<…*.-])[a-z]+_[a-z]\w*(?![\w*>….-])", text):
                if match.group(0) not in words:
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path.relative_to(root)}:{line}: names: no {match.group(0)}"
    for path, text in documents(root):
        if path.parent.name == "decisions" or path.name in FOREIGN:
            continue  # rejected options have names too
        for match in re.finditer(r"`([a-z]\w*_\w+)(?:\(\))?`", text):
            if match.group(1) not in words:
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(root)}:{line}: names: no {match.group(1)}"


def check_places(root):
    codes = [(path.relative_to(root).as_posix(), without_comments(path.read_text()))
             for path in code_files(root) if path.suffix in C_SUFFIXES]
    for path, text in documents(root):
        if path.parent.name == "decisions":
            continue
        for match in re.finditer(r"`((?:[\w-]+/)*[\w-]+\.(?:c|h|cc|hpp)):\s([^`]+)`", text):
            end = f"/{match.group(1)}"
            code = "".join(code for name, code in codes if f"/{name}".endswith(end))
            for name in re.split(r",\s+", match.group(2)):
                if re.fullmatch(r"[a-z]\w+", name) and not re.search(rf"\b{name}\b", code):
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path.relative_to(root)}:{line}: places: no {name} in {match.group(1)}"


def findings(root):
    for check in (check_options, check_messages, check_files, check_links, check_blocks, check_book,
                  check_decisions, check_names, check_places):
        yield from check(root)


def main():
    default = pathlib.Path(__file__).resolve().parents[1]
    found = list(findings(pathlib.Path(sys.argv[1]).resolve() if sys.argv[1:] else default))
    for finding in found:
        print(finding)
    print(f"check_docs: {len(found)} findings" if found else "check_docs: no findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
