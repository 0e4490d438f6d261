// CAIRN_OPTIONS: an unknown key or value causes one line of warning, and the program continues.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "subject.h"

namespace {

subject::Outcome run_with(const std::string &options) {
  const std::string setting = "CAIRN_OPTIONS=" + options;
  const char *preload = getenv("LD_PRELOAD");
  // An emulator runs on this machine and passes these settings on to the program that it emulates.
  const std::string emulator = CAIRN_TEST_EMULATOR;
  const std::string preload_setting =
      (emulator.empty() ? "LD_PRELOAD=" : "QEMU_SET_ENV=LD_PRELOAD=") +
      std::string(preload ? preload : "");
  char *environment[] = {const_cast<char *>(setting.c_str()),
                         const_cast<char *>(preload_setting.c_str()), nullptr};
  std::vector<std::string> command = {SMALL_PROGRAM};
  if (!emulator.empty()) command.insert(command.begin(), emulator);
  return subject::run_program(command, environment, 20, [] {});
}

long lines_of(const std::string &text) { return std::count(text.begin(), text.end(), '\n'); }

class Unknown : public testing::TestWithParam<const char *> {};

TEST_P(Unknown, WarnsOnceAndGoesOn) {
  const subject::Outcome outcome = run_with(GetParam());
  EXPECT_EQ(outcome.end, "exit 0");
  EXPECT_EQ(lines_of(outcome.err), 1) << outcome.err;
  EXPECT_EQ(outcome.err.compare(0, 7, "cairn: "), 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

INSTANTIATE_TEST_SUITE_P(
    Options, Unknown,
    testing::Values("nonsense:1", "nonsense", "decay_ms:abc", "decay_ms:", "decay_ms:-5x",
                    "dirty_cap:12Q", "dirty_cap:99999999999999999999999", "verbose:maybe",
                    "huge_pages:sometimes", "soft_limit:lots", "soft_limit:100mb", "decay_ms:5s",
                    "decay_ms:5,nonsense:1", "nonsense:1,decay_ms:5", ":", "decay_ms5"));

class Known : public testing::TestWithParam<const char *> {};

TEST_P(Known, IsSilent) {
  const subject::Outcome outcome = run_with(GetParam());
  EXPECT_EQ(outcome.end, "exit 0");
  EXPECT_EQ(outcome.err, "");
}

INSTANTIATE_TEST_SUITE_P(Options, Known,
                         testing::Values("", "decay_ms:100", "decay_ms:0", "verbose:0",
                                         "decay_ms:100,verbose:0", "DECAY_MS:5", " decay_ms:5",
                                         "decay_ms=5"));

// A very long value without a proper end causes at most a line of warning, and no crash.
TEST(Options, OfAnyLength) {
  for (size_t length : {size_t{100}, size_t{1000}, size_t{5000}, size_t{60000}}) {
    const subject::Outcome outcome = run_with(std::string(length, 'x'));
    EXPECT_EQ(outcome.end, "exit 0") << length;
    EXPECT_EQ(lines_of(outcome.err), 1) << length;
  }
}

TEST(Options, VerboseDumps) {
  const subject::Outcome outcome = run_with("verbose:1");
  EXPECT_EQ(outcome.end, "exit 0");
  EXPECT_NE(outcome.err, "");
  EXPECT_THAT(outcome.err, testing::HasSubstr("decay_ms"));
}

}  // namespace
