// The ring on one thread: frames, chunks, checkpoints, limits, deletion, and random use against a
// shadow. ring_misuse_test.cc tests misuse and ring_chunk_test.cc threads.

#include <sys/wait.h>

#include <vector>

#include "frame/ring_kit.h"

extern "C" {
#include "os/process.h"
}

namespace ring_test
{

using namespace ring_kit;

TEST(Ring, EveryAlignmentAndSize)
{
    Ring ring = make();
    for (int round = 0; round < 3; round++) {
        ignore(cairn_ring_open(ring.get()));
        std::vector<std::pair<void *, size_t>> blocks;
        for (size_t align = 1; align <= 4 * kMiB; align *= 2)
            for (size_t size : {size_t{1}, size_t{24}, 100 * kKiB}) {
                volatile size_t variable = align;
                blocks.emplace_back(cairn_ring_alloc(ring.get(), size, variable), size);
                ASSERT_NE(blocks.back().first, nullptr);
                ASSERT_TRUE(is_aligned(blocks.back().first, align));
                paint(blocks.back().first, size, blocks.size());
            }
        for (size_t i = 0; i < blocks.size(); i++)
            ASSERT_TRUE(is_painted(blocks[i].first, blocks[i].second, i + 1));
        cairn_ring_release(cairn_ring_seal(ring.get()));
    }
    EXPECT_LE(stats(ring).chunks, 1u);
}

TEST(Ring, RefusesWhatCannotBe)
{
    Ring ring = make();
    ignore(cairn_ring_open(ring.get()));
    for (size_t size : {SIZE_MAX, SIZE_MAX - 7, size_t{PTRDIFF_MAX}, SIZE_MAX / 8}) {
        errno = 0;
        EXPECT_EQ(cairn_ring_alloc(ring.get(), size, 8), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    EXPECT_EQ(cairn_ring_alloc_array(ring.get(), SIZE_MAX / 2, 4, 8), nullptr);
    errno = 0;
    EXPECT_EQ(cairn_ring_alloc(ring.get(), 8, 12), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(cairn_ring_alloc(ring.get(), 0, 1), nullptr);
    cairn_ring_release(cairn_ring_seal(ring.get()));
    cairn_ring_release(cairn_frame{});
}

TEST(Ring, ReleasedFramesLeaveOneChunkInUse)
{
    Ring ring = make();
    for (int i = 0; i < 100000; i++) {
        cairn_ring_release(make_frame(ring, 64));
        if (i % 100 == 0) {
            ASSERT_LE(stats(ring).chunks, 1u);
        }
    }
    EXPECT_EQ(stats(ring).sealed, 100000u);
    EXPECT_EQ(stats(ring).spare_bytes, 0u);
}

TEST(Ring, EmptyFramesAreFrames)
{
    Ring ring = make();
    std::vector<cairn_frame> frames;
    for (int i = 0; i < 5000; i++) {
        ignore(cairn_ring_open(ring.get()));
        frames.push_back(cairn_ring_seal(ring.get()));
    }
    EXPECT_GE(stats(ring).chunks, 4u);
    for (cairn_frame frame : frames)
        cairn_ring_release(frame);
    EXPECT_LE(stats(ring).chunks, 1u);
}

TEST(Ring, AFrameMaySpanManyChunks)
{
    Ring ring = make();
    for (int round = 0; round < 3; round++) {
        ignore(cairn_ring_open(ring.get()));
        std::vector<void *> blocks;
        for (size_t i = 0; i < 3000; i++) {
            blocks.push_back(cairn_ring_alloc(ring.get(), 1000, 8));
            paint(blocks.back(), 1000, i);
        }
        void *large = cairn_ring_alloc(ring.get(), 5 * kMiB, 64);
        paint(large, 5 * kMiB, 1);
        cairn_frame frame = cairn_ring_seal(ring.get());
        cairn_frame small = make_frame(ring, 100);
        EXPECT_GE(stats(ring).chunks, 3u);
        for (size_t i = 0; i < blocks.size(); i++)
            ASSERT_TRUE(is_painted(blocks[i], 1000, i));
        ASSERT_TRUE(is_painted(large, 5 * kMiB, 1));
        cairn_ring_release(frame);
        cairn_ring_release(small);
        EXPECT_EQ(stats(ring).chunks, 1u);
    }
}

TEST(Ring, RetainedFramesNeedAllReleases)
{
    Ring ring = make();
    ignore(cairn_ring_open(ring.get()));
    void *block = cairn_ring_alloc(ring.get(), 100, 8);
    paint(block, 100, 1);
    cairn_frame frame = cairn_ring_seal(ring.get());
    cairn_ring_retain(frame, 3);
    for (int i = 0; i < 3; i++) {
        cairn_ring_release(frame);
        for (int j = 0; j < 2000; j++)
            cairn_ring_release(make_frame(ring, 100));
        ASSERT_TRUE(is_painted(block, 100, 1));
    }
    cairn_ring_release(frame);
    EXPECT_DEATH_LINE(cairn_ring_release(frame), "ring: frame " + std::to_string(frame.index) +
                                                     " of chunk " + hex(frame.chunk) +
                                                     " is released already");
}

TEST(Ring, MaximumIsBackpressure)
{
    cairn_ring_options options = {};
    options.max_bytes = 256 * kKiB;
    Ring ring = make(options);
    for (int round = 0; round < 3; round++) {
        std::vector<cairn_frame> frames;
        for (;;) {
            cairn_frame frame = cairn_ring_open(ring.get());
            if (frame.chunk == nullptr)
                break;
            void *block = cairn_ring_alloc(ring.get(), 1000, 8);
            frames.push_back(cairn_ring_seal(ring.get()));
            if (block == nullptr)
                break;
        }
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_GT(frames.size(), 180u); // a chunk may be half full from the round before
        EXPECT_LT(frames.size(), 264u);
        for (cairn_frame frame : frames)
            cairn_ring_release(frame);
    }
}

TEST(Ring, CloseWaitsForTheLastRelease)
{
    std::vector<cairn_frame> frames;
    std::vector<void *> blocks;
    Ring ring = make();
    for (size_t i = 0; i < 2000; i++) {
        ignore(cairn_ring_open(ring.get()));
        blocks.push_back(cairn_ring_alloc(ring.get(), 500, 8));
        paint(blocks.back(), 500, i);
        frames.push_back(cairn_ring_seal(ring.get()));
    }
    ring.reset();
    for (size_t i = 0; i < frames.size(); i++) {
        ASSERT_TRUE(is_painted(blocks[i], 500, i));
        cairn_ring_release(frames[i]);
    }
}

// In each chunk where the remaining frame may be, and after releases by any thread.
TEST(Ring, DeleteRefusesWhileAFrameIsOut)
{
    for (size_t bytes : {size_t{0}, size_t{100}, 100 * kKiB, 3 * kMiB}) {
        Ring ring = make();
        EXPECT_EQ(cairn_ring_delete(make().release()), 0);
        ignore(cairn_ring_open(ring.get()));
        EXPECT_EQ(cairn_ring_delete(ring.get()), EBUSY) << "open";
        void *block = cairn_ring_alloc(ring.get(), bytes + 1, 8);
        paint(block, bytes + 1, 1);
        cairn_frame frame = cairn_ring_seal(ring.get());
        EXPECT_EQ(cairn_ring_delete(ring.get()), EBUSY) << "sealed";
        std::vector<cairn_frame> others;
        for (int i = 0; i < 3000; i++)
            others.push_back(make_frame(ring, 64));
        in_thread([&] {
            for (cairn_frame other : others)
                cairn_ring_release(other);
        });
        EXPECT_EQ(cairn_ring_delete(ring.get()), EBUSY) << "all other frames are released";
        EXPECT_TRUE(is_painted(block, bytes + 1, 1));
        in_thread([&] { cairn_ring_release(frame); });
        EXPECT_EQ(cairn_ring_delete(ring.release()), 0) << bytes;
    }
    EXPECT_EQ(cairn_ring_delete(nullptr), 0);
}

TEST(Ring, EndsIgnoreNullAndKeepErrno)
{
    errno = 7;
    EXPECT_EQ(cairn_ring_delete(nullptr), 0);
    cairn_ring_close(nullptr);
    cairn_ring_release(cairn_frame{});
    cairn_ring_retain(cairn_frame{}, 1);
    EXPECT_EQ(errno, 7);
}

// Every open of such a ring would fail, so it cannot be made.
TEST(Ring, AMaximumBelowOneChunkIsRefused)
{
    cairn_ring_options options = {};
    for (size_t bytes : {size_t{1}, 63 * kKiB, 64 * kKiB - 1}) {
        options.max_bytes = bytes;
        errno = 0;
        EXPECT_EQ(cairn_ring_new(&options), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
    options.max_bytes = 64 * kKiB;
    Ring ring = make(options);
    cairn_ring_release(make_frame(ring, 1000));
}

TEST(Ring, ZeroTwinsReadZeroWhereFramesWereBefore)
{
    Ring ring = make();
    cairn_ring_release(make_frame(ring, 50000));
    ignore(cairn_ring_open(ring.get()));
    std::string zeros(24000, 0);
    EXPECT_EQ(memcmp(cairn_ring_alloc_zero(ring.get(), 24000, 8), zeros.data(), 24000), 0);
    void *array = cairn_ring_alloc_array_zero(ring.get(), 2000, 12, 4);
    EXPECT_EQ(memcmp(array, zeros.data(), 24000), 0);
    volatile size_t many = SIZE_MAX / 2;
    EXPECT_EQ(cairn_ring_alloc_array_zero(ring.get(), many, 4, 8), nullptr);
    cairn_ring_release(cairn_ring_seal(ring.get()));
}

struct Asked {
    std::vector<cairn_frame> frames; // one is released in each call
    int calls = 0;
    size_t size = 0;

    static bool ask(void *context, size_t size)
    {
        auto *asked = static_cast<Asked *>(context);
        asked->calls++;
        asked->size = size;
        if (asked->frames.empty())
            return false;
        cairn_ring_release(asked->frames.back());
        asked->frames.pop_back();
        return true;
    }
};

TEST(Ring, OutOfMemoryIsAskedAboutUntilItSaysNo)
{
    Asked asked;
    cairn_ring_options options = {};
    options.max_bytes = kMiB;
    options.out_of_memory = Asked::ask;
    options.out_of_memory_context = &asked;
    Ring ring = make(options);
    for (int i = 0; i < 5; i++)
        asked.frames.push_back(make_frame(ring, 150 * kKiB));
    asked.frames.push_back(make_frame(ring, 100));
    EXPECT_EQ(asked.calls, 0);
    ignore(cairn_ring_open(ring.get()));
    EXPECT_NE(cairn_ring_alloc(ring.get(), 600 * kKiB, 8), nullptr);
    EXPECT_GT(asked.calls, 1);
    EXPECT_GE(asked.size, 600 * kKiB);
    asked.calls = 0;
    errno = 0;
    EXPECT_EQ(cairn_ring_alloc(ring.get(), 700 * kKiB, 8), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(asked.frames.empty());
    EXPECT_GT(asked.calls, 0);
    asked.calls = 0;
    EXPECT_EQ(cairn_ring_alloc(ring.get(), 2 * kMiB, 8), nullptr); // beyond the maximum
    EXPECT_EQ(cairn_ring_alloc(ring.get(), SIZE_MAX, 8), nullptr);
    EXPECT_EQ(asked.calls, 0);
    cairn_ring_release(cairn_ring_seal(ring.get()));
}

// Frames that are released do not count for the maximum, also where the current chunk is theirs.
TEST(Ring, AMaximumAdmitsWhatFitsWhenNothingLives)
{
    cairn_ring_options options = {};
    options.max_bytes = kMiB;
    Ring ring = make(options);
    for (size_t bytes : {1000ul, 600000ul, 900000ul, 100ul, 1000000ul, 1000ul, 65000ul}) {
        for (int i = 0; i < 2; i++)
            cairn_ring_release(make_frame(ring, bytes));
        EXPECT_LE(stats(ring).chunk_bytes, kMiB);
    }
    EXPECT_EQ(cairn_ring_delete(ring.release()), 0);
}

TEST(Ring, AReleaseMakesRoomInTheChunkOfTheOpenFrame)
{
    cairn_ring_options options = {};
    options.max_bytes = 64 * kKiB;
    Ring ring = make(options);
    cairn_frame before = make_frame(ring, 30000);
    cairn_frame open = cairn_ring_open(ring.get());
    EXPECT_EQ(cairn_ring_alloc(ring.get(), 40000, 8), nullptr);
    cairn_ring_release(before);
    void *block = cairn_ring_alloc(ring.get(), 40000, 8);
    ASSERT_NE(block, nullptr);
    paint(block, 40000, 1);
    EXPECT_EQ(cairn_ring_alloc(ring.get(), 40000, 8), nullptr) << "the frame has a block";
    EXPECT_TRUE(is_painted(block, 40000, 1));
    cairn_ring_seal(ring.get());
    cairn_ring_release(open);
    EXPECT_EQ(cairn_ring_delete(ring.release()), 0);
}

// A rewind to a checkpoint of the open frame must find the memory of that time.
TEST(Ring, ACheckpointKeepsThePlaceOfTheOpenFrame)
{
    cairn_ring_options options = {};
    options.max_bytes = 64 * kKiB;
    Ring ring = make(options);
    cairn_ring_release(make_frame(ring, 1000));
    cairn_frame open = cairn_ring_open(ring.get());
    cairn_checkpoint here = cairn_ring_checkpoint(ring.get());
    EXPECT_EQ(cairn_ring_alloc(ring.get(), 65000, 8), nullptr);
    void *block = cairn_ring_alloc(ring.get(), 100, 8);
    EXPECT_EQ(cairn_ring_rewind(ring.get(), here), 0);
    EXPECT_EQ(cairn_ring_alloc(ring.get(), 100, 8), block);
    cairn_ring_seal(ring.get());
    cairn_ring_release(open);
}

TEST(Ring, RewindWithinAFrame)
{
    Ring ring = make();
    cairn_frame before = make_frame(ring, 100);
    ignore(cairn_ring_open(ring.get()));
    void *kept = cairn_ring_alloc(ring.get(), 100, 8);
    paint(kept, 100, 1);
    cairn_checkpoint checkpoint = cairn_ring_checkpoint(ring.get());
    void *undone = cairn_ring_alloc(ring.get(), 100, 8);
    EXPECT_EQ(cairn_ring_rewind(ring.get(), checkpoint), 0);
    EXPECT_EQ(cairn_ring_alloc(ring.get(), 100, 8), undone);
    for (int i = 0; i < 1000; i++) // over several chunks
        ignore(cairn_ring_alloc(ring.get(), 1000, 8));
    EXPECT_GT(stats(ring).chunks, 2u);
    EXPECT_EQ(cairn_ring_rewind(ring.get(), checkpoint), 0);
    EXPECT_EQ(stats(ring).chunks, 1u);
    EXPECT_EQ(cairn_ring_alloc(ring.get(), 100, 8), undone);
    EXPECT_TRUE(is_painted(kept, 100, 1));
    cairn_frame frame = cairn_ring_seal(ring.get());
    EXPECT_EQ(cairn_ring_rewind(ring.get(), checkpoint), EBUSY);
    cairn_ring_release(frame);
    cairn_ring_release(before);
    EXPECT_EQ(cairn_ring_rewind(ring.get(), checkpoint), EBUSY);
}

TEST(Ring, RewindCancelsAnOpenFrame)
{
    Ring ring = make();
    cairn_frame before = make_frame(ring, 100);
    cairn_checkpoint checkpoint = cairn_ring_checkpoint(ring.get());
    for (int i = 0; i < 3; i++) {
        ignore(cairn_ring_open(ring.get()));
        for (int j = 0; j < 500 * i; j++)
            ignore(cairn_ring_alloc(ring.get(), 1000, 8));
        EXPECT_EQ(cairn_ring_rewind(ring.get(), checkpoint), 0);
        EXPECT_EQ(stats(ring).chunks, 1u);
    }
    EXPECT_EQ(cairn_ring_rewind(ring.get(), checkpoint), 0);
    cairn_frame after = make_frame(ring, 100);
    EXPECT_EQ(after.index, before.index + 1);
    cairn_ring_release(after);
    cairn_ring_release(before);
}

TEST(Ring, RewoundFrameLeavesNoHolds)
{
    Ring ring = make();
    cairn_checkpoint checkpoint = cairn_ring_checkpoint(ring.get());
    cairn_ring_retain(cairn_ring_open(ring.get()), 3);
    EXPECT_EQ(cairn_ring_rewind(ring.get(), checkpoint), 0);
    cairn_ring_release(make_frame(ring, 100));      // has the same number in its chunk
    cairn_ring_release(make_frame(ring, 3 * kMiB)); // moves to another chunk
    EXPECT_EQ(stats(ring).chunks, 1u);
}

TEST(Ring, UnneededChunksGoBack)
{
    Ring ring = make();
    std::vector<cairn_frame> frames;
    for (int i = 0; i < 20000; i++)
        frames.push_back(make_frame(ring, 1000));
    for (cairn_frame frame : frames)
        cairn_ring_release(frame);
    EXPECT_GT(stats(ring).spare_bytes, 15 * kMiB);
    for (int interval = 0; interval < 3; interval++) {
        os_sleep_ms(FRAME_DECAY_MS + 50);
        frames.clear();
        for (int i = 0; i < 300; i++)
            frames.push_back(make_frame(ring, 1000));
        for (cairn_frame frame : frames)
            cairn_ring_release(frame);
    }
    EXPECT_LT(stats(ring).spare_bytes, 5 * kMiB);
    cairn_ring_trim(ring.get(), 0);
    EXPECT_EQ(stats(ring).spare_bytes, 0u);
}

TEST(Ring, ChildOfForkOwnsWhatItsThreadOwned)
{
    Ring ring = make();
    cairn_frame frame = make_frame(ring, 100);
    ignore(cairn_ring_open(ring.get()));
    pid_t child = fork();
    if (child == 0) {
        bool good = cairn_ring_alloc(ring.get(), 100, 8) != nullptr;
        cairn_ring_release(cairn_ring_seal(ring.get()));
        cairn_ring_release(frame);
        for (int i = 0; i < 1000; i++)
            cairn_ring_release(make_frame(ring, 500));
        _exit(good && stats(ring).chunks <= 1 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    cairn_ring_release(cairn_ring_seal(ring.get()));
    cairn_ring_release(frame);
}

TEST(Ring, EveryRefusalOfTheSystemIsSurvived)
{
    for_each_failure([] {
        Ring ring = make();
        if (ring == nullptr)
            return false;
        bool worked = true;
        std::vector<cairn_frame> frames;
        for (size_t size : {100, 100000, 10, 3000000, 1000}) {
            cairn_frame frame = cairn_ring_open(ring.get());
            worked = worked && frame.chunk != nullptr;
            if (frame.chunk == nullptr)
                continue;
            void *block = cairn_ring_alloc(ring.get(), size, 8);
            worked = worked && block != nullptr;
            if (block != nullptr)
                memset(block, 1, size);
            frames.push_back(cairn_ring_seal(ring.get()));
        }
        for (cairn_frame frame : frames)
            cairn_ring_release(frame);
        cairn_ring_trim(ring.get(), 0);
        end_failures();
        cairn_ring_release(make_frame(ring, 200000));
        return worked;
    });
}

// Random use against a shadow: frames of all sizes, released in any order; some are retained, some
// rewound.
struct ShadowBlock {
    void *block;
    size_t size;
    uint64_t tag;
};
struct ShadowFrame {
    cairn_frame frame;
    unsigned holds;
    std::vector<ShadowBlock> blocks;
};

void fill(cairn_ring *ring, Random &random, std::vector<ShadowBlock> &blocks, size_t most)
{
    for (size_t count = random.below(12); count > 0; count--) {
        ShadowBlock block = {nullptr, random.size(most), random.next()};
        size_t align = random.align(13);
        block.block = cairn_ring_alloc(ring, block.size, align);
        ASSERT_NE(block.block, nullptr);
        ASSERT_TRUE(is_aligned(block.block, align));
        paint(block.block, block.size, block.tag);
        blocks.push_back(block);
    }
}

void check(const ShadowFrame &frame)
{
    for (const ShadowBlock &block : frame.blocks)
        ASSERT_TRUE(is_painted(block.block, block.size, block.tag));
}

void random_use(uint64_t seed)
{
    Random random(seed);
    Ring ring = make();
    std::vector<ShadowFrame> live;
    size_t most = 1 + random.below(300);
    for (int i = 0; i < 5000; i++) {
        ShadowFrame shadow = {cairn_ring_open(ring.get()), 1, {}};
        fill(ring.get(), random, shadow.blocks, seed % 3 == 0 ? 300 * kKiB : 3000);
        if (random.below(10) == 0) {
            cairn_checkpoint checkpoint = cairn_ring_checkpoint(ring.get());
            std::vector<ShadowBlock> undone;
            fill(ring.get(), random, undone, 100 * kKiB);
            ASSERT_EQ(cairn_ring_rewind(ring.get(), checkpoint), 0);
            fill(ring.get(), random, shadow.blocks, 3000);
        }
        cairn_ring_seal(ring.get());
        if (random.below(10) == 0) {
            unsigned more = static_cast<unsigned>(random.below(4));
            cairn_ring_retain(shadow.frame, more);
            shadow.holds += more;
        }
        live.push_back(shadow);
        while (live.size() > most || (random.below(3) == 0 && !live.empty())) {
            size_t which = random.below(live.size());
            check(live[which]);
            cairn_ring_release(live[which].frame);
            if (--live[which].holds == 0)
                live.erase(live.begin() + static_cast<ptrdiff_t>(which));
        }
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed;
    }
    ring.reset();
    for (ShadowFrame &frame : live) {
        check(frame);
        for (; frame.holds > 0; frame.holds--)
            cairn_ring_release(frame.frame);
    }
}

TEST(RingModel, RandomUse)
{
    for (uint64_t seed = 1; seed <= 6 && !testing::Test::HasFatalFailure(); seed++)
        random_use(seed);
}

} // namespace ring_test
