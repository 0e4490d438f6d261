"""The parts of a release: versions, comparison of builds, archives, bill of materials, notes."""
import gzip
import hashlib
import json
import re
import subprocess
import time

# The places of the version: a file, and the text before the version in it. Missing files are
# skipped, except for the header.
PLACES = (
    ("tools/cairn/__init__.py", r'VERSION = "'),
    ("packaging/debian/changelog", r"\Acairn \("),
    ("packaging/meson/cairn.wrap", r"^directory = cairn-"),
    ("packaging/meson/cairn.wrap", r"^source_filename = cairn-"),
    ("packaging/rust/Cargo.toml", r'^version = "'),
    ("packaging/rust/cairn-alloc/Cargo.toml", r'^cairn-sys = \{ version = "='),
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


def write_sums(folder):
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    (folder / "SHA256SUMS").write_text("".join(f"{digest(path)}  {path.name}\n" for path in files))
