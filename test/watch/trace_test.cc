// A trace is complete and correct: over threads, forks, limits, full disks, and when the program is
// killed. Each case needs a process of its own.

#include "watch/trace_kit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

extern "C" {
#include "os/process.h"
}

namespace trace_test
{

using trace_kit::get;
using trace_kit::Place;
using trace_kit::read;
using trace_kit::Reading;
using trace_kit::replay;

// An action of a thread, by its own record.
struct Deed {
    uint8_t operation;
    uint64_t address, size;
    uint8_t alignment_log2;
    bool zeroed;
};

// A worker, with the blocks that threads exchange and the thread's own record.
class Worker
{
  public:
    explicit Worker(unsigned seed) : random_(seed) {}
    void run(std::vector<void *> *shared, std::mutex *lock, int rounds)
    {
        id = os_thread_id();
        for (int i = 0; i < rounds; i++)
            step(shared, lock);
    }
    std::vector<Deed> deeds;
    uint32_t id = 0;

  private:
    void step(std::vector<void *> *shared, std::mutex *lock)
    {
        void *block = nullptr;
        size_t place;
        {
            const std::lock_guard<std::mutex> guard(*lock);
            place = random_() % shared->size();
            std::swap(block, (*shared)[place]);
        }
        size_t size = 1 + random_() % (random_() % 50 == 0 ? 200000 : 700);
        if (block == nullptr)
            block = allocate(size);
        else if (random_() % 3 == 0)
            block = resize(block, size);
        else
            block = release(block);
        if (block == nullptr)
            return;
        const std::lock_guard<std::mutex> guard(*lock);
        std::swap(block, (*shared)[place]);
        if (block != nullptr)
            (void)release(block);
    }
    void *allocate(size_t size)
    {
        unsigned kind = random_() % 4;
        void *block = kind == 0   ? heap_allocate_zeroed(size)
                      : kind == 1 ? heap_allocate_aligned(size, 256)
                                  : get(size);
        deeds.push_back({TRACE_ALLOCATE, reinterpret_cast<uint64_t>(block), size,
                         kind == 1 ? uint8_t{8} : uint8_t{0}, kind == 0});
        return block;
    }
    void *resize(void *block, size_t size)
    {
        void *now = heap_resize(block, size);
        deeds.push_back({TRACE_RESIZE, reinterpret_cast<uint64_t>(now), size, 0, false});
        return now;
    }
    void *release(void *block)
    {
        deeds.push_back({TRACE_FREE, reinterpret_cast<uint64_t>(block), 0, 0, false});
        free_fast(block);
        return nullptr;
    }
    std::minstd_rand random_;
};

// Compares the record with the trace, in which a resize is its end event, or its only event.
void compare(const std::vector<Deed> &deeds, const Reading &reading, uint32_t thread)
{
    size_t at = 0;
    for (const struct trace_event &event : reading.events) {
        if (event.thread != thread || event.operation == TRACE_RESIZE_FROM)
            continue;
        ASSERT_LT(at, deeds.size());
        const Deed &deed = deeds[at++];
        bool resize = event.operation == TRACE_RESIZE || event.operation == TRACE_RESIZE_TO;
        ASSERT_EQ(resize ? uint8_t{TRACE_RESIZE} : event.operation, deed.operation) << at;
        ASSERT_EQ(event.address, deed.address) << at;
        ASSERT_EQ(event.size, deed.size) << at;
        ASSERT_EQ(event.alignment_log2, deed.alignment_log2) << at;
        ASSERT_EQ(event.zeroed, deed.zeroed) << at;
    }
    EXPECT_EQ(at, deeds.size());
}

TEST(Trace, SaysWhatEachThreadDid)
{
    enum { THREADS = 4, ROUNDS = 5000 };
    const Place place;
    ASSERT_EQ(place.start(), 0);
    std::vector<void *> shared(200);
    std::mutex lock;
    std::vector<Worker> workers;
    for (unsigned i = 0; i < THREADS; i++)
        workers.emplace_back(i + 1);
    std::vector<std::thread> threads;
    for (Worker &worker : workers)
        threads.emplace_back([&] { worker.run(&shared, &lock, ROUNDS); });
    for (std::thread &thread : threads)
        thread.join();
    trace_stop();
    Reading reading = read(place.file(getpid()));
    EXPECT_EQ(reading.error, "");
    EXPECT_EQ(reading.header.state, uint32_t{TRACE_ENDED});
    EXPECT_EQ(reading.threads, uint32_t{THREADS});
    std::map<uint64_t, uint64_t> live = replay(reading);
    for (void *block : shared)
        EXPECT_EQ(live.erase(reinterpret_cast<uint64_t>(block)), block != nullptr ? 1U : 0U);
    EXPECT_TRUE(live.empty());
    for (const Worker &worker : workers)
        compare(worker.deeds, reading, reading.numbers.at(worker.id));
    for (size_t i = 1; i < reading.events.size(); i++)
        ASSERT_EQ(reading.events[i].order, reading.events[i - 1].order + 1); // none is lost
}

// A trace has addresses and stacks of its program.
TEST(Trace, IsForNobodyButItsUser)
{
    const Place place;
    const mode_t before = umask(0);
    ASSERT_EQ(place.start(), 0);
    (void)umask(before);
    struct stat file = {};
    ASSERT_EQ(stat(place.file(getpid()).c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600U);
}

void *volatile taken;

TEST(Trace, AChildWhoseEarlierHandlerAllocatesHasOneFile)
{
    const Place place;
    ASSERT_EQ(pthread_atfork(nullptr, nullptr, [] { taken = get(100); }), 0);
    ASSERT_EQ(place.start(), 0);
    free_fast(get(10));
    pid_t child = fork();
    if (child == 0) {
        free_fast(taken);
        free_fast(get(200));
        trace_stop();
        _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(place.files().size(), 2U);
    // An emulator that wipes nothing at a fork (MADV_WIPEONFORK) does not notify the tracer in
    // time.
    const size_t events = read(place.file(child)).events.size();
    EXPECT_TRUE(events == 4U || (CAIRN_TEST_EMULATED && events == 3U)) << events;
}

TEST(Trace, HasStacksAndModules)
{
    const Place place;
    ASSERT_EQ(place.start(), 0);
    for (int i = 0; i < 10; i++)
        free_fast(get(100));
    trace_stop();
    Reading reading = read(place.file(getpid()));
    ASSERT_EQ(reading.events.size(), 20U);
    EXPECT_NE(reading.text.find("library "), std::string::npos);
    uint32_t first = reading.events[0].stack;
    if (first == 0)
        GTEST_SKIP() << "no stack is walked here";
    EXPECT_NE(reading.text.find("maps 1\nmap 0x"), std::string::npos);
    for (const struct trace_event &event : reading.events)
        EXPECT_NE(event.stack, 0U);
    EXPECT_LE(reading.stacks, 4U);
}

TEST(Trace, AKilledProcessLosesNothing)
{
    const Place place;
    auto *done = static_cast<std::atomic<uint64_t> *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t child = fork();
    if (child == 0) {
        if (place.start() != 0)
            _exit(1);
        void *blocks[64] = {};
        for (uint64_t i = 0;; i++) {
            free_fast(blocks[i % 64]);
            blocks[i % 64] = get(1 + i % 3000);
            *done = i + 1;
        }
    }
    while (*done < 20000)
        usleep(1000);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    uint64_t blocks = *done;
    munmap(done, 4096);
    Reading reading = read(place.file(child));
    EXPECT_EQ(reading.error, "");
    EXPECT_EQ(reading.header.state, uint32_t{TRACE_RUNS});
    uint64_t expected = blocks < 64 ? blocks : 2 * blocks - 64;
    EXPECT_GE(reading.events.size(), expected);
    EXPECT_LE(reading.events.size(), expected + 3);
    (void)replay(reading);
}

// The number of descriptors of trace files.
size_t open_files(const Place &place)
{
    size_t count = 0;
    char target[PATH_MAX];
    for (int file = 0; file < 1024; file++) {
        const std::string name = "/proc/self/fd/" + std::to_string(file);
        const ssize_t length = readlink(name.c_str(), target, sizeof target);
        count += length > 0 &&
                 std::string(target, static_cast<size_t>(length)).rfind(place.path(), 0) == 0;
    }
    return count;
}

TEST(Trace, AChildHasAFileOfItsOwn)
{
    const Place place;
    ASSERT_EQ(place.start(), 0);
    void *before = get(100);
    std::atomic<bool> ends{false};
    std::thread other([&] { // the fork may happen while it holds a lane
        while (!ends)
            free_fast(get(50));
    });
    std::vector<pid_t> children;
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            free_fast(before);
            for (int j = 0; j < 100; j++)
                free_fast(get(200));
            if (i == 3) { // and its child
                pid_t grandchild = fork();
                if (grandchild == 0) {
                    free_fast(get(300));
                    _exit(open_files(place) == 1 ? 0 : 1);
                }
                int status = -1;
                waitpid(grandchild, &status, 0);
                if (status != 0)
                    _exit(1);
            }
            trace_stop();
            _exit(0);
        }
        children.push_back(child);
    }
    for (pid_t child : children) {
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0) << "a child has one descriptor of a trace";
    }
    ends = true;
    other.join();
    free_fast(before);
    trace_stop();
    EXPECT_EQ(place.files().size(), 6U);
    Reading own = read(place.file(getpid()));
    EXPECT_EQ(own.error, "");
    EXPECT_TRUE(replay(own).empty());
    for (pid_t child : children) {
        Reading reading = read(place.file(child));
        EXPECT_EQ(reading.error, "");
        EXPECT_EQ(reading.header.parent, static_cast<uint32_t>(getpid()));
        EXPECT_GT(reading.header.fork_order, 0U);
        ASSERT_EQ(reading.events.size(), 201U);
        EXPECT_EQ(reading.events[0].address, reinterpret_cast<uint64_t>(before));
        EXPECT_EQ(reading.events[1].size, 200U);
    }
}

