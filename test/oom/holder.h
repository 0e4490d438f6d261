// A program that survives failures: it uses the blocks that it gets, keeps those that it has, and
// checks which calls failed.
//
// Owns: blocks with content, and the workloads of the tests in this folder. Each workload is a
// sequence of calls in which every one may fail. A call must not set another errno than ENOMEM, a
// block must not lose its content, and a failed resize must not free the old block. A violation
// ends the process with a line on stderr; the tests run each attempt in a child.
//
// Threads: a Holder belongs to one thread at a time. Each workload states the threads that it
// starts.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include "model/shadow.h"

namespace oom
{

using model::kKiB;
using model::kMiB;
using model::opaque;

class Holder
{
  public:
    Holder() { blocks_.reserve(4096); }

    size_t failures() const { return failures_; }
    size_t count() const { return blocks_.size(); }

    void take(size_t size)
    {
        keep(size, 16, call([&] { return cairn_malloc(size); }));
    }

    void take_zero(size_t size)
    {
        char *block = call([&] { return cairn_calloc(size, 1); });
        if (block && !model::is_zero(block, size))
            fail("calloc's block is not zero", size);
        keep(size, 16, block);
    }

    void take_aligned(size_t size, size_t alignment)
    {
        keep(size, alignment, call([&] { return cairn_aligned_alloc(alignment, size); }));
        void *block = nullptr;
        const int error = cairn_posix_memalign(&block, alignment, size);
        if (error != (block ? 0 : ENOMEM))
            fail("posix_memalign", static_cast<size_t>(error));
        errno = ENOMEM;
        keep(size, alignment, static_cast<char *>(block));
    }

    void take_pages(size_t size)
    {
        keep(size, 4096, call([&] { return cairn_valloc(size); }));
        keep(size, 4096, call([&] { return cairn_pvalloc(size); }));
    }

    // Resizes the newest block.
    void resize(size_t size)
    {
        if (blocks_.empty())
            return;
        Block &old = blocks_.back();
        check(old);
        char *block = call([&] { return cairn_realloc(old.address, size); });
        if (block == nullptr) {
            failures_++;
            check(old);
            return;
        }
        const size_t kept = std::min(size, old.size);
        if (model::first_wrong(block, kept, old.seed, kept == old.size) != kept)
            fail("contents after realloc", size);
        old.address = block;
        old.size = size;
        model::fill(block, size, old.seed);
    }

    // Frees the n-th block from the end.
    void drop(size_t back = 0)
    {
        if (back >= blocks_.size())
            return;
        const auto place = blocks_.end() - 1 - static_cast<ptrdiff_t>(back);
        check(*place);
        errno = kErrno;
        cairn_free(place->address);
        if (errno != kErrno)
            fail("free changed errno", 0);
        blocks_.erase(place);
    }

    void drop_all()
    {
        while (!blocks_.empty())
            drop(blocks_.size() / 2);
    }

    void check_all() const
    {
        for (const Block &block : blocks_)
            check(block);
    }

    [[noreturn]] void fail(const char *what, size_t number) const
    {
        fprintf(stderr, "oom: %s: %zu\n", what, number);
        _exit(1);
    }

  private:
    static constexpr int kErrno = 4321;

    struct Block {
        char *address;
        size_t size;
        uint64_t seed;
    };

    template <typename Call> char *call(Call body)
    {
        errno = kErrno;
        void *block = body();
        if (errno != (block ? kErrno : ENOMEM))
            fail("errno", static_cast<size_t>(errno));
        return opaque(static_cast<char *>(block));
    }

    void keep(size_t size, size_t alignment, char *block)
    {
        if (block == nullptr) {
            failures_++;
            return;
        }
        if (reinterpret_cast<uintptr_t>(block) % (size > 8 ? alignment : 8) != 0)
            fail("alignment", alignment);
        model::fill(block, size, ++seed_);
        blocks_.push_back({block, size, seed_});
    }

    void check(const Block &block) const
    {
        if (model::first_wrong(block.address, block.size, block.seed, true) != block.size)
            fail("contents", block.size);
    }

    std::vector<Block> blocks_;
    uint64_t seed_ = 0;
    size_t failures_ = 0;
};

// Workloads.

inline void small_blocks(Holder &holder)
{
    for (size_t round = 0; round < 3; round++) {
        for (size_t size = 0; size <= 1024; size += 40)
            for (int i = 0; i < 6; i++)
                holder.take(size + 1);
        for (size_t i = 0; i < 60; i++)
            holder.drop(i);
    }
}

inline void medium_blocks(Holder &holder)
{
    for (size_t size = 1100; size <= 32 * kKiB; size += 900) {
        holder.take(size);
        holder.take_zero(size);
        holder.drop(1);
    }
}

inline void large_blocks(Holder &holder)
{
    for (size_t size = 33 * kKiB; size < 9 * kMiB; size = size * 3 / 2) {
        holder.take(size);
        holder.take_zero(size);
        holder.drop(2);
    }
    cairn_malloc_trim(0);
    holder.take_zero(10 * kMiB);
}

inline void huge_blocks(Holder &holder)
{
    holder.take(33 * kMiB);
    holder.resize(44 * kMiB);
    holder.take_zero(32 * kMiB);
    holder.drop(1);
    holder.resize(20 * kMiB);
    holder.resize(100);
}

inline void aligned_blocks(Holder &holder)
{
    for (size_t alignment = 32; alignment <= 16 * kMiB; alignment *= 4)
        for (size_t size : {size_t{1}, size_t{700}, 5 * kKiB, 70 * kKiB})
            holder.take_aligned(size, alignment);
    holder.take_pages(5000);
    holder.take_pages(100 * kKiB);
}

inline void growing_block(Holder &holder)
{
    holder.take(1);
    for (size_t size = 10; size < 60 * kMiB; size = size * 5 / 3) {
        holder.resize(size);
        if (size < kMiB) {
            holder.take(size); // prevents growth in place
            holder.resize(size + 50);
        }
    }
    for (size_t size = 40 * kMiB; size > 10; size /= 3)
        holder.resize(size);
}

// Memory that is freed and purged.
inline void given_back(Holder &holder)
{
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 40; i++)
            holder.take(kKiB << i % 12);
        for (size_t i = 0; i < 20; i++)
            holder.drop(i);
        cairn_malloc_trim(round == 1 ? kMiB : 0);
    }
}

// Threads that allocate, free blocks of other threads, and end with live blocks.
inline void threads(Holder &holder)
{
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        const auto body = [](void *argument) -> void * {
            Holder *mine = static_cast<Holder *>(argument);
            for (size_t size = 16; size < 100 * kKiB; size *= 3) {
                mine->take(size);
                mine->take(size);
                mine->drop(3);
            }
            return nullptr;
        };
        if (pthread_create(&thread, nullptr, body, &holder) != 0)
            holder.fail("pthread_create", 0);
        pthread_join(thread, nullptr);
        holder.take(48);
        holder.drop(4);
    }
}

struct Workload {
    const char *name;
    void (*run)(Holder &holder);
};

constexpr Workload kWorkloads[] = {
    {"SmallBlocks", small_blocks},     {"MediumBlocks", medium_blocks},
    {"LargeBlocks", large_blocks},     {"HugeBlocks", huge_blocks},
    {"AlignedBlocks", aligned_blocks}, {"GrowingBlock", growing_block},
    {"GivenBack", given_back},         {"Threads", threads},
};

} // namespace oom
