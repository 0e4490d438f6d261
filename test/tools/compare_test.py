"""cairn.compare: the order of the runs, medians and ratios."""

import math
import random
import unittest

import tool_path  # noqa: F401
from cairn.compare import Side, compare_outputs, interleave, interval, keep_whole_rounds, ratio
from cairn.measure import Run


def run(wall_s=1.0, status=0, signal=0, output=b"same"):
    return Run(wall_s=wall_s, cpu_s=0.0, peak_rss_mib=1.0, faults=1, exit_code=status,
               signal=signal, output=output, stderr_tail="")


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.theirs = Side("system")
        self.ours = Side("Cairn", "library")

    def test_rounds_alternate_their_order(self):
        order = []
        interleave((self.theirs, self.ours), 3, lambda side, _: order.append(side.name) or run())
        self.assertEqual(order, ["system", "Cairn", "Cairn", "system", "system", "Cairn"])
        self.assertEqual((len(self.theirs.runs), len(self.ours.runs)), (3, 3))

    def test_stops_at_a_signal(self):
        interleave((self.theirs, self.ours), 3,
                   lambda side, _: run(signal=11 if side is self.ours else 0))
        self.assertEqual((len(self.theirs.runs), len(self.ours.runs)), (1, 1))
        self.assertIsNone(self.theirs.killed())
        self.assertEqual(self.ours.killed().signal, 11)
        self.assertEqual(self.ours.status(), 139)

    def test_stops_at_a_real_time_signal(self):
        ended = interleave((self.theirs, self.ours), 3, lambda side, _: run(signal=40))
        self.assertIs(ended[0], self.theirs)
        self.assertEqual(ended[1].status, 168)

    def test_warm_up_is_not_kept(self):
        numbers = []
        interleave((self.theirs, self.ours), 2, lambda side, _: run(),
                   lambda side, number: numbers.append(number), warm_up=2)
        self.assertEqual(numbers, [-2, -2, -1, -1, 0, 0, 1, 1])
        self.assertEqual((len(self.theirs.runs), len(self.ours.runs)), (2, 2))

    def test_signal_in_the_warm_up_stops_and_keeps_nothing(self):
        ended = interleave((self.theirs, self.ours), 2, lambda side, _: run(signal=11), warm_up=1)
        self.assertEqual(ended[1].signal, 11)
        self.assertEqual(keep_whole_rounds((self.theirs, self.ours)), 0)

    def test_an_early_end_leaves_whole_rounds(self):
        self.theirs.runs = [run(), run(), run()]
        self.ours.runs = [run(), run(), run(signal=11)]
        self.assertEqual(keep_whole_rounds((self.theirs, self.ours)), 2)
        self.assertEqual((len(self.theirs.runs), len(self.ours.runs)), (2, 2))
        self.assertIsNone(self.ours.killed())

    def test_interval(self):
        self.theirs.runs = [run(wall) for wall in (1.0, 2.0, 4.0, 1.0, 2.0)]
        self.ours.runs = [run(wall * factor) for wall, factor in
                          zip((1.0, 2.0, 4.0, 1.0, 2.0), (0.9, 0.89, 0.91, 0.9, 0.9))]
        low, high = interval(self.ours, self.theirs, "wall_s")
        self.assertTrue(0.88 < low < 0.9 < high < 0.92, (low, high))
        self.assertEqual(interval(self.ours, self.theirs, "faults"), (1, 1))
        self.assertIsNone(interval(self.ours, self.theirs, "cpu_s"), "it is 0")
        self.ours.runs[0] = run(3.0)
        low, high = interval(self.ours, self.theirs, "wall_s")
        self.assertLess(low, 1)
        self.assertGreater(high, 1)
        del self.ours.runs[2:], self.theirs.runs[2:]
        self.assertIsNone(interval(self.ours, self.theirs, "wall_s"), "two rounds are too few")

    def test_medians_and_ratio(self):
        self.theirs.runs = [run(2.0), run(9.0), run(4.0)]
        self.ours.runs = [run(3.0), run(1.0), run(2.0)]
        self.assertEqual(self.theirs.median("wall_s"), 4.0)
        self.assertEqual(self.theirs.half_range("wall_s"), 3.5)
        self.assertEqual(ratio(self.ours, self.theirs, "wall_s"), 0.5, "of the third round")
        self.assertIsNone(ratio(self.ours, self.theirs, "cpu_s"))

    def test_the_interval_is_around_the_ratio(self):
        """Also where one round is far off, as the page faults of a program that was swapped."""
        for factors in ((0.72, 0.72, 0.71, 0.73, 0.45), (0.9, 1.2, 1.0), (2.0, 2.1, 2.2, 9.0)):
            self.theirs.runs = [run(1.0) for _ in factors]
            self.ours.runs = [run(factor) for factor in factors]
            low, high = interval(self.ours, self.theirs, "wall_s")
            self.assertAlmostEqual(math.sqrt(low * high), ratio(self.ours, self.theirs, "wall_s"))

    def test_the_interval_contains_the_truth(self):
        """In 19 of 20 comparisons, on a quiet machine and on one that drifts."""
        source = random.Random(4)
        for drift in (0, 0.2):
            found = 0
            for _ in range(400):
                rounds = [math.exp(source.gauss(0, drift)) for _ in range(5)]
                self.theirs.runs = [run(each * math.exp(source.gauss(0, 0.03))) for each in rounds]
                self.ours.runs = [run(0.9 * each * math.exp(source.gauss(0, 0.03)))
                                  for each in rounds]
                low, high = interval(self.ours, self.theirs, "wall_s")
                found += low <= 0.9 <= high
            self.assertGreater(found, 400 * 0.92)
            self.assertLess(found, 400)

    def test_one_failure_among_rounds_is_the_status(self):
        self.ours.runs = [run(), run(status=3), run()]
        self.assertEqual(self.ours.status(), 3)

    def test_outputs(self):
        self.theirs.runs = [run(), run()]
        self.ours.runs = [run(), run()]
        self.assertIn("the same in every run", compare_outputs([self.theirs, self.ours]))
        self.ours.runs = [run(output=b"other")] * 2
        self.assertIn("differs between system and Cairn", compare_outputs([self.theirs, self.ours]))
        third = Side("third", "library", [run(output=b"third")] * 2)
        self.assertIn("between system and Cairn, third",
                      compare_outputs([self.theirs, self.ours, third]))
        self.theirs.runs = [run(), run(output=b"third")]
        self.assertIn("under the system's malloc too", compare_outputs([self.theirs, self.ours]))


if __name__ == "__main__":
    unittest.main()
