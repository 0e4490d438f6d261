// The shadow model: the program's own record of the blocks that it holds, compared with the heap at
// every step.
//
// A Shadow calls all entry points at random and checks each result: alignment, no overlap with any
// other of its blocks (an interval list by address), zeros from calloc, content kept over realloc
// and until the free, usable bytes, errno. The content is a hash of the block's seed and the
// offset, so that a word of another block, or of this block at another offset, is always wrong.
//
// Everything follows from the seed, which every failure prints. A failure aborts, because the
// memory of the process can no longer be trusted.
//
// Memory: no call of libc's malloc after construction, so that a child of a fork may continue.
//
// Threads: a Shadow belongs to one thread at a time; blocks move between Shadows by give() and
// adopt().
#pragma once

#include <cairn/heap.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

namespace model
{

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kLargestSize = 64 * kMiB;

inline uint64_t mix(uint64_t value) // the finaliser of MurmurHash3
{
    value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdu;
    value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53u;
    return value ^ (value >> 33);
}

class Random
{
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15u); }
    size_t below(size_t limit) { return static_cast<size_t>(next() % limit); }
    bool one_in(size_t count) { return below(count) == 0; }

  private:
    uint64_t state_;
};

// Hides a value from the compiler, which otherwise uses malloc's attributes.
template <typename T> inline T opaque(T value)
{
    asm volatile("" : "+r"(value) : : "memory");
    return value;
}

// The sized free that the block may have.
enum class Origin { kPlain, kAligned, kOther };

struct Block {
    char *address;
    size_t filled;    // bytes with content, at least the requested ones
    size_t extent;    // usable bytes, at least 1
    size_t asked;     // bytes of the last request
    size_t alignment; // alignment of the request, 1 for none
    uint64_t seed;
    Origin origin;
};

// The offset of the next word with content: every word up to 1 KiB, then every 512 bytes, one a
// page beyond 64 KiB, and the last bytes. The offsets do not depend on the block's size, so that a
// block that grew or shrank can be checked.

inline size_t next_place(size_t offset)
{
    if (offset < kKiB)
        return offset + 8;
    if (offset < 64 * kKiB)
        return offset - offset % 512 + 512 + (offset / 512 % 64) * 8;
    const size_t page = offset / 4096 + 1;
    return page * 4096 + page % 512 * 8;
}

inline uint64_t word_at(uint64_t seed, size_t offset) { return mix(seed + offset); }

inline unsigned char byte_at(uint64_t seed, size_t offset)
{
    return static_cast<unsigned char>(word_at(seed, offset & ~size_t{7}) >> offset % 8 * 8);
}

inline size_t tail_start(size_t size) { return size < 16 ? 0 : size - 16; }

inline void fill(char *address, size_t size, uint64_t seed)
{
    address = opaque(address);
    for (size_t at = 0; at + 8 <= size; at = next_place(at)) {
        const uint64_t word = word_at(seed, at);
        memcpy(address + at, &word, 8);
    }
    for (size_t at = tail_start(size); at < size; at++)
        address[at] = static_cast<char>(byte_at(seed, at));
}

// The offset of the first wrong byte; `size` if there is none. The tail exists only up to the size
// that was filled.
inline size_t first_wrong(const char *address, size_t size, uint64_t seed, bool with_tail)
{
    address = opaque(address);
    for (size_t at = 0; at + 8 <= size; at = next_place(at)) {
        uint64_t word;
        memcpy(&word, address + at, 8);
        if (word != word_at(seed, at))
            return at;
    }
    for (size_t at = tail_start(size); with_tail && at < size; at++)
        if (static_cast<unsigned char>(address[at]) != byte_at(seed, at))
            return at;
    return size;
}

inline bool is_zero(const char *address, size_t size)
{
    const size_t exact = std::min(size, kMiB);
    if (exact > 0 && (address[0] != 0 || memcmp(address, address + 1, exact - 1) != 0))
        return false;
    for (size_t at = exact; at < size; at += 64)
        if (address[at] != 0)
            return false;
    return size == 0 || address[size - 1] == 0;
}

class Shadow
{
  public:
    // Holds at most `most_blocks` blocks of `most_bytes` bytes in total.
    Shadow(uint64_t seed, size_t most_blocks, size_t most_bytes)
        : seed_(seed), random_(seed), most_blocks_(most_blocks), most_bytes_(most_bytes)
    {
        blocks_.reserve(most_blocks + 1);
    }

