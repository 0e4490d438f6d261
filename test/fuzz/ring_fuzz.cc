// Fuzzing of the ring: the input decides frames that are opened, filled, sealed, held several times
// and released in any order, by the owner and by other threads; checkpoints and rewinds, trims and
// failing system calls. The shadow knows the holds and blocks of each frame: the blocks are intact
// until the last release, and when all frames are released only the current chunk remains.

#include <cairn/ring.h>
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

constexpr size_t kMostBytes = 48 * kMiB;
constexpr size_t kMostFrames = 1500;
constexpr size_t kMostBlocks = 40; // blocks of a frame

struct Block {
    char *address;
    size_t size;
    size_t alignment;
    uint64_t seed;
};

struct Frame {
    cairn_frame handle;
    size_t holds;
    std::vector<Block> blocks;
};

struct Point {
    cairn_checkpoint checkpoint;
    uint64_t sealed;
    bool open;
    size_t blocks;
    size_t holds;
};

void check(const Frame &frame)
{
    for (const Block &block : frame.blocks) {
        require_contents(block.address, block.size, block.seed);
    }
}

class Run : fuzz::FrameRun
{
  public:
    explicit Run(Input &input) : FrameRun(input)
    {
        cairn_ring_options options = {};
        choose(options, input, 22, size_t{64} << 10);
        ring_ = cairn_ring_new(&options);
        require(ring_ != nullptr, "cairn_ring_new");
    }

    void run(Input &input)
    {
        while (!input.done())
            step(input);
        end_faults();
        if (open_)
            seal();
        for (const Frame &frame : frames_)
            check(frame);
        const bool early = sealed_ % 2 == 1; // some frames outlive their ring
        if (early)
            cairn_ring_close(ring_);
        while (!frames_.empty())
            release(frames_.size() / 2, SIZE_MAX);
        if (early)
            return;
        leave_chunk();
        cairn_ring_trim(ring_, 0);
        cairn_ring_stats stats;
        cairn_ring_read_stats(ring_, &stats);
        require(stats.chunks <= 1 && stats.spare_bytes == 0 && stats.sealed == sealed_,
                "chunks left after all was released", nullptr, stats.chunks);
        cairn_ring_close(ring_);
    }

  private:
    void step(Input &input)
    {
        const size_t choice = input.below(16);
        if (choice < 3)
            open_frame(input);
        else if (choice < 6)
            allocate(input);
        else if (choice < 8 && open_)
            seal();
        else if (choice < 10)
            release(0, 1); // first in, first out
        else if (choice == 10)
            release(input.number16(), SIZE_MAX);
        else if (choice == 11)
            retain(input);
        else if (choice == 12)
            rewind(input);
        else if (choice == 13)
            report_misuse(input);
        else if (choice == 14)
            look(input);
        else
            release_elsewhere(input);
    }

    // Makes a frame that outgrows the current chunk, which ends with the frame when no other frame
    // holds it.
    void leave_chunk()
    {
        if (is_bounded())
            return;
        const cairn_frame handle = cairn_ring_open(ring_);
        require(cairn_ring_alloc(ring_, 3 * kMiB, 8) != nullptr, "no memory");
        cairn_ring_seal(ring_);
        sealed_++;
        cairn_ring_release(handle);
    }

    void open_frame(Input &input)
    {
        // Series of small frames reach the greatest count of frames in a chunk.
        size_t count = input.byte();
        count = count >= 192 ? count - 191 : 1;
        for (; count > 0 && !open_ && frames_.size() < kMostFrames; count--) {
            errno = kErrno;
            const cairn_frame handle = cairn_ring_open(ring_);
            if (handle.chunk == nullptr) {
                require(may_fail() && errno == ENOMEM, "open failed");
                cairn_ring_release(handle); // has no effect
                return;
            }
            require(errno == kErrno, "open changed errno");
            open_ = true;
            current_ = {handle, 1, {}};
            if (count > 1)
                seal();
        }
    }

