#!/usr/bin/env python3
"""Gives a running Pyroscope a dump of the heap profiler, and compares what it says of it then.

usage: ask_pyroscope.py URL LIBRARY PROGRAM

PROGRAM is run on LIBRARY with the profiler on; each function's bytes in use that the server shows
must be those of `cairn profile FILE --json`. Exit status 1 when they are not. See dev/prove-fleet.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

TOOLS = pathlib.Path(__file__).resolve().parents[1] / "tools" / "bin"
SECONDS = 120
KIND = "memory:inuse_space:bytes:space:bytes"


def wait_until_ready(url):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{url}/ready", timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    sys.exit(f"ask_pyroscope: {url} is not ready after {SECONDS} s")


def shown(url, selector):
    """{function: its own bytes} of what the server has."""
    words = urllib.parse.urlencode({"query": KIND + selector, "from": "now-1h", "until": "now"})
    with urllib.request.urlopen(f"{url}/pyroscope/render?{words}", timeout=SECONDS) as answer:
        graph = json.load(answer)["flamebearer"]
    sums = {}
    for level in graph["levels"]:  # offset, total, own, number of the name
        for own, name in zip(level[2::4], level[3::4]):
            if own:
                sums[graph["names"][name]] = sums.get(graph["names"][name], 0) + own
    return sums


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    url, library, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder) / "dump"
        subprocess.run([program], check=True, env={
            **os.environ, "LD_PRELOAD": os.path.abspath(library),
            "CAIRN_OPTIONS": f"profile:8K,profile_file:{prefix}"})
        dump, = pathlib.Path(folder).glob("dump.*")
        wait_until_ready(url)
        subprocess.run([TOOLS / "cairn-fleet", "push", dump, "--to", url, "--name", "asked",
                        "--release", "7"], check=True)
        value = json.loads(subprocess.run([TOOLS / "cairn", "profile", dump, "--json"], check=True,
                                          stdout=subprocess.PIPE).stdout)
    wanted = {}
    for site in value["sites"]:
        name = site["stack"][0]["function"]
        if site["live"]["bytes"]:
            wanted[name] = wanted.get(name, 0) + site["live"]["bytes"]
    found = shown(url, '{service_name="asked",release="7"}')
    if found != wanted:
        sys.exit(f"ask_pyroscope: the server has {found}, the dump {wanted}")
    if shown(url, '{service_name="asked",release="8"}'):
        sys.exit("ask_pyroscope: the server has a release that was not pushed")
    print(f"-- the server shows what was pushed: {found}")


if __name__ == "__main__":
    main()
