// Helpers of the misuse tests: the expected lines, and blocks of every kind.
#ifndef CAIRN_TEST_FAULT_H
#define CAIRN_TEST_FAULT_H

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <new>
#include <string>

#include "subject.h"

namespace fault {


using subject::kKiB;
using subject::kMiB;
using subject::opaque;
using testing::AnyOf;
using testing::Eq;

// The statement ends by SIGABRT with exactly the expected text on stderr.
#define EXPECT_FAULT(statement, expected) \
  EXPECT_EXIT(statement, testing::KilledBySignal(SIGABRT), expected)

using Message = testing::Matcher<const std::string &>;

// Blocks up to this size are in slabs, whose bits record every block.
constexpr size_t kSmallMost = 32 * kKiB;

inline std::string hex(const void *pointer) {
  char text[32];
  snprintf(text, sizeof text, "0x%zx", reinterpret_cast<uintptr_t>(pointer));
  return text;
}

inline std::string block_of(size_t size) { return std::to_string(size) + "-byte block"; }

inline std::string double_free(const void *block, size_t size) {
  return "cairn: double free of " + hex(block) + " (" + block_of(size) + ")\n";
}
inline std::string memory_is_free(const void *block) {
  return "cairn: double free of " + hex(block) + " (its memory is free)\n";
}
inline std::string interior(const void *pointer, const void *block, size_t size) {
  return "cairn: free of interior pointer " + hex(pointer) + " (" + block_of(size) + " at " +
         hex(block) + ")\n";
}
inline std::string foreign(const void *pointer) {
  return "cairn: free of " + hex(pointer) + ", which is not a Cairn block\n";
}
inline std::string wrong_size(const void *block, size_t given, size_t size) {
  return "cairn: sized free of " + hex(block) + " with size " + std::to_string(given) + " (" +
         block_of(size) + ")\n";
}
inline std::string realloc_of_freed(const void *block, size_t size) {
  return "cairn: realloc of freed block " + hex(block) + " (" + block_of(size) + ")\n";
}

// The size that messages name. Hardened builds report the requested size to the program, so the
// block's size is read from the message about an interior pointer.
inline size_t block_size(void *block) {
  if (!getenv("CAIRN_TEST_HARDENED")) return malloc_usable_size(block);
  int ends[2];
  char line[256] = "";
  if (pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    free(static_cast<char *>(block) + 1);
    _exit(1);
  }
  close(ends[1]);
  if (read(ends[0], line, sizeof line - 1) < 0) return 0;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  const char *size = strchr(line, '(');
  return size ? strtoull(size + 1, nullptr, 10) : 0;
}

// One size of every kind of block: small, medium, large, huge.
class Sizes : public testing::TestWithParam<size_t> {
 protected:
  // Allocates the block between neighbours that stay in use, so that its slab or span is not
  // released with it.
  void SetUp() override {
    for (void *&neighbour : before_) neighbour = malloc(GetParam());
    block_ = static_cast<char *>(malloc(GetParam()));
    for (void *&neighbour : after_) neighbour = malloc(GetParam());
    usable_ = block_size(block_);
  }
  void TearDown() override {
    for (void *neighbour : before_) free(neighbour);
    for (void *neighbour : after_) free(neighbour);
  }

  bool is_small() const { return GetParam() <= kSmallMost; }

  // The expected message of a second free. The size of a freed large block is forgotten when its
  // pages were merged or released; then the message says that the memory is free or foreign, which
  // is also true.
  Message freed_twice(const void *block, size_t usable) const {
    return is_small() ? Message(Eq(double_free(block, usable))) : freed_with_all(block, usable);
  }
  Message freed_twice() const { return freed_twice(block_, usable_); }

  // The expected message of a second free of a block whose whole slab was released with it.
  Message freed_with_all(const void *block, size_t usable) const {
    return AnyOf(Eq(double_free(block, usable)), Eq(memory_is_free(block)), Eq(foreign(block)));
  }

  void *before_[4] = {};
  char *block_ = nullptr;
  void *after_[4] = {};
  size_t usable_ = 0;
};

inline int g_global = 1;

inline void in_thread(void *(*body)(void *), void *argument) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, body, argument) != 0) _exit(1);
  pthread_join(thread, nullptr);
}
inline void *free_in_thread(void *block) {
  free(block);
  return nullptr;
}
inline void *free_twice_in_thread(void *block) {
  free(block);
  free(block);
  return nullptr;
}

#define INSTANTIATE_SIZES() \
  INSTANTIATE_TEST_SUITE_P(Kinds, Sizes, \
                           testing::Values(1, 8, 16, 40, 200, 1000, 1024, 3000, 10000, 33000, \
                                           100 * kKiB, 200 * kKiB, kMiB, 5 * kMiB, 80 * kMiB), \
                           [](const auto &size) { return std::to_string(size.param) + "_bytes"; })

}  // namespace fault

#endif
