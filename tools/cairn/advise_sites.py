"""A file of sites (docs/SITES.md) from advice, and what it gives on the real program."""

import pathlib
import re
import subprocess

import typer

from cairn import compare, output, run_command
from cairn.advise_summary import shortest_stacks
from cairn.advise_verdicts import LEAST_SHARE
from cairn.console import note, say
from cairn.errors import UserError
from cairn.measure import with_cairn

GROUPS_MOST, SITES_MOST, FRAMES_MOST = 32, 1024, 32  # of src/watch/site_list.h
WRITE_OPTION = typer.Option(
    None, "--write-sites", metavar="OUT", show_default=False,
    help="Write a file for the library's option sites: it serves the sites that gain from a heap "
         "of their own apart, without a change to the program.")
CHECK_OPTION = typer.Option(
    None, "--check-sites", metavar="FILE", show_default=False,
    help="Run the program with such a file and without it, by turns, and compare; nothing is "
         "traced.")
NAME = re.compile(r"\W+", re.ASCII)


def is_served(advice, whole):
    """Whether a heap of their own helps: it is the advice, or they stay to the end and hold pages
    until then."""
    pinned = sum(site["pinned_bytes"] for site in advice.verdict.sites)
    return advice.verdict.kind == "pins pages" or (
        advice.verdict.kind == "leak" and pinned >= LEAST_SHARE * whole["peak_bytes"])


def _group_names(found, summary):
    """A name for each advice, of the function that allocates; the last one is for all that are too
    many."""
    names = []
    for number, advice in enumerate(found, 1):
        place = summary.place(advice.verdict.sites[0])
        name = NAME.sub("_", place.function.partition("(")[0]).strip("_")[:40] or "site"
        names.append(f"{name}-{number}" if number < GROUPS_MOST else "others")
    return names


class _Modules:
    """The modules that frames lie in, numbered as they come."""

    def __init__(self, summary):
        self._summary = summary
        self.numbers = {}  # {(build id, path): number}

    def frame(self, address):
        """The words of a return address; None where its file is not here."""
        located = self._summary.locate(address)
        if located is None:
            return None
        build_id, path, offset = located
        number = self.numbers.setdefault((build_id, path), len(self.numbers) + 1)
        return f"{number}+{offset:#x}"

    def lines(self):
        return [f"module {number} {build_id or '-'} {path}"
                for (build_id, path), number in self.numbers.items()]


def sites_text(found, trace, summary):
    """(the file, remarks) for advice whose sites are to be served apart."""
    modules, remarks, lines = _Modules(summary), [], []
    stacks = [{stack for site in advice.verdict.sites for stack in site["stacks"]}
              for advice in found]
    shortest, alike = shortest_stacks(trace, stacks, FRAMES_MOST)
    sites = lost = 0
    for advice, name, frames in zip(found, _group_names(found, summary), shortest):
        lines.append(f"# {advice.verdict.kind}: {summary.place(advice.verdict.sites[0])}")
        for stack in frames:
            words = [modules.frame(address) for address in stack]
            if None in words or sites == SITES_MOST:
                lost += 1
                continue
            sites += 1
            lines.append(f"segregate {name} {' '.join(words)}")
    if alike:
        remarks.append(f"{alike} stacks cannot be told from those of other sites by "
                       f"{FRAMES_MOST} frames, and are left out")
    if lost:
        remarks.append(f"{lost} stacks are left out: their code is not in a file that is here, or "
                       f"there are more than {SITES_MOST}")
    return "\n".join(["cairn-sites 1", *modules.lines(), *lines]) + "\n", remarks, sites


def write(path, found, trace, summary):
    """Writes the file for the advice that it can follow."""
    served = [advice for advice in found if is_served(advice, summary.data)]
    text, remarks, sites = sites_text(served, trace, summary)
    for remark in remarks:
        note(remark)
    output.write("--write-sites", path, text)
    if sites:
        note(f"{path} names {sites} {'site' if sites == 1 else 'sites'}; what they save says\n"
             f"  cairn advise --check-sites {path} -- PROGRAM")
    else:
        note(f"{path} names no site: no advice is a heap of their own")


def hint(found, summary, written):
    """Says how to have it without a change to the program, where that is to be had and was not."""
    if not written and any(is_served(advice, summary.data) for advice in found):
        say("\nWithout a change to the program: --write-sites FILE gives such sites heaps of their "
            "own.")


def _check_found(path, command, library):
    """Says how many blocks came from each group, and what the library says of the file."""
    done = subprocess.run(command, env=with_cairn(library, f"sites:{path},verbose:on"),
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, check=False)
    words = done.stderr.decode(errors="replace")
    for line in re.findall(r"^cairn: ((?:no )?sites: .*)$", words, re.M):
        note(line)
    counts = {}
    for name, count in re.findall(r"^cairn: \d+ \(.*?\): sites: group (\S+): (\d+) blocks$", words,
                                  re.M):
        counts[name] = counts.get(name, 0) + int(count)
    if not any(counts.values()):
        raise UserError(f"{path}: no block of {command[0]} came from one of its sites")
    for name, count in counts.items():
        say(f"group {name}: {count} blocks")


def check(path, command, library, rounds):
    """Runs the program with the file and without it, by turns, and says what that changed."""
    path = pathlib.Path(path).resolve()
    if not path.is_file():
        raise UserError(f"--check-sites {path}: no such file")
    if "," in str(path):
        raise UserError(f"--check-sites {path}: a path without a comma is needed")
    _check_found(path, command, library)
    sides = [compare.Side("as it is", library),
             compare.Side("sites apart", library, options=f"sites:{path}")]
    plan = run_command.Plan(command)
    early = run_command.measure_sides(plan, sides, rounds, 1)
    raise typer.Exit(run_command.finish(plan, sides, {}, early, rounds))
