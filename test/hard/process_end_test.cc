// Runs process_end many times: every way out must end with status 0, without a crash or a hang.

#include <gtest/gtest.h>

#include <string>

#include "subject.h"

namespace {

class ProcessEnd : public testing::TestWithParam<const char *> {};

TEST_P(ProcessEnd, IsClean) {
  for (int run = 0; run < 12; run++) {
    const subject::Outcome outcome = subject::run_program({PROCESS_END_PROGRAM, GetParam()});
    ASSERT_EQ(outcome.end, "exit 0") << "run " << run << ": " << outcome.err;
    ASSERT_EQ(outcome.err, "");
  }
}

// The background thread must not keep a process that has no other thread. A process that hangs here
// blocks every signal but SIGKILL.
TEST_P(ProcessEnd, IsCleanWithTheBackgroundThread) {
  for (int run = 0; run < 3; run++) {
    const subject::Outcome outcome =
        subject::run_program({"timeout", "--signal=KILL", "30", PROCESS_END_PROGRAM, GetParam()},
                             nullptr, 100, [] { setenv("CAIRN_OPTIONS", "background:on", 1); });
    ASSERT_EQ(outcome.end, "exit 0") << "run " << run << ": " << outcome.err;
    ASSERT_EQ(outcome.err, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ProcessEnd,
                         testing::Values("return", "exit", "quick_exit", "alone", "outlasted"));

}  // namespace
