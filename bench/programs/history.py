"""The history of a repository, as `git fast-import` reads it: commits, branches, merges and tags.

usage: history.py [COMMITS]   default 1000

The output depends on the argument only.
"""

import hashlib
import sys

FILES = 90
WHO = "A U Thor <author@example.com>"
START_S = 1_600_000_000


def content(path, version):
    """The text of a file at a version: few of its lines change from version to version."""
    lines = []
    for line in range(40 + path % 60):
        changed = version if line % 20 == version % 20 else 0
        lines.append(hashlib.sha256(f"{path} {line} {changed}".encode()).hexdigest())
    return "\n".join(lines) + "\n"


def data(text):
    return f"data {len(text)}\n{text}\n"


def commit(number):
    branch = "side" if number % 10 in (3, 4, 5) else "main"
    yield (f"commit refs/heads/{branch}\nmark :{number}\n"
           f"committer {WHO} {START_S + number * 60} +0000\n")
    yield data(f"Change {number}\n\n" + "because\n" * (number % 5))
    if number > 1:
        yield f"from :{number - 1}\n"
    if number % 10 == 6 and number > 10:
        yield f"merge :{number - 6}\n"
    for path in sorted({number % FILES, number * 7 % FILES, number * 31 % FILES}):
        yield f"M 100644 inline dir{path % 9}/file{path}.txt\n" + data(content(path, number))
    yield "\n"
    if number % 100 == 0:
        yield (f"tag release-{number}\nfrom :{number}\ntagger {WHO} {START_S + number * 60} +0000\n"
               + data("release"))


def main(arguments):
    for number in range(1, (int(arguments[0]) if arguments else 1000) + 1):
        sys.stdout.write("".join(commit(number)))


main(sys.argv[1:])
