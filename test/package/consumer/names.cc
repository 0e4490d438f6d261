// libcairn-malloc under C++: operator new is Cairn's (see names.c), and its failure is bad_alloc.
#include <cairn/heap.h>
#include <cstdint>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

int main()
{
    cairn_free(::operator new(48));
    cairn_free(new char[1000]);
    cairn_free(::operator new(100, std::align_val_t(512)));

    std::map<int, std::string> map;
    std::thread other([&map] {
        for (int i = 0; i < 10000; i++)
            map[i] = std::string(static_cast<std::size_t>(i % 100), 'x');
    });
    other.join();
    map.clear();

    volatile std::size_t impossible = PTRDIFF_MAX;
    try {
        ::operator delete(::operator new(impossible));
    } catch (const std::bad_alloc &) {
        return 0;
    }
    return 1;
}
