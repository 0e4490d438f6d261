// Helpers of the tests of the profiler.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "heap/heap.h"
#include "watch/profile_table.h"
#include "watch/watch.h"
}

namespace profile_kit
{

// A file of the test, removed after it. The end of the process then writes no dump next to it,
// which a later process with the same number would find.
class File
{
  public:
    explicit File(const char *name)
        : path_(testing::TempDir() + name + "." + std::to_string(getpid()))
    {
    }
    ~File()
    {
        (void)profile_dump_to("", 0, 0);
        (void)unlink(path_.c_str());
    }
    const char *path() const { return path_.c_str(); }

    std::vector<std::string> lines() const
    {
        std::ifstream file(path_);
        std::vector<std::string> all;
        for (std::string line; std::getline(file, line);)
            all.push_back(line);
        return all;
    }
    // The rest of each line that begins with the word.
    std::vector<std::string> lines(const std::string &word) const
    {
        std::vector<std::string> found;
        for (const std::string &line : lines())
            if (line.compare(0, word.size() + 1, word + " ") == 0)
                found.push_back(line.substr(word.size() + 1));
        return found;
    }

  private:
    std::string path_;
};

inline std::vector<std::string> words(const std::string &line)
{
    std::istringstream text(line);
    std::vector<std::string> all;
    for (std::string word; text >> word;)
        all.push_back(word);
    return all;
}

inline void *allocate(size_t size) { return malloc_fast(size, malloc_slow); }

inline cairn_profile_stats figures()
{
    cairn_profile_stats all;
    profile_read(&all);
    return all;
}

// Starts the profiler with empty tables: at an interval of one byte every block is a sample.
inline void start_afresh(uint64_t interval, uint64_t seed = 1)
{
    ASSERT_EQ(profile_start(interval, seed), 0);
    free_fast(heap_allocate_aligned(100, 64)); // the heap of this thread follows
    free_fast(allocate(2000));
    profile_reset();
}

} // namespace profile_kit
