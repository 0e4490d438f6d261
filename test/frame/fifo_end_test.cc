// Invalid frees: foreign and interior pointers, and double frees where the counts reveal them.

#include <vector>

#include "frame/fifo_kit.h"

namespace fifo_end_test
{

using namespace fifo_kit;

TEST(FifoEndDeathTest, ForeignPointer)
{
    Fifo fifo = make();
    Fifo other = make();
    void *object = cairn_fifo_alloc(other.get(), 8, 8);
    ignore(cairn_fifo_alloc(fifo.get(), 8, 8));
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), object),
                      "fifo \"fifo\": free of " + hex(object) + ", which is not an object of it");
    cairn_fifo_free(other.get(), object);
}

TEST(FifoEndDeathTest, DoubleFreeThatTheAccountingShows)
{
    cairn_fifo_options options = {};
    options.name = "mine";
    Fifo fifo = make(options);
    void *keeps = cairn_fifo_alloc(fifo.get(), 8, 8);
    void *object = cairn_fifo_alloc(fifo.get(), 2000, 8);
    std::vector<void *> more;
    for (int i = 0; i < 10; i++) // until its page is no longer the current one
        more.push_back(cairn_fifo_alloc(fifo.get(), 2000, 8));
    cairn_fifo_free(fifo.get(), object);
    for (void *neighbour : {keeps, more[0], more[1]}) // all objects that began in its page
        cairn_fifo_free(fifo.get(), neighbour);
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), object),
                      frame_checked() ? "fifo \"mine\": double free of " + hex(object)
                                      : "fifo \"mine\": more frees than objects in the page of " +
                                            hex(object));
    for (size_t i = 2; i < more.size(); i++)
        cairn_fifo_free(fifo.get(), more[i]);
}

// A double free may be revealed by a later, valid free of a neighbour: the message names the page,
// not that neighbour.
TEST(FifoEndDeathTest, ADoubleFreeIsNotSaidOfTheNeighbourThatShowsIt)
{
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs find the error at once";
    Fifo fifo = make();
    std::vector<void *> objects(40);
    for (void *&object : objects) // 20 objects a page
        object = cairn_fifo_alloc(fifo.get(), 200, 8);
    EXPECT_DEATH_LINE(
        {
            cairn_fifo_free(fifo.get(), objects[0]);
            cairn_fifo_free(fifo.get(), objects[0]);
            for (size_t i = 1; i < 30; i++)
                cairn_fifo_free(fifo.get(), objects[i]);
        },
        "fifo \"fifo\": more frees than objects in the page of " + hex(objects[20]));
    for (void *object : objects)
        cairn_fifo_free(fifo.get(), object);
}

TEST(FifoEndDeathTest, DoubleFreeOfTheOnlyObjectShowsAtTheEndOrALook)
{
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs find the error at once";
    for (int way = 0; way < 4; way++) {
        Fifo fifo = make();
        void *object = cairn_fifo_alloc(fifo.get(), 100, 8);
        void *page =
            reinterpret_cast<void *>(align_down(reinterpret_cast<uintptr_t>(object), 4096));
        EXPECT_DEATH_LINE(
            {
                cairn_fifo_free(fifo.get(), object);
                cairn_fifo_free(fifo.get(), object);
                if (way == 0)
                    ignore(cairn_fifo_delete(fifo.get()));
                if (way == 1)
                    cairn_fifo_close(fifo.get());
                if (way == 2)
                    ignore(cairn_fifo_trim(fifo.get(), 0));
                cairn_fifo_stats stats;
                if (way == 3)
                    cairn_fifo_read_stats(fifo.get(), &stats);
            },
            "fifo \"fifo\": more frees than objects in the page of " + hex(page));
        cairn_fifo_free(fifo.get(), object);
    }
}

TEST(FifoEndDeathTest, DoubleFreeInThePageBeingFilled)
{
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs find the error at once";
    cairn_fifo_options options = {};
    options.name = "mine";
    Fifo fifo = make(options);
    void *object = cairn_fifo_alloc(fifo.get(), 2000, 8);
    void *page = reinterpret_cast<void *>(align_down(reinterpret_cast<uintptr_t>(object), 4096));
    EXPECT_DEATH_LINE(
        {
            cairn_fifo_free(fifo.get(), object);
            cairn_fifo_free(fifo.get(), object);
            ignore(cairn_fifo_alloc(fifo.get(), 8, 4096)); // leaves the page
        },
        "fifo \"mine\": more frees than objects in the page of " + hex(page));
    cairn_fifo_free(fifo.get(), object);
}

TEST(FifoEndDeathTest, InteriorOfALargeObject)
{
    Fifo fifo = make();
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs check the object's header first";
    auto *object = static_cast<char *>(cairn_fifo_alloc(fifo.get(), 100 * kKiB, 8));
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), object + 8),
                      "fifo \"fifo\": free of " + hex(object + 8) +
                          ", which is not an object of it");
    cairn_fifo_free(fifo.get(), object);
}

} // namespace fifo_end_test
