// Fuzzing of the FIFO: the input decides the objects of any size and alignment, frees in any order
// by the owner and by other threads, growth, trims, a change of owner, and failing system calls.
// The shadow knows every object: address, content, alignment; no two overlap.

#include <cairn/fifo.h>
#include <errno.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "fuzz/frame_run.h"

namespace
{

using fuzz::Input;
using fuzz::kErrno;
using fuzz::kMiB;
using fuzz::require;
using fuzz::require_contents;

constexpr size_t kMostBytes = 64 * kMiB;
constexpr size_t kMostObjects = 2000;

struct Object {
    char *address;
    size_t size;
    size_t alignment;
    uint64_t seed;
};

void check(const Object &object) { require_contents(object.address, object.size, object.seed); }

class Run : fuzz::FrameRun
{
  public:
    explicit Run(Input &input) : FrameRun(input)
    {
        cairn_fifo_options options = {};
        choose(options, input, 22, size_t{64} << 10);
        options.any_thread_free = shared_ = kind() % 2 == 0;
        fifo_ = cairn_fifo_new(&options);
        require(fifo_ != nullptr, "cairn_fifo_new");
    }

    void run(Input &input)
    {
        while (!input.done())
            step(input, true);
        end_faults();
        for (const Object &object : objects_)
            check(object);
        if (objects_.empty()) {
            require(cairn_fifo_delete(fifo_) == 0, "delete of an empty one");
            return;
        }
        require(cairn_fifo_delete(fifo_) == EBUSY, "delete of one with objects");
        cairn_fifo_close(fifo_);
        for (const Object &object : objects_) {
            check(object);
            cairn_fifo_free(fifo_, object.address); // the last free ends it
        }
    }

  private:
    void step(Input &input, bool outermost)
    {
        const size_t choice = input.below(16);
        if (choice < 6)
            allocate(input, choice);
        else if (choice < 9)
            release(0, 1 + input.below(16)); // first in, first out
        else if (choice < 11)
            release(input.number16(), 1);
        else if (choice == 11)
            resize(input);
        else if (choice == 12)
            report_misuse(input);
        else if (choice == 13)
            look(input);
        else if (outermost && shared_)
            free_elsewhere(input);
        else if (outermost)
            change_owner(input);
    }

    size_t pick_size(Input &input) const
    {
        const size_t size = input.size(23);
        return bytes_ + size <= kMostBytes ? size : size % 512;
    }

    void allocate(Input &input, size_t choice)
    {
        // Series of equal objects fill pages and segments quickly.
        const size_t count = choice == 0 ? 1 + input.byte() : 1;
        const size_t size = choice == 0 ? pick_size(input) % 20000 : pick_size(input);
        const size_t kind = input.below(6);
        const size_t wide = input.below(16) == 0 ? 21 : 8;
        const size_t align = kind == 0   ? 8
                             : kind == 1 ? 32
                                         : input.alignment(static_cast<unsigned>(wide));
        for (size_t i = 0; i < count && objects_.size() < kMostObjects; i++) {
            void *address = nullptr;
            errno = kErrno;
            if (kind == 0)
                address = cairn_fifo_alloc(fifo_, size, 8);
            else if (kind == 1)
                address = cairn_fifo_alloc(fifo_, size, 32);
            else if (kind == 2)
                address = cairn_allocator_alloc(cairn_fifo_allocator(fifo_), size, align);
            else if (kind == 3)
                address = cairn_fifo_realloc(fifo_, nullptr, 0, size, align);
            else
                address = cairn_fifo_alloc(fifo_, size, align);
            if (came(address, size))
                welcome({static_cast<char *>(address), size, align, ++serial_});
        }
    }

    void welcome(const Object &fresh)
    {
        require(fuzz::is_aligned(fresh.address, fresh.alignment), "alignment", fresh.address,
                fresh.alignment);
        const size_t extent = fresh.size ? fresh.size : 1;
        for (const Object &other : objects_)
            require(fresh.address + extent <= other.address ||
                        other.address + (other.size ? other.size : 1) <= fresh.address,
                    "overlaps another object", fresh.address, extent);
        model::fill(fresh.address, fresh.size, fresh.seed);
        objects_.push_back(fresh);
        bytes_ += fresh.size;
    }

