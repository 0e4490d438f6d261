#!/usr/bin/env python3
"""Writes what the shells load to complete the arguments of `cairn`: DIRECTORY/bash, zsh and fish.

usage: make_completion.py DIRECTORY

The tool prints them itself (--show-completion) for a user's own start-up files. zsh's is changed
for a folder of functions, where a file is the function: it completes at the first call already.
Needs typer and rich.
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHELLS = ("bash", "zsh", "fish")


def script_of(shell):
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    return subprocess.run(["/usr/bin/python3", "-B", str(ROOT / "tools/bin/cairn"),
                           "--show-completion", shell], env=environment, text=True, check=True,
                          stdout=subprocess.PIPE).stdout


def as_function_file(text):
    registering = "compdef _cairn_completion cairn"
    if registering not in text:
        sys.exit(f"make_completion: zsh's script has no line '{registering}'")
    return text.replace(registering, '_cairn_completion "$@"')


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for shell in SHELLS:
        text = script_of(shell)
        (directory / shell).write_text(as_function_file(text) if shell == "zsh" else text)


if __name__ == "__main__":
    main()
