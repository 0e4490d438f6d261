#!/usr/bin/env python3
"""Compares the symbols files of the Debian packages with the exports of the built libraries.

usage: debian_symbols.py BUILD [--update]

A file packaging/debian/PACKAGE.symbols names, for each library of the package, every exported name
and the first version that had it. Without --update the differences are printed, and the exit status
is 1 when there are any. With it the files are written; a name that is known keeps its version.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEBIAN = ROOT / "packaging" / "debian"
LIBRARIES = {
    "libcairn1": ("libcairn", "libcairn-hardened", "libcairn-hardened-light"),
    "libcairn-malloc1": ("libcairn-malloc",),
    "libcairn-malloc-hardened1": ("libcairn-malloc-hardened", "libcairn-malloc-hardened-light"),
}


def run(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def exported(library):
    """Each name with its version, as Debian writes it: name@VERSION, or name@Base for none."""
    names = set()
    for line in run("nm", "-D", "--defined-only", "--format=posix", library).splitlines():
        name = re.sub("@+", "@", line.split()[0])
        names.add(name if "@" in name else f"{name}@{name if line.split()[1] == 'A' else 'Base'}")
    return names


def soname(library):
    return re.search(r"SONAME.*\[(.*)\]", run("readelf", "-dW", library)).group(1)


def upstream_version():
    text = (ROOT / "include/cairn/api.h").read_text()
    return ".".join(re.search(rf"define CAIRN_VERSION_{part} (\d+)", text).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def listed(package):
    """{soname: {name: version}} of a symbols file."""
    path = DEBIAN / f"{package}.symbols"
    libraries = {}
    for line in path.read_text().splitlines() if path.is_file() else ():
        words = line.split()
        if line.startswith(" "):
            names[words[0]] = words[1]
        elif words and not line.startswith(("*", "#")):
            names = libraries.setdefault(words[0], {})
    return libraries


def symbols_file(package, libraries):
    lines = []
    for name, symbols in libraries.items():
        lines += [f"{name} {package} #MINVER#", "* Build-Depends-Package: libcairn-dev"]
        lines += [f" {symbol} {symbols[symbol]}" for symbol in sorted(symbols)]
    return "".join(f"{line}\n" for line in lines)


def differences(package, build):
    known = listed(package)
    for name in LIBRARIES[package]:
        library = build / f"{name}.so"
        names, has = known.pop(soname(library), {}), exported(library)
        for symbol in sorted(has ^ names.keys()):
            yield f"{package}: {symbol} is " + ("exported and not listed" if symbol in has
                                                else "listed and not exported") + f": {name}.so"
    for name in known:
        yield f"{package}: {name} is listed and not built"


def update(package, build):
    known, version = listed(package), upstream_version()
    libraries = {}
    for name in LIBRARIES[package]:
        library = build / f"{name}.so"
        old = known.get(soname(library), {})
        libraries[soname(library)] = {symbol: old.get(symbol, version)
                                      for symbol in exported(library)}
    (DEBIAN / f"{package}.symbols").write_text(symbols_file(package, libraries))


def main(arguments):
    if len(arguments) < 1 or arguments[1:] not in ([], ["--update"]):
        sys.exit(__doc__)
    build = pathlib.Path(arguments[0])
    if arguments[1:]:
        for package in LIBRARIES:
            update(package, build)
        return 0
    found = [text for package in LIBRARIES for text in differences(package, build)]
    for text in found:
        print(text)
    if found:
        print("debian_symbols: what belongs to the interface is listed by --update")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