    void run(size_t steps)
    {
        for (size_t i = 0; i < steps; i++)
            step();
    }

    void step()
    {
        step_++;
        const size_t choice = random_.below(100);
        if (blocks_.empty() || (choice < 45 && blocks_.size() < most_blocks_))
            allocate();
        else if (choice < 75)
            release(pick());
        else if (choice < 90)
            resize(pick());
        else if (choice < 95)
            check(blocks_[pick()]);
        else if (choice < 98)
            use_usable(blocks_[pick()]);
        else if (choice < 99)
            refuse(blocks_[pick()]);
        else if (random_.one_in(20))
            trim();
    }

    // Takes nearly all sizes from this range.
    void prefer(size_t least, size_t most)
    {
        least_preferred_ = least;
        most_preferred_ = most;
    }

    bool prefers() const { return most_preferred_ != 0; }

    // Allocates and frees a block of a random size, a number of times.
    void cycle(size_t times)
    {
        const size_t size = random_size();
        for (size_t i = 0; i < times; i++) {
            step_++;
            errno = kErrno;
            Block block = {static_cast<char *>(cairn_malloc(size)), size, 0, size, 1,
                           random_.next(), Origin::kPlain};
            if (!expect_block(block.address, size))
                return;
            welcome(block);
            check(block);
            remove(index_of(block));
            cairn_free(block.address);
        }
    }

    // Whether a call may find no memory: then it must report that, and nothing else may have
    // changed.
    void allow_failures(bool allowed) { may_fail_ = allowed; }
    size_t failures() const { return failures_; }

    bool empty() const { return blocks_.empty(); }
    bool full() const { return blocks_.size() >= most_blocks_ || bytes_ > most_bytes_; }
    size_t bytes() const { return bytes_; }
    const std::vector<Block> &blocks() const { return blocks_; }
    Random &random() { return random_; }

    // Removes a random block from this Shadow and returns it.
    Block give()
    {
        const size_t index = pick();
        const Block block = blocks_[index];
        remove(index);
        return block;
    }

    void adopt(const Block &block)
    {
        check(block);
        insert(block);
    }

    void check_all() const
    {
        for (const Block &block : blocks_)
            check(block);
    }

    void grow_to(size_t blocks)
    {
        while (blocks_.size() < std::min(blocks, most_blocks_))
            allocate();
    }

    void shrink_to(size_t blocks)
    {
        while (blocks_.size() > blocks)
            release(pick());
    }

    void release_all() { shrink_to(0); }

    // Takes all blocks of `other`.
    void absorb(Shadow &other)
    {
        for (const Block &block : other.blocks_) {
            blocks_.reserve(blocks_.size() + 1);
            adopt(block);
        }
        other.blocks_.clear();
        other.bytes_ = 0;
    }

    [[noreturn]] void fail(const char *what, const void *address, size_t number) const
    {
        fprintf(stderr, "model: seed %llu, step %zu: %s: %p, %zu\n",
                static_cast<unsigned long long>(seed_), step_, what, address, number);
        abort();
    }

  private:
    static constexpr int kErrno = 4321; // no call sets this value

    size_t pick() { return random_.below(blocks_.size()); }

    size_t random_size()
    {
        size_t size = 0;
        if (most_preferred_ != 0 && !random_.one_in(100) && bytes_ + most_preferred_ <= most_bytes_)
            return least_preferred_ + random_.below(most_preferred_ - least_preferred_ + 1);
        const size_t choice = random_.below(1000);
        if (choice < 550)
            size = random_.below(kKiB + 1);
        else if (choice < 700) // at the limits of classes and kinds
            size = (size_t{8} << random_.below(20)) / 8 * (8 + random_.below(8)) +
                   random_.below(3) - 1;
        else if (choice < 890)
            size = random_.below((size_t{64} << random_.below(10)) + 1);
        else if (choice < 970)
            size = random_.below((64 * kKiB << random_.below(5)) + 1);
        else if (choice < 997)
            size = random_.below((kMiB << random_.below(4)) + 1);
        else
            size = random_.below(kLargestSize + 1);
        return bytes_ + size <= most_bytes_ ? size : size % (kKiB + 1);
    }

