// The distance from a block to the data of the library that handed it out cannot be guessed.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <map>
#include <string>

#include "subject.h"

namespace {

constexpr char kVariable[] = "CAIRN_TEST_DISTANCE";

// In a process that the other case starts: prints the distances of a small and of a large block.
TEST(Distance, Print) {
  if (!getenv(kVariable)) GTEST_SKIP() << "the other case starts it";
  Dl_info library;
  ASSERT_NE(dladdr(reinterpret_cast<void *>(&malloc), &library), 0);
  for (size_t size : {size_t{48}, 200 * subject::kKiB, 12 * subject::kMiB}) {
    const char *block = static_cast<char *>(malloc(size));
    printf("\ndistance %zx\n", static_cast<size_t>(block - static_cast<char *>(library.dli_fbase)));
  }
}

TEST(Distance, DiffersBetweenProcesses) {
  const char *hardened = getenv("CAIRN_TEST_HARDENED");
  const bool mapped = hardened && !strcmp(hardened, "full");  // blocks above 32 KiB
  constexpr int kProcesses = 100;
  std::map<std::string, int> counts;
  setenv(kVariable, "1", 1);
  for (int i = 0; i < kProcesses; i++) {
    const subject::Outcome outcome =
        subject::run_program({"/proc/self/exe", "--gtest_filter=Distance.Print"});
    ASSERT_EQ(outcome.end, "exit 0") << outcome.out << outcome.err;
    size_t at = 0;
    for (int block = 0; block < (mapped ? 1 : 3); block++) {
      at = outcome.out.find("distance ", at);
      ASSERT_NE(at, std::string::npos) << outcome.out;
      at += strlen("distance ");
      counts[outcome.out.substr(at, outcome.out.find('\n', at) - at)]++;
    }
  }
  // There are more than 2^24 distances. Three equal ones are a chance of 1 in 10^7.
  for (const auto &[distance, count] : counts) EXPECT_LE(count, 2) << distance;
}

}  // namespace
