"""`cairn inspect`: the layout of the heap of a process or a core file."""

import sys
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from cairn import other_malloc, output
from cairn.console import out, print_json, say
from cairn.errors import UserError, as_sentences
from cairn.look import Census, NoCairn, look, pass_on
from cairn.lost_blocks import contents, name_classes
from cairn.plan_report import print_pinned
from cairn.texts import bytes_text, share, target_text

CLASSES_SHOWN = 16
LARGEST_SHOWN = 5


def _table(title, *columns):
    out.print()
    out.print(title, style="bold")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def _print_kinds(census):
    measured = census.is_measured()
    table = _table("Where it is", "", "count", "bytes", *(["resident"] if measured else []))

    def row(name, count, size, resident):
        cells = [name, str(count) if count is not None else "", bytes_text(size)]
        if measured:
            cells.append(bytes_text(resident) if resident is not None else "")
        table.add_row(*cells)

    def kind_row(name, kind):
        values = census.kinds[kind]
        if values["count"]:
            row(name, values["count"], values["bytes"], values.get("resident_bytes", 0))

    row("live in slabs", census.sum("live"), census.sum("live_bytes"), None)
    row("  slabs of them", census.sum("slabs"), census.sum("slab_bytes"),
        census.sum("resident_bytes"))
    kind_row("large blocks", "large")
    kind_row("blocks with own mappings", "huge")
    if census.guarded["live"]:
        row("guarded blocks", census.guarded["live"], census.guarded["live_bytes"], None)
    kind_row("freed, and kept", "kept")
    kind_row("freed, addresses fault", "revoked")
    kind_row("pages of other allocators", "run")
    kind_row("free runs of pages", "free")
    row("metadata", None, census.pages["metadata_bytes"],
        census.pages.get("metadata_resident_bytes"))
    out.print(table)


def _print_classes(census, every):
    rows = sorted(census.classes, key=lambda row: -row["slab_bytes"])
    shown = rows if every else rows[:CLASSES_SHOWN]
    table = _table("Slabs, by size of their blocks", "size", "slabs", "live", "free", "fill",
                   "live bytes", "slab bytes", "no block in")
    for row in sorted(shown, key=lambda row: row["size_bytes"]):
        free = row["slots"] - row["live"]
        table.add_row(str(row["size_bytes"]), str(row["slabs"]), str(row["live"]), str(free),
                      share(row["live"], row["slots"]), bytes_text(row["live_bytes"]),
                      bytes_text(row["slab_bytes"]), bytes_text(row["idle_bytes"]))
    out.print(table)
    if len(shown) < len(rows):
        rest = rows[len(shown):]
        say(f"and {len(rest)} more sizes with {bytes_text(sum(r['slab_bytes'] for r in rest))} of "
            "slabs (--all)")
    sparse = census.sum("sparse_slabs")
    if sparse:
        say(f"{sparse} slabs are an eighth full at most: {bytes_text(census.sum('sparse_bytes'))} "
            f"held by {census.sum('sparse_live')} blocks")


def _print_heaps(census, every):
    rows = sorted(census.heaps, key=lambda row: -row["slab_bytes"])
    shown = rows if every else rows[:CLASSES_SHOWN]
    table = _table("Thread heaps", "heap", "thread", "slabs", "live", "live bytes", "slab bytes",
                   "to collect", "kept")
    for row in shown:
        table.add_row(f"{row['address']:x}", row["owner"], str(row["slabs"]), str(row["live"]),
                      bytes_text(row["live_bytes"]), bytes_text(row["slab_bytes"]),
                      bytes_text(row["remote_bytes"]), bytes_text(row["kept_bytes"]))
    out.print(table)
    if len(shown) < len(rows):
        say(f"and {len(rows) - len(shown)} more heaps (--all)")


def _print_free(census):
    rows = [row for row in census.lengths if row["name"] == "free"]
    if rows:
        table = _table("Free runs of pages, by length", "from", "count", "bytes")
        for row in rows:
            table.add_row(bytes_text(row["from_bytes"]), str(row["count"]),
                          bytes_text(row["bytes"]))
        out.print(table)
        say(f"{bytes_text(census.kinds['free']['dirty_bytes'])} of them not given back yet")
    if census.largest:
        table = _table("Largest blocks", "address", "bytes")
        for row in census.largest[:LARGEST_SHOWN]:
            table.add_row(f"{row['address']:#x}", bytes_text(row["bytes"]))
        out.print(table)


def _inspect_all(target, every, as_json):
    try:
        census = Census(target)
    except NoCairn:
        if as_json or not target.isdigit():
            raise
        other_malloc.describe(target)
        return
    if as_json:
        print_json({
            "target": census.target, "classes": census.classes, "heaps": census.heaps,
            "kinds": list(census.kinds.values()), "lengths": census.lengths,
            "largest": census.largest, "guarded": census.guarded, "pages": census.pages,
            "doubts": census.doubts})
        return
    say(target_text(census.target))
    for remark in census.remarks():
        say(remark)
    _print_kinds(census)
    _print_classes(census, every)
    _print_heaps(census, every)
    _print_free(census)


def _write_page(target, path):
    from cairn import inspect_page  # pylint: disable=import-outside-toplevel
    output.check_writable("--html", path)
    census = Census(target, spans=True)
    output.write("--html", path, inspect_page.page(census))