    size_t random_alignment()
    {
        return size_t{8} << (random_.one_in(30) ? random_.below(21) : random_.below(11));
    }

    // Whether the call returned a block. NULL is allowed after allow_failures(true), with errno
    // ENOMEM.
    bool expect_block(const void *block, size_t size)
    {
        if (block == nullptr && !may_fail_)
            fail("no memory", nullptr, size);
        if (errno != (block ? kErrno : ENOMEM))
            fail("errno", block, static_cast<size_t>(errno));
        failures_ += block == nullptr;
        return block != nullptr;
    }

    void allocate()
    {
        const size_t size = random_size();
        Block block = {nullptr, size, 0, size, 1, random_.next(), Origin::kPlain};
        bool zero = false;
        void *address = nullptr;
        errno = kErrno;
        switch (random_.below(16)) {
        case 0: {
            const size_t count = 1 + random_.below(9);
            block.filled = block.asked = size / count * count;
            address = random_.one_in(2) ? cairn_calloc(count, size / count)
                                        : cairn_calloc(size / count, count);
            zero = true;
            break;
        }
        case 1:
        case 2:
            address = cairn_calloc(1, size);
            zero = true;
            break;
        case 3:
            address = cairn_realloc(nullptr, size);
            break;
        case 4:
            block.filled = block.asked = size / 3 * 3;
            address = cairn_reallocarray(nullptr, size / 3, 3);
            break;
        case 5:
            address = allocate_aligned(block);
            break;
        default:
            address = cairn_malloc(size);
        }
        if (!expect_block(address, size))
            return;
        block.address = static_cast<char *>(address);
        if (zero && !is_zero(opaque(block.address), block.asked))
            fail("calloc's block is not zero", address, block.asked);
        welcome(block);
    }

    void *allocate_aligned(Block &block)
    {
        void *address = nullptr;
        block.alignment = random_alignment();
        block.origin = Origin::kOther;
        switch (random_.below(6)) {
        case 0: {
            const int error = cairn_posix_memalign(&address, block.alignment, block.asked);
            if (error != (address ? 0 : ENOMEM) || errno != kErrno)
                fail("posix_memalign", address, block.asked);
            errno = address ? kErrno : ENOMEM;
            return address;
        }
        case 1:
            block.alignment = 4096;
            return cairn_valloc(block.asked);
        case 2:
            block.alignment = 4096;
            block.filled = std::max(block.asked + 4095 - (block.asked + 4095) % 4096, size_t{4096});
            return cairn_pvalloc(block.asked);
        case 3: // any number: it is rounded up to a power of two
            block.alignment = block.alignment / 2 + 1;
            address = cairn_memalign(block.alignment, block.asked);
            while ((block.alignment & (block.alignment - 1)) != 0)
                block.alignment++;
            return address;
        case 4:
            return cairn_memalign(block.alignment, block.asked);
        default:
            block.origin = Origin::kAligned;
            return cairn_aligned_alloc(block.alignment, block.asked);
        }
    }

    // Records a new block: checks its address and extent, and writes its content.
    void welcome(Block &block)
    {
        const size_t least = block.asked > 8 ? 16 : 8;
        if (reinterpret_cast<uintptr_t>(block.address) % std::max(block.alignment, least) != 0)
            fail("alignment", block.address, block.alignment);
        const size_t usable = cairn_malloc_usable_size(block.address);
        if (usable < block.filled)
            fail("usable size", block.address, usable);
        block.extent = std::max<size_t>(usable, 1);
        fill(block.address, block.filled, block.seed);
        insert(block);
    }

    static bool before(const Block &a, const Block &b) { return a.address < b.address; }

    void insert(const Block &block)
    {
        auto place = std::lower_bound(blocks_.begin(), blocks_.end(), block, before);
        if (place != blocks_.end() && block.address + block.extent > place->address)
            fail("overlaps the block behind it", block.address, block.extent);
        if (place != blocks_.begin() && (place - 1)->address + (place - 1)->extent > block.address)
            fail("overlaps the block before it", block.address, block.extent);
        blocks_.insert(place, block);
        bytes_ += block.extent;
    }

    size_t index_of(const Block &block) const
    {
        return static_cast<size_t>(std::lower_bound(blocks_.begin(), blocks_.end(), block, before) -
                                   blocks_.begin());
    }

