// Cairn under the standard containers: a stack frame's memory for a computation, a FIFO for a
// queue.
#include <cairn/cairn.hpp>

#include <cstdio>
#include <deque>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

namespace
{

long sum_of_squares(int count)
{
    cairn::scope scope; // before the containers, so that it ends after them
    cairn::resource memory(cairn_stack_allocator(cairn_thread_stack()));
    std::pmr::vector<long> squares(&memory);
    for (long i = 1; i <= count; i++)
        squares.push_back(i * i);
    std::pmr::map<std::pmr::string, long> sums(&memory);
    for (long square : squares)
        sums[square % 2 ? "odd" : "even"] += square;
    return sums["odd"] + sums["even"];
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
    std::printf("%ld, %zu waiting\n", sum, queue.size());
    return sum == 338350 && queue.size() == 100 ? 0 : 1;
}
