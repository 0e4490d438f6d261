"""firefox: headless, a screenshot of a page with a script. It has its own malloc and operators, so
its processes use both, and a form of an operator that does not reach Firefox's ends a process.
behaviour.replaced_operators_single is a small program with such operators.

Skipped where firefox-esr is not installed, since it is 250 MB.
"""

import pathlib
import shutil
import subprocess
import unittest

import preload

PAGE = """<html><body><h1>A page</h1><canvas id=canvas width=100 height=100></canvas><script>
let made = [];
for (let i = 0; i < 200000; i++)
    made.push({number: i, text: "text " + i});
canvas.getContext("2d").fillRect(10, 10, 50, 50);
document.body.append(made.length + " " + JSON.stringify(made).length);
</script></body></html>
"""
PNG = b"\x89PNG\r\n\x1a\n"


@unittest.skipUnless(shutil.which("firefox-esr"), "firefox-esr is not installed")
class FirefoxTest(preload.RealProgramTest):
    def picture(self, name, **variables):
        profile = self.directory / f"profile-{name}"
        profile.mkdir()
        page = self.directory / "page.html"
        page.write_text(PAGE)
        picture = self.directory / f"{name}.png"
        environment = self.environment(preload.SYSTEM, {"HOME": str(profile), **variables})
        done = subprocess.run(
            ["firefox-esr", "--headless", "--no-remote", "--profile", profile,
             "--window-size", "400,300", "--screenshot", picture, page.as_uri()],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
        self.check_messages(done.stdout)
        self.assertEqual(done.returncode, 0, preload.tail(done.stdout))
        dumps = [path for path in pathlib.Path(profile).rglob("*.dmp")]
        self.assertEqual(dumps, [], "a process of firefox's ended by a signal")
        return picture.read_bytes()

    def test_a_page_is_drawn_and_no_process_ends(self):
        expected = self.picture("system")
        self.assertTrue(expected.startswith(PNG))
        self.assertEqual(self.picture("cairn", LD_PRELOAD=preload.library), expected)


if __name__ == "__main__":
    preload.main()
