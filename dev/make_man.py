#!/usr/bin/env python3
"""Writes the manual pages: those of the commands from their own --help, those on options and
messages from the documents.

usage: make_man.py DIRECTORY      writes DIRECTORY/man1/*.1 and DIRECTORY/man7/*.7

Needs click-man, typer and lowdown.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

import click
import typer
from click_man.man import ManPage

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
    return re.sub(r"\[([^\]]+)\]\(([\w./-]+\.md)(?:#[\w-]*)?\)", named, text)


def day():
    """The date of the pages; SOURCE_DATE_EPOCH makes builds reproducible."""
    now = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return time.strftime("%Y-%m-%d", time.gmtime(now))


def write(page, text):
    page.write_text(re.sub(r"^(\.S[HS]\s.*\n)\.[LP]P\n", r"\1", text, flags=re.M))


def write_document(directory, page, document, what):
    text = without_links((ROOT / "docs" / document).read_text())
    text = text.split("\n", 1)[1]  # the heading: NAME stands for it
    made = subprocess.run(["lowdown", "-Tman", "--parse-no-metadata"], input=text, text=True,
                          check=True, stdout=subprocess.PIPE).stdout
    made = made.replace("\\fC", "\\fB")  # bold is what pages use for what is typed
    # The first line names the preprocessor that a page needs.
    tables = "'\\\" t\n" if "\n.TS" in made else ""
    head = (f'{tables}.TH "{page}" 7 "{day()}" "Cairn {VERSION}"\n.SH NAME\n'
            f"{page} \\- {what}\n.SH DESCRIPTION\n")
    write(directory / f"{page}.7", head + made)


def write_command(directory, context):
    """Writes the page of a command and of its subcommands. click-man's own function needs
    distutils, which Python 3.12 and later do not have."""
    command = context.command
    commands = getattr(command, "commands", {})
    page = ManPage(context.command_path)
    page.version, page.date = VERSION, day()
    page.short_help, page.description = command.get_short_help_str(), command.help
    page.synopsis = " ".join(command.collect_usage_pieces(context))
    records = [parameter.get_help_record(context) for parameter in command.params
               if isinstance(parameter, click.Option)]
    # Newer ones of typer escape the brackets for rich.
    page.options = [(words, text.replace("\\[", "[")) for words, text in filter(None, records)]
    page.commands = [(name, one.get_short_help_str()) for name, one in commands.items()]
    write(directory / f"{context.command_path.replace(' ', '-')}.1",
          str(page).replace("COMMAND<?>", "COMMAND..."))
    for name, one in commands.items():
        if not one.hidden:
            write_command(directory, click.Context(one, info_name=name, parent=context))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    commands, documents = (pathlib.Path(sys.argv[1], name) for name in ("man1", "man7"))
    for directory in (commands, documents):
        directory.mkdir(parents=True, exist_ok=True)
    command = typer.main.get_command(cli.app)
    write_command(commands, click.Context(command, info_name="cairn"))
    fleet = typer.main.get_command(cairn_fleet.cli.app)
    write_command(commands, click.Context(fleet, info_name="cairn-fleet"))
    for entry in DOCUMENTS:
        write_document(documents, *entry)


if __name__ == "__main__":
    main()