    void release(size_t place, size_t count)
    {
        for (; count > 0 && !objects_.empty(); count--) {
            const Object object = take(place);
            check(object);
            errno = kErrno;
            cairn_fifo_free(fifo_, object.address);
            require(errno == kErrno, "free changed errno");
        }
        cairn_fifo_free(fifo_, nullptr);
    }

    Object take(size_t place)
    {
        const auto at = objects_.begin() + static_cast<ptrdiff_t>(place % objects_.size());
        const Object object = *at;
        bytes_ -= object.size;
        objects_.erase(at);
        return object;
    }

    void resize(Input &input)
    {
        const size_t place = input.number16();
        const size_t kind = input.below(4);
        const size_t wanted = pick_size(input);
        if (objects_.empty())
            return;
        const bool newest = kind < 2; // the newest may grow in place
        const Object old = newest ? objects_.back() : objects_[place % objects_.size()];
        const size_t size = kind % 2 ? old.size + wanted % 64 : wanted;
        check(old);
        errno = kErrno;
        void *result = cairn_fifo_realloc(fifo_, old.address, old.size, size, old.alignment);
        char *address = static_cast<char *>(result);
        if (!came(address, size)) {
            check(old);
            return;
        }
        take(newest ? objects_.size() - 1 : place);
        const size_t kept = std::min(size, old.size);
        require(model::first_wrong(address, kept, old.seed, kept == old.size) == kept,
                "contents after realloc", address, size);
        welcome({address, size, old.alignment, old.seed});
    }

    // Requests that cannot be served must not change anything.
    void report_misuse(Input &input)
    {
        const size_t kind = input.below(5);
        const size_t size = input.beyond();
        const size_t align = input.alignment(63);
        void *result = nullptr;
        int wanted = ENOMEM;
        errno = kErrno;
        if (kind == 0) {
            result = cairn_fifo_alloc(fifo_, size, align);
        } else if (kind == 1) {
            result = cairn_fifo_alloc_array(fifo_, size, 2 + input.byte(), align);
        } else if (kind == 2) {
            result = cairn_fifo_alloc(fifo_, 8, input.byte() * 2 + 3);
            wanted = EINVAL;
        } else if (kind == 3) { // above 2 MiB
            result = cairn_fifo_alloc(fifo_, 1 + input.byte(), size_t{1} << (22 + align % 42));
        } else if (!objects_.empty()) {
            const Object &object = objects_.back();
            result = cairn_fifo_realloc(fifo_, object.address, object.size, size, object.alignment);
        } else {
            errno = ENOMEM;
        }
        require(result == nullptr && errno == wanted, "a request that cannot be met", result,
                static_cast<size_t>(errno));
    }

    void look(Input &input)
    {
        const size_t kind = input.below(5);
        if (kind == 0) {
            cairn_fifo_trim(fifo_, input.size(24));
        } else if (kind == 1) {
            plan_faults(input);
        } else if (kind == 2) {
            end_faults();
        } else if (kind == 3 && !objects_.empty()) {
            require(cairn_fifo_delete(fifo_) == EBUSY, "delete of one with objects");
        } else {
            cairn_fifo_stats stats;
            cairn_fifo_read_stats(fifo_, &stats);
            require(stats.segment_bytes >= bytes_ &&
                        stats.reserved_bytes >= stats.segment_bytes + stats.spare_bytes,
                    "bytes", nullptr, stats.segment_bytes);
        }
        for (const Object &object : objects_)
            check(object);
    }

    // Another thread frees some objects, while this one continues.
    void free_elsewhere(Input &input)
    {
        join();
        const size_t stride = 1 + input.below(8);
        const size_t count = input.byte();
        std::vector<Object> mine;
        for (size_t i = 0; i < count && !objects_.empty(); i++)
            mine.push_back(take(i * (stride - 1)));
        elsewhere(input, [fifo = fifo_, mine] {
            for (const Object &object : mine) {
                check(object);
                errno = kErrno;
                cairn_fifo_free(fifo, object.address);
                require(errno == kErrno, "free changed errno");
            }
        });
    }

    void change_owner(Input &input)
    {
        Input part = input.part(input.below(64));
        std::thread([&] {
            cairn_fifo_adopt(fifo_);
            while (!part.done())
                step(part, false);
        }).join();
        cairn_fifo_adopt(fifo_);
    }

    cairn_fifo *fifo_;
    bool shared_;
    std::vector<Object> objects_; // in order of allocation
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
