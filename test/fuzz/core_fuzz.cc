// Fuzzing of the reader of core files: the input changes a small sound core, then one command of
// cairn-look reads it in a child. The child must end by itself with status 0 or 2, in bounded time
// and memory. Its coverage is copied to this process, where libFuzzer looks for it.

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "fuzz/fuzz_input.h"
#include "tools/core_maker.h"

extern "C" {
// The main of cairn-look, and what it calls to end (CMakeLists.txt renames both).
int look_main(int count, char **arguments);
[[noreturn]] void look_exit(int status);
// libFuzzer's counters of edges; absent in builds without it.
extern uint8_t __start___sancov_cntrs[] __attribute__((weak));
extern uint8_t __stop___sancov_cntrs[] __attribute__((weak));
}

namespace
{

using core_kit::CoreMaker;
using fuzz::Input;
using fuzz::require;

constexpr unsigned kSecondsMost = 30;
constexpr long kMemoryMostKb = 500 << 10; // that the child takes

uint8_t *g_counters; // shared with the child

size_t counter_count()
{
    return static_cast<size_t>(__stop___sancov_cntrs - __start___sancov_cntrs);
}

// A value that is likely to matter: small, at a border, an address of the core, or any.
uint64_t value_of(Input &input)
{
    static const uint64_t kValues[] = {0,
                                       1,
                                       255,
                                       256,
                                       INT32_MAX,
                                       UINT32_MAX,
                                       INT64_MAX,
                                       UINT64_MAX,
                                       uint64_t{1} << 40,
                                       core_kit::kLibrary,
                                       core_kit::kHeap,
                                       core_kit::kMap,
                                       core_kit::kLeafDistance,
                                       core_kit::kHeaders,
                                       core_kit::kData};
    const size_t kind = input.below(20);
    const uint64_t small = input.number16();
    if (kind < std::size(kValues))
        return kValues[kind] + (kind > 8 ? small : 0);
    return kind == 15 ? small : small << input.below(49);
}

// Changes one word, or each of several words at equal distances.
void change(Input &input, std::string &file, size_t map)
{
    static const size_t kMapPart = 1024;
    const size_t header = map + core_kit::kLeafDistance + core_kit::kLeafBytes;
    const struct {
        size_t start, bytes;
    } areas[] = {{0, map},
                 {map, kMapPart},
                 {map + core_kit::kLeafDistance, kMapPart},
                 {header, file.size() - header}};
    const auto &area = areas[input.below(4)];
    const size_t place = area.start + input.number16() % area.bytes;
    const size_t width = size_t{1} << input.below(4);
    const uint64_t value = value_of(input);
    const size_t count = input.below(4) == 0 ? size_t{1} << input.below(14) : 1;
    const size_t step = size_t{1} << input.below(11);
    for (size_t i = 0, at = place; i < count && at + width <= file.size(); i++, at += step)
        memcpy(&file[at], &value, width);
}

[[noreturn]] void read_core(int file, size_t command)
{
    static const char *const kCommands[][3] = {{"census"},
                                               {"map"},
                                               {"blocks"},
                                               {"plan"},
                                               {"profile"},
                                               {"leaks"},
                                               {"leaks", "every"},
                                               {"address", "0x2000080"},
                                               {"pointers", "0x2000080", "every"}};
    const auto &words = kCommands[command % std::size(kCommands)];
    std::string path = "/proc/self/fd/" + std::to_string(file);
    char *arguments[] = {const_cast<char *>("cairn-look"), const_cast<char *>(words[0]), &path[0],
                         const_cast<char *>(words[1]), const_cast<char *>(words[2])};
    const auto count = 3 + (words[1] != nullptr) + (words[2] != nullptr);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(kSecondsMost);
    const int null = open("/dev/null", O_WRONLY);
    (void)dup2(null, STDOUT_FILENO);
    look_exit(look_main(count, arguments));
}

long resident_kb()
{
    long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    require(file && fscanf(file, "%ld %ld", &all, &resident) == 2, "statm");
    (void)fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) >> 10);
}

} // namespace

void look_exit(int status)
{
    if (g_counters != nullptr)
        memcpy(g_counters, __start___sancov_cntrs, counter_count());
    _exit(status);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const std::string sound = CoreMaker().bytes();
    static const size_t map = sound.find(LAYOUT_MAGIC) + core_kit::kPage;
    if (g_counters == nullptr && counter_count() != 0) {
        void *shared = mmap(nullptr, counter_count(), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        require(shared != MAP_FAILED, "mmap");
        g_counters = static_cast<uint8_t *>(shared);
    }
    Input input(data, size);
    const size_t command = input.byte();
    std::string bytes = sound;
    const size_t cut = input.below(4) == 0 ? input.number16() : 0;
    while (!input.done())
        change(input, bytes, map);
    bytes.resize(bytes.size() - cut);

    const int file = memfd_create("core", MFD_CLOEXEC);
    require(file >= 0 &&
                write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "memfd");
    const long before_kb = resident_kb();
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0)
        read_core(file, command);
    int status = -1;
    struct rusage usage = {};
    while (wait4(child, &status, 0, &usage) != child)
        require(errno == EINTR, "wait"); // by the clock of libFuzzer
    (void)close(file);
    require(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2),
            "cairn-look ended otherwise", nullptr, static_cast<size_t>(status));
    require(usage.ru_maxrss - before_kb < kMemoryMostKb, "memory in KiB", nullptr,
            static_cast<size_t>(usage.ru_maxrss - before_kb));
    for (size_t i = 0; i < counter_count(); i++)
        __start___sancov_cntrs[i] = std::max(__start___sancov_cntrs[i], g_counters[i]);
    return 0;
}