    void seal()
    {
        const cairn_frame handle = cairn_ring_seal(ring_);
        require(handle.chunk == current_.handle.chunk && handle.index == current_.handle.index &&
                    handle.generation == current_.handle.generation,
                "another handle");
        open_ = false;
        sealed_++;
        frames_.push_back(std::move(current_));
    }

    void allocate(Input &input)
    {
        const size_t kind = input.below(8);
        size_t size = input.size(22);
        size = bytes_ + size <= kMostBytes ? size : size % 512;
        size_t align = input.alignment(input.below(16) == 0 ? 22 : 8);
        if (!open_ || current_.blocks.size() >= kMostBlocks)
            return;
        align = kind == 0 ? 8 : kind == 1 ? 128 : align;
        char *address = nullptr;
        errno = kErrno;
        if (kind == 0)
            address = static_cast<char *>(cairn_ring_alloc(ring_, size, 8));
        else if (kind == 1)
            address = static_cast<char *>(cairn_ring_alloc(ring_, size, 128));
        else if (kind == 2)
            address = static_cast<char *>(cairn_ring_alloc_zero(ring_, size, align));
        else if (kind == 3 && !current_.blocks.empty())
            return resize(size);
        else
            address = static_cast<char *>(cairn_ring_alloc(ring_, size, align));
        if (!came(address, size))
            return;
        if (kind == 2)
            require(model::is_zero(fuzz::opaque(address), size), "not zero", address, size);
        welcome({address, size, align, ++serial_});
    }

    // Resizes the newest block in place.
    void resize(size_t size)
    {
        const Block old = current_.blocks.back();
        char *address = static_cast<char *>(
            cairn_allocator_resize(cairn_ring_allocator(ring_), old.address, old.size, size));
        check(current_);
        if (address == nullptr) {
            require(size > old.size, "a resize to less failed", old.address, size);
            return;
        }
        require(address == old.address, "resize moved", address);
        // Checkpoints since the allocation of the block are at its old end.
        const size_t blocks = current_.blocks.size();
        points_.erase(std::remove_if(points_.begin(), points_.end(),
                                     [&](const Point &point) {
                                         return point.open && point.sealed == sealed_ &&
                                                point.blocks >= blocks;
                                     }),
                      points_.end());
        current_.blocks.pop_back();
        bytes_ -= old.size;
        welcome({address, size, old.alignment, old.seed});
    }

    void welcome(const Block &fresh)
    {
        require(fuzz::is_aligned(fresh.address, fresh.alignment), "alignment", fresh.address,
                fresh.alignment);
        require_apart(fresh, current_);
        for (const Frame &frame : frames_)
            require_apart(fresh, frame);
        model::fill(fresh.address, fresh.size, fresh.seed);
        current_.blocks.push_back(fresh);
        bytes_ += fresh.size;
    }

    static void require_apart(const Block &fresh, const Frame &frame)
    {
        const size_t extent = fresh.size ? fresh.size : 1;
        for (const Block &other : frame.blocks)
            require(fresh.address + extent <= other.address ||
                        other.address + (other.size ? other.size : 1) <= fresh.address,
                    "overlaps another block", fresh.address, extent);
    }

    // Releases some or all holds of a frame.
    void release(size_t place, size_t holds)
    {
        if (frames_.empty())
            return;
        const size_t index = place % frames_.size();
        Frame &frame = frames_[index];
        check(frame);
        for (; holds > 0 && frame.holds > 0; holds--, frame.holds--)
            cairn_ring_release(frame.handle);
        if (frame.holds == 0)
            take(index);
    }

    Frame take(size_t index)
    {
        Frame frame = std::move(frames_[index]);
        frames_.erase(frames_.begin() + static_cast<ptrdiff_t>(index));
        for (const Block &block : frame.blocks)
            bytes_ -= block.size;
        return frame;
    }

