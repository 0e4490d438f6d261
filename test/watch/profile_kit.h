// What the tests of the profiler share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "heap/heap.h"
#include "os/os.h"
#include "watch/profile_state.h"
#include "watch/watch.h"
}

namespace profile_kit
{

// A file of the test's own, gone after it.
class File
{
  public:
    explicit File(const char *name)
        : path_(testing::TempDir() + name + "." + std::to_string(getpid()))
    {
    }
    ~File() { (void)unlink(path_.c_str()); }
    const char *path() const { return path_.c_str(); }

    std::vector<std::string> lines() const
    {
        std::ifstream file(path_);
        std::vector<std::string> all;
        for (std::string line; std::getline(file, line);)
            all.push_back(line);
        return all;
    }
    // Of the lines that begin with the word, what follows it.
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

inline struct profile_figures figures()
{
    struct profile_figures all;
    profile_read(&all);
    return all;
}

// From nothing: every block is a sample at an interval of one byte.
inline void start_afresh(uint64_t interval, uint64_t seed = 1)
{
    ASSERT_EQ(profile_start(interval, seed), 0);
    free_fast(heap_allocate_aligned(100, 64)); // this thread's heap follows
    free_fast(allocate(2000));
    profile_reset();
}

} // namespace profile_kit
