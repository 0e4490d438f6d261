// Fuzzing of TLSF: a heap over memory of any size and address, regions that are added and removed,
// blocks of any size and alignment. The shadow knows every block: address, content, alignment. The
// shadow is compared with the heap's own walk, and the verifier is called along the way. The memory
// around the heap and its regions is watched: the heap writes nothing outside.

#include <cairn/tlsf.h>
#include <errno.h>

#include <map>
#include <memory>
#include <vector>

#include "fuzz/fuzz_input.h"

namespace
{

using fuzz::Input;
using fuzz::kKiB;
using fuzz::require;
using fuzz::require_contents;

constexpr int kErrno = 4321;
constexpr size_t kFence = 64; // bytes on both sides of the heap's memory
constexpr char kFenceByte = 0x5e;

// Memory with fences around it.
class Memory
{
  public:
    Memory(size_t size, size_t shift) : size_(size), bytes_(new char[size + shift + 2 * kFence])
    {
        start_ = bytes_.get() + kFence + shift;
        memset(bytes_.get(), kFenceByte, size + shift + 2 * kFence);
    }

    char *start() const { return start_; }
    size_t size() const { return size_; }

    void check_fences() const
    {
        for (size_t i = 1; i <= kFence; i++)
            require(start_[-static_cast<ptrdiff_t>(i)] == kFenceByte &&
                        start_[size_ + i - 1] == kFenceByte,
                    "written outside of its memory", start_, i);
    }

  private:
    size_t size_;
    std::unique_ptr<char[]> bytes_;
    char *start_;
};

struct Block {
    size_t size;
    uint64_t seed;
};

class Run
{
  public:
    explicit Run(Input &input)
        : memory_(input.size(16), input.below(64)),
          heap_(cairn_tlsf_init_for(memory_.start(), memory_.size(), input.size(18)))
    {
    }

    void run(Input &input)
    {
        if (heap_ == nullptr)
            return; // too small: no other failure is allowed
        require(memory_.size() > 0, "a heap over nothing");
        for (size_t i = 0; !input.done(); i++) {
            step(input);
            if (i % 16 == 0)
                compare();
        }
        compare();
        while (!blocks_.empty())
            release(0);
        compare();
        for (; !regions_.empty(); regions_.pop_back())
            require(cairn_tlsf_remove(heap_, regions_.back().start()) == 0,
                    "remove of an empty region");
        cairn_tlsf_stats stats;
        cairn_tlsf_read_stats(heap_, &stats);
        require(stats.free_bytes == stats.total_bytes && stats.regions == 1, "bytes left", nullptr,
                stats.used_bytes);
        compare();
    }

  private:
    void step(Input &input)
    {
        const size_t choice = input.below(16);
        if (choice < 5)
            allocate(input);
        else if (choice < 8)
            release(input.number16());
        else if (choice < 10)
            reallocate(input);
        else if (choice < 12)
            resize(input);
        else if (choice == 12)
            report_misuse(input);
        else if (choice < 15)
            change_regions(input);
        else
            compare();
    }

    // Whether the call returned a block. A success keeps errno; a failure is ENOMEM and means that
    // no free block was large enough.
    bool came(const void *address) const
    {
        require(errno == (address ? kErrno : ENOMEM), "errno", address, static_cast<size_t>(errno));
        return address != nullptr;
    }

    size_t largest_request() const
    {
        cairn_tlsf_stats stats;
        cairn_tlsf_read_stats(heap_, &stats);
        return stats.largest_request_bytes;
    }

