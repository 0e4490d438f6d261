// The faults of the misuse matrix (docs/SECURITY.md): one each, committed in a process of its own
// under whichever malloc the process has.
//
// A fault tells how far it got on stdout: BEGUN right before the faulty call or access, DONE right
// behind it, and at the end PREVENTED or HARMED, which it finds out by looking: did other blocks
// change, was freed content read, was one block handed out twice, did malloc return what the fault
// wrote? Death between BEGUN and DONE is detection at once, later death is late detection.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace faults {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * 1024;

constexpr size_t kSmall = 48;  // a size class of its own with most allocators
constexpr size_t kMedium = 10000;
constexpr size_t kLarge = 200 * kKiB;
constexpr size_t kHuge = 64 * kMiB;

constexpr char kSecret = 0x5a;  // what the blocks beside the faulty one hold
constexpr char kOwn = 0x11;     // what the faulty block holds
constexpr char kWritten = 0x41;

enum Mark : char { BEGUN = 'b', DONE = 'd', PREVENTED = 'p', HARMED = 'h', CANNOT = 'c' };

inline void tell(Mark mark) {
  const char text = mark;
  if (write(STDOUT_FILENO, &text, 1) != 1) _exit(3);
}
inline void begun() { tell(BEGUN); }
inline void done() { tell(DONE); }
[[noreturn]] inline void verdict(bool harmed) {
  tell(harmed ? HARMED : PREVENTED);
  _exit(0);
}
// This allocator lacks the function that the fault needs.
[[noreturn]] inline void cannot() {
  tell(CANNOT);
  _exit(0);
}

// Hides a value from the optimiser.
template <typename T>
inline T opaque(T value) {
  asm volatile("" : "+r"(value) : : "memory");
  return value;
}

inline char *make(size_t size, char content) {
  char *block = static_cast<char *>(opaque(malloc(size)));
  if (!block) _exit(4);
  memset(block, content, size);
  return block;
}

inline bool holds(const char *block, size_t size, char content) {
  for (size_t i = 0; i < size; i++) {
    if (block[i] != content) return false;
  }
  return true;
}

// Whether the memory shows content of the others. A lone byte may be chance.
inline bool shows_secret(const volatile char *from, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (from[i] == kSecret) return true;
  }
  return false;
}

// Blocks of one size around a faulty one.
class Neighbours {
 public:
  explicit Neighbours(size_t size)
      : size_(size), count_(size > kMiB ? 3 : size > kMedium ? 8 : kMost) {
    for (size_t i = 0; i < count_; i++) blocks_[i] = make(size, kSecret);
    memset(faulty(), kOwn, size);
  }
  char *faulty() const { return blocks_[count_ / 2]; }
  char *next() const { return blocks_[count_ / 2 + 1]; }
  bool damaged() const {
    for (size_t i = 0; i < count_; i++) {
      if (i != count_ / 2 && !holds(blocks_[i], size_, kSecret)) return true;
    }
    return false;
  }
  void free_others() const {
    for (size_t i = 0; i < count_; i++) {
      if (i != count_ / 2) free(blocks_[i]);
    }
  }
  void free_all() const {
    free(faulty());
    free_others();
  }

 private:
  static constexpr size_t kMost = 64;
  size_t size_;
  size_t count_;
  char *blocks_[kMost];
};

// Uses the heap as a program would go on; false when it gives out memory that is in use, or
// `decoy`.
bool heap_works(size_t size, const void *decoy = nullptr);

// Runs the body in another thread, to its end.
void in_thread(void (*body)(void *), void *argument);

struct Fault {
  const char *group;
  const char *name;
  const char *title;
  bool bad_free;  // a free that can be told to be wrong: Cairn promises to detect it at once
  void (*commit)();
};

struct FaultList {
  const Fault *faults;
  size_t count;
};

extern const FaultList kOverflows;
extern const FaultList kUses;
extern const FaultList kFrees;
extern const FaultList kSizes;

}  // namespace faults
