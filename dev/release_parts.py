"""The parts of a release: versions, comparison of builds, archives, notes, lists of contents."""
import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import time
import zipfile

# The places of the version: a file, and the text before the version in it. Missing files are
# skipped, except for the header.
PLACES = (
    ("tools/cairn/__init__.py", r'VERSION = "'),
    ("packaging/debian/changelog", r"\Acairn \("),
    ("packaging/meson/cairn.wrap", r"^directory = cairn-"),
    ("packaging/meson/cairn.wrap", r"^source_filename = cairn-"),
    ("packaging/rust/Cargo.toml", r'^version = "'),
    ("packaging/rust/cairn-alloc/Cargo.toml", r'^cairn-sys = \{ version = "='),
    ("packaging/rust/Cargo.lock", r'^name = "cairn-sys"\nversion = "'),
    ("packaging/rust/Cargo.lock", r'^name = "cairn-alloc"\nversion = "'),
)
HEADER = "include/cairn/api.h"
NUMBER = r"(\d+\.\d+\.\d+)"
LICENSE = "MIT"


def header_version(root):
    text = (root / HEADER).read_text()
    return ".".join(re.search(rf"define CAIRN_VERSION_{part} (\d+)", text).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def other_versions(root, version):
    """A line for each place that has another version, or none."""
    found = [] if header_version(root) == version else [f"{HEADER}: {header_version(root)}"]
    for name, before in PLACES:
        path = root / name
        if path.is_file():
            match = re.search(before + NUMBER, path.read_text(), re.M)
            if not match or match.group(1) != version:
                found.append(f"{name}: {match.group(1) if match else 'no version'}")
    return found


def is_dated(root, version):
    """False while CHANGELOG.md says of a version that it is not yet released."""
    text = (root / "CHANGELOG.md").read_text()
    return not re.search(rf"^## {re.escape(version)}\b.*not yet released", text, re.M)


def changes(root, version):
    """CHANGELOG.md's section on a version, without its heading; empty when there is none."""
    text = (root / "CHANGELOG.md").read_text()
    match = re.search(rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return match.group(1).strip() if match else ""


def digest(path, kind="sha256"):
    return hashlib.new(kind, path.read_bytes()).hexdigest()


def listing(tree):
    """The hash or link target of each file of a tree, and whether it is executable."""
    found = {}
    for path in sorted(tree.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(tree))] = f"-> {path.readlink()}"
        elif path.is_file():
            kind = "program" if path.stat().st_mode & 0o111 else "file"
            found[str(path.relative_to(tree))] = f"{kind} {digest(path)}"
    return found


def differing_files(first, second):
    """A line for each file that is not the same in both trees."""
    one, other = listing(first), listing(second)
    return [f"{name}: {'differs' if name in one and name in other else 'only in one of them'}"
            for name in sorted(set(one) | set(other)) if one.get(name) != other.get(name)]


def compressed(data, path):
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(data)


def archive_sources(root, version, path):
    made = subprocess.run(["git", "-C", str(root), "archive", "--format=tar",
                           f"--prefix=cairn-{version}/", "HEAD"], check=True,
                          stdout=subprocess.PIPE).stdout
    compressed(made, path)


def archive_tree(tree, prefix, epoch, path):
    made = subprocess.run(["tar", "-C", str(tree), "--sort=name", f"--mtime=@{epoch}",
                           "--owner=0", "--group=0", "--numeric-owner", "--format=gnu",
                           "--mode=go=rX,u+rw,a-s", f"--transform=s,^\\.,{prefix},",
                           "-cf", "-", "."], check=True, stdout=subprocess.PIPE).stdout
    compressed(made, path)


def needed_libraries(tree):
    """The shared libraries that the programs and libraries of a tree are linked with."""
    found = set()
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            text = subprocess.run(["readelf", "-d", str(path)], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout
            found |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
    return sorted(found)


def package(name, version, place, licence):
    return {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]", "-", name), "name": name,
            "versionInfo": version, "downloadLocation": place, "filesAnalyzed": False,
            "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION"}


def bill_of_materials(tree, version, commit, epoch):
    """SPDX 2.3: the package with its files, the system's libraries and what the tools import."""
    files = [{"SPDXID": f"SPDXRef-File-{number}", "fileName": f"./{path.relative_to(tree)}",
              "checksums": [{"algorithm": kind.upper(), "checksumValue": digest(path, kind)}
                            for kind in ("sha1", "sha256")],
              "licenseConcluded": LICENSE, "licenseInfoInFiles": ["NOASSERTION"],
              "copyrightText": "NOASSERTION"}
             for number, path in enumerate(sorted(path for path in tree.rglob("*")
                                                  if path.is_file() and not path.is_symlink()))]
    own = package("cairn", version, "NOASSERTION", LICENSE)
    own["filesAnalyzed"] = True
    sums = sorted(file["checksums"][0]["checksumValue"] for file in files)
    own["packageVerificationCode"] = {
        "packageVerificationCodeValue": hashlib.sha1("".join(sums).encode()).hexdigest()}
    own["licenseInfoFromFiles"] = ["NOASSERTION"]
    outside = [package(name, "of the system", "NOASSERTION", "NOASSERTION")
               for name in needed_libraries(tree)]
    tools = [package(name, "of the system", "NOASSERTION", "NOASSERTION")
             for name in ("python3", "typer", "rich")]
    identifier = own["SPDXID"]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", identifier)]
    relations += [(identifier, "CONTAINS", file["SPDXID"]) for file in files]
    relations += [(identifier, "DYNAMIC_LINK", other["SPDXID"]) for other in outside]
    relations += [(other["SPDXID"], "RUNTIME_DEPENDENCY_OF", identifier) for other in tools]
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"cairn-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/cairn-{version}-{commit}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
                         "creators": ["Tool: cairn-release"]},
        "packages": [own, *outside, *tools], "files": files,
        "relationships": [{"spdxElementId": one, "relationshipType": kind,
                           "relatedSpdxElement": other} for one, kind, other in relations],
    }


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def notes(version, commit, text, checked):
    lines = [f"# Cairn {version}", "", f"Commit {commit}.", "", "Checked:", "",
             *(f"- {line}" for line in checked), "",
             "`sha256sum -c SHA256SUMS` checks the files; `dev/release` in a clone of that commit",
             "makes the same files again, with the same compiler.", "", "## Changes", "", text, ""]
    return "\n".join(lines)


