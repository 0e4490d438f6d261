#!/usr/bin/env python3
"""Checks that the files of a layer have an order, and that none of them uses a later one.

usage: check_order.py [--graph] [ROOT]

The order is in dev/layer_order.txt, one line for each entry: "heap/slab" is the entry of
src/heap/slab.h and src/heap/slab.c. An entry uses another entry of its layer when it includes that
entry's header, or names a function or a variable that the entry defines, whichever header declares
it. A call to a later entry has to be a function pointer that the later entry hands down.

Prints one line for each finding; the exit status is 1 when there is one. --graph prints a possible
order of each layer in the format of the file. Entries that use one another in a circle follow as
comments, with what they use.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from check_rules import blank_out, c_functions  # noqa: E402

ORDER = "dev/layer_order.txt"


class Layer:
    """The entries of a folder of src/ and what each uses: {user: {used: {why}}}."""

    def __init__(self, folder):
        self.name = folder.name
        self.texts = {path: path.read_text() for path in sorted(folder.glob("*.[ch]"))}
        self.entries = sorted({path.stem for path in self.texts})
        self.uses = {entry: {} for entry in self.entries}
        self._includes()
        self._names()

    def _use(self, user, used, why):
        if used != user:
            self.uses[user].setdefault(used, set()).add(why)

    def _includes(self):
        for path, text in self.texts.items():
            for used in re.findall(rf'(?m)^\s*#\s*include\s*"{self.name}/(\w+)\.h"', text):
                if used in self.uses:
                    self._use(path.stem, used, "include")

    def _names(self):
        code = {path: blank_out(text) for path, text in self.texts.items()}
        owner = {}
        for path, text in self.texts.items():
            lines = code[path].splitlines()
            for name, first, _ in c_functions(text):
                head = lines[first - 1]
                private = path.suffix == ".c" and head.startswith(("static", "inline_always"))
                if not private:
                    owner[name] = path.stem
        for name in self._variables(code):
            for path, text in code.items():
                if path.suffix == ".c" and re.search(
                        rf"(?m)^(?!static|extern|return|#)\w[^;(){{}}\n]*\b{name}\b[^;(]*[;=\[]",
                        text):
                    owner[name] = path.stem
        for path, text in code.items():
            # A name without an underscore may be a field or a variable, too: only calls count.
            names = re.findall(r"(?<![.>])\b([a-z]\w*_\w*|[a-z]\w*(?=\())", text)
            for name in set(names) & owner.keys():
                if path.suffix == ".c" or not self._only_declared(text, name):
                    self._use(path.stem, owner[name], name)

    def _variables(self, code):
        for path, text in code.items():
            if path.suffix == ".h":
                yield from re.findall(r"(?m)^extern[^;(]*?\b(\w+)(?:\[[^;]*)?;", text)

    def _only_declared(self, text, name):
        """In a header: every mention is that of its declaration, outside of a body."""
        bodies = "".join(re.findall(r"(?ms)^\{.*?^\}|\)\s*\{[^\n]*\}$", text))
        return not re.search(rf"\b{name}\b", bodies)

    def circles(self):
        """The sets of entries that reach one another, by Tarjan's algorithm."""
        number, low, stack, found = {}, {}, [], []

        def visit(entry):
            number[entry] = low[entry] = len(number)
            stack.append(entry)
            for used in sorted(self.uses[entry]):
                if used not in number:
                    visit(used)
                    low[entry] = min(low[entry], low[used])
                elif used in stack:
                    low[entry] = min(low[entry], number[used])
            if low[entry] == number[entry]:
                at = stack.index(entry)
                found.append(sorted(stack[at:]))
                del stack[at:]

        for entry in self.entries:
            if entry not in number:
                visit(entry)
        return found


def orders(text):
    """{layer: [entry, …]} of the text of the order's file."""
    order = {}
    for line in text.splitlines():
        layer, _, entry = line.partition("#")[0].strip().partition("/")
        if layer:
            order.setdefault(layer, []).append(entry)
    return order


def check_layer(layer, order):
    place = {entry: i for i, entry in enumerate(order)}
    for entry in layer.entries:
        if entry not in place:
            yield f"src/{layer.name}/{entry}: is not in {ORDER}"
    for entry in place:
        if entry not in layer.uses:
            yield f"{ORDER}: src/{layer.name} has no {entry}"
    for user, used_by in layer.uses.items():
        for used, why in sorted(used_by.items()):
            if place.get(used, 0) > place.get(user, len(order)):
                yield f"src/{layer.name}/{user} uses the later {used}: {', '.join(sorted(why))}"


def check(root):
    findings = []
    order = orders((root / ORDER).read_text())
    for folder in sorted((root / "src").iterdir()):
        if folder.is_dir():
            findings += check_layer(Layer(folder), order.get(folder.name, []))
    return findings


def print_graph(root):
    for folder in sorted((root / "src").iterdir()):
        if not folder.is_dir():
            continue
        layer = Layer(folder)
        circles = layer.circles()
        print("".join(f"\n{layer.name}/{entry}" for circle in circles for entry in circle))
        for circle in circles:
            if len(circle) > 1:
                print(f"# a circle of {len(circle)}: {' '.join(circle)}")
                for user in circle:
                    for used in circle:
                        if used in layer.uses[user]:
                            why = ", ".join(sorted(layer.uses[user][used]))
                            print(f"#  {user} uses {used}: {why}")


def main(arguments):
    graph = "--graph" in arguments
    rest = [argument for argument in arguments if argument != "--graph"]
    if len(rest) > 1 or rest[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 2
    root = pathlib.Path(rest[0] if rest else pathlib.Path(__file__).resolve().parent.parent)
    if graph:
        print_graph(root)
        return 0
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"check_order: {len(findings) or 'no'} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
