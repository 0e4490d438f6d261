"""The manual pages: as many as there are commands, and nothing that a reader of them minds."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

import dev_path  # pylint: disable=unused-import
import make_man
import typer
from cairn import cli
from cairn_fleet import cli as fleet_cli

MANUAL = pathlib.Path(os.environ["CAIRN_TEST_MANUAL"])


def commands_of(group, name):
    yield name
    for word, command in getattr(group, "commands", {}).items():
        yield from commands_of(command, f"{name}-{word}")


class ManualTest(unittest.TestCase):
    def test_every_command_has_its_page_with_every_option(self):
        pages = {page.stem: page.read_text() for page in (MANUAL / "man1").glob("*.1")}
        app = typer.main.get_command(cli.app)
        fleet = typer.main.get_command(fleet_cli.app)
        self.assertEqual(set(pages), {*commands_of(app, "cairn"),
                                      *commands_of(fleet, "cairn-fleet")})
        for name, command in app.commands.items():
            for option in command.params:
                for word in option.opts:
                    if word.startswith("--") and not option.hidden:
                        shown = pages[f"cairn-{name}"].replace("\\-", "-")
                        self.assertIn(word, shown, name)

    def test_every_option_and_message_of_the_documents(self):
        for page, document, _ in make_man.DOCUMENTS:
            text = (MANUAL / "man7" / f"{page}.7").read_text()
            source = (make_man.ROOT / "docs" / document).read_text()
            for key in re.findall(r"^\| `(\w+)` \|", source, re.M):
                self.assertIn(key, text.replace("\\", ""))

    def test_nothing_to_complain_about(self):
        if not shutil.which("mandoc"):
            self.skipTest("no mandoc")
        for page in sorted(MANUAL.rglob("*.[17]")):
            said = subprocess.run(["mandoc", "-Tlint", "-Wwarning", str(page)], text=True,
                                  stdout=subprocess.PIPE, check=False).stdout
            self.assertEqual(said, "", page.name)

    def test_links_become_pages(self):
        text = "see [OPTIONS.md](reference/OPTIONS.md), [the tool](../COMPARING.md#a)"
        self.assertEqual(make_man.without_links(text),
                         "see cairn.options(7), the tool (share/doc/cairn/docs/COMPARING.md)")


if __name__ == "__main__":
    unittest.main()
