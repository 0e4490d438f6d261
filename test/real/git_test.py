"""git: a repository of a thousand commits is made, packed, cloned and checked; object names are
compared.

Every object is named by the hash of its content, so equal names mean equal content.
"""

import hashlib
import re

import preload
from preload import CAIRN, SYSTEM

COMMITS = 1000
FILES = 120

CONFIGURATION = """
[user]
    name = A U Thor
    email = author@example.com
[pack]
    threads = 2
[gc]
    auto = 0
"""


def content(path, version):
    """The text of a file at a version: few of its lines change from version to version."""
    lines = []
    for line in range(40 + path % 60):
        changed = version if line % 20 == version % 20 else 0
        lines.append(hashlib.sha256(f"{path} {line} {changed}".encode()).hexdigest())
    return "\n".join(lines) + "\n"


def history():
    """The input of `git fast-import`: a main line, branches off it, merges and tags."""
    out = []
    for n in range(1, COMMITS + 1):
        branch = "side" if n % 10 in (3, 4, 5) else "main"
        out.append(f"commit refs/heads/{branch}\nmark :{n}\n"
                   f"committer A U Thor <author@example.com> {1_600_000_000 + n * 60} +0000\n")
        message = f"Change {n}\n\n" + "because\n" * (n % 5)
        out.append(f"data {len(message)}\n{message}\n")
        if n > 1:
            out.append(f"from :{n - 1}\n")
        if n % 10 == 6 and n > 10:
            out.append(f"merge :{n - 6}\n")
        for path in {n % FILES, n * 7 % FILES, n * 31 % FILES}:
            text = content(path, n)
            out.append(f"M 100644 inline dir{path % 9}/file{path}.txt\ndata {len(text)}\n{text}\n")
        if n % 50 == 0:
            out.append(f"D dir{n % 9}/file{n % FILES}.txt\n")
        if n % 100 == 0:
            out.append(f"\ntag release-{n}\nfrom :{n}\ntagger A U Thor <author@example.com> "
                       f"1700000000 +0000\ndata 8\nrelease\n\n")
    blob = "".join(hashlib.sha256(str(i).encode()).hexdigest() for i in range(100_000))
    out.append(f"commit refs/heads/main\nmark :{COMMITS + 1}\n"
               f"committer A U Thor <author@example.com> 1700000000 +0000\ndata 6\nlarge\n\n"
               f"from :{COMMITS}\nM 100644 inline large.bin\ndata {len(blob)}\n{blob}\n")
    return "".join(out).encode()


class GitTest(preload.RealProgramTest):
    def setUp(self):
        super().setUp()
        self.path = self.need("git", "git")
        # The configuration in HOME also affects the remote end of a clone or a push.
        (self.directory / ".gitconfig").write_text(CONFIGURATION)

    def git(self, allocator, *arguments, **options):
        return self.run_program(
            [self.path, *arguments], allocator,
            env={"GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_DATE": "1700000000 +0000",
                 "GIT_COMMITTER_DATE": "1700000000 +0000"}, **options)

    def work(self, allocator, stream):
        """Does all the work on one allocator; returns the results, which must not differ."""
        origin = self.directory / f"{allocator}.git"
        clone = self.directory / f"{allocator}-clone"
        self.git(allocator, "init", "--quiet", "--bare", "--initial-branch=main", origin)
        self.git(allocator, "fast-import", "--quiet", cwd=origin, input=stream)
        self.git(allocator, "gc", "--quiet", "--prune=now", cwd=origin)
        # Through the pack protocol, as between machines.
        self.git(allocator, "clone", "--quiet", "--no-local", f"file://{origin}", clone,
                 expect_programs=["git"])
        (clone / "dir1" / "file1.txt").write_text(content(1, COMMITS + 2))
        self.git(allocator, "commit", "--quiet", "--all", "--message", "In the clone", cwd=clone)
        self.git(allocator, "push", "--quiet", "origin", "HEAD:refs/heads/pushed", cwd=clone)
        self.git(allocator, "repack", "-a", "-d", "-f", "--quiet", "--depth=20", cwd=clone)
        self.check_objects(allocator, origin, clone)
        return {
            "refs": self.git(allocator, "for-each-ref", cwd=origin).text,
            "tree": self.git(allocator, "rev-parse", "HEAD^{tree}", cwd=clone).text,
            "objects": self.git(allocator, "rev-list", "--all", "--objects", cwd=clone).text,
            "log": self.digest(allocator, clone, "log", "--all", "--patch", "--topo-order"),
            "blame": self.digest(allocator, clone, "blame", "dir1/file1.txt"),
            "archive": self.digest(allocator, clone, "archive", "--format=tar.gz", "release-500"),
            "grep": self.digest(allocator, clone, "grep", "-n", "--threads=4", "[0-9a-f]*dead"),
        }

    def digest(self, allocator, clone, *arguments):
        output = self.git(allocator, *arguments, cwd=clone).stdout
        self.assertGreater(len(output), 1000, arguments)
        return hashlib.sha256(output).hexdigest()

    def check_objects(self, allocator, *repositories):
        for repository in repositories:
            result = self.git(allocator, "fsck", "--full", "--strict", "--no-progress",
                              cwd=repository)
            self.assertEqual(result.text, "")
            counts = self.git(allocator, "count-objects", "-v", cwd=repository).text
            self.assertGreater(int(re.search(r"in-pack: (\d+)", counts).group(1)), 4 * COMMITS)

    def test_object_names_are_the_same(self):
        stream = history()
        expected = self.work(SYSTEM, stream)
        actual = self.work(CAIRN, stream)
        self.assertGreater(expected["objects"].count("\n"), 4 * COMMITS)
        self.assertEqual(actual, expected)
        # git on the system's malloc checks the repository that git on Cairn wrote.
        self.check_objects(SYSTEM, self.directory / "cairn.git", self.directory / "cairn-clone")


if __name__ == "__main__":
    preload.main()
