// Fuzzing of the stack: the input decides frames, blocks and their growth, hooks, seals, trims, the
// caller's buffers, changes of the owner and failing system calls. The shadow knows every open
// frame with its blocks: address, content, alignment; no two overlap, and the blocks of an outer
// frame outlive every inner one.
//
// Without checks (preset fuzz-plain) the inline paths are used, in checked builds the slow ones.

#include <cairn/stack.h>
#include <errno.h>

#include <new>
#include <thread>
#include <vector>

#include "fuzz/frame_run.h"

namespace
{

using fuzz::Input;
using fuzz::is_aligned;
using fuzz::kErrno;
using fuzz::kKiB;
using fuzz::kMiB;
using fuzz::require;
using fuzz::require_contents;

constexpr size_t kMostBytes = 64 * kMiB;
constexpr size_t kMostBlocks = 300;

struct Block {
    char *address;
    size_t size;
    size_t alignment;
    uint64_t seed;
};

struct Frame {
    cairn_mark mark; // all zero for the base, below the first push
    bool sealed;
    std::vector<Block> blocks;
    std::vector<size_t> hooks; // numbers of the hooks, in the order in which they were deferred
};

struct Hook {
    std::vector<size_t> *ran;
    size_t number;
};

void run_hook(void *context)
{
    const auto *hook = static_cast<const Hook *>(context);
    hook->ran->push_back(hook->number);
}

class Run : fuzz::FrameRun
{
  public:
    explicit Run(Input &input) : FrameRun(input)
    {
        cairn_stack_options options = {};
        options.reserve_bytes = kind() % 3 == 0 ? input.size(26) : 0;
        choose(options, input, 23);
        if (kind() % 11 == 4) {
            buffer_.resize(136 + kind() * 300);
            options.buffer = buffer_.data() + kind() % 9;
            options.buffer_bytes = buffer_.size() - kind() % 9;
        }
        const bool plain = kind() % 2 == 0;
        if (plain)
            forget_limit();
        stack_ = cairn_stack_new(plain ? nullptr : &options);
        require(stack_ != nullptr, "cairn_stack_new");
        frames_.push_back({});
    }

    void run(Input &input)
    {
        while (!input.done())
            step(input, true);
        end_faults();
        for (const Frame &frame : frames_)
            check(frame);
        expect_hooks(0);
        require(cairn_stack_delete(stack_) == 0, "delete");
        require(ran_ == wanted_, "hooks at the end", nullptr, ran_.size());
    }

  private:
    void step(Input &input, bool outermost)
    {
        const size_t choice = input.below(16);
        if (choice < 3)
            push();
        else if (choice < 5)
            pop(input);
        else if (choice < 9)
            allocate(input);
        else if (choice < 12)
            resize(input);
        else if (choice == 12)
            seal(input);
        else if (choice == 13)
            report_misuse(input);
        else if (choice == 14)
            look(input);
        else
            special(input, outermost);
    }

    Frame &newest() { return frames_.back(); }

    void push()
    {
        errno = kErrno;
        const cairn_mark mark = cairn_stack_push(stack_);
        if (mark.frame == nullptr) {
            require(may_fail() && errno == ENOMEM, "push failed");
            cairn_stack_pop(stack_, mark); // has no effect
            return;
        }
        require(errno == kErrno, "push changed errno");
        frames_.push_back({mark, false, {}, {}});
    }

    // Pops the newest frame, or an outer one with all frames above it.
    void pop(Input &input)
    {
        const size_t kind = input.byte();
        if (frames_.size() == 1)
            return;
        size_t index = frames_.size() - 1;
        if (kind >= 224)
            index -= kind % index;
        for (size_t i = index; i < frames_.size(); i++) {
            check(frames_[i]);
            forget(frames_[i]);
        }
        expect_hooks(index);
        cairn_stack_pop(stack_, frames_[index].mark);
        require(ran_ == wanted_, "hooks", nullptr, ran_.size());
        frames_.resize(index);
        for (const Block &block : newest().blocks)
            check(block);
    }

