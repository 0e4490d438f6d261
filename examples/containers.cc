// Cairn under the standard containers: a stack frame's memory for a computation, a FIFO for a
// queue; and messages in frames of a ring.
#include <cairn/cairn.hpp>

#include <cstdio>
#include <deque>
#include <map>
#include <memory_resource>
#include <string>
#include <thread>
#include <vector>

namespace
{

long sum_of_squares(int count)
{
    cairn::scope scope; // before the containers, so that it ends after them
    cairn::resource memory(scope.allocator());
    std::pmr::vector<long> squares(&memory);
    for (long i = 1; i <= count; i++)
        squares.push_back(i * i);
    std::pmr::map<std::pmr::string, long> sums(&memory);
    for (long square : squares)
        sums[square % 2 ? "odd" : "even"] += square;
    return sums["odd"] + sums["even"];
}

struct message {
    cairn_frame frame;
    int number;
};

// Messages are made in frames of a ring and go to another thread as plain pointers. A frame that is
// left without being sealed, here for every third message, is as if it had never been.
int sum_of_messages(int count)
{
    cairn::ring_ptr ring = cairn::make_ring();
    std::vector<message *> queue;
    for (int i = 0; i < count; i++) {
        cairn::ring_frame frame(ring.get());
        auto *made = frame.make<message>(message{frame.get(), i});
        if (i % 3 == 0)
            continue;
        queue.push_back(made);
        static_cast<void>(frame.seal().release()); // the frame's handle is in the message
    }
    int sum = 0;
    std::thread([&] {
        for (message *next : queue) {
            cairn::ring_hold hold(next->frame); // released at the end of the turn
            sum += next->number;
        }
    }).join();
    return sum;
}

} // namespace

int main()
{
    cairn::fifo_ptr fifo = cairn::make_fifo();
    std::deque<int, cairn::allocator<int>> queue(cairn_fifo_allocator(fifo.get()));
    for (int i = 0; i < 100000; i++) {
        queue.push_back(i);
        if (queue.size() > 100)
            queue.pop_front();
    }
    long sum = sum_of_squares(100);
    int messages = sum_of_messages(10);
    std::printf("%ld, %zu waiting, %d\n", sum, queue.size(), messages);
    return sum == 338350 && queue.size() == 100 && messages == 27 ? 0 : 1;
}
