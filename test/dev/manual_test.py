"""The manual pages: one for each command with its subcommands, and nothing that a reader minds."""

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


def options_of(command):
    """The long options of a command and of its subcommands."""
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            yield from (word for word in parameter.opts if word.startswith("--"))
    for inner in getattr(command, "commands", {}).values():
        yield from options_of(inner)


class ManualTest(unittest.TestCase):
    def test_every_command_has_its_page_with_every_option(self):
        pages = {page.stem: page.read_text() for page in (MANUAL / "man1").glob("*.1")}
        app = typer.main.get_command(cli.app)
        fleet = typer.main.get_command(fleet_cli.app)
        commands = {f"cairn-{name}": command for name, command in app.commands.items()
                    if not command.hidden}
        self.assertEqual(set(pages), {"cairn", *commands, "cairn-fleet"})
        for name, command in {**commands, "cairn-fleet": fleet}.items():
            shown = re.sub(r"\\f[BR]", "", pages[name].replace("\\-", "-"))
            for word in options_of(command):
                self.assertRegex(shown, rf"(?<![\w-]){word}(?![\w-])", name)
            for inner in getattr(command, "commands", {}):
                self.assertIn(f"\n.SS {inner}\n", shown)

    def test_the_line_name_is_a_whole_sentence(self):
        for page in (MANUAL / "man1").glob("*.1"):
            line = re.search(r"^\.SH NAME\n(.*)$", page.read_text(), re.M).group(1)
            self.assertRegex(line, r"^[\w\\-]+ \\- \S.*[^.]$")

    def test_every_option_and_message_of_the_documents(self):
        for page, document, _ in make_man.DOCUMENTS:
            if not shutil.which("lowdown"):
                self.skipTest("no lowdown")
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
        text = "see [OPTIONS.md](reference/OPTIONS.md), [the tool](../SEEING.md#a), [b](#b)"
        self.assertEqual(make_man.without_links(text),
                         "see cairn.options(7), the tool (share/doc/cairn/docs/SEEING.md), b")

    def test_powers_bars_and_tables_are_as_in_the_documents(self):
        if not (shutil.which("lowdown") and shutil.which("mandoc")):
            self.skipTest("no lowdown or no mandoc")
        shown = "".join(subprocess.run(
            ["mandoc", "-Tutf8", "-Owidth=80", str(MANUAL / "man7" / f"cairn.{page}.7")], text=True,
            check=True, stdout=subprocess.PIPE).stdout for page in ("options", "switching"))
        shown = re.sub(".\b", "", shown)
        for text in ("0 to 2^32-1", "COMMAND|PORT"):
            self.assertIn(text, shown)
        self.assertRegex(shown, r"(?m)^ +decay_ms +0 to 2\^32-1 +\d+ +free memory that was")


if __name__ == "__main__":
    unittest.main()
