// Frees by other threads: while the owner works, and after it closed the FIFO.

#include <sys/wait.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "base/stopped_thread.h"
#include "cairn/fifo.h"
#include "frame/frame_kit.h"

extern "C" {
#include "frame/fifo_state.h"
}

namespace fifo_remote_test
{

using namespace frame_kit;
using stopped_thread::StoppedThread;

struct Message {
    size_t size;
    uint64_t tag;
};

// A queue between threads; NULL ends a consumer.
class Queue
{
  public:
    void put(Message *message)
    {
        std::lock_guard<std::mutex> guard(mutex_);
        messages_.push_back(message);
        ready_.notify_one();
    }
    Message *get()
    {
        std::unique_lock<std::mutex> guard(mutex_);
        ready_.wait(guard, [&] { return !messages_.empty(); });
        Message *message = messages_.front();
        messages_.pop_front();
        return message;
    }

  private:
    std::mutex mutex_;
    std::condition_variable ready_;
    std::deque<Message *> messages_;
};

Message *make_message(cairn_fifo *fifo, size_t size, uint64_t tag)
{
    auto *message =
        static_cast<Message *>(cairn_fifo_alloc(fifo, sizeof(Message) + size, alignof(Message)));
    if (message != nullptr) {
        *message = {size, tag};
        paint(message + 1, size, tag);
    }
    return message;
}

void consume(cairn_fifo *fifo, Queue &queue)
{
    while (Message *message = queue.get()) {
        ASSERT_TRUE(is_painted(message + 1, message->size, message->tag));
        cairn_fifo_free(fifo, message);
    }
}

void produce_and_consume(size_t consumers, bool close_first)
{
    cairn_fifo_options options = {};
    options.any_thread_free = true;
    cairn_fifo *fifo = cairn_fifo_new(&options);
    Queue queue;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < consumers; i++)
        threads.emplace_back([&] { consume(fifo, queue); });
    Random random(consumers);
    std::vector<Message *> held;
    for (uint64_t i = 0; i < 20000; i++) {
        Message *message = make_message(fifo, random.size(i % 1000 == 0 ? 100 * kKiB : 2000), i);
        ASSERT_NE(message, nullptr);
        if (close_first)
            held.push_back(message);
        else
            queue.put(message);
        if (i % 7 == 0)
            cairn_fifo_free(fifo, make_message(fifo, 100, i));
    }
    if (close_first) {
        cairn_fifo_close(fifo);
        for (Message *message : held)
            queue.put(message);
    }
    for (size_t i = 0; i < consumers; i++)
        queue.put(nullptr);
    for (std::thread &thread : threads)
        thread.join();
    if (!close_first) {
        EXPECT_EQ(cairn_fifo_delete(fifo), 0);
    }
}

TEST(FifoRemote, OneConsumer) { produce_and_consume(1, false); }
TEST(FifoRemote, ManyConsumers) { produce_and_consume(16, false); }
TEST(FifoRemote, ClosedBeforeTheFrees) { produce_and_consume(8, true); }

TEST(FifoRemote, ClosedWhileFreesAreUnderWay)
{
    for (int round = 0; round < 200; round++) {
        cairn_fifo_options options = {};
        options.any_thread_free = true;
        cairn_fifo *fifo = cairn_fifo_new(&options);
        std::vector<Message *> messages;
        for (uint64_t i = 0; i < 64; i++)
            messages.push_back(make_message(fifo, 500, i));
        std::vector<std::thread> threads;
        for (size_t part = 0; part < 4; part++)
            threads.emplace_back([&, part] {
                for (size_t i = part; i < messages.size(); i += 4)
                    cairn_fifo_free(fifo, messages[i]);
            });
        cairn_fifo_close(fifo);
        for (std::thread &thread : threads)
            thread.join();
    }
}

TEST(FifoRemote, TheOwnersThreadMayFreeAfterClose)
{
    cairn_fifo_options options = {};
    options.any_thread_free = true;
    cairn_fifo *fifo = cairn_fifo_new(&options);
    Message *first = make_message(fifo, 100, 1);
    Message *second = make_message(fifo, 100, 2);
    cairn_fifo_close(fifo);
    cairn_fifo_free(fifo, first);
    in_thread([&] { cairn_fifo_free(fifo, second); });
}

// Whether the FIFO has ended: its descriptor has no owner.
bool has_ended(cairn_fifo *fifo)
{
    return load_acquire(&reinterpret_cast<struct fifo *>(fifo)->owner) == nullptr;
}

// A close must not wait for a free in progress: with one processor it would wait for ever when the
// closing thread has the higher priority.
TEST(FifoRemote, AThreadStoppedInItsFreeIsWaitedForByNobody)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "threads cannot be stopped here";
    alarm(200);
    for (bool closed_before : {false, true}) {
        bool done = false;
        for (size_t instruction = 0; !done; instruction += 1 + instruction / 100) {
            cairn_fifo_options options = {};
            options.any_thread_free = true;
            cairn_fifo *fifo = cairn_fifo_new(&options);
            std::vector<Message *> messages;
            for (uint64_t i = 0; i < 3; i++)
                messages.push_back(make_message(fifo, 100, i));
            if (closed_before)
                cairn_fifo_close(fifo);
            StoppedThread freeing([&] { cairn_fifo_free(fifo, messages[0]); });
            done = !freeing.stop_after(instruction);
            if (!closed_before)
                cairn_fifo_close(fifo);
            in_thread([&] { cairn_fifo_free(fifo, messages[1]); });
            EXPECT_FALSE(has_ended(fifo));
            cairn_fifo_free(fifo, messages[2]);
            freeing.finish();
            ASSERT_TRUE(has_ended(fifo)) << "stopped after instruction " << instruction;
        }
    }
    alarm(0);
}

// Children are forked while other threads free; a child can use the FIFO that it owns.
TEST(FifoRemote, ForkAmidFrees)
{
    cairn_fifo_options options = {};
    options.any_thread_free = true;
    cairn_fifo *fifo = cairn_fifo_new(&options);
    Queue queue;
    std::thread consumer([&] { consume(fifo, queue); });
    for (int i = 0; i < 50; i++) {
        for (uint64_t k = 0; k < 200; k++)
            queue.put(make_message(fifo, 100, k));
        pid_t child = fork();
        if (child == 0) {
            alarm(100);
            bool good = true;
            for (uint64_t k = 0; k < 2000; k++) {
                Message *message = make_message(fifo, 100, k);
                good = good && message != nullptr && is_painted(message + 1, 100, k);
                cairn_fifo_free(fifo, message);
            }
            cairn_fifo_close(fifo);
            _exit(good ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        ASSERT_EQ(status, 0) << "child " << i;
    }
    queue.put(nullptr);
    consumer.join();
    EXPECT_EQ(cairn_fifo_delete(fifo), 0);
}

TEST(FifoRemoteDeathTest, ForeignPointer)
{
    cairn_fifo_options options = {};
    options.any_thread_free = true;
    cairn_fifo *fifo = cairn_fifo_new(&options);
    cairn_fifo *other = cairn_fifo_new(&options);
    Message *message = make_message(other, 100, 1);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_free(fifo, message); }),
                      "fifo \"fifo\": free of " + hex(message) + ", which is not an object of it");
    cairn_fifo_free(other, message);
    EXPECT_EQ(cairn_fifo_delete(fifo), 0);
    EXPECT_EQ(cairn_fifo_delete(other), 0);
}

} // namespace fifo_remote_test
