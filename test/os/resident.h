// The resident part of a range, and the memory that the kernel counts for this process.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

// Resident bytes of a range, without swapped pages.
inline size_t resident_in(const void *start, size_t size_bytes)
{
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages((size_bytes + page - 1) / page);
    if (mincore(const_cast<void *>(start), size_bytes, pages.data()) != 0)
        return 0;
    return page * static_cast<size_t>(std::count_if(pages.begin(), pages.end(),
                                                    [](unsigned char in) { return in & 1; }));
}

// A field of /proc/self/status in bytes, such as "VmData:".
inline size_t status_bytes(const std::string &field)
{
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (size_t kib; word == field && status >> kib)
            return kib << 10;
    return 0;
}
