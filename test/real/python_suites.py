"""Runs the unittest suites named and prints every test's outcome as JSON."""

import json
import sys
import unittest


class Outcomes(unittest.TextTestResult):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.outcomes = {}

    def startTest(self, test):
        super().startTest(test)
        self.outcomes[test.id()] = "ok"

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcomes[test.id()] = "skipped"


if __name__ == "__main__":  # the suites start children that import this file
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    result = unittest.TextTestRunner(resultclass=Outcomes).run(suite)
    for test, _ in result.failures + result.errors:
        result.outcomes[test.id()] = "failed"
    print(json.dumps(result.outcomes, sort_keys=True))
    sys.exit(not result.wasSuccessful())
