"""Finds the blocks of commands in the documents, and the comments that qualify them.

A block is fenced and has a language. ```sh contains commands only. In ```console each command
follows `$ ` (continuation lines follow `> `), and its output follows the command. dev/run_docs.py
runs the blocks of a page in order in one shell. HTML comments above a block change this:

    <!-- not run: REASON -->     never run: it needs another machine or root, or is a pattern
    <!-- long: REASON -->        only run by dev/prove-docs
    <!-- needs: PROGRAM… -->     skipped if one of these programs is not installed
    <!-- status: N -->           the exit status of the last command of the block
    <!-- exact: REASON -->       the figures that are shown are those of each run
"""
import dataclasses
import re

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w+-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```",
                   re.S | re.M)
MARKER = re.compile(r"<!-- (not run|long|needs|status|exact): (\S.*?) -->\s*\Z")
COMMANDS = ("sh", "console")
# The beginning of a command line, in a block whose language is not one of commands.
LOOKS_RUN = re.compile(
    r"^(?:\$ |(?:sudo|cairn|make|cmake|ctest|apt-get|apt|dpkg|pip|cargo|docker|"
    r"kubectl|systemctl|LD_PRELOAD=|CAIRN_OPTIONS=|dev/|tools/bin/|build/)\b)", re.M)
# Folders of records, whose commands need not work any more.
RECORDS = ("decisions",)


@dataclasses.dataclass
class Block:
    line: int
    language: str
    text: str
    markers: dict

    @property
    def commands(self):
        """(command, the lines printed or None where none are shown) of a block to be run."""
        if self.language == "sh":
            return [(self.text, None)]
        found = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append([line[2:], []])
            elif line.startswith("> ") and found and not found[-1][1]:
                found[-1][0] += "\n" + line[2:]
            elif found:
                found[-1][1].append(line)
        return [(command + "\n", shown or None) for command, shown in found]


def blocks(text):
    for match in FENCE.finditer(text):
        indent = match.group("indent")
        body = re.sub(rf"^{indent}", "", match.group("text"), flags=re.M)
        markers = {}
        before = text[:match.start()]
        while found := MARKER.search(before):
            markers[found.group(1)] = found.group(2)
            before = before[:found.start()]
        yield Block(text.count("\n", 0, match.start()) + 1, match.group("language"), body, markers)


def pages(root):
    """README.md, CONTRIBUTING.md, bench/README.md, and docs/ without its records."""
    found = [*(root / name for name in ("README.md", "CONTRIBUTING.md", "bench/README.md")),
             *sorted((root / "docs").rglob("*.md"))]
    return [page for page in found
            if page.is_file() and not set(page.relative_to(root).parts) & set(RECORDS)]


def unmarked(root):
    """(page, line, what) of each block that would escape the test."""
    for page in pages(root):
        text = page.read_text()
        for block in blocks(text):
            if not block.language:
                yield page, block.line, "a block without a language (text, if it is none)"
            elif block.language == "console" and not block.commands:
                yield page, block.line, "a console block without a line that begins with '$ '"
            elif block.language == "text" and LOOKS_RUN.search(block.text):
                yield page, block.line, "commands in a block that is not run: sh or console"
        outside = FENCE.sub(lambda match: "\n" * match.group(0).count("\n"), text)
        for match in re.finditer(r"\n\n {4}(\S.*)\n", outside):
            if LOOKS_RUN.search(match.group(1)):
                line = outside.count("\n", 0, match.start()) + 3
                yield page, line, "commands in an indented block: fence it"
