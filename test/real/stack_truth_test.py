"""The stacks of real programs, walked by Cairn and by the C runtime's unwinder in each call.

None may differ. Cairn refuses a few: stacks through a signal's frame, or through code whose unwind
table is written by hand.
"""

import os
import re
import shutil
import subprocess
import unittest

COMPARER = os.environ["CAIRN_TEST_STACK_COMPARER"]
PROGRAMS = {
    "python3": ["/usr/bin/python3", "-c",
                "import argparse, json, re, unittest\n"
                "json.dumps([list(range(100))] * 50); re.compile('(a|b)*c[d-f]')\n"],
    "perl": ["perl", "-e", "my %h; $h{$_} = [$_] for 1..3000; print scalar(sort keys %h)"],
    "sqlite3": ["sqlite3", ":memory:",
                "create table t(a); with recursive c(x) as (select 1 union all select x + 1 from c"
                " where x < 3000) insert into t select x from c; select sum(a) from t;"],
    "g++": ["g++", "-x", "c++", "-O1", "-S", "-o", "/dev/null", "-"],
    "node": ["node", "-e", "JSON.stringify([...Array(10000).keys()].map(String))"],
}
SOURCE = "#include <string>\nint main() { return (int)std::string(40, 'a').size(); }\n"


class StackTruthTest(unittest.TestCase):
    def compare(self, name):
        self.assertIsNotNone(shutil.which(PROGRAMS[name][0]), f"{name} is missing")
        done = subprocess.run(PROGRAMS[name], input=SOURCE, text=True, timeout=200, check=False,
                              capture_output=True,
                              env=os.environ | {"LD_PRELOAD": COMPARER, "LC_ALL": "C",
                                                "CAIRN_COMPARE_EVERY": "17"})
        self.assertEqual(done.returncode, 0, done.stderr[-500:])
        found = re.findall(r"stacks: (\d+) equal, (\d+) refused, (\d+) differ", done.stderr)
        self.assertTrue(found, done.stderr[-500:])
        equal, refused, differ = (sum(map(int, column)) for column in zip(*found))
        self.assertEqual(differ, 0)
        self.assertGreater(equal, 20)
        self.assertLess(refused, equal / 10)


def case(name):
    return lambda self: self.compare(name)


for program in PROGRAMS:
    setattr(StackTruthTest, "test_" + program.replace("+", "p"), case(program))


if __name__ == "__main__":
    unittest.main()
