"""The tool's commands and the documents: the page of each command has all its options, and every
command and option that a page shows exists."""

import pathlib
import re
import shlex
import sys
import unittest

import tool_path
import typer
from cairn import cli

ROOT = tool_path.TOOLS.parent
sys.path[:0] = [str(ROOT / "dev"), str(ROOT / "bench" / "compare")]
import bench_command  # pylint: disable=wrong-import-position
import matrix_command  # pylint: disable=wrong-import-position
from cairn_fleet import cli as fleet_cli  # pylint: disable=wrong-import-position
from doc_blocks import FENCE, blocks, pages  # pylint: disable=wrong-import-position

# The page that lists the options of a command.
PAGES = {"run": "SWITCHING.md", "inspect": "SEEING.md", "stats": "SEEING.md",
         "persist": "PERSISTENT.md", "cairn-bench": "../bench/README.md",
         "cairn-matrix": "../bench/README.md", "leaks": "SEEING.md", "purge": "SEEING.md",
         "profile": "PROFILING.md", "cairn-fleet": "../tools/fleet/README.md",
         "replay": "TRACING.md", "advise": "TRACING.md", "trace": "TRACING.md"}
# The command that a group runs for a word that is none of its commands.
OTHERWISE = {"profile": "show", "trace": "run"}
COMMAND = re.compile(r"(?:^(?:\$ )?|[;|&(] *|/)"
                     r"(?:cairn (?!cairn)|(?=cairn-(?:bench|matrix|fleet)[ `]))([a-z-][^|;&)]*)")
APP = typer.main.get_command(cli.app)
# The other tools become commands of this one, for this test.
for _name, _app in (("bench", bench_command.app), ("matrix", matrix_command.app),
                    ("fleet", fleet_cli.app)):
    APP.commands[f"cairn-{_name}"] = typer.main.get_command(_app)


def options_of(command):
    return {word for parameter in command.params if not getattr(parameter, "hidden", False)
            for word in [*parameter.opts, *parameter.secondary_opts]
            if word.startswith("-") and word != "--help"}


def options_below(command):
    found = options_of(command)
    for inner in getattr(command, "commands", {}).values():
        found |= options_below(inner)
    return found


def shown_commands(text):
    """The words after `cairn` in code, in blocks and within lines."""
    codes = [block.text for block in blocks(text) if block.language in ("sh", "console")]
    codes += re.findall(r"`([^`]+)`", FENCE.sub("", text))
    for code in codes:
        for line in code.replace("\\\n", " ").splitlines():
            for found in COMMAND.findall(line):
                yield found.split(" -- ")[0].split(" # ")[0].rstrip("…")


def unknown(words):
    """The first word that is neither a command nor an option of it."""
    command = APP
    for before, word in zip(["", *words], words):
        if word.startswith("-"):
            if getattr(command, "commands", None) and command.name in OTHERWISE:
                command = command.commands[OTHERWISE[command.name]]
            if word.split("=")[0] not in options_of(command) | {"--help"}:
                return word
        elif getattr(command, "commands", None) and not before.startswith("-"):
            choices = [command.commands.get(name) for name in word.split("|")]
            if choices == [None] and command.name in OTHERWISE:
                choices = [command.commands[OTHERWISE[command.name]]]
            if None in choices:
                return word
            command = choices[0]
    return None


class DocumentedCommandsTest(unittest.TestCase):
    def test_every_command_has_a_page_with_its_options(self):
        self.assertEqual(set(APP.commands), set(PAGES))
        for name, command in APP.commands.items():
            text = (ROOT / "docs" / PAGES[name]).read_text()
            for option in sorted(options_below(command)):
                if option.startswith("--"):
                    with self.subTest(f"cairn {name} {option} in {PAGES[name]}"):
                        self.assertTrue(re.search(rf"{option}(?![\w-])", text))

    def test_every_option_in_a_table_exists(self):
        for name in set(PAGES.values()):
            known = set().union(*(options_below(APP.commands[command])
                                  for command, page in PAGES.items() if page == name))
            rows = re.findall(r"^\| (`--.*?) \|", (ROOT / "docs" / name).read_text(), re.M)
            for option in re.findall(r"(?<![\w-])--[a-z-]+", " ".join(rows)):
                with self.subTest(f"{option} in {name}"):
                    self.assertIn(option, known)

    def test_every_command_shown_exists(self):
        seen = 0
        for page in pages(ROOT):
            for line in shown_commands(page.read_text()):
                try:
                    words = shlex.split(line)
                except ValueError:  # a quotation that continues in the part that was cut off
                    words = line.split()
                seen += 1
                with self.subTest(f"cairn {line} in {page.name}"):
                    self.assertIsNone(unknown(words))
        self.assertGreater(seen, 60)

    def test_what_is_unknown_is_found(self):
        self.assertEqual(unknown(["run", "--no-such"]), "--no-such")
        self.assertEqual(unknown(["walk"]), "walk")
        self.assertEqual(unknown(["persist", "info|walk"]), "info|walk")
        self.assertIsNone(unknown(["persist", "info|check", "--json"]))

    def test_every_target_of_make_exists(self):
        there = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
        for page in pages(ROOT):
            text = page.read_text()
            named = re.findall(r"`make ([a-z]+)", text)
            for block in blocks(text):
                if block.language in ("sh", "console"):
                    named += re.findall(r"^(?:\$ )?(?:sudo )?make ([a-z]+)", block.text, re.M)
            self.assertLessEqual(set(named), there, page.name)


if __name__ == "__main__":
    unittest.main()
