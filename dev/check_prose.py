#!/usr/bin/env python3
"""Checks that documents, public headers, comments and messages are written in plain English.

usage: check_prose.py [PATH...]           files and folders; without any all files of the repository
       check_prose.py --comments PATH...  sources only: comments, and the texts that tools print

words     words and patterns to be decoded, and what to write in their place; the last commit's too
long      sentences of more than 35 words: in documents, headers and comments fewer than 2 % each
limits    the words of README.md and of docs/, and the number of pages for users
spelling  codespell, where it is installed
"""
import ast
import pathlib
import re
import shutil
import subprocess
import sys

from check_docs import comments

# Tracked files that have no prose, or words that are not Cairn's.
UNCHECKED = re.compile(r"LICENSE$|.*/corpus/|dev/symbols/|.*/(?:copyright|not-installed|runs\.txt)$"
                       r"|.*\.(?:abi|csv|gz|install|json|lock|png|svg|symbols|trace|tsv)$")
# Words of a file or a folder; words and number of the pages for users: docs without docs/dev. The
# limits only decrease.
WORDS_MAX = {"README.md": 900, "docs": 44000, "docs/reference": 6300}
USER_WORDS_MAX, USER_PAGES_MAX, USER_PAGES = 24000, 12, ("docs/*.md", "docs/reference/*.md")
SENTENCE_WORDS_MAX, LONG_SENTENCES_MAX = 35, 0.02
TEXTS, DASHED = {".md", "control", "changelog"}, {".sql", ".lua"}
C_LIKE = {".c", ".h", ".cc", ".hpp", ".rs", ".js", ".css", ".java", ".pml", ".map", ".list"}
SPELLED_RIGHT = "allocat,atleast,bu,crate,deques,fro,kown,nees,nnumber"

# Words and patterns, and their replacements. A space is any white space.
WORDS = {
    "mended": "fixed", "kin": "family", "beside": "next to", "amid": "during", "seldom": "rarely",
    "by turns": "in turn", "dearer": "more expensive", "the own": "its own", "pays": "costs",
    "the house": "the layout", "the gate": "CI", "receipts?": "measured saving", "hears?": "gets",
    "so (?:many|much)": "up to N", "so long": "as long as", "until then": "before that",
    "(?:likewise|as above)": "say it again", "(?:whoever|somebody|nobody)": "a noun",
    "(?:is|are|was|were|be) (?:told|asked)": "is reported, is checked",
    "(?:goes|go|went) (?:back|on)": "returns, continues",
    "(?:comes|come|came) (?:back|of|to an end)": "returns, results from, ends",
    "(?:lies|lay|stands(?! for)|stood)": "is, is stored, is documented"}
PATTERNS = [(re.compile(pattern.replace(" ", r"\s+"), re.I), use) for pattern, use in [
    *((rf"\b{word}\b", use) for word, use in WORDS.items()),
    (r"(?:^|[.;:,(] |\b(?:and|but|or|of|by|for|to|from|than|that) )who\b(?![^.]*\?)", "a noun"),
    (r"(?:^|[.;] )what\b(?![^.]*\?)", "a noun: the remaining pages"),
    (r"\bthe same(?=[.,;:)]| (?:of|for|again|is|are|goes)\b)", "name what is the same"),
    (r"(?:^|[.;] )is there\b(?![^.]*\?)", "exists"),
    (r"(?:^|[.;] )of (?:the )?\d", "the subject first"),
    (r"(?:^|\. )(?:the \w+'s|any thread|a hint|any time)\.", "a tag, or a sentence")]]


def markdown(text):
    """The prose of a page: one paragraph, list item or table cell after the other, lines kept."""
    text = re.sub(r"^ *```.*?^ *```|<!--.*?-->", lambda m: "\n" * m.group().count("\n"), text,
                  flags=re.S | re.M)
    text = re.sub(r"`[^`\n]*(?:\n[^`\n]+)?`", lambda m: "X" + "\n" * m.group().count("\n"), text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)|https?://\S+", r"\1", text)
    text = re.sub(r"^(?:\|[-:| ]+\||#.*)$", "", text, flags=re.M)
    text = re.sub(r"^[ \t]*(?:[-*>]|\d+\.)[ \t]+|[|]", "\0", text, flags=re.M)
    return re.sub(r"[*]{1,2}", "", text)


def is_text(path):
    return path.suffix in TEXTS or path.name in TEXTS


