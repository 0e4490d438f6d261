// What the tests of the tracer share: a place for its files, and reading them.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include "heap/heap.h"
#include "os/os.h"
#include "trace_reader.h"
#include "watch/watch.h"
}

namespace trace_kit
{

// A folder of the test's own, gone after it.
class Place
{
  public:
    Place() : folder_(testing::TempDir() + "trace." + std::to_string(getpid()))
    {
        std::string text = folder_ + ".XXXXXX";
        folder_ = mkdtemp(text.data());
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

struct Reading {
    struct trace_header header = {};
    std::vector<struct trace_event> events;
    uint32_t threads = 0, stacks = 0;
    std::map<uint32_t, uint32_t> numbers; // of threads, by the kernel's
    std::string text, error;
};

inline Reading read(const std::string &path)
{
    Reading reading;
    char *error = nullptr;
    struct trace *trace = trace_open(path.c_str(), &error);
    if (trace == nullptr) {
        reading.error = error;
        free(error);
        return reading;
    }
    struct trace_event event;
    while (trace_next(trace, &event))
        reading.events.push_back(event);
    reading.header = *trace_head(trace);
    reading.threads = trace_thread_count(trace);
    reading.stacks = trace_stack_count(trace);
    for (uint32_t i = 1; i <= reading.threads; i++)
        reading.numbers[trace_thread_id(trace, i)] = i;
    reading.text = trace_text(trace);
    reading.error = trace_error(trace) ? trace_error(trace) : "";
    trace_close(trace);
    return reading;
}

// The blocks in use after all events. Fails where two blocks have one address at a time, or what is
// freed or resized is not in use.
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