    void retain(Input &input)
    {
        const size_t more = input.below(4);
        const size_t place = input.number16();
        Frame *frame = open_             ? &current_
                       : frames_.empty() ? nullptr
                                         : &frames_[place % frames_.size()];
        if (frame == nullptr || frame->holds > 8)
            return;
        cairn_ring_retain(frame->handle, static_cast<unsigned>(more));
        frame->holds += more;
    }

    // Rewinds to a valid checkpoint; later ones become invalid.
    void rewind(Input &input)
    {
        const size_t kind = input.byte();
        if (kind % 4 != 0 || points_.empty()) {
            if (points_.size() < 16)
                points_.push_back({cairn_ring_checkpoint(ring_), sealed_, open_,
                                   current_.blocks.size(), current_.holds});
            return;
        }
        const size_t index = kind / 4 % points_.size();
        const Point point = points_[index];
        const int result = cairn_ring_rewind(ring_, point.checkpoint);
        require(result == (point.sealed == sealed_ ? 0 : EBUSY), "rewind", nullptr,
                static_cast<size_t>(result));
        if (result == EBUSY) {
            points_.erase(points_.begin() + static_cast<ptrdiff_t>(index));
            return;
        }
        points_.resize(index + 1);
        const size_t left = point.open ? point.blocks : 0;
        while (open_ && current_.blocks.size() > left) {
            bytes_ -= current_.blocks.back().size;
            current_.blocks.pop_back();
        }
        open_ = open_ && point.open;
        check(current_);
    }

    // Requests that cannot be served must not change anything.
    void report_misuse(Input &input)
    {
        const size_t kind = input.below(4);
        const size_t size = input.beyond();
        const size_t align = input.alignment(63);
        if (!open_)
            return;
        void *result = nullptr;
        errno = kErrno;
        if (kind == 0)
            result = cairn_ring_alloc(ring_, size, align);
        else if (kind == 1)
            result = cairn_ring_alloc_array(ring_, size, 2 + input.byte(), align);
        else if (kind == 2)
            result = cairn_ring_alloc(ring_, 8, input.byte() * 2 + 3);
        else // the alignment alone is too large
            result = cairn_ring_alloc(ring_, 1 + input.byte(), size_t{1} << (48 + align % 16));
        require(result == nullptr && errno == (kind == 2 ? EINVAL : ENOMEM),
                "a request that cannot be met", result, static_cast<size_t>(errno));
        check(current_);
    }

    void look(Input &input)
    {
        const size_t kind = input.below(4);
        if (kind == 0) {
            cairn_ring_trim(ring_, input.size(24));
        } else if (kind == 1) {
            plan_faults(input);
        } else if (kind == 2) {
            end_faults();
        } else {
            cairn_ring_stats stats;
            cairn_ring_read_stats(ring_, &stats);
            require(stats.chunk_bytes >= bytes_ && stats.sealed == sealed_, "bytes", nullptr,
                    stats.chunk_bytes);
        }
        for (const Frame &frame : frames_)
            check(frame);
    }

    // Another thread releases some frames, while this one continues.
    void release_elsewhere(Input &input)
    {
        join();
        const size_t stride = 1 + input.below(8);
        const size_t count = input.byte();
        std::vector<Frame> mine;
        for (size_t i = 0; i < count && !frames_.empty(); i++)
            mine.push_back(take(i * (stride - 1) % frames_.size()));
        elsewhere(input, [mine = std::move(mine)] {
            for (const Frame &frame : mine) {
                check(frame);
                for (size_t i = 0; i < frame.holds; i++)
                    cairn_ring_release(frame.handle);
            }
        });
    }

    cairn_ring *ring_;
    bool open_ = false;
    Frame current_{};           // valid while open
    std::vector<Frame> frames_; // sealed frames
    std::vector<Point> points_;
    size_t bytes_ = 0;
    uint64_t sealed_ = 0;
    uint64_t serial_ = 0;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input(data, size);
    Run(input).run(input);
    return 0;
}
