// Helpers of the harnesses of the persistent heap: its three files in memory, and their paths when
// a heap is opened over them.
//
// Threads: one.
#pragma once

#include <cairn/persist.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "fuzz/fuzz_input.h"

extern "C" {
#include "os/file.h"
#include "os/memory.h"
#include "region/persist_heap.h"
}

namespace fuzz
{

constexpr const char *kSuffixes[] = {"", ".log0", ".log1"};
constexpr size_t kHeapFiles = 3;

// The files of a heap; a missing file differs from an empty one.
struct HeapImage {
    std::string bytes[kHeapFiles];
    bool there[kHeapFiles] = {};
};

// The path of the only heap of this process, in a folder that is removed at its end.
inline const std::string &heap_path()
{
    static const std::string &path = *new std::string([] { // used up to the very end
        std::string name = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        name += "/cairn_fuzz_XXXXXX";
        require(mkdtemp(name.data()) != nullptr, "mkdtemp");
        atexit([] {
            for (const char *suffix : kSuffixes)
                unlink((heap_path() + suffix).c_str());
            rmdir(heap_path().substr(0, heap_path().rfind('/')).c_str());
        });
        return name + "/heap";
    }());
    return path;
}

inline HeapImage read_image()
{
    HeapImage image;
    for (size_t i = 0; i < kHeapFiles; i++) {
        const int file = open((heap_path() + kSuffixes[i]).c_str(), O_RDONLY | O_CLOEXEC);
        struct stat facts;
        if (file < 0 || fstat(file, &facts) != 0)
            continue;
        std::string &bytes = image.bytes[i];
        bytes.resize(static_cast<size_t>(facts.st_size));
        require(pread(file, bytes.data(), bytes.size(), 0) == facts.st_size, "read of a file");
        image.there[i] = true;
        close(file);
    }
    return image;
}

inline void write_image(const HeapImage &image)
{
    for (size_t i = 0; i < kHeapFiles; i++) {
        const std::string path = heap_path() + kSuffixes[i];
        unlink(path.c_str());
        if (!image.there[i])
            continue;
        const std::string &bytes = image.bytes[i];
        const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        require(file >= 0, "a file made");
        require(pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                "write of a file");
        close(file);
    }
}

inline cairn_persist *open_heap(unsigned flags, const char **why,
                                cairn_persist_tracking way = CAIRN_PERSIST_AUTO)
{
    cairn_persist_options options = {};
    options.flags = flags;
    options.why = why;
    options.tracking = way;
    options.capacity_bytes = size_t{1} << 26;
    options.size_bytes = 1;
    options.log_bytes = 1;
    return cairn_persist_open(heap_path().c_str(), &options);
}

// Leaves the heap as a kill would.
inline void abandon(cairn_persist *heap)
{
    files_close(heap);
    heap->process = 0;
    cairn_persist_close(heap);
}

inline uint64_t last_commit(cairn_persist *heap)
{
    cairn_persist_stats stats;
    cairn_persist_read_stats(heap, &stats);
    return stats.last_commit;
}

} // namespace fuzz
