// Clock, random numbers, memory for book-keeping, resident memory and threads of the workloads.
#ifndef CAIRN_BENCH_SUPPORT_H
#define CAIRN_BENCH_SUPPORT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

namespace bench
{

[[noreturn]] void fail(const char *what);

double now_ns();

template <class Body> double time_ns(Body body)
{
    const double start = now_ns();
    body();
    return now_ns() - start;
}

// The processor's counter of time, which is finer and cheaper than the clock; nanoseconds on
// processors other than x86-64.
inline uint64_t now_ticks()
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return static_cast<uint64_t>(now_ns());
#endif
}

unsigned processors();

// Resident memory of this process, exact: the kernel walks the page tables.
size_t resident_bytes();
// The part of it that no other process shares.
size_t private_bytes();
// The peak of the resident memory so far, by the kernel's counters.
size_t peak_resident_bytes();

// splitmix64 (Steele, Lea and Flood, OOPSLA 2014): eight bytes of state, any seed is good.
class Random
{
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next()
    {
        uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    // Uniform in [0, limit), limit below 2^32.
    size_t below(size_t limit) { return ((next() >> 32) * limit) >> 32; }
    size_t between(size_t low, size_t high) { return low + below(high - low + 1); }

    // Every doubling between the two is equally likely: small sizes are common and large ones rare,
    // as in programs.
    size_t between_by_doublings(size_t low, size_t high);

  private:
    uint64_t state_;
};

// An array in a mapping of its own, zero, resident from the start.
template <class T> class MappedArray
{
  public:
    explicit MappedArray(size_t count);
    ~MappedArray();
    MappedArray(const MappedArray &) = delete;
    MappedArray &operator=(const MappedArray &) = delete;

    T &operator[](size_t index) { return items_[index]; }
    size_t size() const { return count_; }
    T *begin() { return items_; }
    T *end() { return items_ + count_; }

  private:
    T *items_;
    size_t count_;
};

void *map_present(size_t size_bytes);
void unmap(void *memory, size_t size_bytes);

template <class T>
MappedArray<T>::MappedArray(size_t count)
    : items_(static_cast<T *>(map_present(count * sizeof(T)))), count_(count)
{
}

template <class T> MappedArray<T>::~MappedArray() { unmap(items_, count_ * sizeof(T)); }

// Sizes drawn before the clock starts. Their number is a power of two, so that a mask finds the
// next one.
class Sizes
{
  public:
    static constexpr size_t kCount = 1 << 16;
    enum Shape { kUniform, kDoublings };

    Sizes(size_t low, size_t high, Shape shape, uint64_t seed = 1);
    size_t operator[](size_t index) { return sizes_[index & (kCount - 1)]; }

  private:
    MappedArray<uint32_t> sizes_;
};

// Writes the first and last byte of a block, as a program that uses it would.
inline void touch(void *block, size_t size)
{
    static_cast<volatile char *>(block)[0] = 1;
    static_cast<volatile char *>(block)[size - 1] = 1;
}

inline void *checked(void *block)
{
    if (block == nullptr) {
        fail("out of memory");
    }
    return block;
}

inline void *allocate_touched(size_t size)
{
    void *block = checked(malloc(size));
    touch(block, size);
    return block;
}

// Makes all blocks, of 64 bytes, and then frees all.
inline double time_fill_and_empty(MappedArray<void *> &blocks)
{
    return time_ns([&] {
        for (void *&block : blocks) {
            block = allocate_touched(64);
        }
        for (void *block : blocks) {
            free(block);
        }
    });
}

// Writes one byte of each page.
inline void touch_pages(void *block, size_t size)
{
    for (size_t at = 0; at < size; at += 4096) {
        static_cast<volatile char *>(block)[at] = 1;
    }
}

// Starts a thread; ends the program on failure.
pthread_t start_thread(void *(*body)(void *), void *argument);
void join(pthread_t thread);

// Threads that live as long as the team and run one body after the other, all at once; a team of
// one is the calling thread itself.
class Team
{
  public:
    explicit Team(unsigned count);
    ~Team();
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;

    unsigned count() const { return count_; }

    // Runs body(i) in each thread i.
    // Returns: the nanoseconds from the common start to the end of the last thread.
    template <class Body> double run(Body body)
    {
        return run_erased(
            [](void *context, unsigned index) { (*static_cast<Body *>(context))(index); }, &body);
    }

    // Converts a time of the whole team to time of one processor, which can be compared between
    // numbers of threads.
    double processor_ns(double elapsed_ns) const;

  private:
    static constexpr unsigned kMost = 256;
    using Erased = void (*)(void *context, unsigned index);

    struct Member {
        Team *team;
        unsigned index;
        pthread_t thread;
    };

    double run_erased(Erased body, void *context);
    static void *live(void *member);

    const unsigned count_;
    Erased body_ = nullptr; // written only between the rounds of the barriers
    void *context_ = nullptr;
    pthread_barrier_t start_, end_;
    Member members_[kMost];
};

} // namespace bench

#endif
