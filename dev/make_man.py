#!/usr/bin/env python3
"""Writes the manual pages of the commands from their own --help, one page for each command with its
subcommands, and the pages on options and messages from the documents.

usage: make_man.py DIRECTORY      writes DIRECTORY/man1/*.1; with lowdown, DIRECTORY/man7/*.7

Needs typer.
"""
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import click
import typer

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "fleet")]
import cairn_fleet.cli  # pylint: disable=wrong-import-position
from cairn import VERSION, cli  # pylint: disable=wrong-import-position

# The page, the document, and what the line NAME says.
DOCUMENTS = [
    ("cairn.options", "reference/OPTIONS.md", "what CAIRN_OPTIONS takes"),
    ("cairn.messages", "reference/MESSAGES.md", "the lines that Cairn prints, and what to do"),
    ("cairn.switching", "SWITCHING.md", "from another allocator to Cairn"),
    ("cairn.tuning", "TUNING.md", "Cairn's options by symptom"),
]


def page_of(document):
    """The man page that a document is named by in other pages, or its place in the documents."""
    for page, name, _ in DOCUMENTS:
        if pathlib.PurePath(name).name == pathlib.PurePath(document).name:
            return f"{page}(7)"
    return f"share/doc/cairn/docs/{document.removeprefix('../')}"


def without_links(text):
    """A page on paper: a link's words, and where it leads when the words do not say so."""
    def named(match):
        words, target = match.groups()
        place = page_of(target)
        return place if words == pathlib.PurePath(target).name else f"{words} ({place})"
    text = re.sub(r"\[([^\]]+)\]\(#[\w-]*\)", r"\1", text)
    return re.sub(r"\[([^\]]+)\]\(([\w./-]+\.md)(?:#[\w-]*)?\)", named, text)


def roomy_tables(made):
    """Tables without lines, whose last column takes the rest of the width."""
    return re.sub(r"^tab\(\|\) expand allbox;\n(.*)b\n(.*)\.$", r"tab(|) expand;\n\1bx\n\2x.", made,
                  flags=re.M)


def day():
    """The date of the pages; SOURCE_DATE_EPOCH makes builds reproducible."""
    now = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return time.strftime("%Y-%m-%d", time.gmtime(now))


def write(page, text):
    page.write_text(re.sub(r"^(\.S[HS]\s.*\n)\.[LP]P\n", r"\1", text, flags=re.M))


def write_document(directory, page, document, what):
    text = without_links((ROOT / "docs" / document).read_text())
    text = text.split("\n", 1)[1]  # the heading: NAME stands for it
    made = subprocess.run(["lowdown", "-Tman", "--parse-no-metadata", "--parse-no-super"],
                          input=text, text=True, check=True, stdout=subprocess.PIPE).stdout
    made = made.replace("\\fC", "\\fB")  # bold is what pages use for what is typed
    made = roomy_tables(made.replace("\\e|", "|"))
    # The first line names the preprocessor that a page needs.
    tables = "'\\\" t\n" if "\n.TS" in made else ""
    head = (f'{tables}.TH "{page}" 7 "{day()}" "Cairn {VERSION}"\n.ad l\n.nh\n.SH NAME\n'
            f"{page} \\- {what}\n.SH DESCRIPTION\n")
    write(directory / f"{page}.7", head + made)


def roff(text):
    """A line of help as roff: `code` is bold. Newer ones of typer escape brackets for rich."""
    text = text.replace("\\[", "[").replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", text)
    return re.sub(r"^([.'])", r"\\&\1", text)


def paragraphs(text):
    """The paragraphs of a help text; an indented one keeps its lines."""
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text or "").replace("\b\n", "")):
        lines = [roff(line) for line in part.splitlines()]
        if all(line.startswith(" ") for line in lines):
            yield from (".PP", ".nf", *lines, ".fi")
        elif lines:
            yield from (".PP", *(line.strip() for line in lines))


def sentence(command):
    """The first one of the help, for the line NAME: lower case, without its full stop."""
    first = re.split(r"[.:](?:\s|$)", " ".join((command.help or "").split()), maxsplit=1)[0]
    return roff(first[0].lower() + first[1:])


def usage_of(context):
    pieces = context.command.collect_usage_pieces(context)
    return f"\\fB{roff(context.command_path)}\\fR {roff(' '.join(pieces))}"


def parameters(context):
    """The arguments and options, each with its help."""
    for parameter in context.command.params:
        record = None if getattr(parameter, "hidden", False) else parameter.get_help_record(context)
        if record and record[1]:
            words = re.sub(r"\bINTEGER(?: RANGE)?\b", "N", record[0])
            text = re.sub(r"\[required\]|(?:; )?x>=\d+|\[x>=\d+\]", "", record[1]).strip()
            yield from (".TP", f"\\fB{roff(words)}\\fR", roff(text.removesuffix("[]").strip()))


def inner_commands(context):
    for name, command in getattr(context.command, "commands", {}).items():
        if not command.hidden:
            yield click.Context(command, info_name=name, parent=context)


def command_page(context, has_own_pages, others):
    """The page of a command. Subcommands with pages of their own are listed, others described."""
    name = context.command_path.replace(" ", "-")
    lines = [f'.TH "{name.upper()}" 1 "{day()}" "Cairn {VERSION}"', ".SH NAME",
             f"{roff(name)} \\- {sentence(context.command)}", ".SH SYNOPSIS", usage_of(context),
             ".SH DESCRIPTION", *paragraphs(context.command.help)]
    if found := list(parameters(context)):
        lines += [".SH ARGUMENTS AND OPTIONS", *found]
    inner = list(inner_commands(context))
    if inner:
        lines.append(".SH COMMANDS")
    for one in inner:
        if has_own_pages:
            page = roff(one.command_path.replace(" ", "-"))
            lines += [".TP", f".BR {page} (1)", sentence(one.command)]
        else:
            lines += [f".SS {roff(one.info_name)}", usage_of(one), *paragraphs(one.command.help),
                      *parameters(one)]
    also = [f".BR {roff(page)} ({section})" for page, section in others if page != name]
    return "\n".join([*lines, ".SH SEE ALSO", *(f"{line}," for line in also[:-1]), also[-1], ""])


def command_pages():
    """{name of a page: its text}; `cairn` and each of its commands, and cairn-fleet."""
    cairn = click.Context(typer.main.get_command(cli.app), info_name="cairn")
    fleet = click.Context(typer.main.get_command(cairn_fleet.cli.app), info_name="cairn-fleet")
    contexts = [cairn, *inner_commands(cairn), fleet]
    others = [(context.command_path.replace(" ", "-"), 1) for context in contexts]
    if shutil.which("lowdown"):
        others += [(page, 7) for page, _, _ in DOCUMENTS]
    return {name: command_page(context, context is cairn, others)
            for context, (name, _) in zip(contexts, others)}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    commands, documents = (pathlib.Path(sys.argv[1], name) for name in ("man1", "man7"))
    commands.mkdir(parents=True, exist_ok=True)
    for name, text in command_pages().items():
        write(commands / f"{name}.1", text)
    if not shutil.which("lowdown"):
        return
    documents.mkdir(parents=True, exist_ok=True)
    for entry in DOCUMENTS:
        write_document(documents, *entry)


if __name__ == "__main__":
    main()
