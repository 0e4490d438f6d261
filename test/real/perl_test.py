"""perl: hashes, strings, regular expressions, sorting, forked children; digests compared."""

import hashlib

import preload
from preload import HERE


class PerlTest(preload.RealProgramTest):
    def test_digests_are_the_same(self):
        perl = self.need("perl", "perl")
        expected, actual = self.run_on_both([perl, HERE / "perl_work.pl"])
        lines = actual.text.splitlines()
        self.assertEqual([line.split()[0] for line in lines],
                         ["hash", "fork", "fork", "fork", "fork", "text", "sort", "large"])
        self.assertEqual(actual.text, expected.text)

        # Another program computes one part, too.
        large = b"".join(b"%063d\n" % i for i in range(1, (1 << 20) + 1))
        large = large[:1_000_000] + large[31_000_000:]
        self.assertEqual(lines[-1], f"large {len(large)} {hashlib.sha256(large).hexdigest()}")


if __name__ == "__main__":
    preload.main()
