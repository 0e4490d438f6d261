// Helpers of the tests of the persistent heap: a directory for each test, a heap opened with any
// options, and short names for frequent calls.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cairn/persist.h"

extern "C" {
#include "region/persist_heap.h"
}

namespace persist
{

// The folder of the files: CAIRN_PERSIST_DIRECTORY, or else a folder in memory, which saves waiting
// for a disk.
inline std::string base_directory()
{
    const char *chosen = getenv("CAIRN_PERSIST_DIRECTORY");
    if (chosen != nullptr)
        return chosen;
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir();
}

// A directory that is removed with the object.
class Directory
{
  public:
    explicit Directory(const std::string &under = base_directory())
    {
        std::string name = under + "/cairn_persist_XXXXXX";
        path_ = mkdtemp(name.data());
    }
    ~Directory() { std::filesystem::remove_all(path_); }
    Directory(const Directory &) = delete;
    Directory &operator=(const Directory &) = delete;
    std::string file(const std::string &name = "heap") const { return path_ + "/" + name; }

  private:
    std::string path_;
};

struct Options : cairn_persist_options {
    Options() : cairn_persist_options() { flags = CAIRN_PERSIST_CREATE; }
    Options &with(unsigned more)
    {
        flags |= more;
        return *this;
    }
    Options &only(unsigned exactly)
    {
        flags = exactly;
        return *this;
    }
    Options &by(cairn_persist_tracking way)
    {
        tracking = way;
        return *this;
    }
    Options &log(size_t bytes)
    {
        log_bytes = bytes;
        return *this;
    }
};

inline cairn_persist *open_heap(const std::string &path, Options options = Options(),
                                const char **why = nullptr)
{
    options.why = why;
    if (options.capacity_bytes == 0)
        options.capacity_bytes = size_t{1} << 28; // small tables: the tests open thousands of heaps
    return cairn_persist_open(path.c_str(), &options);
}

inline char *allocate(cairn_persist *heap, size_t size, size_t align = 16)
{
    return static_cast<char *>(cairn_allocator_alloc(cairn_persist_allocator(heap), size, align));
}
inline void release(cairn_persist *heap, void *block)
{
    cairn_allocator_free(cairn_persist_allocator(heap), block, 0);
}

inline cairn_persist_stats stats_of(cairn_persist *heap)
{
    cairn_persist_stats stats;
    cairn_persist_read_stats(heap, &stats);
    return stats;
}

inline std::string check(cairn_persist *heap)
{
    const char *fault = cairn_persist_check(heap);
    return fault ? fault : "";
}

// Copies the files while the heap is open, as a crash would leave them. Another thread may make the
// heap grow during the copy: it makes the file longer first and then changes the header. So the
// header is read before the length.
inline void copy_files(const std::string &from, const std::string &to)
{
    std::array<char, PERSIST_DATA_OFFSET> header;
    std::ifstream file(from, std::ios::binary);
    const std::streamsize read = file.read(header.data(), header.size()).gcount();
    for (const char *suffix : {"", ".log0", ".log1"}) {
        std::filesystem::remove(to + suffix);
        if (std::filesystem::exists(from + suffix))
            std::filesystem::copy_file(from + suffix, to + suffix);
    }
    std::fstream(to, std::ios::binary | std::ios::in | std::ios::out).write(header.data(), read);
}

inline std::string read_file(const std::string &path)
{
    std::error_code missing;
    const auto bytes = std::filesystem::file_size(path, missing);
    std::string content(missing ? 0 : bytes, '\0');
    std::ifstream(path, std::ios::binary).read(content.data(), std::streamsize(content.size()));
    return content;
}
inline void write_file(const std::string &path, const std::string &bytes)
{
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), std::streamsize(bytes.size()));
}

// The distance between damaged bytes; CAIRN_PERSIST_EVERY_BYTE sets it to 1.
inline size_t stride(size_t otherwise)
{
    return getenv("CAIRN_PERSIST_EVERY_BYTE") != nullptr ? 1 : otherwise;
}

constexpr cairn_persist_tracking kWays[] = {CAIRN_PERSIST_USERFAULT, CAIRN_PERSIST_SCAN,
                                            CAIRN_PERSIST_PAGEMAP, CAIRN_PERSIST_PROTECT};
constexpr const char *kWayNames[] = {"Auto", "Userfault", "Scan", "Pagemap", "Protect"};

} // namespace persist
