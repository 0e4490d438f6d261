#include "support.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace bench
{

void fail(const char *what)
{
    fprintf(stderr, "cairn-workloads: %s\n", what);
    exit(1);
}

double now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

unsigned processors()
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

// The figure of the line `key` in a file of /proc that has lines "key: N kB".
static size_t proc_bytes(const char *path, const char *key)
{
    char text[4096];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fail(path);
    }
    const ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length < 0 ? 0 : length] = '\0';
    const char *line = strstr(text, key);
    if (line == nullptr) {
        fail(path);
    }
    return strtoul(line + strlen(key), nullptr, 10) * 1024;
}

// /proc/self/statm is not used: its counters lag by up to a few hundred pages a processor.
size_t resident_bytes() { return proc_bytes("/proc/self/smaps_rollup", "\nRss:"); }

size_t private_bytes() { return proc_bytes("/proc/self/smaps_rollup", "\nPrivate_Dirty:"); }

size_t peak_resident_bytes() { return proc_bytes("/proc/self/status", "\nVmHWM:"); }

size_t Random::between_by_doublings(size_t low, size_t high)
{
    const double unit = static_cast<double>(next() >> 11) * 0x1p-53;
    const double ratio = static_cast<double>(high + 1) / static_cast<double>(low);
    return static_cast<size_t>(static_cast<double>(low) * pow(ratio, unit));
}

void *map_present(size_t size_bytes)
{
    void *memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        fail("no memory for book-keeping");
    }
    return memory;
}

void unmap(void *memory, size_t size_bytes) { munmap(memory, size_bytes); }

Sizes::Sizes(size_t low, size_t high, Shape shape, uint64_t seed) : sizes_(kCount)
{
    Random random(seed);
    for (uint32_t &size : sizes_) {
        size = static_cast<uint32_t>(shape == kUniform ? random.between(low, high)
                                                       : random.between_by_doublings(low, high));
    }
}

pthread_t start_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, nullptr, body, argument) != 0) {
        fail("a thread cannot be started");
    }
    return thread;
}

void join(pthread_t thread) { pthread_join(thread, nullptr); }

Team::Team(unsigned count) : count_(count)
{
    if (count > kMost) {
        fail("more threads than a team can have");
    }
    if (count == 1) {
        return;
    }
    pthread_barrier_init(&start_, nullptr, count + 1);
    pthread_barrier_init(&end_, nullptr, count + 1);
    for (unsigned index = 0; index < count; index++) {
        members_[index].team = this;
        members_[index].index = index;
        members_[index].thread = start_thread(live, &members_[index]);
    }
}

Team::~Team()
{
    if (count_ == 1) {
        return;
    }
    body_ = nullptr;
    pthread_barrier_wait(&start_);
    for (unsigned index = 0; index < count_; index++) {
        join(members_[index].thread);
    }
    pthread_barrier_destroy(&start_);
    pthread_barrier_destroy(&end_);
}

void *Team::live(void *argument)
{
    Member *member = static_cast<Member *>(argument);
    Team *team = member->team;
    for (;;) {
        pthread_barrier_wait(&team->start_);
        if (team->body_ == nullptr) {
            return nullptr;
        }
        team->body_(team->context_, member->index);
        pthread_barrier_wait(&team->end_);
    }
}

double Team::run_erased(Erased body, void *context)
{
    if (count_ == 1) {
        return time_ns([&] { body(context, 0); });
    }
    body_ = body;
    context_ = context;
    const double start = now_ns();
    pthread_barrier_wait(&start_);
    pthread_barrier_wait(&end_);
    return now_ns() - start;
}

double Team::processor_ns(double elapsed_ns) const
{
    const unsigned busy = count_ < processors() ? count_ : processors();
    return elapsed_ns * busy;
}

} // namespace bench
