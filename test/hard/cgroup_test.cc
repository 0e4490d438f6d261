// A memory cgroup that is full under load: its tasks wait in their page faults until memory is
// available, then continue. Only the kernel knows this limit, so no call of the heap fails. The
// test shows that threads that stop anywhere for a while, also in the heap, find everything
// unchanged.
//
// It needs version 1 of the memory controller, where the OOM killer can be switched off, and the
// right to make a group below its own; otherwise it is skipped.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "storm.h"
#include "subject.h"

namespace {

using subject::kMiB;

class Group {
 public:
  Group() {
    std::ifstream own("/proc/self/cgroup");
    for (std::string line; std::getline(own, line);) {
      const size_t at = line.find(":memory:");
      if (at != std::string::npos) {
        path_ = "/sys/fs/cgroup/memory" + line.substr(at + 8) + "/cairn-test-" +
                std::to_string(getpid());
      }
    }
    made_ = !path_.empty() && mkdir(path_.c_str(), 0755) == 0;
  }
  ~Group() {
    if (made_) rmdir(path_.c_str());
  }

  bool made() const { return made_; }

  bool write(const char *file, const std::string &value) const {
    std::ofstream stream(path_ + "/" + file);
    stream << value;
    stream.flush();
    return stream.good();
  }

  std::string read(const char *file) const {
    std::ifstream stream(path_ + "/" + file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

 private:
  std::string path_;
  bool made_ = false;
};

// Makes 20 MiB of blocks of mixed sizes, which are checked at the end.
void *load(void *argument) {
  const unsigned seed = static_cast<unsigned>(reinterpret_cast<uintptr_t>(argument));
  static constexpr size_t kSizes[] = {40, 3000, 500, 20000, 120, 300000, 64, 2000};
  constexpr size_t kCount = 480;
  void *blocks[kCount];
  for (size_t i = 0; i < kCount; i++) {
    const size_t size = kSizes[i % 8];
    storm::exercise(seed, 20);
    blocks[i] = i % 3 ? malloc(size) : calloc(1, size);
    REQUIRE(blocks[i] && (i % 3 || subject::is_zero(blocks[i], size)));
    subject::fill(blocks[i], size, seed + static_cast<unsigned>(i));
  }
  for (size_t i = 0; i < kCount; i++) {
    REQUIRE(subject::holds(blocks[i], kSizes[i % 8], seed + static_cast<unsigned>(i)));
    free(blocks[i]);
  }
  return nullptr;
}

TEST(Cgroup, FullUnderLoadAndBack) {
  Group group;
  if (!group.made() || !group.write("memory.oom_control", "1") ||
      !group.write("memory.limit_in_bytes", std::to_string(40 * kMiB))) {
    GTEST_SKIP() << "no memory cgroup can be made here whose tasks wait";
  }
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);
    REQUIRE(group.write("cgroup.procs", std::to_string(getpid())));
    pthread_t threads[6];
    for (uintptr_t i = 0; i < 6; i++) {
      REQUIRE(pthread_create(&threads[i], nullptr, load, reinterpret_cast<void *>(i)) == 0);
    }
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    malloc_trim(0);
    storm::exercise(9, 2000);
    _exit(0);
  }
  bool full = false;
  for (int i = 0; i < 1500 && !full; i++) {
    usleep(10000);
    full = group.read("memory.oom_control").find("under_oom 1") != std::string::npos;
  }
  EXPECT_TRUE(full) << "the group was never full";
  EXPECT_TRUE(group.write("memory.limit_in_bytes", std::to_string(1024 * kMiB)));
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(subject::describe_status(status), "exit 0");
}

}  // namespace
