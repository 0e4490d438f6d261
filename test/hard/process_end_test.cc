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

INSTANTIATE_TEST_SUITE_P(Ways, ProcessEnd,
                         testing::Values("return", "exit", "quick_exit", "alone"));

}  // namespace
