// The faults of the misuse matrix (bench/results/matrix.md): each is committed in a process of its
// own, under the malloc of that process.
//
// A fault reports its progress on stdout: BEGUN directly before the faulty call or access, DONE
// directly behind it, and PREVENTED at the end or HARMED as soon as it finds harm. The program
// searches for harm itself: did other blocks change, was freed content read, was one block handed
// out twice, did malloc return a value that the fault wrote? An end between BEGUN and DONE counts
// as immediate detection, a later end as late detection. If the end is by SIGABRT, everything that
// must be intact is checked once more before the process ends: SPARED means that nothing was harmed
// up to that point.
#pragma once

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace faults {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * 1024;

constexpr size_t kSmall = 48;  // has a size class of its own with most allocators
constexpr size_t kMedium = 10000;
constexpr size_t kLarge = 200 * kKiB;
constexpr size_t kHuge = 64 * kMiB;

constexpr char kSecret = 0x5a;  // content of the blocks next to the faulty one
constexpr char kOwn = 0x11;     // content of the faulty block
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
// Harm is reported before any other call gives the allocator a chance to end the process.
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
// The allocator lacks the function that the fault needs.
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

// The size of a block that has no bytes to spare under the allocator at hand.
inline size_t without_slack(size_t size) {
  char *block = make(size, kOwn);
  const size_t usable = malloc_usable_size(block);
  free(block);
  return usable;
}

inline bool holds(const char *block, size_t size, char content) {
  for (size_t i = 0; i < size; i++) {
    if (block[i] != content) return false;
  }
  return true;
}

// Whether the memory shows content of the neighbours. For a single byte that may be chance.
inline bool shows_secret(const volatile char *from, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (from[i] == kSecret) return true;
  }
  return false;
}

// Blocks of one size around a faulty one. Each object records which of its blocks are in use, so
// that they can be checked whenever the allocator ends the process.
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
  // Whether one of the blocks begins there, so that its free is no fault.
  bool begins_at(const char *place) const {
    for (size_t i = 0; i < count_; i++) {
      if (blocks_[i] == place) return true;
    }
    return false;
  }
  // The fault does not free the faulty block, which must keep its present content.
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
  // The FNV-1a hash of the faulty block, never 0.
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

// Uses the heap like a program that continues.
// Returns: false when it hands out memory that is in use, or `decoy`.
bool heap_works(size_t size, const void *decoy = nullptr);

// Runs the body in another thread and waits for its end.
void in_thread(void (*body)(void *), void *argument);

struct Fault {
  const char *group;
  const char *name;
  const char *title;
  bool bad_free;  // a free that can be detected as wrong: Cairn guarantees to detect it at once
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
