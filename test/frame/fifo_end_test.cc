// Frees that are none: foreign and interior pointers, second frees as far as the counts show them.

#include <vector>

#include "frame/fifo_kit.h"

namespace
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
    for (int i = 0; i < 10; i++) // its page is left
        more.push_back(cairn_fifo_alloc(fifo.get(), 2000, 8));
    cairn_fifo_free(fifo.get(), object);
    for (void *neighbour : {keeps, more[0], more[1]}) // all that began in its page
        cairn_fifo_free(fifo.get(), neighbour);
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), object),
                      "fifo \"mine\": double free of " + hex(object));
    for (size_t i = 2; i < more.size(); i++)
        cairn_fifo_free(fifo.get(), more[i]);
}

TEST(FifoEndDeathTest, DoubleFreeInThePageBeingFilled)
{
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs find it at once";
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
        GTEST_SKIP() << "checked FIFOs look at the object's header first";
    auto *object = static_cast<char *>(cairn_fifo_alloc(fifo.get(), 100 * kKiB, 8));
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), object + 8),
                      "fifo \"fifo\": free of " + hex(object + 8) +
                          ", which is not an object of it");
    cairn_fifo_free(fifo.get(), object);
}

} // namespace