    // Expects the hooks of the frames from `first` on, in reverse order.
    void expect_hooks(size_t first)
    {
        ran_.clear();
        wanted_.clear();
        for (size_t i = frames_.size(); i-- > first;)
            wanted_.insert(wanted_.end(), frames_[i].hooks.rbegin(), frames_[i].hooks.rend());
    }

    void defer()
    {
        if (newest().sealed)
            return;
        errno = kErrno;
        void *place = cairn_stack_alloc(stack_, sizeof(Hook), alignof(Hook));
        if (!came(place, sizeof(Hook)))
            return;
        const auto *hook = new (place) Hook{&ran_, ++serial_};
        const int result = cairn_stack_defer(stack_, run_hook, place);
        require(result == 0 || (may_fail() && result == ENOMEM), "defer");
        if (result == 0)
            newest().hooks.push_back(hook->number);
    }

    void *call(size_t kind, size_t size, size_t align)
    {
        switch (kind) {
        case 0:
            return cairn_stack_alloc(stack_, size, 8);
        case 1:
            return cairn_stack_alloc(stack_, size, 64);
        case 2:
            return cairn_stack_alloc_zero(stack_, size, align);
        case 3:
            return cairn_stack_alloc_array(stack_, size / 3, 3, align);
        case 4:
            return cairn_allocator_alloc(cairn_stack_allocator(stack_), size, align);
        case 5:
            return cairn_stack_realloc(stack_, nullptr, 0, size, align);
        default:
            return cairn_stack_alloc(stack_, size, align);
        }
    }

    void allocate(Input &input)
    {
        const size_t kind = input.below(8);
        const size_t size = pick_size(input);
        size_t align = input.alignment(input.below(8) == 0 ? 22 : 8);
        if (newest().sealed || blocks_ >= kMostBlocks)
            return;
        align = kind == 0 ? 8 : kind == 1 ? 64 : align;
        errno = kErrno;
        char *address = static_cast<char *>(call(kind, size, align));
        if (!came(address, size))
            return;
        if (kind == 2)
            require(model::is_zero(fuzz::opaque(address), size), "not zero", address, size);
        welcome({address, kind == 3 ? size / 3 * 3 : size, align, ++serial_});
    }

    size_t pick_size(Input &input) const
    {
        const size_t size = input.size(24);
        return bytes_ + size <= kMostBytes ? size : size % 512;
    }

    void welcome(const Block &fresh)
    {
        require(is_aligned(fresh.address, fresh.alignment), "alignment", fresh.address,
                fresh.alignment);
        const size_t extent = fresh.size ? fresh.size : 1;
        for (const Frame &frame : frames_) {
            const auto *record = reinterpret_cast<const char *>(frame.mark.frame);
            require(record == nullptr || fresh.address + extent <= record ||
                        record + sizeof(struct cairn_stack_frame) <= fresh.address,
                    "overlaps a frame's record", fresh.address, extent);
            for (const Block &other : frame.blocks)
                require(fresh.address + extent <= other.address ||
                            other.address + (other.size ? other.size : 1) <= fresh.address,
                        "overlaps another block", fresh.address, extent);
        }
        model::fill(fresh.address, fresh.size, fresh.seed);
        newest().blocks.push_back(fresh);
        blocks_++;
        bytes_ += fresh.size;
    }

    void forget(const Frame &frame)
    {
        blocks_ -= frame.blocks.size();
        for (const Block &block : frame.blocks)
            bytes_ -= block.size;
    }

    static void check(const Block &block)
    {
        require_contents(block.address, block.size, block.seed);
    }

    static void check(const Frame &frame)
    {
        for (const Block &block : frame.blocks)
            check(block);
    }