# The published files by their names, which have the version in place of VERSION.
KINDS = (
    (r"cairn-VERSION\.tar\.gz", "the sources"),
    (r"cairn-VERSION-linux-\w+\.tar\.gz", "the files that `make install` installs"),
    (r"cairn-VERSION\.spdx\.json", "the contents of these two and their dependencies (SPDX 2.3)"),
    (r"libcairn-malloc1_.*\.deb", "Debian: the library that replaces `malloc`"),
    (r"libcairn-malloc-hardened1_.*\.deb", "Debian: its hardened forms"),
    (r"libcairn1_.*\.deb", "Debian: the library with the `cairn_` functions only"),
    (r"libcairn-dev_.*\.deb", "Debian: headers, static libraries, documents"),
    (r"cairn-tools_.*\.deb", "Debian: the command `cairn`"),
    (r".*-dbgsym_.*\.deb", "Debian: symbols for debuggers"),
    (r"cairn_VERSION(?:-\w+)?\.(?:dsc|orig\.tar\.gz|debian\.tar\.xz)",
     "Debian: the source package"),
    (r"cairn_tools-VERSION-.*\.whl", "Python: the command `cairn` with the libraries"),
    (r"cairn_tools-VERSION\.tar\.gz", "Python: the sources of the wheel"),
    (r"cairn-sys-VERSION\.crate", "Rust: the library's sources and their declarations"),
    (r"cairn-alloc-VERSION\.crate", "Rust: the safe interface"),
    (r"NOTES\.md", "the changes, and the checks of this release"),
)


def kind(name, version):
    """The description of a published file. A file that is not listed must not be published."""
    for pattern, words in reversed(KINDS):
        if re.fullmatch(pattern.replace("VERSION", re.escape(version)), name):
            return words
    raise ValueError(f"{name}: KINDS of dev/release_parts.py does not have such a file")


def packed_files(path):
    """The files in an archive or a package; none for other files."""
    if path.suffix == ".deb":
        tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(path)], check=True,
                             stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            return sorted(one.name for one in archive if not one.isdir())
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return sorted(archive.namelist())
    if path.suffix in (".gz", ".xz", ".crate"):
        with tarfile.open(path) as archive:
            return sorted(one.name for one in archive if not one.isdir())
    return []


def contents(folder, version):
    """CONTENTS.md: a line for each published file, then the files in each."""
    paths = sorted(folder.iterdir())
    lines = [f"# Files of Cairn {version}", "", "| file | bytes | what it is |", "|---|---|---|"]
    lines += [f"| {path.name} | {path.stat().st_size} | {kind(path.name, version)} |"
              for path in paths]
    for path in paths:
        if names := packed_files(path):
            lines += ["", f"## {path.name}", "", *(f"    {name}" for name in names)]
    return "\n".join([*lines, ""])


def write_sums(folder):
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    (folder / "SHA256SUMS").write_text("".join(f"{digest(path)}  {path.name}\n" for path in files))
