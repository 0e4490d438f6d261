"""dev/release_parts.py: different builds are distinguished, archives are reproducible, the lists of
a release's contents are complete, and one version is everywhere."""

import json
import pathlib
import tempfile
import unittest
import zipfile

import dev_path  # noqa: F401
import release_parts as parts

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ReleaseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tree(self, name, **changed):
        files = {"lib/a.so": "library", "bin/tool": "#!/bin/sh\n", "share/page": "words", **changed}
        for path, text in files.items():
            file = self.folder / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (self.folder / name / "bin/tool").chmod(0o755)
        (self.folder / name / "lib/a.so.0").symlink_to("a.so")
        return self.folder / name

    def test_the_same_builds(self):
        self.assertEqual(parts.differing_files(self.tree("one"), self.tree("other")), [])

    def test_builds_that_differ(self):
        one = self.tree("one")
        for name, change, words in (
                ("bytes", lambda tree: (tree / "lib/a.so").write_text("Library"),
                 "lib/a.so: differs"),
                ("mode", lambda tree: (tree / "bin/tool").chmod(0o644), "bin/tool: differs"),
                ("missing", lambda tree: (tree / "share/page").unlink(),
                 "share/page: only in one of them"),
                ("link", lambda tree: ((tree / "lib/a.so.0").unlink(),
                                       (tree / "lib/a.so.0").symlink_to("b.so")),
                 "lib/a.so.0: differs")):
            other = self.tree(name)
            change(other)
            self.assertEqual(parts.differing_files(one, other), [words])

    def test_archives_are_the_same_each_time(self):
        digests = set()
        for name in ("one", "other"):
            tree = self.tree(name)
            tree.chmod(0o700 if name == "one" else 0o755)
            archive = self.folder / f"{name}.tar.gz"
            parts.archive_tree(tree, "cairn-1.2.3", "1700000000", archive)
            digests.add(parts.digest(archive))
        self.assertEqual(len(digests), 1)

    def test_versions_that_disagree(self):
        self.assertEqual(parts.other_versions(ROOT, parts.header_version(ROOT)), [])
        found = parts.other_versions(ROOT, "99.0.0")
        self.assertIn(f"{parts.HEADER}: {parts.header_version(ROOT)}", found)
        self.assertTrue(any(line.startswith("tools/cairn/__init__.py") for line in found))

    def test_options_of_version_1_stay(self):
        source = (ROOT / "src/front/options.c").read_text()
        for option in ("decay_ms", "dirty_cap", "soft_limit", "hard_limit", "huge_pages", "guard",
                       "profile", "profile_file", "profile_growth", "trace", "trace_limit",
                       "background", "control", "watch_root", "on_error", "report_file",
                       "verbose"):
            self.assertIn(f'{{"{option}", ', source)

    def test_the_changelog_has_this_version(self):
        text = parts.changes(ROOT, parts.header_version(ROOT))
        self.assertGreater(len(text), 1000)
        self.assertNotIn("\n## ", text)
        self.assertEqual(parts.changes(ROOT, "99.0.0"), "")

    def test_a_version_that_is_not_dated(self):
        (self.folder / "CHANGELOG.md").write_text("# Changes\n\n## 1.1.0, not yet released\n\nb\n\n"
                                                  "## 1.0.0, 22 November 2026\n\na\n")
        self.assertFalse(parts.is_dated(self.folder, "1.1.0"))
        self.assertTrue(parts.is_dated(self.folder, "1.0.0"))
        self.assertEqual(parts.changes(self.folder, "1.1.0"), "b")

    def test_the_list_has_every_file(self):
        tree = self.tree("one")
        bill = parts.bill_of_materials(tree, "1.2.3", "abc", 1700000000)
        self.assertEqual(sorted(file["fileName"] for file in bill["files"]),
                         ["./bin/tool", "./lib/a.so", "./share/page"])
        known = {"SPDXRef-DOCUMENT"} | {one["SPDXID"] for one in bill["packages"] + bill["files"]}
        self.assertEqual(len(known), 1 + len(bill["packages"]) + len(bill["files"]))
        for relation in bill["relationships"]:
            self.assertIn(relation["spdxElementId"], known)
            self.assertIn(relation["relatedSpdxElement"], known)
        self.assertEqual(bill["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        json.dumps(bill)

    def test_contents(self):
        tree = self.tree("one")
        (self.folder / "made").mkdir()
        for name in ("cairn-1.2.3.tar.gz", "cairn-1.2.3-linux-x86_64.tar.gz"):
            parts.archive_tree(tree, "cairn-1.2.3", "1700000000", self.folder / "made" / name)
        with zipfile.ZipFile(self.folder / "made/cairn_tools-1.2.3-py3-none-any.whl", "w") as file:
            file.writestr("cairn/cli.py", "pass")
        text = parts.contents(self.folder / "made", "1.2.3")
        self.assertIn(" | the sources |\n", text)
        self.assertRegex(text, r"\| cairn-1.2.3-linux-x86_64.tar.gz \| \d+ \| the files that ")
        self.assertEqual(text.count("\n    cairn-1.2.3/lib/a.so\n"), 2)
        self.assertIn("\n\n    cairn/cli.py\n", text)
        (self.folder / "made" / "cairn-1.2.4.tar.gz").write_text("")  # of another version
        with self.assertRaises(ValueError):
            parts.contents(self.folder / "made", "1.2.3")

    def test_the_notes_say_what_was_not_checked(self):
        text = parts.notes("1.2.3", "abc", "words", ["**.ci/run WAS NOT RUN**"])
        self.assertIn("- **.ci/run WAS NOT RUN**", text)


if __name__ == "__main__":
    unittest.main()