// A child that cannot begin its trace has unmapped its parent's header. Another mapping may be
// there when that child forks.
TEST(Trace, AChildWithoutATraceLeavesMappingsToItsChildren)
{
    const Place place;
    ASSERT_EQ(place.start(), 0);
    pid_t child = fork();
    if (child == 0) {
        void *header = trace_file.header;
        const struct rlimit none = {0, RLIM_INFINITY};
        if (setrlimit(RLIMIT_FSIZE, &none) != 0)
            _exit(1);
        (void)get(100); // the next event would stop the tracing
        auto *mine = static_cast<volatile char *>(
            mmap(header, 4096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
        if (mine != header)
            _exit(2);
        *mine = 1;
        pid_t grandchild = fork();
        if (grandchild == 0) {
            free_fast(get(100));
            _exit(*mine == 1 ? 0 : 3);
        }
        int status = -1;
        _exit(waitpid(grandchild, &status, 0) == grandchild && status == 0 ? 0 : 4);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    trace_stop();
}

TEST(Trace, ManyThreadsThatEndTakeFewLanes)
{
    const Place place;
    ASSERT_EQ(place.start(), 0);
    for (int round = 0; round < 50; round++) {
        std::vector<std::thread> threads;
        threads.reserve(16);
        for (int i = 0; i < 16; i++)
            threads.emplace_back([] {
                for (int j = 0; j < 20; j++)
                    free_fast(get(64));
            });
        for (std::thread &thread : threads)
            thread.join();
    }
    trace_stop();
    Reading reading = read(place.file(getpid()));
    EXPECT_EQ(reading.error, "");
    EXPECT_EQ(reading.events.size(), 50U * 16 * 40);
    EXPECT_EQ(reading.threads, 800U);
    EXPECT_TRUE(replay(reading).empty());
    EXPECT_LE(reading.header.chunks, 64U + 16);
}

TEST(Trace, EndsAtItsLimitAndSaysWhere)
{
    const Place place;
    const uint64_t limit = TRACE_HEADER_BYTES + 5 * TRACE_CHUNK_BYTES;
    ASSERT_EQ(place.start(limit), 0);
    for (int i = 0; i < 200000; i++)
        free_fast(get(1 + static_cast<size_t>(i) % 1000));
    EXPECT_FALSE(heap_has_hook(HOOK_TRACE)); // the fast path is back
    Reading reading = read(place.file(getpid()));
    EXPECT_EQ(reading.error, "");
    EXPECT_EQ(reading.header.state, uint32_t{TRACE_CUT});
    EXPECT_EQ(reading.header.reason, uint32_t{TRACE_LIMIT});
    EXPECT_EQ(reading.header.end_order, reading.events.size());
    EXPECT_GT(reading.events.size(), 10000U);
    EXPECT_LE(replay(reading).size(), 1U);
    int file = open(place.file(getpid()).c_str(), O_RDONLY);
    EXPECT_LE(lseek(file, 0, SEEK_END), static_cast<off_t>(limit));
    close(file);
}

TEST(Trace, AFullDiskEndsIt)
{
    const Place place;
    ASSERT_EQ(place.start(), 0);
    struct rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 300000;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    errno = 33;
    for (int i = 0; i < 200000; i++)
        free_fast(get(1 + static_cast<size_t>(i) % 1000));
    EXPECT_EQ(errno, 33);
    Reading reading = read(place.file(getpid()));
    EXPECT_EQ(reading.error, "");
    EXPECT_EQ(reading.header.state, uint32_t{TRACE_CUT});
    EXPECT_EQ(reading.header.reason, uint32_t{TRACE_DISK});
    EXPECT_EQ(reading.header.end_order, reading.events.size());
    EXPECT_LE(replay(reading).size(), 1U);
}

TEST(Trace, NoAddressSpaceEndsIt)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer needs address space of its own";
#endif
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "the emulator does not keep to RLIMIT_AS";
    const Place place;
    ASSERT_EQ(place.start(), 0);
    free_fast(get(1000));
    struct rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = 1; // no new mapping at all
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    for (int i = 0; i < 100000; i++)
        free_fast(get(1 + static_cast<size_t>(i) % 1000));
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    Reading reading = read(place.file(getpid()));
    EXPECT_EQ(reading.error, "");
    EXPECT_EQ(reading.header.reason, uint32_t{TRACE_MEMORY});
    EXPECT_GT(reading.events.size(), 1000U);
}

TEST(Trace, AProgramThatClosesAllFilesKeepsItsOwn)
{
    const Place place;
    ASSERT_EQ(place.start(), 0);
    free_fast(get(100));
    for (int file = 3; file < 1024; file++)
        close(file);
    std::string other = place.path() + "-other";
    int first = open(other.c_str(), O_RDWR | O_CREAT, 0600);
    for (int file = 3; file < 1024; file++) // also the number of the trace
        if (file != first)
            dup2(first, file);
    for (int i = 0; i < 50000; i++)
        free_fast(get(1 + static_cast<size_t>(i) % 1000));
    trace_stop();
    EXPECT_EQ(lseek(first, 0, SEEK_END), 0);
    for (int file = 3; file < 1024; file++)
        close(file);
    Reading reading = read(place.file(getpid()));
    EXPECT_EQ(reading.error, "");
    EXPECT_EQ(reading.events.size(), 100002U);
}

} // namespace trace_test
