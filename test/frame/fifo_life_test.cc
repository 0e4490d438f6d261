// The life of a FIFO: delete, close, adoption, fork, and misuse of each operation.

#include <sys/wait.h>

#include <vector>

#include "frame/fifo_kit.h"

namespace fifo_life_test
{

using namespace fifo_kit;

TEST(FifoLife, DeleteRefusesWithLiveObjects)
{
    Fifo fifo = make();
    for (size_t size : {size_t{8}, 100 * kKiB, 3 * kMiB}) {
        void *object = cairn_fifo_alloc(fifo.get(), size, 8);
        paint(object, size, size);
        EXPECT_EQ(cairn_fifo_delete(fifo.get()), EBUSY);
        EXPECT_TRUE(is_painted(object, size, size));
        cairn_fifo_free(fifo.get(), object);
    }
    EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
    EXPECT_EQ(cairn_fifo_delete(nullptr), 0);
}

TEST(FifoLife, CloseIsDeferredToTheLastFree)
{
    Fifo fifo = make();
    std::vector<void *> objects;
    for (size_t i = 0; i < 5000; i++) {
        objects.push_back(cairn_fifo_alloc(fifo.get(), 100, 8));
        paint(objects.back(), 100, i);
    }
    cairn_fifo *closed = fifo.release();
    cairn_fifo_close(closed);
    for (size_t i = 0; i < objects.size(); i++) {
        ASSERT_TRUE(is_painted(objects[i], 100, i));
        cairn_fifo_free(closed, objects[i]);
    }
}

TEST(FifoLife, ChildOfForkOwnsWhatItsThreadOwned)
{
    Fifo fifo = make();
    void *object = cairn_fifo_alloc(fifo.get(), 1000, 8);
    paint(object, 1000, 1);
    pid_t child = fork();
    if (child == 0) {
        bool good = is_painted(object, 1000, 1);
        for (int i = 0; i < 10000; i++)
            good = good && cairn_fifo_alloc(fifo.get(), 100, 8) != nullptr;
        cairn_fifo_free(fifo.get(), object);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(is_painted(object, 1000, 1));
    cairn_fifo_free(fifo.get(), object);
}

TEST(FifoLife, AdoptHandsOver)
{
    Fifo fifo = make();
    void *object = cairn_fifo_alloc(fifo.get(), 8, 8);
    in_thread([&] {
        cairn_fifo_adopt(fifo.get());
        cairn_fifo_free(fifo.get(), object);
        EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
    });
}

TEST(FifoLife, EndsIgnoreNullAndKeepErrno)
{
    Fifo fifo = make();
    errno = 7;
    EXPECT_EQ(cairn_fifo_delete(nullptr), 0);
    cairn_fifo_close(nullptr);
    cairn_fifo_free(fifo.get(), nullptr);
    cairn_fifo_free(fifo.get(), cairn_fifo_alloc(fifo.get(), 3 * kMiB, 8));
    cairn_fifo_close(fifo.release());
    EXPECT_EQ(errno, 7);
}

TEST(FifoLife, AMaximumBelowOneSegmentIsRefused)
{
    cairn_fifo_options options = {};
    for (size_t bytes : {size_t{1}, 64 * kKiB - 1}) {
        options.max_bytes = bytes;
        errno = 0;
        EXPECT_EQ(cairn_fifo_new(&options), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
    options.max_bytes = 64 * kKiB;
    Fifo fifo = make(options);
    cairn_fifo_free(fifo.get(), cairn_fifo_alloc(fifo.get(), 1000, 8));
}

TEST(FifoLife, TheLastFreesOfAClosedOneMayBeAnotherThreads)
{
    Fifo fifo = make();
    void *object = cairn_fifo_alloc(fifo.get(), 8, 8);
    cairn_fifo *closed = fifo.release();
    cairn_fifo_close(closed);
    in_thread([&] {
        cairn_fifo_adopt(closed);
        cairn_fifo_free(closed, object);
    });
}

// Misuse.

// After a close only frees are allowed. Every other operation must end the process: otherwise it
// would work by chance, or race with the last free.
TEST(FifoLifeDeathTest, UseAfterClose)
{
    for (bool any_thread : {false, true}) {
        cairn_fifo_options options = {};
        options.any_thread_free = any_thread;
        Fifo fifo = make(options);
        void *object = cairn_fifo_alloc(fifo.get(), 8, 8);
        cairn_fifo *closed = fifo.release();
        cairn_fifo_close(closed);
        cairn_fifo_stats all;
        std::string line = "fifo \"fifo\": ";
        EXPECT_DEATH_LINE(ignore(cairn_fifo_alloc(closed, 8, 8)), line + "allocation after close");
        EXPECT_DEATH_LINE(ignore(cairn_fifo_realloc(closed, object, 8, 9, 8)),
                          line + "allocation after close");
        EXPECT_DEATH_LINE(cairn_fifo_trim(closed, 0), line + "trim after close");
        EXPECT_DEATH_LINE(cairn_fifo_read_stats(closed, &all), line + "statistics after close");
        EXPECT_DEATH_LINE(cairn_fifo_delete(closed), line + "delete after close");
        EXPECT_DEATH_LINE(cairn_fifo_close(closed), line + "close after close");
        if (any_thread) {
            EXPECT_DEATH_LINE(cairn_fifo_adopt(closed), line + "adoption after close");
        }
        cairn_fifo_free(closed, object);
    }
}

// An allocation from a deleted FIFO must not use the descriptor of another ended FIFO, and a free
// by another thread must not read unmapped memory.
TEST(FifoLifeDeathTest, UseAfterTheEnd)
{
    for (bool any_thread : {false, true}) {
        cairn_fifo_options options = {};
        options.any_thread_free = any_thread;
        Fifo ended_first = make(options);
        Fifo fifo = make(options);
        Fifo open = make();
        EXPECT_EQ(cairn_fifo_delete(ended_first.release()), 0);
        void *object = cairn_fifo_alloc(fifo.get(), 8, 8);
        cairn_fifo *ended = fifo.release();
        cairn_fifo_free(ended, object);
        if (any_thread)
            cairn_fifo_close(ended);
        else
            EXPECT_EQ(cairn_fifo_delete(ended), 0);
        cairn_fifo_stats all;
        volatile size_t align = 8;
        std::string line = "fifo \"fifo\": used after its end";
        EXPECT_DEATH_LINE(ignore(cairn_fifo_alloc(ended, 8, 8)), line);
        EXPECT_DEATH_LINE(ignore(cairn_fifo_alloc(ended, 8, align)), line);
        EXPECT_DEATH_LINE(cairn_fifo_free(ended, object), line);
        EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_free(ended, object); }), line);
        EXPECT_DEATH_LINE(ignore(cairn_fifo_realloc(ended, object, 8, 9, 8)), line);
        EXPECT_DEATH_LINE(cairn_fifo_trim(ended, 0), line);
        EXPECT_DEATH_LINE(cairn_fifo_read_stats(ended, &all), line);
        EXPECT_DEATH_LINE(cairn_fifo_adopt(ended), line);
        EXPECT_DEATH_LINE(ignore(cairn_fifo_allocator(ended)), line);
        EXPECT_DEATH_LINE(cairn_fifo_delete(ended), line);
        EXPECT_DEATH_LINE(cairn_fifo_close(ended), line);
    }
}

} // namespace fifo_life_test
