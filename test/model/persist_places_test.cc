// The persistent heap under scarce resources: a full disk, a read-only medium, ulimit -f, little
// address space, dirty pages in swap, kernels without some kind of dirty tracking.
//
// Changes of the process are made in a child. A small file system is a tmpfs in a mount namespace
// of the child where that is allowed, or else the folder CAIRN_PERSIST_FULL on a file system that
// may be filled (dev/prove-persist-places). CAIRN_PERSIST_LIVE_MIB is the part of the 64 GiB that
// is live (default 16).

#include "model/persist_places.h"
#include "region/persist_slots.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstddef>

extern "C" {
#include "os/memory.h"
}

namespace persist_places_test
{

using namespace persist;
using namespace places;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
constexpr bool kAddressSanitizer = false;
#endif

Options small_options()
{
    Options options = Options().log(256 << 10);
    options.size_bytes = 1;
    return options;
}

bool read_all_pages(cairn_persist *heap)
{
    const cairn_persist_stats stats = stats_of(heap);
    for (size_t i = 0; i < stats.size_bytes; i += 4096)
        (void)static_cast<volatile char *>(stats.address)[i];
    return true;
}

// Random work while the available space changes. An acknowledged commit is always found, and work
// continues once there is space. `cramp` limits the space to the level of its argument, or removes
// the limit if that is negative. With `on_tmpfs` all pages are touched first: a tmpfs needs space
// also for a page that is only read, and otherwise the program gets a SIGBUS.
std::string work_cramped(const std::string &path, const std::function<void(int)> &cramp, int rounds,
                         bool on_tmpfs = false)
{
    Slots slots(7);
    cairn_persist *heap = open_heap(path, small_options());
    REQUIRE(heap != nullptr && Slots::set_up(heap) && cairn_persist_commit(heap) == 0);
    if (on_tmpfs)
        REQUIRE(cairn_persist_grow(heap, 3 << 20) == 0 && read_all_pages(heap) &&
                cairn_persist_commit(heap) == 0);
    uint64_t durable = stats_of(heap).last_commit;
    slots.note_commit(durable);
    int failed = 0;
    for (int round = 0; round < rounds; round++) {
        cramp(round % 6);
        for (int i = 0; i < 12; i++) {
            for (size_t j = 0; j < 6; j++)
                slots.change(heap, 60000);
            const uint64_t number = stats_of(heap).last_commit + 1;
            slots.note_commit(number);
            const int error = cairn_persist_commit(heap);
            REQUIRE(error == 0 || (error == ENOSPC || error == EFBIG) || stats_of(heap).error != 0);
            failed += error != 0;
            if (error == 0)
                durable = number;
            if (i == 5)
                (void)cairn_persist_checkpoint(heap);
            if (i == 7 && !on_tmpfs)
                (void)cairn_persist_grow(heap, stats_of(heap).size_bytes + 65536);
            if (i == 9 && error == 0 && !on_tmpfs)
                (void)cairn_persist_trim(heap);
        }
        if (round % 3 == 2) { // reopened while the space is still limited
            (void)cairn_persist_close(heap);
            heap = open_heap(path, small_options());
            const int open_error = heap == nullptr ? errno : 0;
            cramp(-1);
            if (heap == nullptr) {
                REQUIRE(open_error == ENOSPC || open_error == EFBIG);
                heap = open_heap(path, small_options());
                REQUIRE(heap != nullptr);
            }
            const uint64_t number = stats_of(heap).last_commit;
            REQUIRE(number >= durable && slots.knows(number));
            REQUIRE(Slots::read(heap) == slots.contents(number));
            REQUIRE(check(heap).empty());
            slots.note_abort(number);
        }
        cramp(-1);
        if (stats_of(heap).error == 0) {
            const uint64_t number = stats_of(heap).last_commit + 1;
            slots.note_commit(number);
            REQUIRE(cairn_persist_commit(heap) == 0);
            durable = number;
        }
    }
    REQUIRE(failed > 0);
    return cairn_persist_close(heap) == 0 ? "" : "close";
}

TEST(PersistPlaces, AFullDisk)
{
    const char *given = getenv("CAIRN_PERSIST_FULL");
    Directory directory(given != nullptr ? given : base_directory());
    EXPECT_APART([&]() -> std::string {
        const std::string path = directory.file(".");
        if (given == nullptr)
            if (std::string why = mount_small(path, "size=6m"); !why.empty())
                return why;
        Filler filler(directory.file("filler"));
        const std::string fault = work_cramped(
            directory.file(),
            [&](int how) { how < 0 ? filler.go() : filler.leave(static_cast<size_t>(how) << 15); },
            given != nullptr ? 30 : 18, given == nullptr);
        if (!fault.empty())
            return fault;
        // A heap that cannot be created leaves no file.
        filler.leave(0);
        const char *why = nullptr;
        cairn_persist *heap = open_heap(directory.file("other"), small_options(), &why);
        if (heap == nullptr) {
            REQUIRE(errno == ENOSPC && std::string(why) == "the disk is full");
            filler.go();
            for (const auto &entry : std::filesystem::directory_iterator(path))
                REQUIRE(entry.path().filename().string().find(".new") == std::string::npos);
            heap = open_heap(directory.file("other"), small_options());
        }
        filler.go();
        REQUIRE(heap != nullptr && cairn_persist_commit(heap) == 0);
        return cairn_persist_close(heap) == 0 ? "" : "close";
    });
}

TEST(PersistPlaces, TheLimitOfFileSizes)
{
    Directory directory;
    EXPECT_APART([&]() -> std::string {
        return work_cramped(
            directory.file(),
            [](int how) {
                rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
                if (how >= 0)
                    limit.rlim_cur = static_cast<rlim_t>(1 + how * how) << 14;
                setrlimit(RLIMIT_FSIZE, &limit);
            },
            18);
    });
}

TEST(PersistPlaces, AMediumForReadingOnly)
{
    Directory directory;
    EXPECT_APART([&]() -> std::string {
        const std::string path = directory.file(".");
        if (std::string why = mount_small(path, "size=16m"); !why.empty())
            return why;
        cairn_persist *heap = open_heap(directory.file());
        cairn_persist_set_root(heap, "block", strcpy(allocate(heap, 100), "written"));
        REQUIRE(cairn_persist_commit(heap) == 0);
        copy_files(directory.file(), directory.file("crashed"));
        REQUIRE(cairn_persist_close(heap) == 0);
        REQUIRE(mount("none", path.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0);
        for (const char *name : {"heap", "crashed"}) {
            const char *why = nullptr;
            REQUIRE(open_heap(directory.file(name), Options(), &why) == nullptr);
            REQUIRE(errno == EROFS && std::string(why) == "the file system is read-only");
            heap = open_heap(directory.file(name), Options().only(CAIRN_PERSIST_READ_ONLY));
            REQUIRE(heap != nullptr && check(heap).empty());
            const char *found = static_cast<char *>(cairn_persist_get_root(heap, "block"));
            REQUIRE(std::string(found) == "written");
            REQUIRE(cairn_persist_commit(heap) == EROFS && cairn_persist_trim(heap) == EROFS);
            REQUIRE(cairn_persist_close(heap) == 0);
        }
        REQUIRE(open_heap(directory.file("none")) == nullptr && errno == EROFS);
        return "";
    });
}

TEST(PersistPlaces, AFileForReadingOnly)
{
    Directory directory;
    cairn_persist *heap = open_heap(directory.file());
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    ASSERT_EQ(cairn_persist_close(heap), 0);
    ASSERT_EQ(chmod(directory.file().c_str(), 0444), 0);
    ASSERT_EQ(chmod(directory.file(".").c_str(), 0755), 0);
    EXPECT_APART([&]() -> std::string {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            return "skip: root may write everything";
        const char *why = nullptr;
        REQUIRE(open_heap(directory.file(), Options(), &why) == nullptr);
        REQUIRE(errno == EACCES && std::string(why) == "there is no permission for it");
        heap = open_heap(directory.file(), Options().only(CAIRN_PERSIST_READ_ONLY));
        REQUIRE(heap != nullptr && check(heap).empty());
        return cairn_persist_close(heap) == 0 ? "" : "close";
    });
}

// The path of a file is read from /proc where that is mounted.
TEST(PersistPlaces, ASystemWithoutProc)
{
    Directory directory;
    EXPECT_APART([&]() -> std::string {
        if (const std::string refused = mount_small("/proc", "size=64k"); !refused.empty())
            return refused;
        cairn_persist *heap = open_heap(directory.file());
        REQUIRE(heap != nullptr && cairn_persist_commit(heap) == 0);
        REQUIRE(cairn_persist_close(heap) == 0);
        REQUIRE(chdir(directory.file(".").c_str()) == 0);
        const std::string name = directory.file().substr(directory.file().rfind('/') + 1);
        heap = open_heap(name);
        REQUIRE(heap != nullptr && check(heap).empty());
        REQUIRE(cairn_persist_close(heap) == 0);
        const char *why = nullptr;
        REQUIRE(symlink(name.c_str(), "link") == 0);
        REQUIRE(open_heap("link", Options(), &why) == nullptr && errno == ELOOP);
        REQUIRE(unlink("link") == 0);
        return std::string(why) == "a heap is opened by a symbolic link only where /proc is mounted"
                   ? ""
                   : why;
    });
}

// The address space suffices for the heap's file but not for the reservation of 16 GiB, which
// becomes smaller.
TEST(PersistPlaces, LittleAddressSpace)
{
    if (config_tsan || kAddressSanitizer)
        GTEST_SKIP() << "the sanitizer's own memory exceeds any limit";
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "the emulator ignores limits of address space";
    Directory directory;
    EXPECT_APART([&]() -> std::string {
        const rlimit limit = {size_t{256} << 20, size_t{256} << 20};
        setrlimit(RLIMIT_AS, &limit);
        const Options options;
        cairn_persist *heap = cairn_persist_open(directory.file().c_str(), &options);
        REQUIRE(heap != nullptr);
        const size_t capacity = stats_of(heap).capacity_bytes;
        REQUIRE(capacity < limit.rlim_cur);
        std::vector<char *> blocks;
        while (char *block = allocate(heap, 1 << 20))
            blocks.push_back(static_cast<char *>(memset(block, 5, 1 << 20)));
        REQUIRE(errno == ENOMEM && blocks.size() > 8 && cairn_persist_commit(heap) == 0);
        for (char *block : blocks)
            release(heap, block);
        REQUIRE(cairn_persist_commit(heap) == 0 && check(heap).empty());
        return cairn_persist_close(heap) == 0 ? "" : "close";
    });
}

TEST(PersistPlaces, SixtyFourGibiOfAddresses)
{
    if (config_tsan)
        GTEST_SKIP() << "ThreadSanitizer leaves too little address space";
    const char *text = getenv("CAIRN_PERSIST_LIVE_MIB");
    const size_t live = text ? static_cast<size_t>(atoi(text)) : 16;
    Directory directory;
    Options options;
    options.capacity_bytes = size_t{64} << 30;
    cairn_persist *heap = open_heap(directory.file(), options);
    ASSERT_NE(heap, nullptr);
    const size_t step = (size_t{60} << 30) / live;
    char *block = allocate(heap, size_t{60} << 30);
    ASSERT_NE(block, nullptr);
    cairn_persist_set_root(heap, "block", block);
    for (size_t i = 0; i < live; i++) {
        memset(block + i * step, static_cast<int>(i % 250 + 1), 1 << 20);
        if (i % 64 == 63) {
            ASSERT_EQ(cairn_persist_commit(heap), 0);
        }
    }
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    ASSERT_EQ(cairn_persist_close(heap), 0);
    struct stat status;
    ASSERT_EQ(stat(directory.file().c_str(), &status), 0);
    // A run of 1 MiB is in 257 pages; some file systems use a little more than they need.
    EXPECT_LT(static_cast<size_t>(status.st_blocks) * 512, (live + live / 8 + 4) << 20) << "sparse";
    ASSERT_NE(heap = open_heap(directory.file(), options.with(CAIRN_PERSIST_CHECK)), nullptr);
    block = static_cast<char *>(cairn_persist_get_root(heap, "block"));
    for (size_t i = 0; i < live; i++)
        ASSERT_EQ(std::string(block + i * step, 1 << 20),
                  std::string(1 << 20, static_cast<char>(i % 250 + 1)));
    EXPECT_EQ(cairn_persist_close(heap), 0);
}

class Ways : public testing::TestWithParam<cairn_persist_tracking>
{
};

bool there_is_swap()
{
    std::ifstream swaps("/proc/swaps");
    std::string line;
    return std::getline(swaps, line) && std::getline(swaps, line);
}

size_t swapped_pages(const char *start, size_t pages)
{
    std::vector<uint64_t> entries(pages);
    const int pagemap = open("/proc/self/pagemap", O_RDONLY);
    const off_t first = static_cast<off_t>(reinterpret_cast<uintptr_t>(start) / os_page_size());
    const ssize_t got = pread(pagemap, entries.data(), pages * 8, first * 8);
    close(pagemap);
    EXPECT_EQ(got, static_cast<ssize_t>(pages * 8));
    return static_cast<size_t>(std::count_if(entries.begin(), entries.end(),
                                             [](uint64_t entry) { return entry >> 62 & 1; }));
}

// Pages that were written and then swapped out are as dirty as pages in memory.
TEST_P(Ways, DirtyPagesThatAreSwappedOut)
{
#ifdef MADV_PAGEOUT
    if (!there_is_swap())
        GTEST_SKIP() << "no swap is on";
    constexpr size_t kPages = 2000;
    const size_t page = os_page_size();
    Directory directory;
    cairn_persist *heap = open_heap(directory.file(), Options().by(GetParam()));
    if (heap == nullptr && errno == ENOTSUP)
        GTEST_SKIP() << "this kernel does not support the tracking";
    ASSERT_NE(heap, nullptr);
    char *block = allocate(heap, 2 * kPages * page, page);
    cairn_persist_set_root(heap, "block", block);
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    for (int round = 1; round <= 3; round++) {
        for (size_t i = 0; i < kPages; i++)
            block[2 * i * page] = static_cast<char>(round);
        ASSERT_EQ(madvise(block, 2 * kPages * page, MADV_PAGEOUT), 0);
        if (swapped_pages(block, 2 * kPages) < kPages / 2)
            GTEST_SKIP() << cairn_persist_close(heap) << ": the swap has no room";
        size_t dirty = 0;
        EXPECT_EQ(cairn_persist_count_dirty(heap, &dirty), 0);
        EXPECT_EQ(dirty, kPages) << "round " << round;
        ASSERT_EQ(cairn_persist_commit(heap), 0);
        copy_files(directory.file(), directory.file("copy"));
        cairn_persist *copy = open_heap(directory.file("copy"));
        ASSERT_NE(copy, nullptr);
        const char *found = static_cast<char *>(cairn_persist_get_root(copy, "block"));
        for (size_t i = 0; i < kPages; i++)
            ASSERT_EQ(found[2 * i * page], round) << i;
        cairn_persist_close(copy);
    }
    cairn_persist_close(heap);
#endif
}

// Forbids the calls that a kernel may lack. `answer` is their result: SECCOMP_RET_KILL_PROCESS or
// an error.
bool forbid(bool userfaultfd, bool scan, uint32_t answer)
{
    constexpr uint32_t kScan = _IOC(_IOC_READ | _IOC_WRITE, 'f', 16, 96);
    const auto error = [&](bool really) { return really ? answer : uint32_t{SECCOMP_RET_ALLOW}; };
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, error(userfaultfd)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kScan, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, error(scan)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {std::size(filter), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::string commit_and_find(const std::string &path, cairn_persist_tracking asked,
                            cairn_persist_tracking expected)
{
    cairn_persist *heap = open_heap(path, Options().by(asked));
    if (heap == nullptr && errno == ENOTSUP)
        return "skip: the kernel has it not";
    REQUIRE(heap != nullptr && stats_of(heap).tracking == expected);
    char *block = allocate(heap, 100000);
    cairn_persist_set_root(heap, "block", memset(block, 1, 100000));
    for (char i = 2; i < 5; i++) {
        REQUIRE(cairn_persist_commit(heap) == 0);
        block[50000] = i;
    }
    REQUIRE(cairn_persist_commit(heap) == 0 && cairn_persist_close(heap) == 0);
    heap = open_heap(path, Options().by(asked));
    REQUIRE(heap != nullptr && check(heap).empty());
    block = static_cast<char *>(cairn_persist_get_root(heap, "block"));
    REQUIRE(block[0] == 1 && block[49999] == 1 && block[50000] == 4);
    return cairn_persist_close(heap) == 0 ? "" : "close";
}

// A kind of tracking that was requested makes no call of a better kind: such a call would end the
// process here.
TEST_P(Ways, MakesNoCallThatItsKernelLacks)
{
    Directory directory;
    EXPECT_APART([&]() -> std::string {
        const bool userfault = GetParam() != CAIRN_PERSIST_USERFAULT;
        const bool scan = userfault && GetParam() != CAIRN_PERSIST_SCAN;
        if (!forbid(userfault, scan, SECCOMP_RET_KILL_PROCESS))
            return "skip: system calls cannot be forbidden";
        return commit_and_find(directory.file(), GetParam(), GetParam());
    });
}

TEST(PersistPlaces, AnOlderKernelGetsTheNextWay)
{
    struct {
        bool userfaultfd, scan;
        cairn_persist_tracking expected;
    } const kernels[] = {{false, false, CAIRN_PERSIST_USERFAULT},
                         {true, false, CAIRN_PERSIST_SCAN},
                         {true, true, CAIRN_PERSIST_PAGEMAP}};
    Directory directory;
    EXPECT_APART([&] { // the first kind that this kernel supports
        cairn_persist *heap = open_heap(directory.file());
        const bool newest = stats_of(heap).tracking == CAIRN_PERSIST_USERFAULT;
        cairn_persist_close(heap);
        return newest ? "" : "skip: this kernel is an older one itself";
    });
    for (const auto &kernel : kernels)
        EXPECT_APART([&]() -> std::string {
            if (!forbid(kernel.userfaultfd, kernel.scan, SECCOMP_RET_ERRNO | ENOSYS))
                return "skip: system calls cannot be forbidden";
            return commit_and_find(directory.file(std::to_string(kernel.expected)),
                                   CAIRN_PERSIST_AUTO, kernel.expected);
        });
}

INSTANTIATE_TEST_SUITE_P(PersistPlaces, Ways, testing::ValuesIn(kWays),
                         [](const auto &way) { return kWayNames[way.param]; });

} // namespace persist_places_test
