// The faults of the misuse matrix (docs/SECURITY.md): one each, committed in a process of its own
// under whichever malloc the process has.
//
// A fault tells how far it got on stdout: BEGUN right before the faulty call or access, DONE right
// behind it, and PREVENTED at the end or HARMED as soon as it sees harm, which it finds out by
// looking: did other blocks change, was freed content read, was one block handed out twice, did
// malloc return what the fault wrote? Death between BEGUN and DONE is detection at once, later
// death is late detection. When it comes by SIGABRT, all that must be whole is looked at once more
// before the process ends: SPARED says that until then nothing was harmed.
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

enum Mark : char {
  BEGUN = 'b',
  DONE = 'd',
  PREVENTED = 'p',
  HARMED = 'h',
  SPARED = 's',
  CANNOT = 'c',
};

inline void tell(Mark mark) {
  const char text = mark;
  if (write(STDOUT_FILENO, &text, 1) != 1) _exit(3);
}
inline void begun() { tell(BEGUN); }
// What was seen of harm is told before anything else gives the allocator a chance to end it all.
inline bool harm(bool seen) {
  if (seen) tell(HARMED);
  return seen;
}
inline void done(bool harmed = false) {
  tell(DONE);
  harm(harmed);
}
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

// Blocks of one size around a faulty one. They know which of them are in use, so that they can be
// looked at whenever the allocator ends the process.
class Neighbours {
 public:
  explicit Neighbours(size_t size)
      : size_(size), count_(size > kMiB ? 3 : size > kMedium ? 8 : kMost), older_(newest_) {
    for (size_t i = 0; i < count_; i++) blocks_[i] = make(size, kSecret);
    memset(faulty(), kOwn, size);
    newest_ = this;
  }
  ~Neighbours() { newest_ = older_; }
  Neighbours(const Neighbours &) = delete;
  Neighbours &operator=(const Neighbours &) = delete;

  char *faulty() const { return blocks_[middle()]; }
  char *next() const { return blocks_[middle() + 1]; }
  // The fault does not free the faulty block: it keeps what it holds now.
  void faulty_stays() { faulty_sum_ = sum(); }

  bool damaged() const {
    for (size_t i = 0; i < count_; i++) {
      if (i != middle() && !freed_[i] && !holds(blocks_[i], size_, kSecret)) return true;
    }
    return faulty_sum_ != 0 && faulty_sum_ != sum();
  }
  static bool any_damaged() {
    bool damaged = false;
    for (const Neighbours *some = newest_; some; some = some->older_) damaged |= some->damaged();
    return damaged;
  }

  void free_next() { release(middle() + 1); }
  void free_others() {
    for (size_t i = 0; i < count_; i++) {
      if (i != middle() && !freed_[i]) release(i);
    }
  }
  void free_all() {
    faulty_sum_ = 0;
    free(faulty());
    free_others();
  }

 private:
  static constexpr size_t kMost = 64;

  size_t middle() const { return count_ / 2; }
  void release(size_t i) {
    freed_[i] = true;
    free(blocks_[i]);
  }
  // FNV-1a, never 0.
  uint64_t sum() const {
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t i = 0; i < size_; i++) {
      sum = (sum ^ static_cast<unsigned char>(faulty()[i])) * 0x100000001b3;
    }
    return sum | 1;
  }

  static inline const Neighbours *newest_;
  size_t size_;
  size_t count_;
  const Neighbours *older_;
  uint64_t faulty_sum_ = 0;
  bool freed_[kMost] = {};
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
