// Helpers of the tests of TLSF: a heap over memory of the test, and random numbers.
#ifndef TEST_REGION_TLSF_ARENA_H
#define TEST_REGION_TLSF_ARENA_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cairn/tlsf.h"

namespace tlsf_test
{

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

// A heap over memory that starts as garbage, as a caller's memory may.
class Arena
{
  public:
    explicit Arena(size_t size, size_t shift = 0)
        : memory_(static_cast<char *>(std::aligned_alloc(4096, (size + shift + 4095) & ~4095u)))
    {
        for (size_t i = 0; i < size + shift; i++)
            memory_[i] = static_cast<char>(0xa5 + i);
        heap_ = cairn_tlsf_init(memory_ + shift, size);
    }
    ~Arena() { std::free(memory_); }
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;

    cairn_tlsf *get() const { return heap_; }
    operator cairn_tlsf *() const { return heap_; }
    char *memory() const { return memory_; }

  private:
    char *memory_;
    cairn_tlsf *heap_;
};

inline cairn_tlsf_stats stats(const cairn_tlsf *heap)
{
    cairn_tlsf_stats stats;
    cairn_tlsf_read_stats(heap, &stats);
    return stats;
}

// The verdict of the verifier: "" when the heap is sound.
inline std::string fault(const cairn_tlsf *heap)
{
    const char *text = cairn_tlsf_check(heap);
    return text ? text : "";
}

inline std::string hex(const void *pointer)
{
    char text[32];
    snprintf(text, sizeof text, "0x%zx", reinterpret_cast<uintptr_t>(pointer));
    return text;
}

// Sebastiano Vigna's splitmix64: small, fast, and with equal results on every platform.
class Random
{
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next()
    {
        uint64_t value = state_ += 0x9e3779b97f4a7c15u;
        value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
        value = (value ^ value >> 27) * 0x94d049bb133111ebu;
        return value ^ value >> 31;
    }
    size_t below(size_t limit) { return static_cast<size_t>(next() % limit); }
    size_t between(size_t low, size_t high) { return low + below(high - low + 1); }

  private:
    uint64_t state_;
};

} // namespace tlsf_test

#endif