    void allocate(Input &input)
    {
        const size_t kind = input.below(4);
        const size_t size = input.size(14);
        const size_t align = kind == 0 ? input.alignment(14) : 16;
        const size_t largest = largest_request();
        errno = kErrno;
        void *address = kind == 0   ? cairn_tlsf_alloc_aligned(heap_, size, align)
                        : kind == 1 ? cairn_tlsf_alloc_array(heap_, size, 1)
                        : kind == 2 ? cairn_tlsf_realloc(heap_, nullptr, size)
                                    : cairn_tlsf_alloc(heap_, size);
        if (came(address))
            welcome(address, size, align);
        else
            require(kind == 0 || size > largest || largest == 0, "failed with room", nullptr, size);
        if (kind != 0 && size > largest)
            require(address == nullptr, "more than the largest request", address, largest);
    }

    bool within(const char *address, size_t size) const
    {
        bool inside =
            address >= memory_.start() && address + size <= memory_.start() + memory_.size();
        for (const Memory &region : regions_)
            inside |= address >= region.start() && address + size <= region.start() + region.size();
        return inside;
    }

    void welcome(void *address, size_t size, size_t align)
    {
        char *start = static_cast<char *>(address);
        require(fuzz::is_aligned(address, align < 16 ? 16 : align), "alignment", address, align);
        const size_t usable = cairn_tlsf_usable(heap_, address);
        require(usable >= size && within(start, usable), "place", address, usable);
        const auto behind = blocks_.lower_bound(start);
        require(behind == blocks_.end() || start + usable <= behind->first, "overlap", address,
                usable);
        require(behind == blocks_.begin() ||
                    std::prev(behind)->first + std::prev(behind)->second.size <= start,
                "overlap", address, usable);
        const Block block = {usable, ++serial_};
        model::fill(start, usable, block.seed);
        blocks_[start] = block;
    }

    static void check(const char *address, const Block &block)
    {
        require_contents(address, block.size, block.seed);
    }

    std::map<char *, Block>::iterator pick(size_t place)
    {
        auto at = blocks_.begin();
        std::advance(at, place % blocks_.size());
        check(at->first, at->second);
        return at;
    }

    void release(size_t place)
    {
        if (blocks_.empty())
            return;
        const auto at = pick(place);
        errno = kErrno;
        void *block = at->first;
        if (place % 8 == 0) {
            block = cairn_tlsf_realloc(heap_, block, 0); // a size of 0 counts as 1
            require(block == at->first, "realloc to 0");
        }
        cairn_tlsf_free(heap_, block);
        require(errno == kErrno, "free changed errno");
        blocks_.erase(at);
    }

    void reallocate(Input &input)
    {
        const size_t place = input.number16();
        const size_t size = input.size(14) + 1;
        if (blocks_.empty())
            return;
        const auto at = pick(place);
        const Block old = at->second;
        errno = kErrno;
        char *address = static_cast<char *>(cairn_tlsf_realloc(heap_, at->first, size));
        if (!came(address)) {
            check(at->first, old);
            require(size > old.size, "a realloc to less failed", at->first, size);
            return;
        }
        const size_t kept = size < old.size ? size : old.size;
        require(model::first_wrong(address, kept, old.seed, kept == old.size) == kept,
                "contents after realloc", address, size);
        blocks_.erase(at);
        welcome(address, size, 16);
    }

    void resize(Input &input)
    {
        const size_t place = input.number16();
        const size_t size = input.flag() ? input.beyond() : input.size(14);
        if (blocks_.empty())
            return;
        const auto at = pick(place);
        const Block old = at->second;
        char *start = at->first;
        errno = kErrno;
        void *resized = cairn_tlsf_resize(heap_, start, size);
        require(errno == kErrno, "resize changed errno");
        require(resized == start || (resized == nullptr && size > old.size), "resize", resized,
                size);
        if (resized == nullptr) {
            check(start, old);
            return;
        }
        const size_t kept = size < old.size ? size : old.size;
        require(model::first_wrong(start, kept, old.seed, kept == old.size) == kept,
                "contents after resize", start, size);
        blocks_.erase(at);
        welcome(start, size, 16);
    }

