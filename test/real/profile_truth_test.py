"""The profiler's estimates of real programs, compared with a run in which every block is a sample.

Each program does its work twice from one input: once with an interval of 2 bytes, which lists all
blocks, and once with a usual one. Sites are compared by file and offset, since addresses differ
between runs. An estimate may be off by 4 sigma at most, and rarely by 3.
"""

import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

# pylint: disable=wrong-import-position
from cairn.profile_file import read

LIBRARY = os.environ["CAIRN_TEST_LIBRARY"]
INTERVAL = 32 << 10
SAMPLES_LEAST = 20  # of a site: the estimate of fewer samples is not normally distributed
PROGRAMS = {
    # Without the modules of a usual start, whose stacks do not all fit into the table.
    "python3": ["/usr/bin/python3", "-I", "-S", "-c",
                "d = {str(i): ['x' * (i % 90)] * 5 for i in range(6000)}\n"
                "t = ' '.join(d); e = t.split()\n"
                "b = [bytearray(i % 3000) for i in range(6000)]\n"
                "w = [str(i) * 20 for i in range(9000)]\n"
                "print(len(t), len(e), len(b), len(w))\n"],
    "sqlite3": ["sqlite3", ":memory:",
                "create table t(a integer primary key, b text);"
                "with recursive c(x) as (select 1 union all select x+1 from c where x<6000)"
                " insert into t select x, printf('%0100d', x) from c;"
                "create index i on t(b);"
                "select count(*), sum(length(g)) from"
                " (select group_concat(b) as g from t group by a%100);"],
    "perl": ["perl", "-e",
             "my %h; $h{\"k$_\"} = [map { $_ * 3 } 1..8] for 1..6000;"
             "my @a = map { 'x' x ($_ % 700) } 1..6000; print scalar(keys %h), scalar(@a);"],
}


def sites(profile):
    """{stack as files and offsets: bytes and blocks allocated there}"""
    found = {}
    for site in profile.sites:
        key = []
        for address in site.frames:
            place = profile.map_of(address - 1)
            key.append((place.path, address - place.start + place.offset) if place else address)
        found[tuple(key)] = site.allocated
    return found


class ProfileTruthTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def profile(self, command, interval):
        prefix = self.folder / f"dump{interval}"
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={
                "PATH": "/usr/bin:/bin", "LC_ALL": "C", "LD_PRELOAD": LIBRARY,
                "PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc", "PERL_HASH_SEED": "0",
                "CAIRN_OPTIONS": f"profile:{interval},profile_file:{prefix}"}) as process:
            output, said = process.communicate(timeout=250)
        self.assertEqual((process.returncode, said), (0, b""))
        return read(f"{prefix}.{process.pid}.0"), output

    def compare(self, name):
        command = PROGRAMS[name]
        if not shutil.which(command[0]):
            self.skipTest(f"{name} is not installed")
        whole, expected = self.profile(command, 2)
        usual, output = self.profile(command, INTERVAL)
        self.assertEqual(output, expected)
        self.assertTrue(whole.is_whole and usual.is_whole)
        self.assertEqual(whole.lost_stacks, 0)
        truth, estimates = sites(whole), sites(usual)
        deviations = []
        for key, all_of_it in truth.items():
            if key == () or all_of_it.bytes < SAMPLES_LEAST * INTERVAL:
                continue
            seen = estimates.get(key)
            size = all_of_it.bytes / all_of_it.objects
            chance = 1 - math.exp(-size / INTERVAL)
            # Exact for blocks of one size; different sizes make it slightly larger.
            sigma = math.sqrt(all_of_it.bytes * size * (1 - chance) / chance)
            if sigma < all_of_it.bytes / 100:
                continue  # few large blocks, of which nearly all are samples
            deviations.append(((seen.bytes if seen else 0) - all_of_it.bytes) / sigma)
        total, of_usual = whole.sum(False).bytes, usual.sum(False).bytes
        sigma = math.sqrt(total * INTERVAL)  # an upper bound
        self.assertLess(abs(of_usual - total), 4 * sigma, (total, of_usual))
        self.assertGreaterEqual(len(deviations), 2, "sites that are large enough")
        self.assertLess(max(map(abs, deviations)), 5, deviations)
        beyond = sum(abs(deviation) > 3 for deviation in deviations)
        self.assertLessEqual(beyond, 1 + len(deviations) // 20, deviations)

    def test_python3(self):
        self.compare("python3")

    def test_sqlite3(self):
        self.compare("sqlite3")

    def test_perl(self):
        self.compare("perl")


if __name__ == "__main__":
    unittest.main()