    void remove(size_t index)
    {
        bytes_ -= blocks_[index].extent;
        blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(index));
    }

    void check(const Block &block) const
    {
        const size_t wrong = first_wrong(block.address, block.filled, block.seed, true);
        if (wrong != block.filled)
            fail("contents", block.address, wrong);
    }

    void release(size_t index)
    {
        const Block block = blocks_[index];
        check(block);
        remove(index);
        errno = kErrno;
        const size_t choice = random_.below(8);
        if (choice == 0 && block.origin == Origin::kPlain)
            cairn_free_sized(block.address, block.asked);
        else if (choice < 4 && block.origin == Origin::kAligned)
            cairn_free_aligned_sized(block.address, block.alignment, block.asked);
        else if (choice == 4 && cairn_realloc(block.address, 0) != nullptr)
            fail("realloc to 0 returned a block", block.address, 0);
        else if (choice != 4)
            cairn_free(block.address);
        if (errno != kErrno)
            fail("free changed errno", block.address, static_cast<size_t>(errno));
    }

    void resize(size_t index)
    {
        Block block = blocks_[index];
        check(block);
        remove(index);
        size_t size = random_.one_in(3) ? block.asked + random_.below(block.asked / 2 + 100)
                                        : std::max<size_t>(random_size(), 1);
        if (size == 0 || size > kLargestSize)
            size = 1;
        errno = kErrno;
        void *address = nullptr;
        if (random_.one_in(4)) {
            size = size / 2 * 2 + 2;
            address = cairn_reallocarray(block.address, 2, size / 2);
        } else {
            address = cairn_realloc(block.address, size);
        }
        if (!expect_block(address, size)) {
            check(block);
            insert(block);
            return;
        }
        block.address = static_cast<char *>(address);
        const size_t kept = std::min(size, block.filled);
        if (first_wrong(block.address, kept, block.seed, kept == block.filled) != kept)
            fail("contents after realloc", address, size);
        block.asked = block.filled = size;
        block.alignment = 1;
        block.origin = Origin::kPlain;
        welcome(block);
    }

    void use_usable(Block &block)
    {
        block.filled = cairn_malloc_usable_size(block.address);
        if (std::max<size_t>(block.filled, 1) < block.extent)
            fail("usable size shrank", block.address, block.extent);
        fill(block.address, block.filled, block.seed);
    }

    // Requests that cannot be served must not change anything.
    void refuse(const Block &block)
    {
        const size_t beyond = opaque(SIZE_MAX / 2 + 1 + random_.below(kMiB));
        void *result = nullptr;
        errno = kErrno;
        switch (random_.below(8)) {
        case 0:
            result = cairn_malloc(beyond);
            break;
        case 1:
            result = cairn_calloc(beyond, 2);
            break;
        case 2:
            result = cairn_realloc(block.address, beyond);
            break;
        case 3:
            result = cairn_reallocarray(block.address, beyond / 8, 64);
            break;
        case 4:
            result = cairn_aligned_alloc(size_t{64} << random_.below(12), beyond);
            break;
        case 5:
            result = cairn_pvalloc(opaque(SIZE_MAX - random_.below(8192)));
            break;
        case 6:
            result = cairn_valloc(beyond);
            break;
        default:
            if (cairn_posix_memalign(&result, opaque<size_t>(24), 8) != EINVAL || errno != kErrno)
                fail("posix_memalign took an odd alignment", nullptr, 24);
            errno = ENOMEM;
        }
        if (result != nullptr || errno != ENOMEM)
            fail("a request that cannot be met", result, static_cast<size_t>(errno));
        check(block);
    }

    void trim()
    {
        errno = kErrno;
        cairn_malloc_trim(random_.below(kMiB));
        if (errno != kErrno)
            fail("malloc_trim changed errno", nullptr, static_cast<size_t>(errno));
    }

    const uint64_t seed_;
    Random random_;
    const size_t most_blocks_;
    const size_t most_bytes_;
    size_t least_preferred_ = 0;
    size_t most_preferred_ = 0; // 0: no range is preferred
    std::vector<Block> blocks_; // sorted by address
    size_t bytes_ = 0;
    size_t step_ = 0;
    bool may_fail_ = false;
    size_t failures_ = 0;
};

} // namespace model
