"""The places in an allocator that a result of the simulator is about."""

import collections
import os
import re
import subprocess

from cores_report import Result

LISTED = 25
SITES_LISTED = 6
LEAST = 0.3  # per 1,000 pairs, of a line that is listed


class Names:
    """Names for addresses of a run."""

    def __init__(self, result, libraries):
        self.maps = result.maps
        self.files = dict(text.split("=", 1) for text in libraries)  # with line numbers
        self.bases, self.code_names, self.variables = {}, {}, {}
        for low, _, name in self.maps:
            if name.startswith("/"):
                self.bases.setdefault(name, low)

    def _with_lines(self, file):
        return next((path for part, path in self.files.items() if part in file), file)

    def _file_of(self, address):
        """The file at an address, if it is code or data of one."""
        return next((name for low, high, name in self.maps if low <= address < high), "")

    def code(self, addresses):
        """Functions and lines of the addresses, the inner ones of inlined functions first."""
        todo = collections.defaultdict(list)
        for address in addresses:
            file = self._file_of(address)
            if address in self.code_names:
                continue
            if file.startswith("/"):
                todo[file].append(address)
            else:
                self.code_names[address] = f"{address:x}" if address else "never written"
        for file, missing in todo.items():
            self._look_up(file, missing)
        return [self.code_names[address] for address in addresses]

    def _look_up(self, file, addresses):
        base = self.bases[file]
        text = subprocess.run(["addr2line", "-f", "-i", "-C", "-a", "-e", self._with_lines(file),
                               *(f"{address - base:x}" for address in addresses)],
                              check=True, capture_output=True, text=True).stdout
        frames, at, function = collections.defaultdict(list), 0, None
        for line in text.splitlines():
            if re.fullmatch(r"0x[0-9a-f]{16}", line):
                at, function = int(line, 16), None
            elif function is None:
                function = line
            else:
                place = "/".join(re.sub(r" \(disc.*", "", line).split("/")[-2:])
                frames[at].append(f"{function} {place}")
                function = None
        for address in addresses:
            known = [frame for frame in frames[address - base] if not frame.startswith("??")]
            self.code_names[address] = (" < ".join(known[:4]) or
                                        f"{os.path.basename(file)}+{address - base:x}")

    def data(self, line):
        """The variables in the line, or the file that has it."""
        for file, base in self.bases.items():
            if file not in self.variables:
                text = subprocess.run(["nm", "-S", self._with_lines(file)], check=False,
                                      capture_output=True, text=True).stdout
                words = (line.split() for line in text.splitlines())
                self.variables[file] = [(int(word[0], 16), int(word[1], 16), word[3])
                                        for word in words
                                        if len(word) == 4 and word[2] in "bBdDrRuVv"]
            found = [f"{name}+{max(line - base - at, 0)}"
                     for at, size, name in self.variables[file]
                     if at < line + 64 - base and line - base < at + max(size, 1)]
            if found:
                return f"{os.path.basename(file)}: {', '.join(found)}"
        return self._file_of(line) or "anonymous memory"


def sites(options):
    """Prints the lines, pairs of instructions and locked instructions with the highest counts."""
    result = Result(options.result)
    names = Names(result, options.libraries)
    thousands = result.operations / 1000

    def shares(counts):
        return " ".join(f"{count / thousands:.1f}" for count in counts)

    print(f"{result.path}, per 1,000 pairs: {result.per_thousand('lines'):.1f} lines, "
          f"{result.per_thousand('locked'):.1f} locked instructions\n"
          "In brackets: reads of a modified line, reads of a line that another core wrote, writes "
          "to a modified line, writes to a shared line")
    print("\nLines")
    for address, counts, code in result.lines[:LISTED]:
        if sum(counts) / thousands < LEAST:
            break
        print(f"  {sum(counts) / thousands:8.1f}  {names.data(address)}  ({shares(counts)})")
        places = names.code([at for at, _ in code[:SITES_LISTED]])
        for (_, of_code), place in zip(code, places):
            print(f"      {sum(of_code) / thousands:8.1f}  {place}")
    print("\nPairs: accessed by <- last written by")
    for reader, writer, counts in result.pairs[:LISTED]:
        of_reader, of_writer = names.code([reader, writer])
        print(f"  {sum(counts) / thousands:8.1f}  ({shares(counts)})  {of_reader}\n"
              f"            <- {of_writer}")
    print("\nLocked instructions")
    for address, count in sorted(result.code, key=lambda pair: -pair[1])[:LISTED]:
        if count:
            print(f"  {count / thousands:8.1f}  {names.code([address])[0]}")


def callers(options):
    """Prints how often each call of a function returned."""
    result = Result(options.result)
    names = Names(result, options.libraries)
    part, file = next(iter(names.files.items()))
    base = next(base for name, base in names.bases.items() if part in name)
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", file], check=True,
                          capture_output=True, text=True).stdout.splitlines()
    call = re.compile(r" *([0-9a-f]+):\s+(?:addr32 )?call\s+[0-9a-f]+ <"
                      + re.escape(options.function) + ">")
    found = []
    for line, following in zip(text, text[1:]):
        match = call.match(line)
        after = match and re.match(r" *([0-9a-f]+):", following)
        if after:
            found.append((result.blocks[base + int(after[1], 16)], int(match[1], 16)))
    print(f"{result.path}: calls of {options.function} per 1,000 pairs")
    for count, address in sorted(found, reverse=True):
        if count:
            print(f"  {1000 * count / result.operations:8.1f}  {names.code([base + address])[0]}")


def holds(options):
    """Prints how long the watched lock was held, by caller."""
    result = Result(options.result)
    names = Names(result, options.libraries)
    count, cycles = sum(hold[1] for hold in result.holds), sum(hold[2] for hold in result.holds)
    print(f"{result.path}: held {1000 * count / result.operations:.1f} times per 1,000 pairs, "
          f"{cycles / max(count, 1):.0f} cycles on average, "
          f"{100 * cycles / result.totals['cycles']:.0f} % of the simulated time")
    for site, times, held, longest in sorted(result.holds, key=lambda hold: -hold[2]):
        print(f"  {1000 * times / result.operations:8.1f} times  {held / times:8.0f} cycles, at "
              f"most {longest:8}  {names.code([site - 1])[0]}")
