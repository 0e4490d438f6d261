#!/usr/bin/env python3
"""Runs the commands of the documents unchanged, and compares their output.

usage: run_docs.py PREFIX [PAGE…] [--long]

PREFIX is an installation that replaces /usr/local. dev/doc_blocks.py defines which blocks are run.
The blocks of a page share a shell, in a new folder with links to the files of the source tree.
--long also runs the blocks marked `long`, in a clone of the source tree that is built anew. The
exit status is 1 if a command has another exit status than its block, or an output of another
shape: numbers, units and addresses may differ, words may not. A process that is asleep may be
running. A line … stands for any number of lines; it is for rows of tables and for lines that are
not always printed. No line printed may contain a name in braces, as of an f-string without its f.

Names that the documents use as examples are created: `program` and `service` (which exit at once),
`server` (which does not), program.c, and the folder /path.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from doc_blocks import COMMANDS, blocks, pages

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE_SECONDS = 120
LONG_PAGE_SECONDS = 3600
# Programs that a page speaks of as the reader's own.
OWN_PROGRAMS = {"program": "exec echo \"$@\"", "service": "exec echo \"$@\"",
                "server": "exec sleep 60"}
OWN_SOURCE = "#include <stdlib.h>\nint main(void) { free(malloc(100)); return 0; }\n"
NUMBER = r"[\d.,]+"
GROUPED = re.compile(r"\b\d{1,3}(?: \d{3})+\b")
UNFILLED = re.compile(r"\{[a-z_]\w*(?:[.\[][^{}]*)?\}")
STATE = "(?:asleep|running)"
TOKEN = re.compile(rf"…|(?<=\), ){STATE}(?=:)|"
                   r"0x[0-9a-f]+|\b[0-9a-f]{12}\b|\b[0-9a-f]{16}\b|"
                   r"\d[\d.,]*\d|\d|\b(?:[KMG]i)?B\b|\b[nµm]?s\b|\s+")
PRELUDE = """set -eE
exec 2>&1
trap 'status=$?; echo; echo "@@failed $status $BASH_COMMAND"' ERR
"""


def ungrouped(line):
    """40 374 is a number, not two."""
    return GROUPED.sub(lambda match: match.group(0).replace(" ", ""), line.strip())


def shape(line):
    """A regular expression of the lines that have this one's shape."""
    line = ungrouped(line)
    pattern, end = "", 0
    for match in TOKEN.finditer(line):
        pattern += re.escape(line[end:match.start()])
        found = match.group(0)
        if found == "…":
            pattern += ".*"
        elif re.fullmatch(STATE, found):
            pattern += STATE
        elif found.isspace():
            pattern += r"\s+"
        elif found[0] == "0" and found[1:2] == "x":
            pattern += "0x[0-9a-f]+"
        elif len(found) in (12, 16) and re.fullmatch("[0-9a-f]+", found):
            pattern += f"[0-9a-f]{{{len(found)}}}"
        elif found[0].isdigit():
            pattern += NUMBER
        elif found.endswith("B"):
            pattern += "(?:[KMG]i)?B"
        else:
            pattern += "[nµm]?s"
        end = match.end()
    return pattern + re.escape(line[end:])


def same_shape(shown, printed, is_exact=False):
    """The first line shown that nothing printed has the shape of, or None. A line … stands for any
    number of lines."""
    if is_exact:
        return next((line for line in shown if line not in printed), None)
    lines = [ungrouped(line) for line in printed if line.strip()]
    place, skips = 0, False
    for line in shown:
        if not line.strip():
            continue
        if line.strip() == "…":
            skips = True
            continue
        pattern = re.compile(shape(line))
        while skips and place < len(lines) and not pattern.fullmatch(lines[place]):
            place += 1
        if place == len(lines) or not pattern.fullmatch(lines[place]):
            return line
        place, skips = place + 1, False
    return None if skips or place == len(lines) else f"nothing for: {lines[place]}"


class Scratch:
    """A folder that looks like the reader's: the source tree, programs of the reader's own."""

    def __init__(self, folder, prefix, source):
        self.folder, self.prefix = pathlib.Path(folder), pathlib.Path(prefix).resolve()
        self.home = self.folder / "home"
        if source:
            self.home.symlink_to(source)
        else:
            self.home.mkdir()
            for entry in ROOT.iterdir():
                if entry.name != ".git":
                    (self.home / entry.name).symlink_to(entry)
        for name in ("bin", "log", "path"):
            (self.folder / name).mkdir()
        for name, text in OWN_PROGRAMS.items():
            program = self.folder / "bin" / name
            program.write_text(f"#!/bin/bash\n{text}\n")
            program.chmod(0o755)
        (self.home / "program.c").write_text(OWN_SOURCE)
        library = next(self.prefix.glob("lib/**/libcairn-malloc-hardened-light.so"),
                       next(self.prefix.glob("lib/**/libcairn-malloc.so"), None))
        if library is None:
            sys.exit(f"run_docs: no libcairn-malloc.so in {self.prefix}")
        (self.folder / "path" / "libmine.so").symlink_to(library)
        self.library_folder = library.parent

    def environment(self):
        kept = {name: value for name, value in os.environ.items()
                if name not in ("LD_PRELOAD", "CAIRN_OPTIONS", "MAKEFLAGS")}
        own = f"{self.folder / 'bin'}:{self.prefix / 'bin'}:"
        return {**kept, "PATH": own + kept["PATH"], "LC_ALL": "C.UTF-8", "COLUMNS": "100",
                "HOME": str(self.folder), "LD_LIBRARY_PATH": str(self.library_folder),
                "CMAKE_PREFIX_PATH": str(self.prefix),
                "PKG_CONFIG_PATH": str(self.library_folder / "pkgconfig")}

    def placed(self, command):
        """Where the reader's places are here."""
        library = str(self.library_folder) + "/"
        command = command.replace("/usr/local/lib/", library)
        for there, here in (("/usr/local", self.prefix), ("/var/log/", f"{self.folder}/log/"),
                            ("/path/", f"{self.folder}/path/")):
            command = re.sub(rf"(?<![\w.]){there}", str(here), command)
        return command


