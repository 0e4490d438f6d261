"""dev/install-packages: what is missing, named first, installed or not; and which targets of the
Makefile install. Stand-ins for dpkg-query, apt-get, sudo and id; nothing is installed."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = """# a comment
build  compiler
build  builder
test   builder
test   web  server
other  missing-thing
"""
POLICY = "/usr/sbin/policy-rc.d"
APT = """#!/bin/sh
policy=no
[ ! -e "{policy}" ] || policy=yes
echo "$* policy=$policy" >>"{log}"
[ ! -e "{folder}/fails-$5" ]
"""
NEEDED = ("sh", "awk", "sed", "grep", "dirname", "env", "tee", "chmod", "rm", "cat")


class InstallPackagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        self.policy = self.folder / "policy-rc.d"
        self.log = self.folder / "log"
        for name in NEEDED:
            (self.programs / name).symlink_to(shutil.which(name))
        script = (ROOT / "dev" / "install-packages").read_text()
        self.assertIn(f"policy={POLICY}\n", script)
        self.script = self.write(self.folder / "install-packages",
                                 script.replace(POLICY, str(self.policy)))
        (self.folder / "packages").write_text(PACKAGES)
        self.write(self.programs / "apt-get",
                   APT.format(policy=self.policy, log=self.log, folder=self.folder))
        self.write(self.programs / "sudo", '#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n')
        self.write(self.programs / "true", "#!/bin/sh\nexit 0\n")
        self.install("compiler")
        self.become(0)

    @staticmethod
    def write(path, text):
        path.write_text(text)
        path.chmod(0o755)
        return path

    def install(self, *names):
        lines = "".join(f"installed {name}\n" for name in names)
        self.write(self.programs / "dpkg-query", f"#!/bin/sh\ncat <<END\n{lines}END\n")

    def become(self, user):
        self.write(self.programs / "id", f"#!/bin/sh\necho {user}\n")

    def run_script(self, *arguments, **environment):
        return subprocess.run([str(self.script), *arguments], stdin=subprocess.DEVNULL, text=True,
                              env={"PATH": str(self.programs), **environment}, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def installed(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def test_silent_where_nothing_is_missing(self):
        self.install("compiler", "builder")
        result = self.run_script("build")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertEqual(self.installed(), [])

    def test_one_line_says_first_what_is_installed(self):
        result = self.run_script("build", "other")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "install-packages: apt-get install builder missing-thing "
                                        "(DEPS=0 turns this off)\n")
        self.assertEqual(len(self.installed()), 1)
        self.assertIn(" install -y --no-install-recommends builder missing-thing",
                      self.installed()[0])

    def test_the_line_says_that_sudo_is_used(self):
        self.become(1000)
        result = self.run_script("build")
        self.assertEqual(result.stdout,
                         "install-packages: sudo apt-get install builder (DEPS=0 turns this off)\n")
        self.assertEqual(len(self.installed()), 1)

    def test_a_package_of_two_groups_is_named_once(self):
        self.install("compiler", "web")
        self.assertIn("install builder (", self.run_script("build", "test").stdout)

    def test_no_policy_without_a_server(self):
        self.run_script("build")
        self.assertTrue(self.installed()[0].endswith("policy=no"))

    def test_a_server_is_not_started_and_the_policy_goes(self):
        self.assertEqual(self.run_script("test").returncode, 0)
        self.assertTrue(self.installed()[0].endswith("builder web policy=yes"))
        self.assertFalse(self.policy.exists())

    def test_no_policy_where_the_server_is_installed(self):
        self.install("compiler", "web")
        self.run_script("test")
        self.assertTrue(self.installed()[0].endswith("policy=no"))

    def test_the_policy_goes_where_the_installation_fails(self):
        self.write(self.programs / "apt-get",
                   f"#!/bin/sh\n[ -e {self.policy} ] || exit 0\nexit 100\n")
        self.assertEqual(self.run_script("test").returncode, 100)
        self.assertFalse(self.policy.exists())

    def test_a_policy_of_the_administrator_stays(self):
        self.policy.write_text("mine")
        self.run_script("test")
        self.assertEqual(self.policy.read_text(), "mine")

    def test_the_lists_are_fetched_where_a_package_is_not_known(self):
        self.write(self.programs / "apt-get", f"""#!/bin/sh
echo "$*" >>{self.log}
case "$*" in *update*) : >{self.folder}/fetched ;; *) [ -e {self.folder}/fetched ] ;; esac
""")
        self.assertEqual(self.run_script("build").returncode, 0)
        self.assertEqual([" update" in line for line in self.installed()], [False, True, False])

    def check_installs_nothing(self, result):
        self.assertEqual(result.returncode, 0)
        self.assertEqual(self.installed(), [])
        self.assertFalse(self.policy.exists())
        self.assertEqual(result.stderr,
                         "install-packages: these packages are missing: builder web\n"
                         'install-packages: `make deps FOR="build test"` installs them\n')

    def test_missing_is_said_and_not_installed(self):
        self.check_installs_nothing(self.run_script("--missing", "build", "test"))

    def test_nothing_is_installed_with_deps_0(self):
        self.check_installs_nothing(self.run_script("build", "test", DEPS="0"))

    def test_neither_root_nor_sudo(self):
        self.become(1000)
        (self.programs / "sudo").unlink()
        result = self.run_script("build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get install builder (DEPS=0 continues without them)", result.stderr)
        self.assertEqual(self.installed(), [])

    def test_no_debian_system(self):
        (self.programs / "dpkg-query").unlink()
        result = self.run_script("build")
        self.assertEqual(result.returncode, 0)
        self.assertIn("compiler builder", result.stderr)

    def test_unknown_group(self):
        self.assertEqual(self.run_script("tests").returncode, 2)


class PackagesTest(unittest.TestCase):
    def test_a_server_is_one_in_every_group(self):
        kinds = {}
        for line in (ROOT / "dev" / "packages").read_text().splitlines():
            if not line.startswith("#"):
                _, name, *kind = line.split()
                kinds.setdefault(name, set()).add(tuple(kind))
        self.assertEqual({name for name, found in kinds.items() if len(found) != 1}, set())
        self.assertLessEqual(set().union(*kinds.values()), {(), ("server",)})


class MakefileTest(unittest.TestCase):
    """The commands of `make`, by `make -n`."""

    def commands(self, *arguments):
        found = subprocess.run(["make", "-n", "-C", str(ROOT), *arguments], text=True, check=True,
                               env={"PATH": os.environ["PATH"]},  # not what a `make test` sets
                               stdout=subprocess.PIPE).stdout.splitlines()
        return [line for line in found if "install-packages" in line], found

    def test_build_and_install_say_only_what_is_missing(self):
        for target, groups in (("build", "build"), ("install", "build tools")):
            installers, _ = self.commands(target)
            self.assertEqual(installers, [f"dev/install-packages --missing {groups}"])

    def test_run_and_test_install_at_first_and_at_once(self):
        for target, groups in (("run", "build run"), ("test", "build run"),
                               ("test-all", "build run test")):
            installers, commands = self.commands(target)
            self.assertEqual(installers, [f"dev/install-packages {groups}"])
            self.assertLess(commands.index(installers[0]),
                            min(i for i, line in enumerate(commands) if line.startswith("cmake")))

    def test_deps(self):
        self.assertEqual(self.commands("deps")[0], ["dev/install-packages build tools"])
        self.assertEqual(self.commands("deps", "FOR=docs ci")[0], ["dev/install-packages docs ci"])


if __name__ == "__main__":
    unittest.main()