    // Requests that cannot be served must not change anything.
    void report_misuse(Input &input)
    {
        const size_t kind = input.below(5);
        const size_t size = input.beyond();
        void *result = nullptr;
        int wanted = ENOMEM;
        errno = kErrno;
        if (kind == 0) {
            result = cairn_tlsf_alloc(heap_, size);
        } else if (kind == 1) {
            result = cairn_tlsf_alloc_array(heap_, size, 1 + input.byte());
        } else if (kind == 2) {
            result = cairn_tlsf_alloc_aligned(heap_, size, input.alignment(63));
        } else if (kind == 3) {
            result = cairn_tlsf_alloc_aligned(heap_, 8, input.byte() * 2 + 3);
            wanted = EINVAL;
        } else {
            result = cairn_tlsf_alloc_aligned(heap_, 8, size_t{1} << (20 + input.below(44)));
        }
        require(result == nullptr && errno == wanted, "a request that cannot be met", result,
                static_cast<size_t>(errno));
    }

    bool in_use(const Memory &region) const
    {
        const auto at = blocks_.lower_bound(region.start());
        return at != blocks_.end() && at->first < region.start() + region.size();
    }

    void change_regions(Input &input)
    {
        const size_t kind = input.below(4);
        if (kind < 2 && regions_.size() < 6) {
            Memory region(input.size(16), input.below(32));
            const int result = cairn_tlsf_add(heap_, region.start(), region.size());
            require(result == 0 || result == EINVAL || result == EFBIG, "add", region.start(),
                    static_cast<size_t>(result));
            require(result != EINVAL || region.size() < 128, "a region of enough bytes was too few",
                    region.start(), region.size());
            if (result == 0)
                regions_.push_back(std::move(region));
        } else if (kind == 2 && !regions_.empty()) {
            const size_t index = input.byte() % regions_.size();
            Memory &region = regions_[index];
            require(cairn_tlsf_add(heap_, region.start() + region.size() / 2, 4096) == EINVAL,
                    "a region was added twice");
            const bool busy = in_use(region);
            const int result = cairn_tlsf_remove(heap_, region.start());
            require(result == (busy ? EBUSY : 0), "remove", region.start(),
                    static_cast<size_t>(result));
            region.check_fences();
            if (!busy)
                regions_.erase(regions_.begin() + static_cast<ptrdiff_t>(index));
        } else {
            require(cairn_tlsf_remove(heap_, &regions_) == EINVAL, "remove of no region");
        }
    }

    static bool visit(void *pointer, size_t size, bool used, void *context)
    {
        Run *self = static_cast<Run *>(context);
        if (used) {
            const auto at = self->blocks_.find(static_cast<char *>(pointer));
            require(at != self->blocks_.end() && at->second.size <= size, "a block unknown",
                    pointer, size);
            self->seen_++;
        }
        return true;
    }

    // Compares the heap's walk with the shadow.
    void compare()
    {
        const char *fault = cairn_tlsf_check(heap_);
        require(fault == nullptr, fault ? fault : "");
        seen_ = 0;
        cairn_tlsf_walk(heap_, visit, this);
        cairn_tlsf_stats stats;
        cairn_tlsf_read_stats(heap_, &stats);
        require(seen_ == blocks_.size() && stats.used_blocks == seen_, "blocks", nullptr, seen_);
        require(stats.used_bytes + stats.free_bytes == stats.total_bytes &&
                    stats.regions == regions_.size() + 1,
                "stats", nullptr, stats.used_bytes);
        for (const auto &entry : blocks_)
            check(entry.first, entry.second);
        memory_.check_fences();
        for (const Memory &region : regions_)
            region.check_fences();
    }

    Memory memory_;
    cairn_tlsf *heap_;
    std::vector<Memory> regions_;
    std::map<char *, Block> blocks_;
    size_t seen_ = 0;
    uint64_t serial_ = 0;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input(data, size);
    Run(input).run(input);
    return 0;
}