def _block_lines(rows):
    """Sentences about one address."""
    found = dict(rows)
    block, slab = found.get("block"), found.get("slab")
    if "foreign" in found:
        foreign = found["foreign"]
        if foreign.get("unmapped"):
            yield "nothing is mapped there, as far as the target shows"
        else:
            name = foreign["name"] or "without a name"
            yield f"no memory of Cairn's: in the mapping {foreign.get('mapping', '')} {name}"
        return
    if "start" not in block:
        yield str(block["state"])
    else:
        yield f"{block['state']}: {block['size_bytes']} bytes from {block['start']:#x}"
        if block["offset"]:
            yield f"the address is {block['offset']} bytes into it"
    if slab:
        owner = " packed," if slab["packed"] else ""
        yield (f"in the slab at {slab['start']:#x} of {slab['bytes']} bytes,{owner} "
               f"{slab['live']} of {slab['slots']} slots live, header at {slab['header']:#x}")
        if slab["kept"]:
            yield "the slab is empty, and its thread keeps it"
        else:
            inherited = ", of a thread that a fork left behind" if slab["inherited"] else ""
            yield f"of the thread heap at {slab['heap']:#x}{inherited}"


def _inspect_address(target, address, as_json):
    rows = look("address", target, address)
    if as_json:
        print_json(dict(rows))
        return
    say(target_text(dict(rows)["target"]))
    for line in _block_lines(rows):
        say(line)


HOLDERS = {"block": "a block", "stack": "a stack", "memory": "memory", "register": "a register",
           "kernel": "the kernel"}


def _holder_text(row):
    if row["kind"] == "block":
        return (f"{row['size_bytes']} bytes from {row['holder']:#x}, "
                f"{row['place'] - row['holder']} into it")
    return str(row.get("name", ""))


def _print_pointers(target, address, every, as_json):
    rows = look("pointers", target, address, *(["every"] if every else []))
    found = dict(rows)
    pointers = [values for kind, values in rows if kind == "pointer"]
    named = [row for row in (*pointers, found["block"]) if "begins" in row]
    for row in named:
        row["begins"] = row["begins"].removeprefix("x")
    name_classes(named)
    if as_json:
        print_json({"target": found["target"], "block": found["block"], "pointers": pointers,
                    "count": found["pointers"]["count"]})
        return
    block = found["block"]
    say(target_text(found["target"]))
    if found["target"]["kind"] == "process" and not found["target"]["stopped"]:
        say("The process was running: a pointer that moved during the search may be missing. Stop "
            "the process (kill -STOP) to find all.")
    if block["is_live"]:
        say(f"A live block: {block['size_bytes']} bytes from {block['start']:#x}"
            + (f", {block['class']}" if "class" in block else ""))
    else:
        say(f"No live block of Cairn is at {block['start']:#x}; pointers to exactly this address:")
    if not pointers:
        say("No pointer to it was found.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("pointer at", "in", "to offset", "which is", "begins with"):
        table.add_column(name, justify="right" if name == "to offset" else "left", overflow="fold")
    for row in pointers:
        table.add_row(f"{row['place']:#x}" if row["place"] else "", HOLDERS[row["kind"]],
                      str(row["offset"]), escape(_holder_text(row)),
                      escape(contents(row)) if row["kind"] == "block" else "")
    out.print()
    out.print(table)
    if len(pointers) < found["pointers"]["count"]:
        say(f"and {found['pointers']['count'] - len(pointers)} more (--all)")


@as_sentences
def inspect(  # pylint: disable=too-many-arguments, too-many-positional-arguments
        target: str = typer.Argument(..., metavar="PID|SOCKET|CORE", show_default=False,
                                     help="A process, its control socket, or a core "
                                     "file."),
        address: str = typer.Argument(None, metavar="ADDRESS", show_default=False,
                                      help="Describe only the block or memory at this address."),
        pointers: bool = typer.Option(False, "--pointers", help="List what points to the block at "
                                      "ADDRESS: blocks, stacks, other memory, registers."),
        blocks: bool = typer.Option(False, "--blocks",
                                    help="List every live block: its address and size in bytes."),
        pinned: bool = typer.Option(False, "--pinned",
                                    help="Report which blocks keep pages that are otherwise free: "
                                         "by size, and by site where the profiler has samples."),
        every: bool = typer.Option(False, "--all",
                                   help="Show all sizes, heaps, sites and pointers."),
        page: Path = typer.Option(None, "--html", metavar="FILE", show_default=False,
                                  help="Write the map of the heap as one HTML file."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON.")):
    """Describe the heap of a process or a core file by size, thread and address.

    The heap is read from outside: nothing runs in the process, which may be stopped. Of a process
    that does not run on Cairn, the malloc and the memory by kind are printed.
    """
    if pointers and address is None:
        raise UserError("--pointers needs the ADDRESS of a block")
    if address is not None and (blocks or pinned):
        words = "blocks lists" if blocks else "pinned counts"
        raise UserError(f"--{words} all blocks and takes no ADDRESS")
    if blocks and pinned:
        raise UserError("--blocks and --pinned cannot be combined")
    if page is not None and (address is not None or blocks or pinned or as_json):
        raise UserError("--html shows the whole heap and cannot be combined with other options")
    if page is not None:
        _write_page(target, page)
    elif blocks:
        sys.stdout.flush()
        pass_on("blocks", target)
    elif pointers:
        _print_pointers(target, address, every, as_json)
    elif address is not None:
        _inspect_address(target, address, as_json)
    elif pinned:
        print_pinned(target, every, as_json)
    else:
        _inspect_all(target, every, as_json)