def left_out(block, long):
    """Why a block is not run, or None."""
    if "not run" in block.markers:
        return block.markers["not run"]
    if "long" in block.markers and not long:
        return f"by dev/prove-docs: {block.markers['long']}"
    missing = [name for name in block.markers.get("needs", "").split() if not has(name)]
    return f"{' and '.join(missing)} missing" if missing else None


def has(name):
    if name != "ptrace":
        return shutil.which(name) is not None
    scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"


def script_of(found, scratch):
    """The page as one shell script, which says before and after each command where it is."""
    lines = [PRELUDE]
    for number, block in enumerate(found):
        commands = block.commands
        for place, (command, _) in enumerate(commands):
            last = place == len(commands) - 1
            lines.append(f"echo; echo '@@run {number} {place}'")
            if "status" in block.markers and last:
                lines.append(f"trap - ERR; set +e\n{scratch.placed(command)}\nstatus=$?; set -eE\n"
                             "echo; echo \"@@status $status\"")
                lines.append(PRELUDE.splitlines()[-1])
            else:
                lines.append(scratch.placed(command))
    return "\n".join([*lines, "echo; echo '@@end'", ""])


def judge(found, output):
    """The faults of a page, from the output of its script."""
    parts = re.split(r"^@@run (\d+) (\d+)\n", output, flags=re.M)
    for number, place, text in zip(parts[1::3], parts[2::3], parts[3::3]):
        block = found[int(number)]
        command, shown = block.commands[int(place)]
        failed = re.search(r"^@@failed (\d+) (.*)", text, re.M | re.S)
        status = re.search(r"^@@status (\d+)\n", text, re.M)
        if failed:
            yield block, f"ended with {failed.group(1)}: {failed.group(2).strip()}\n{text.strip()}"
        if status and status.group(1) != block.markers["status"]:
            yield block, f"ended with {status.group(1)}, not {block.markers['status']}: {command}"
        printed = re.sub(r"^@@.*\n", "", text, flags=re.M).splitlines()
        for line in filter(UNFILLED.search, printed if shown else []):
            yield block, f"{command.strip()} prints a name in place of its value: {line}"
        differs = shown and not failed and same_shape(shown, printed, "exact" in block.markers)
        if differs:
            yield block, "\n".join([f"{command.strip()} prints otherwise: {differs}", *printed])
    if not re.search(r"^@@end$", output, re.M) and not re.search(r"^@@failed", output, re.M):
        yield found[-1], f"the page did not come to its end:\n{output[-2000:]}"


def run_page(page, prefix, long, source):
    """(blocks run, blocks left out with the reason, findings) of a page."""
    ours = [block for block in blocks(page.read_text()) if block.language in COMMANDS]
    reasons = [(block, left_out(block, long)) for block in ours]
    found = [block for block, reason in reasons if reason is None]
    skipped = [(block, reason) for block, reason in reasons if reason is not None]
    if not found:
        return found, skipped, []
    with tempfile.TemporaryDirectory(prefix="cairn-docs-") as folder:
        scratch = Scratch(folder, prefix, source)
        script = pathlib.Path(folder, "page.sh")
        script.write_text(script_of(found, scratch))
        log = pathlib.Path(folder, "output")
        with log.open("wb") as output, \
                subprocess.Popen(["bash", str(script)], stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=output, cwd=scratch.home, env=scratch.environment(),
                                 start_new_session=True) as shell:
            try:
                shell.wait(LONG_PAGE_SECONDS if long else PAGE_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:  # with what the page left in the background
                try:
                    os.killpg(shell.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        return found, skipped, list(judge(found, log.read_text(errors="replace")))


def timed(page, prefix, long, source):
    started = time.monotonic()
    return page, *run_page(page, prefix, long, source), time.monotonic() - started


def clone(folder):
    source = pathlib.Path(folder, "source")
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(source)], check=True)
    return source


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix")
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    parser.add_argument("--long", action="store_true")
    given = parser.parse_intermixed_args()
    count = faults = 0
    with tempfile.TemporaryDirectory(prefix="cairn-source-") as folder:
        source = clone(folder) if given.long else None
        chosen = [path.resolve() for path in given.pages] or pages(ROOT)
        # Side by side, for they mostly wait; but not builds in the one source tree.
        with ThreadPoolExecutor(1 if given.long else 3) as pool:
            for page, found, skipped, findings, seconds in pool.map(
                    lambda page: timed(page, given.prefix, given.long, source), chosen):
                name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
                for block, reason in skipped:
                    print(f"{name}:{block.line}: not run: {reason}")
                for block, what in findings:
                    print(f"{name}:{block.line}: {what}")
                if found:
                    print(f"{name}: {len(found)} blocks, {seconds:.1f} s", flush=True)
                count, faults = count + len(found), faults + len(findings)
    print(f"run_docs: {count} blocks run, {faults or 'no'} findings")
    sys.exit(1 if faults or not count else 0)


if __name__ == "__main__":
    main()