def prose(path):
    """A page's; else comments; also the docstrings of Python, and the texts that tools print."""
    text = path.read_text(errors="replace")
    if is_text(path):
        return markdown(text)
    if path.suffix.lower() in C_LIKE:
        text = re.sub(r"^ *(?://+[/!]?|\*(?!/))", "", comments(text), flags=re.M)
        return re.sub(r"^[ \t]*(?:$|- )|/\*+|\*/|//", "\0", text, flags=re.M)
    mark = "--" if path.suffix in DASHED else "#"
    lines = [""] * (text.count("\n") + 2)
    for note in re.finditer(rf"^(?:[^'\"#\n]*\s)?{mark}+(?: (.*)|$)", text, re.M):
        lines[text.count("\n", 0, note.end())] = note.group(1) or "\0"
    python = path.suffix == ".py" or re.match(r"#!.*python", text)
    for node in ast.walk(ast.parse(text)) if python else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (
                node.value.count(" ") > 2 and ("tools" in path.parts or node.col_offset < 9)):
            for offset, line in enumerate(node.value.splitlines()):
                lines[min(node.lineno - 1 + offset, len(lines) - 1)] += (
                    line if offset and line.strip() else "\0" + line)
    return "\n".join(lines)


def paragraphs(text):
    for match in re.finditer(r"[^\0]+?(?=\0|\n[ \t]*\n|\Z)", text):
        if words := match.group().strip():
            yield text.count("\n", 0, match.start() + match.group().index(words)) + 1, words


def check_words(name, text):
    for line, paragraph in paragraphs(text):
        for pattern, use in PATTERNS:
            for match in pattern.finditer(paragraph):
                at = line + paragraph.count("\n", 0, match.start())
                yield f"{name}:{at}: words: '{' '.join(match.group().split())}': {use}"


def check_lengths(kind, pages):
    sentences = [(f"{name}:{line}", sentence) for name, text in pages
                 for line, paragraph in paragraphs(text)
                 for sentence in re.split(r"(?<=[.?!])\s+", paragraph) if " " in sentence]
    long = [f"{place}: long: {' '.join(sentence.split()[:8])}…" for place, sentence in sentences
            if len(re.findall(r"\w[\w'’.-]*", sentence)) > SENTENCE_WORDS_MAX]
    if sentences:
        print(f"check_prose: {100 * len(long) / len(sentences):.2f} % of {len(sentences)} "
              f"sentences of {kind} are long")
    return long if len(long) >= LONG_SENTENCES_MAX * len(sentences) else []


def check_limits(root):
    for shelf, limit in WORDS_MAX.items():
        words = sum(len(path.read_text().split()) for path in files(root, [shelf]) if is_text(path))
        print(f"check_prose: {shelf} has {words} words of {limit}")
        if words > limit:
            yield f"{shelf}:1: limits: {words} words, over {limit}"
    pages = [path.read_text() for pattern in USER_PAGES for path in root.glob(pattern)]
    words = sum(len(page.split()) for page in pages)
    print(f"check_prose: users have {len(pages)} pages of {USER_PAGES_MAX}, {words} words of "
          f"{USER_WORDS_MAX}")
    if len(pages) > USER_PAGES_MAX:
        yield f"docs:1: limits: more than {USER_PAGES_MAX} pages for users"
    if words > USER_WORDS_MAX:
        yield f"docs:1: limits: {words} words for users, over {USER_WORDS_MAX}"


def run(root, *command):
    return subprocess.run(command, cwd=root, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False).stdout


def files(root, names):
    """The files with these names; of folders the tracked files, and all files outside of git."""
    for path in (root / name for name in names):
        if path.is_dir():
            tracked = run(path, "git", "ls-files").split() or [p.name for p in path.glob("*.*")]
            yield from (path / name for name in tracked if not UNCHECKED.match(
                str((path / name).relative_to(root))))
        else:
            yield path


def findings(root, names, sources_only=False):
    texts = [(str(path.relative_to(root)), prose(path)) for path in files(root, names)
             if not (sources_only and is_text(path))]
    for name, text in texts:
        yield from check_words(name, text)
    kinds = {"documents": [], "headers": [], "comments": []}
    for name, text in texts:
        kinds["documents" if name.endswith(".md") else "headers" if name.startswith("include/")
              else "comments"].append((name, text))
    for kind, pages in kinds.items():
        yield from check_lengths(kind, pages)
    if texts and shutil.which("codespell"):
        yield from run(root, "codespell", "-L", SPELLED_RIGHT, *(n for n, _ in texts)).splitlines()


def main(arguments):
    root = pathlib.Path(__file__).resolve().parents[1]
    names = [pathlib.Path(name).resolve() for name in arguments if name != "--comments"]
    found = list(findings(root, names or [root], "--comments" in arguments))
    if not names:
        message = run(root, "git", "log", "-1", "--format=%B")
        found += [*check_limits(root), *check_words("commit", message)]
    print(*found, f"check_prose: {len(found) or 'no'} findings", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
