// Helpers of the tests of the tracer: a folder for its files, and the blocks in use according to
// them.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tools/trace_reading.h"

extern "C" {
#include "heap/heap.h"
#include "heap/lifecycle.h"
#include "watch/watch.h"
}

namespace trace_kit
{

// A folder of the test, removed after it. The heap is started, as in every traced process: threads
// leave the heaps that they have for the tracer.
class Place
{
  public:
    Place() : folder_(testing::TempDir() + "trace." + std::to_string(getpid()))
    {
        std::string text = folder_ + ".XXXXXX";
        folder_ = mkdtemp(text.data());
        heap_start();
    }
    ~Place()
    {
        if (getpid() != owner_)
            return;
        for (const std::string &file : files())
            (void)unlink(file.c_str());
        (void)rmdir(folder_.c_str());
    }
    std::string path() const { return folder_ + "/t"; }
    int start(uint64_t limit_bytes = 0) const
    {
        return trace_start(path().data(), path().size(), limit_bytes);
    }
    std::vector<std::string> files() const
    {
        std::vector<std::string> found;
        DIR *folder = opendir(folder_.c_str());
        while (struct dirent *entry = readdir(folder))
            if (entry->d_name[0] != '.')
                found.push_back(folder_ + "/" + entry->d_name);
        closedir(folder);
        std::sort(found.begin(), found.end());
        return found;
    }
    std::string file(pid_t process, int number = 1) const
    {
        return path() + "." + std::to_string(process) + "." + std::to_string(number);
    }

  private:
    std::string folder_;
    pid_t owner_ = getpid();
};

// The blocks in use after all events. Fails when two blocks have one address at a time, or when a
// freed or resized block is not in use.
inline std::map<uint64_t, uint64_t> replay(const Reading &reading)
{
    std::map<uint64_t, uint64_t> live;
    size_t wrong = 0;
    for (const struct trace_event &event : reading.events) {
        switch (event.operation) {
        case TRACE_ALLOCATE:
        case TRACE_RESIZE_TO:
            wrong += !live.emplace(event.address, event.size).second;
            break;
        case TRACE_FREE:
        case TRACE_RESIZE_FROM:
            wrong += live.erase(event.address) != 1;
            break;
        case TRACE_RESIZE:
            wrong += live.count(event.address) != 1;
            live[event.address] = event.size;
            break;
        default:
            wrong++;
        }
    }
    EXPECT_EQ(wrong, 0U);
    return live;
}

inline void *get(size_t size) { return malloc_fast(size, malloc_slow); }

} // namespace trace_kit
