"""Writes the file with which ctest learns the cases of a program with GoogleTest.

usage: discover_tests.py --out FILE --labels LABELS --timeout SECONDS [--grouped] -- PROGRAM…

A case of test/<folder>/<name>_test.cc becomes the test <name>_test.Suite.Case and runs in a process
of its own. With --grouped a file becomes one test, <name>_test, and one process, unless its source
says "Each case needs a process of its own".
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = r"\[  SKIPPED \]"
ALONE = "Each case needs a process of its own"


def list_cases(command):
    """(source, name for the filter, name to show) of each case."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "cases.json"
        listed = subprocess.run([*command, "--gtest_list_tests", f"--gtest_output=json:{out}"],
                                capture_output=True, text=True, check=False, timeout=60)
        if listed.returncode != 0 or not out.exists():
            sys.exit(f"{command[-1]} cannot list its cases:\n{listed.stdout}{listed.stderr}")
        suites = json.loads(out.read_text(encoding="utf-8"))["testsuites"]
    for suite in suites:
        for case in suite["testsuite"]:
            yield pathlib.Path(case["file"]), f"{suite['name']}.{case['name']}", shown(suite, case)


def shown(suite, case):
    """The values and types of parameters instead of their numbers."""
    name = case["name"]
    if "value_param" in case:
        name = re.sub(r"/[0-9]+$", lambda _: "/" + case["value_param"], name)
    if "type_param" in case:
        return f"{suite['name'].split('/')[0]}.{name}<{case['type_param']}>"
    return f"{suite['name']}.{name}"


def find_clash(cases):
    """Why two of the cases cannot be in one program, or None."""
    source_of = {}
    for source, case, _ in cases:
        if source_of.setdefault(case, source) != source:
            return f"{case} is in {source_of[case]} and in {source}: name one of them differently"
    return None


def quote(text):
    return f"[==[{text}]==]"


def needs_processes(source):
    return ALONE in re.sub(r"\n// +", " ", source.read_text(encoding="utf-8"))


def write_tests(options, cases):
    lines = []

    def add(name, argument, skipped):
        properties = f"LABELS {options.labels} TIMEOUT {options.timeout}"
        if skipped:
            properties += f" SKIP_REGULAR_EXPRESSION {quote(SKIPPED)}"
        command = " ".join(quote(part) for part in [*options.command, argument])
        lines.append(f"add_test({quote(name)} {command})\n"
                     f"set_tests_properties({quote(name)} PROPERTIES {properties})\n")

    grouped = set()
    for source, case, name in cases:
        if not options.grouped or needs_processes(source):
            add(f"{source.stem}.{name}", f"--gtest_filter={case}", True)
        elif source not in grouped:
            grouped.add(source)
            add(source.stem, f"--file={source.stem}", False)
    options.out.write_text("".join(lines), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--labels", required=True)
    parser.add_argument("--timeout", type=int, required=True)
    parser.add_argument("--grouped", action="store_true")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    cases = list(list_cases(options.command))
    clash = find_clash(cases)
    if clash:
        sys.exit(clash)
    write_tests(options, cases)


if __name__ == "__main__":
    main()
