// Ownership of a FIFO: each operation by another thread ends the process with a message.

#include "frame/fifo_kit.h"

namespace fifo_state_test
{

using namespace fifo_kit;

TEST(FifoStateDeathTest, WrongThread)
{
    Fifo fifo = make();
    cairn_fifo *used = fifo.get();
    void *object = cairn_fifo_alloc(used, 8, 8);
    cairn_fifo_stats all;
    volatile size_t align = 8;
    std::string line = "fifo \"fifo\": used by a thread that does not own it";
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_fifo_alloc(used, 8, 8)); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_fifo_alloc(used, 8, align)); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_free(used, object); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_fifo_realloc(used, object, 8, 9, 8)); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_fifo_realloc(used, nullptr, 0, 9, 8)); }), line);
    EXPECT_DEATH_LINE(
        in_thread([&] { cairn_allocator_resize(cairn_fifo_allocator(used), object, 8, 16); }),
        line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_trim(used, 0); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_read_stats(used, &all); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_delete(used); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_close(used); }), line);
    cairn_fifo_free(used, object);
}

} // namespace fifo_state_test