    // Resizes the newest block, or any other block of the newest frame.
    void resize(Input &input)
    {
        const size_t kind = input.byte();
        std::vector<Block> &blocks = newest().blocks;
        if (newest().sealed || blocks.empty())
            return;
        const size_t index = kind & 1 ? kind / 8 % blocks.size() : blocks.size() - 1;
        const Block old = blocks[index];
        const size_t size = kind & 2 ? old.size + input.byte() : pick_size(input);
        check(old);
        const bool in_place = (kind & 4) != 0;
        errno = kErrno;
        void *result =
            in_place
                ? cairn_allocator_resize(cairn_stack_allocator(stack_), old.address, old.size, size)
                : cairn_stack_realloc(stack_, old.address, old.size, size, old.alignment);
        char *address = static_cast<char *>(result);
        if (in_place && address == nullptr) {
            check(old);
            return;
        }
        require(!in_place || address == old.address, "resize moved", address);
        if (!came(address, size)) {
            check(old);
            return;
        }
        const size_t kept = std::min(size, old.size);
        require(model::first_wrong(address, kept, old.seed, kept == old.size) == kept,
                "contents after realloc", address, size);
        blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(index));
        blocks_--;
        bytes_ -= old.size;
        welcome({address, size, old.alignment, old.seed});
    }

    void seal(Input &input)
    {
        newest().sealed = input.flag();
        if (newest().sealed)
            cairn_stack_seal(stack_);
        else
            cairn_stack_unseal(stack_);
    }

    // Requests that cannot be served must not change anything.
    void report_misuse(Input &input)
    {
        const size_t kind = input.below(5);
        const size_t size = input.beyond();
        const size_t align = input.alignment(63);
        if (newest().sealed)
            return;
        void *result = nullptr;
        int wanted = ENOMEM;
        errno = kErrno;
        if (kind == 0) {
            result = cairn_stack_alloc(stack_, size, align);
        } else if (kind == 1) {
            result = cairn_stack_alloc_array(stack_, size, 2 + input.byte(), align);
        } else if (kind == 2) {
            result = cairn_stack_alloc(stack_, 8, input.byte() * 2 + 3);
            wanted = EINVAL;
        } else if (kind == 3) { // the alignment alone is too large
            result = cairn_stack_alloc(stack_, 1 + input.byte(), size_t{1} << (48 + align % 16));
        } else if (!newest().blocks.empty()) {
            const Block &block = newest().blocks.back();
            result = cairn_stack_realloc(stack_, block.address, block.size, size, block.alignment);
        } else {
            errno = ENOMEM;
        }
        require(result == nullptr && errno == wanted, "a request that cannot be met", result,
                static_cast<size_t>(errno));
        check(newest());
    }

    void look(Input &input)
    {
        const size_t kind = input.below(4);
        if (kind == 0) {
            cairn_stack_trim(stack_, input.size(24));
            check(newest());
        } else if (kind == 1) {
            plan_faults(input);
        } else if (kind == 2) {
            end_faults();
        } else {
            cairn_stack_stats stats;
            cairn_stack_read_stats(stack_, &stats);
            require(stats.frames == frames_.size() - 1, "frames", nullptr, stats.frames);
            require(stats.used_bytes >= bytes_ && stats.used_bytes <= stats.resident_bytes &&
                        stats.resident_bytes <= stats.reserved_bytes,
                    "bytes", nullptr, stats.used_bytes);
        }
    }

    void special(Input &input, bool outermost)
    {
        const size_t kind = input.below(4);
        if (kind == 0 && input.below(4) == 0) {
            for (const Frame &frame : frames_) {
                check(frame);
                forget(frame);
            }
            expect_hooks(0);
            cairn_stack_reset(stack_);
            require(ran_ == wanted_, "hooks of a reset", nullptr, ran_.size());
            frames_.assign(1, {});
        } else if (kind == 1 && outermost) { // another thread owns it for a while
            Input part = input.part(input.below(64));
            std::thread([&] {
                cairn_stack_adopt(stack_);
                while (!part.done())
                    step(part, false);
            }).join();
            cairn_stack_adopt(stack_);
        } else if (kind == 2) {
            defer();
        } else {
            for (const Frame &frame : frames_)
                check(frame);
        }
    }

    std::vector<char> buffer_;
    std::vector<size_t> ran_;
    std::vector<size_t> wanted_;
    cairn_stack *stack_;
    std::vector<Frame> frames_;
    size_t blocks_ = 0;
    size_t bytes_ = 0;
    uint64_t serial_ = 0;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input(data, size);
    Run(input).run(input);
    return 0;
}
