"""Every command that the installed tool's --help names, with every option that takes a value, given
what is wrong: one sentence, another exit status than 0, and nothing left behind."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

import click
import typer

PREFIX = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(PREFIX / "share" / "cairn"), str(PREFIX / "share" / "cairn" / "fleet")]
# pylint: disable=wrong-import-position
from cairn import cli
from cairn_fleet import cli as fleet_cli

# Arguments of a command with which only the option is wrong; a process that is not there otherwise.
ARGUMENTS = {"run": ["true"], "advise": ["true"], "profile run": ["true"],
             "trace run": ["-o", "new.trace", "true"], "cairn-fleet export": ["--once", "99999999"]}
ABSENT, NONSENSE = "/no/such/folder/file", "non-sense"
FREE_TEXT = {"--host", "--release-variable", "--release"}  # any text is valid


def commands(command, words=()):
    """(words, click's command) of each command that does something."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    for name, one in (inner or {}).items():
        yield from commands(one, (*words, name))


def command_line(words):
    """The tool, and its arguments; the words of cairn-fleet begin with its name."""
    is_fleet = words[:1] == ("cairn-fleet",)
    return (PREFIX / "bin" / "cairn-fleet", words[1:]) if is_fleet else \
        (PREFIX / "bin" / "cairn", words)


def start(folder, *words, **options):
    tool, words = command_line(words)
    environment = {**os.environ, "COLUMNS": "80", "LC_ALL": "C.UTF-8", **options.pop("env", {})}
    return subprocess.run([tool, *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=300, check=False,
                          **{"stdout": subprocess.PIPE, **options})


def fault_of(done, folder):
    """The fault in how a rejected command ended, or None."""
    lines = [line for line in done.stderr.splitlines() if "CAIRN_OPTIONS" not in line]
    if done.returncode <= 0:
        return f"exit status {done.returncode}"
    if len(lines) != 1 or not lines[0].startswith("cairn"):
        return f"not one sentence: {done.stderr!r}"
    if "Traceback" in lines[0] or "internal error" in lines[0]:
        return lines[0]
    left = sorted(path.name for path in pathlib.Path(folder).iterdir())
    return f"left behind: {left}" if left else None


def wrong_uses(words, command):
    """Arguments that are to be refused."""
    yield (*words, "--no-such-option")
    if any(isinstance(each, click.Argument) and each.required for each in command.params):
        yield words
    arguments = ARGUMENTS.get(" ".join(words))
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_flag or option.opts[0] in FREE_TEXT:
            continue
        if arguments is None or option.opts[0] == "-o":
            rest = [ABSENT] * sum(isinstance(each, click.Argument) for each in command.params)
        else:
            rest = arguments
        is_path = "Path" in type(option.type).__name__ or "FILE" in (option.metavar or "") or \
            "OUT" in (option.metavar or "")
        yield (*words, option.opts[0], ABSENT if is_path else NONSENSE, *rest)


def check(words, expectation):
    """The findings of one use of the tool."""
    with tempfile.TemporaryDirectory() as folder:
        fault = expectation(words, folder)
    return [f"cairn {' '.join(words)}: {fault}"] if fault else []


def refused(words, folder):
    return fault_of(start(folder, *words), folder)


def helps(words, folder):
    for columns in ("80", "24"):
        done = start(folder, *words, "--help", env={"COLUMNS": columns})
        if done.returncode or done.stderr or not done.stdout:
            return f"--help in {columns} columns: {done.returncode} {done.stderr!r}"
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = start(folder, *words, "--help", stdout=full)
    if done.returncode == 0 or done.stderr.count("\n") != 1:
        return f"--help to a full disk: {done.returncode} {done.stderr!r}"
    tool, words = command_line(words)
    done = subprocess.run(["bash", "-o", "pipefail", "-c", '"$0" "$@" --help | true', tool, *words],
                          stderr=subprocess.PIPE, text=True, check=False)
    return f"--help to a closed pipe: {done.stderr!r}" if done.stderr else None


def main():
    found = dict(commands(typer.main.get_command(cli.app)))
    found.update(commands(typer.main.get_command(fleet_cli.app), ("cairn-fleet",)))
    findings = []
    tasks = [(words, helps) for words in found]
    tasks += [(use, refused) for words, command in found.items()
              for use in wrong_uses(words, command)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for more in pool.map(lambda task: check(*task), tasks):
            findings += more
    print("\n".join(findings))
    print(f"installed_commands: {len(found)} commands, {len(tasks)} uses, "
          f"{len(findings)} findings")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
