// Misuse of rings: every operation by a wrong thread, after the end, and in a wrong order.

#include "frame/ring_kit.h"

namespace ring_misuse_test
{

using namespace ring_kit;

TEST(RingDeathTest, OpenWhileOpen)
{
    Ring ring = make();
    ignore(cairn_ring_open(ring.get()));
    EXPECT_DEATH_LINE(ignore(cairn_ring_open(ring.get())),
                      "ring \"ring\": open while a frame is open");
    EXPECT_DEATH_LINE(cairn_ring_close(ring.get()), "ring \"ring\": closed while a frame is open");
    cairn_ring_release(cairn_ring_seal(ring.get()));
}

TEST(RingDeathTest, AllocationAndSealWhileNoneIsOpen)
{
    cairn_ring_options options = {};
    options.name = "mine";
    Ring ring = make(options);
    EXPECT_DEATH_LINE(ignore(cairn_ring_alloc(ring.get(), 8, 8)),
                      "ring \"mine\": allocation while no frame is open");
    cairn_ring_release(make_frame(ring, 8));
    EXPECT_DEATH_LINE(ignore(cairn_ring_alloc(ring.get(), 8, 8)),
                      "ring \"mine\": allocation while no frame is open");
    EXPECT_DEATH_LINE(cairn_ring_seal(ring.get()), "ring \"mine\": seal while no frame is open");
    char block[8];
    EXPECT_DEATH_LINE(cairn_allocator_resize(cairn_ring_allocator(ring.get()), block, 8, 16),
                      "ring \"mine\": resize while no frame is open");
}

TEST(RingDeathTest, SecondRelease)
{
    Ring ring = make();
    cairn_frame frame = make_frame(ring, 8);
    cairn_frame other = make_frame(ring, 8);
    cairn_ring_release(frame);
    std::string place = "frame " + std::to_string(frame.index) + " of chunk " + hex(frame.chunk);
    EXPECT_DEATH_LINE(cairn_ring_release(frame), "ring: " + place + " is released already");
    cairn_ring_release(other);
    for (int i = 0; i < 100; i++) // the chunk is filled again
        cairn_ring_release(make_frame(ring, 4000));
    EXPECT_DEATH_LINE(cairn_ring_release(frame),
                      "ring: release of " + place + ", which is released already");
    EXPECT_DEATH_LINE(cairn_ring_retain(frame, 1),
                      "ring: retain of " + place + ", which is released already");
    ring.reset();
    EXPECT_DEATH_LINE(cairn_ring_release(frame),
                      "ring: release of " + place + ", which is released already");
}

TEST(RingDeathTest, AReleaseBeforeTheSeal)
{
    if (!frame_checked())
        GTEST_SKIP() << "found when checked only";
    Ring ring = make();
    cairn_frame held = cairn_ring_open(ring.get());
    cairn_ring_retain(held, 1);
    cairn_ring_release(held); // another hold remains
    cairn_ring_release(cairn_ring_seal(ring.get()));
    for (size_t bytes : {size_t{8}, size_t{100 << 10}}) { // in one chunk, and in several
        cairn_frame frame = cairn_ring_open(ring.get());
        ignore(cairn_ring_alloc(ring.get(), bytes, 8));
        EXPECT_DEATH_LINE((cairn_ring_release(frame), cairn_ring_seal(ring.get())),
                          "ring \"ring\": seal of a frame that is released already");
        cairn_ring_release(cairn_ring_seal(ring.get()));
    }
}

// Every operation ends the process, also on the inline path, except retain, release and the
// allocator's free.
TEST(RingDeathTest, WrongThread)
{
    Ring ring = make();
    std::string line = "ring \"ring\": used by a thread that does not own it";
    cairn_ring *used = ring.get();
    cairn_ring_stats all;
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_ring_open(used)); }), line);
    ignore(cairn_ring_open(used));
    cairn_checkpoint checkpoint = cairn_ring_checkpoint(used);
    void *block = cairn_ring_alloc(used, 8, 8);
    volatile size_t align = 8;
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_ring_alloc(used, 8, 8)); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_ring_alloc(used, 8, align)); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_ring_alloc_zero(used, 8, 64)); }), line);
    EXPECT_DEATH_LINE(
        in_thread([&] { cairn_allocator_resize(cairn_ring_allocator(used), block, 8, 16); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_ring_seal(used); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_ring_checkpoint(used)); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_ring_rewind(used, checkpoint); }), line);
    cairn_ring_release(cairn_ring_seal(used));
    EXPECT_DEATH_LINE(in_thread([&] { cairn_ring_trim(used, 0); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_ring_read_stats(used, &all); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_ring_delete(used); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_ring_close(used); }), line);
}

// An allocation from a deleted ring must not use the descriptor of another ended ring.
TEST(RingDeathTest, UseAfterTheEnd)
{
    Ring ring = make();
    Ring another = make();
    Ring deleted = make();
    EXPECT_EQ(cairn_ring_delete(another.release()), 0);
    cairn_frame frame = make_frame(ring, 100); // also a closed ring with a live frame
    for (bool closed : {false, true}) {
        cairn_ring *ended = closed ? ring.release() : deleted.release();
        if (closed)
            cairn_ring_close(ended);
        else
            EXPECT_EQ(cairn_ring_delete(ended), 0);
        cairn_ring_stats all;
        volatile size_t align = 8;
        std::string line = "ring \"ring\": used after its end";
        EXPECT_DEATH_LINE(ignore(cairn_ring_alloc(ended, 8, 8)), line);
        EXPECT_DEATH_LINE(ignore(cairn_ring_alloc(ended, 8, align)), line);
        EXPECT_DEATH_LINE(ignore(cairn_ring_open(ended)), line);
        EXPECT_DEATH_LINE(cairn_ring_seal(ended), line);
        EXPECT_DEATH_LINE(ignore(cairn_ring_checkpoint(ended)), line);
        EXPECT_DEATH_LINE(cairn_ring_rewind(ended, cairn_checkpoint{}), line);
        EXPECT_DEATH_LINE(cairn_ring_trim(ended, 0), line);
        EXPECT_DEATH_LINE(cairn_ring_read_stats(ended, &all), line);
        EXPECT_DEATH_LINE(cairn_ring_adopt(ended), line);
        EXPECT_DEATH_LINE(ignore(cairn_ring_allocator(ended)), line);
        EXPECT_DEATH_LINE(cairn_ring_delete(ended), line);
        EXPECT_DEATH_LINE(cairn_ring_close(ended), line);
    }
    cairn_ring_release(frame);
}

TEST(RingDeathTest, UndoneCheckpoint)
{
    Ring ring = make();
    ignore(cairn_ring_open(ring.get()));
    cairn_checkpoint first = cairn_ring_checkpoint(ring.get());
    ignore(cairn_ring_alloc(ring.get(), 100, 8));
    cairn_checkpoint second = cairn_ring_checkpoint(ring.get());
    EXPECT_EQ(cairn_ring_rewind(ring.get(), first), 0);
    EXPECT_DEATH_LINE(cairn_ring_rewind(ring.get(), second),
                      "ring \"ring\": rewind to a checkpoint that is undone");
    cairn_ring_release(cairn_ring_seal(ring.get()));
}

} // namespace ring_misuse_test
