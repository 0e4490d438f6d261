// CAIRN_OPTIONS belongs to the owner of a process: a set-uid program must not obey that of its
// caller.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "subject.h"

namespace {

// Options with a visible effect: one is unknown, the other requests a dump.
const char *const kLoud[] = {"CAIRN_OPTIONS=nonsense:1", "CAIRN_OPTIONS=verbose:1"};

subject::Outcome probe(const std::string &path, const char *setting, bool as_nobody) {
  char *environment[] = {const_cast<char *>(setting), nullptr};
  return subject::run_program({path}, environment, 100, [as_nobody] {
    if (as_nobody) REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
  });
}

TEST(SecureOptions, AreHeededOtherwise) {
  for (const char *setting : kLoud) {
    const subject::Outcome outcome = probe(OPTION_PROBE, setting, false);
    EXPECT_EQ(outcome.end, "exit 0");
    EXPECT_EQ(outcome.out, "0\n");
    EXPECT_NE(outcome.err, "") << setting;
  }
}

TEST(SecureOptions, AreIgnoredInSetUidPrograms) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a set-uid program of another user";
  char directory[] = "/tmp/cairn-secure-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string copy = std::string(directory) + "/probe";
  std::filesystem::copy_file(OPTION_PROBE, copy);
  ASSERT_EQ(chmod(directory, 0755), 0);
  ASSERT_EQ(chmod(copy.c_str(), 04755), 0);
  const bool privileged = probe(copy, "A=b", true).out == "1\n";
  if (privileged) {
    for (const char *setting : kLoud) {
      const subject::Outcome outcome = probe(copy, setting, true);
      EXPECT_EQ(outcome.end, "exit 0");
      EXPECT_EQ(outcome.err, "") << setting;
    }
  }
  std::filesystem::remove_all(directory);
  if (!privileged) GTEST_SKIP() << "/tmp does not honour the set-uid bit";
}

}  // namespace
