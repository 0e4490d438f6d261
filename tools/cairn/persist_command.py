"""`cairn persist`: examines the file of a persistent heap."""

import pathlib
import subprocess

import typer
from rich.table import Table

from cairn import files
from cairn.console import out, print_json, say
from cairn.errors import UserError, as_sentences, signal_name
from cairn.texts import json_text

DAMAGED = 1  # the exit status of cairn-persist, and of `check`, for a damaged heap
MOST_BYTES = 4096

app = typer.Typer(help="Examine the file of a persistent heap (cairn/persist.h).",
                  no_args_is_help=True, pretty_exceptions_enable=False)

FILE = typer.Argument(..., metavar="FILE", show_default=False, help="The heap's file.")
JSON = typer.Option(False, "--json", help="Print JSON.")


class Damage(UserError):
    """A heap is damaged, as found by cairn-persist."""

    status = DAMAGED


def _sentence(words, status):
    if status < 0:
        end = f"cairn-persist was ended by {signal_name(-status)}"
        return f"{end}: {words}" if words else end
    return words or f"cairn-persist ended with status {status}"


def look(command, path, *arguments):
    """Yields the words of each line that cairn-persist prints. Raises UserError on its failures."""
    finding = None
    with subprocess.Popen([str(files.program("cairn-persist")), command, str(path), *arguments],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, errors="surrogateescape") as process:
        try:
            for line in process.stdout:
                words = line.rstrip("\n").split("\t")
                if words[0] == "finding":
                    finding = words[1]
                else:
                    yield words
            text = process.stderr.read().strip()
        except BaseException:
            process.terminate()  # its output is no longer read
            raise
    if finding:
        raise Damage(f"{path}: {finding}")
    if process.returncode:
        raise UserError(f"{path}: {_sentence(text, process.returncode)}")


def numbers(command, path):
    """The output of a command that prints one number on each line."""
    return {name: int(value) for name, value in look(command, path)}


def size_text(size):
    """A number of bytes with a unit."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return ""


def _log_text(values):
    if values["closed"]:
        return "not needed: the heap was closed"
    commits = values["log_commits"]
    kept = "no commits" if not commits else f"commit {values['last_commit']}" if commits == 1 \
        else f"commits {values['last_commit'] - commits + 1} to {values['last_commit']}"
    return (f"{kept}, which the next open brings to the file; {size_text(values['log_file_bytes'])}"
            f" ({size_text(values['log_disk_bytes'])} on disk)")


@app.command()
@as_sentences
def info(path: pathlib.Path = FILE, as_json: bool = JSON):
    """Print format, sizes, used bytes, the last commit and the contents of the log.

    Nothing is written; a heap that crashed is shown as its next open would find it.
    """
    values = numbers("info", path)
    if as_json:
        values["closed"] = bool(values["closed"])
        print_json({"file": str(path), **values})
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in (
            ("format", f"version {values['version']}, pages of {values['page_bytes']} bytes"),
            ("file", f"{size_text(values['file_bytes'])} "
                     f"({size_text(values['disk_bytes'])} on disk)"),
            ("heap", size_text(values["size_bytes"])),
            ("used", f"{size_text(values['used_bytes'])} in {values['used_blocks']} blocks"),
            ("free", size_text(values["free_bytes"])),
            ("roots", str(values["roots"])),
            ("last commit", str(values["last_commit"])),
            ("log", _log_text(values)),
            ("address", f"{values['address']:#x}" if values["address"] else "not yet chosen"),
            ("identity", f"{values['identity']:016x}")):
        table.add_row(name, text)
    out.print(table)


@app.command()
@as_sentences
def check(path: pathlib.Path = FILE, as_json: bool = JSON):
    """Check the whole heap: headers, log, allocator, blocks and roots.

    Exit status 0 when all is sound, 1 with a sentence on the first fault found, 2 when the heap
    could not be read. Nothing is written.
    """
    finding = None
    try:
        values = numbers("check", path)
    except Damage as damage:
        finding = str(damage)
    if as_json:
        findings = [finding] if finding else []
        print_json({"file": str(path), "sound": not findings, "findings": findings})
    else:
        say(finding or f"{path}: sound: {values['used_blocks']} blocks in use, {values['roots']} "
                       f"roots, commit {values['last_commit']}")
    raise typer.Exit(DAMAGED if finding else 0)


def _name_of(text):
    return bytes.fromhex(text).decode(errors="surrogateescape")


def _as_value(words):
    if words[0] == "root":
        return {"name": _name_of(words[1]), "offset": None if words[2] == "-" else int(words[2])}
    return {"offset": int(words[1]), "bytes": int(words[2]), "used": words[3] == "1",
            "contents": words[4]}


def _shown(contents):
    text = bytes.fromhex(contents)
    return contents + "  " + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in text)


def _dump_text(lines):
    names = {}
    block_seen = False
    for words in lines:
        value = _as_value(words)
        if words[0] == "root":
            place = "nothing" if value["offset"] is None else f"{value['offset']:#x}"
            names.setdefault(value["offset"], []).append(value["name"])
            out.file.write(f"root {value['name']!r}: {place}\n")
            continue
        if not block_seen:
            out.file.write(f"{'offset':>12} {'bytes':>12} state\n")
            block_seen = True
        state = "used" if value["used"] else "free"
        root = "".join(f" {name!r}" for name in names.get(value["offset"], ()))
        shown = "  " + _shown(value["contents"]) if value["contents"] else ""
        out.file.write(f"{value['offset']:#12x} {value['bytes']:>12} {state}{root}{shown}\n")


def _dump_json(lines):
    """Prints one line for each root or block as it arrives: a heap can have millions."""
    part, separator = "root", '{"roots": [\n'
    for words in lines:
        if words[0] != part:
            out.file.write((separator if separator.startswith("{") else "\n") + '], "blocks": [')
            part, separator = words[0], "\n"
        out.file.write(separator + json_text(_as_value(words)))
        separator = ",\n"
    out.file.write("\n]}\n")


@app.command()
@as_sentences
def dump(path: pathlib.Path = FILE, as_json: bool = JSON,
         contents: int = typer.Option(16, min=0, max=MOST_BYTES, metavar="BYTES",
                                      help="Print N bytes of each block in use.")):
    """Print the roots and all blocks, in the order of their offsets in the heap.

    The block of a root has its name next to it; each name is stored in a block of its own. A
    damaged heap is not printed: exit status 1. Nothing is written.
    """
    (_dump_json if as_json else _dump_text)(look("dump", path, str(contents)))


@app.command()
@as_sentences
def compact(path: pathlib.Path = FILE, as_json: bool = JSON):
    """Return the disk space of the heap's log and of its free pages.

    A new file replaces the heap as a whole, or the heap stays unchanged: when it is in use,
    damaged, or nothing is gained. Blocks keep their places, since only the program knows the
    pointers to them. The file keeps its length: free pages become holes.
    """
    values = numbers("compact", path)
    before, after = values["disk_bytes_before"], values["disk_bytes"]
    if as_json:
        values["replaced"] = bool(values["replaced"])
        print_json({"file": str(path), **values})
    elif values["replaced"]:
        say(f"{path}: {size_text(before)} on disk before, {size_text(after)} now; its length is "
            f"{size_text(values['file_bytes'])}, with holes")
    else:
        say(f"{path}: {size_text(before)} on disk; it cannot become smaller")
