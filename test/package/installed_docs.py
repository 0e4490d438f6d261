#!/usr/bin/env python3
"""installed_docs.py PREFIX: what installed headers, tools and documents point to is installed, too.

Headers and tools name documents as docs/NAME.md, from the folder share/doc/cairn; documents link to
each other and name each other, from where they lie.
"""
import pathlib
import re
import sys

NAMED = re.compile(r"(?<![\w/-])((?:docs/|\.\./)?(?:reference/)?[A-Z][\w-]*\.md)\b")
LINKED = re.compile(r"\[[^\]]*\]\(([^)#]+)[^)]*\)")


def missing_in_files(files, root):
    for path in sorted(files):
        for name in NAMED.findall(path.read_text()):
            if not (root / name).is_file():
                yield f"{path.name}: {name}"


def missing_in_documents(root):
    for document in sorted((root / "docs").rglob("*.md")):
        text = document.read_text()
        for target in LINKED.findall(text):
            if "://" not in target and not (document.parent / target).exists():
                yield f"{document.name}: link to {target}"
        for name in NAMED.findall(LINKED.sub("", text)):
            if not ((document.parent / name).is_file() or (root / name).is_file()):
                yield f"{document.name}: {name}"


def main():
    prefix = pathlib.Path(sys.argv[1])
    root = prefix / "share" / "doc" / "cairn"
    headers = list((prefix / "include/cairn").glob("*.h*"))
    tools = list((prefix / "share/cairn").rglob("*.py"))
    missing = [*missing_in_files(headers + tools, root), *missing_in_documents(root)]
    for finding in missing:
        print(f"not installed: {finding}", file=sys.stderr)
    if not headers or not tools or not list((root / "docs").glob("*.md")):
        sys.exit(f"no headers, no tools or no documents in {prefix}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
