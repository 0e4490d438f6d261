"""Lost blocks: the lines of `cairn-look leaks`, with stacks from the profiler or a trace."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile

from cairn import files
from cairn.errors import UserError, ending
from cairn.look import cut_remarks, rows_of
from cairn.measure import run_through, with_cairn
from cairn.profile_file import Map
from cairn.profile_symbols import Symbols, demangle
from cairn.texts import bytes_text

TRACE_LIMIT = "4G"


class Site:  # pylint: disable=too-few-public-methods
    """A stack of the profiler or of a trace."""

    def __init__(self, number, frames):
        self.number = int(number)
        self.frames = tuple(int(word, 16) for word in str(frames).split(",")[1:])


def name_classes(rows):
    """Demangles the names of C++ classes: "5Order" is Order."""
    coded = {"_ZTS" + str(row["class"])[1:] for row in rows if "class" in row}
    names = demangle(coded)
    for row in rows:
        if "class" in row:
            name = "_ZTS" + str(row["class"])[1:]
            row["class"] = names.get(name, name).removeprefix("typeinfo name for ")


class Lost:
    """The result of one reading."""

    def __init__(self, rows):
        found = dict(rows)
        self.target, self.sums, self.doubts = found["target"], found["lost"], found["doubts"]
        self.unsure = found.get("unsure", {})
        self.holds = found.get("holds", {})
        self.sizes = [values for kind, values in rows if kind == "size"]
        self.leaks = [values for kind, values in rows if kind == "leak"]
        self.held = [values for kind, values in rows if kind == "held"]
        self.groups = [values for kind, values in rows if kind == "group"]
        self.sampled = True  # the stacks are the profiler's, of a few blocks
        for row in (*self.leaks, *self.groups):
            row["begins"] = row["begins"].removeprefix("x")
        name_classes([*self.leaks, *self.groups])
        self._read_stacks(rows)

    def _read_stacks(self, rows):
        """Reads the profiler's stacks of lost blocks, by their sites."""
        sites = [Site(values["site"], values["frames"]) for kind, values in rows
                 if kind == "stack"]
        self._merge_groups()
        self._name_stacks(sites, [
            Map(values["start"], values["end"], values["offset"], str(values["build_id"])[1:],
                str(values["path"])) for kind, values in rows if kind == "map"])

    def _merge_groups(self):
        """Makes one group of the blocks of a size and kind: sampled blocks are those of a site, the
        others may be of any. `sites` has the number of blocks of each site, the largest first."""
        merged = {}
        for row in self.groups:
            group = merged.setdefault((row["size_bytes"], kind_of(row)), {
                **row, "blocks": 0, "held_blocks": 0, "held_bytes": 0, "sites": []})
            for name in ("blocks", "held_blocks", "held_bytes"):
                group[name] += row[name]
            if "site" in row:
                group["sites"].append({"site": row["site"], "blocks": row["blocks"]})
        for group in merged.values():
            group["sites"].sort(key=lambda site: -site["blocks"])
            if group["sites"]:
                group["site"] = group["sites"][0]["site"]
        self._sort_groups(merged)

    def _sort_groups(self, groups):
        self.groups = sorted(groups.values(), key=lambda row: (
            -row["size_bytes"] * row["blocks"] - row["held_bytes"], row["address"]))

    def _name_stacks(self, sites, maps):
        self.sites, self.maps = sites, maps
        self.folders = ([f"/proc/{self.target['pid']}/root"]
                        if self.target["kind"] == "process" else [])
        symbols = Symbols(self)
        self.stacks = {site.number: symbols.stack(site.frames) for site in sites}

    def map_of(self, address):
        """The map of a code address. A trace may have several; the last one counts."""
        return next((each for each in reversed(self.maps) if each.start <= address < each.end),
                    None)

    def take_trace(self, path):
        """Takes the stacks of lost blocks from a trace of the same process. All blocks must be
        listed."""
        wanted = {row["address"]: row for row in (*self.leaks, *self.held)}
        numbers, sites, maps = set(), [], []
        for line in _read_trace(path).split("\n"):
            kind, *words = line.split("\t")
            if kind == "block":  # they come before the stacks
                address, _, number = words
                row = wanted.get(int(address, 16))
                if row is not None and number != "0":
                    row["site"] = int(number)
                    numbers.add(number)
            elif kind == "stack" and words[0] in numbers:
                sites.append(Site(words[0], "," + ",".join(frame for frame in words[1:]
                                                           if frame != "...")))
            elif line.startswith("map ") and line.count(" ") >= 5:
                start, end, offset, build, name = line.split(" ", 5)[1:]
                maps.append(Map(int(start, 16), int(end, 16), int(offset, 16),
                                "" if build == "-" else build, name))
        self._name_stacks(sites, maps)
        self.sampled = False
        self._group()

    def _group(self):
        """Groups lost blocks of one size, kind and stack."""
        groups = {}
        for row in self.leaks:
            row_is_text = contents(row).startswith("'")
            row = {**row, "is_text": int(row_is_text)}
            group = groups.setdefault((row["size_bytes"], kind_of(row), row.get("site")), {
                **row, "blocks": 0, "held_blocks": 0, "held_bytes": 0})
            group["blocks"] += 1
            group["held_blocks"] += row["held_blocks"]
            group["held_bytes"] += row["held_bytes"]
        for group in groups.values():
            group["sites"] = [{"site": group["site"], "blocks": group["blocks"]}
                              ] if "site" in group else []
        self._sort_groups(groups)

    def stack_json(self):
        """The stacks, each with its number in leaks and groups."""
        return [{"site": number, "stack": [
            {"function": frame.function, "file": frame.file, "line": frame.line,
             "module": frame.module} for frame in frames]}
                for number, frames in self.stacks.items()]

    def doubt(self):
        """Why blocks that may be lost are not listed."""
        return (f"cannot tell whether {self.unsure['blocks']} blocks are lost, so they are not "
                f"named: {self.unsure['reason']}. Use --hold, or stop the process (kill -STOP).")

    def remarks(self):
        """Sentences that a reader needs to interpret the result."""
        if self.unsure:
            yield self.doubt()
        elif self.holds.get("count"):
            yield ("The process was running: the blocks were found lost in two passes, and "
                   "confirmed while the process was held for at most "
                   f"{self.holds['longest_us'] / 1000:.1f} ms at a time "
                   f"(holds: {self.holds['count']}).")
        if self.sums["threads_unread"]:
            yield (f"The registers of {self.sums['threads_unread']} threads could not be read (a "
                   "debugger has them): a block may be named that only they lead to.")
        if self.target["kind"] == "core" and not self.sums["threads"]:
            yield "The core file has no registers: a block may be named that only they lead to."
        yield from cut_remarks(self.target, "pointers were in them, so blocks may be named "
                               "falsely")
        if self.sums["unread_bytes"] and not self.target.get("missing_bytes"):
            yield (f"{bytes_text(self.sums['unread_bytes'])} could not be read, and with them "
                   "pointers: blocks may be named falsely.")
        if self.doubts["torn"] + self.doubts["unreadable"]:
            yield (f"{self.doubts['torn']} pieces of metadata were changing and "
                   f"{self.doubts['unreadable']} could not be read: their blocks are left out.")


def kind_of(row):
    """The part of a block's contents that similar blocks share."""
    return row.get("class") or row.get("points_to") or bool(row["is_text"])


def contents(leak):
    """Describes the first bytes of a block: a class, a pointer into a file, a text, or bytes."""
    if "class" in leak:
        return leak["class"]
    if "points_to" in leak:
        return f"-> {leak['points_to']}"
    data = bytes.fromhex(leak["begins"])
    text = data.split(b"\0")[0]
    if len(text) > 3 and all(32 <= sign < 127 for sign in text):
        return repr(text.decode("ascii"))
    return leak["begins"][:32]


def _read_trace(path):
    """The live blocks at the end of a trace, their stacks and the mapped files. A trace that is
    still written or was truncated is read as far as possible."""
    done = subprocess.run([files.program("cairn-trace"), "live", str(path)], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode and not done.stdout:
        raise UserError(os.fsdecode(done.stderr).strip() or f"cannot read {path}")
    return os.fsdecode(done.stdout)


def _trace_of(pid, prefix):
    """The last trace that a process wrote; None if it wrote none."""
    found = {}
    for path in prefix.parent.iterdir():
        match = re.fullmatch(re.escape(prefix.name) + rf"\.{pid}\.(\d+)", path.name)
        if match:
            found[int(match[1])] = path
    return found[max(found)] if found else None


def at_end(command, library):
    """Runs a program on Cairn. Returns its lost blocks at its end with their stacks, and its exit
    status."""
    with tempfile.TemporaryDirectory(prefix="cairn-leaks-") as folder:
        report, prefix = pathlib.Path(folder) / "report", pathlib.Path(folder) / "trace"
        environment = with_cairn(library, f"trace:{prefix},trace_limit:{TRACE_LIMIT}")
        environment["CAIRN_LOOK_PRELOAD"] = environment.pop("LD_PRELOAD")
        report.touch()
        _, status = run_through([files.program("cairn-look"), "at-end", str(report), *command],
                                environment, signal.SIGUSR1)
        rows = rows_of(report.read_text(encoding="utf-8", errors="surrogateescape"))
        number = dict(rows).get("end", {}).get("signal", 0)
        end = ending(-number or status)
        if "target" not in dict(rows):
            raise UserError(f"{os.path.basename(command[0])} {end} before its heap could be read: "
                            "see its messages above")
        lost = Lost(rows)
        lost.target["state"] = "Z"  # the process has ended since
        if number:
            lost.target["end"] = end.removeprefix("was ")
        trace = _trace_of(lost.target["pid"], prefix)
        if trace is not None:
            lost.take_trace(trace)
        return lost, status
