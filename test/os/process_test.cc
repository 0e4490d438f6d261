// The process and its surroundings: clock, entropy, environment, threads, control groups, loaded
// modules.

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "base/atomic.h"
#include "base/host.h"
#include "os/module.h"
#include "os/process.h"
}

namespace process_test
{

// The clock, entropy, the environment, files, the limit of the control group, and the functions
// that base/ calls.

class TemporaryFile
{
  public:
    explicit TemporaryFile(const std::string &text)
    {
        const int file = mkstemp(path_);
        EXPECT_GE(file, 0);
        EXPECT_EQ(write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
        close(file);
    }
    ~TemporaryFile() { unlink(path_); }
    const char *path() const { return path_; }

  private:
    char path_[64] = "/tmp/cairn-system-test-XXXXXX";
};

TEST(System, TheClockRuns)
{
    const uint64_t start = os_now_ms();
    for (uint64_t last = start, now; last - start < 50; last = now) {
        os_sleep_ms(1);
        now = os_now_ms(); // coarse, and therefore never later than the other clock
        EXPECT_GE(now, last);
        EXPECT_LE(now, os_now_us() / 1000);
    }
}

TEST(System, EntropyVaries)
{
    std::set<uint64_t> values;
    for (int i = 0; i < 100; i++)
        values.insert(os_entropy());
    EXPECT_EQ(values.size(), 100u);
}

TEST(System, RandomVariesAlsoBetweenParentAndChild)
{
    std::set<uint64_t> values;
    for (int i = 0; i < 100; i++)
        values.insert(os_random());
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        os_random_after_fork();
        const uint64_t value = os_random();
        _exit(write(ends[1], &value, sizeof value) != sizeof value);
    }
    uint64_t of_child;
    ASSERT_EQ(read(ends[0], &of_child, sizeof of_child), ssize_t{sizeof of_child});
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    values.insert(of_child);
    values.insert(os_random());
    EXPECT_EQ(values.size(), 102u);
    close(ends[0]);
    close(ends[1]);
}

TEST(System, EnvironmentByWholeName)
{
    setenv("CAIRN_TEST_NAME", "value:1,other:2", 1);
    setenv("CAIRN_TEST_EMPTY", "", 1);
    EXPECT_STREQ(os_environment("CAIRN_TEST_NAME"), "value:1,other:2");
    EXPECT_STREQ(os_environment("CAIRN_TEST_EMPTY"), "");
    EXPECT_EQ(os_environment("CAIRN_TEST_NAM"), nullptr);
    EXPECT_EQ(os_environment("CAIRN_TEST_NAME_"), nullptr);
    unsetenv("CAIRN_TEST_NAME");
    EXPECT_EQ(os_environment("CAIRN_TEST_NAME"), nullptr);
}

TEST(System, ThisProcessIsNotSecure) { EXPECT_FALSE(os_is_secure()); }

TEST(System, ReadsFiles)
{
    const TemporaryFile file("0123456789");
    char text[64];
    EXPECT_EQ(os_read_file(file.path(), text, sizeof text), 10);
    EXPECT_STREQ(text, "0123456789");
    EXPECT_EQ(os_read_file(file.path(), text, 5), 4) << "the rest does not fit";
    EXPECT_STREQ(text, "0123");
    EXPECT_EQ(os_read_file(file.path(), text, 1), 0);
    EXPECT_STREQ(text, "");
    errno = 12345;
    EXPECT_EQ(os_read_file("/nonexistent/file", text, sizeof text), -ENOENT);
    EXPECT_EQ(os_read_file("/proc", text, sizeof text), -EISDIR);
    EXPECT_EQ(errno, 12345);
}

TEST(System, ReadingFilesLeavesNoDescriptorOpen)
{
    const int before = dup(0);
    close(before);
    char text[16];
    for (int i = 0; i < 10; i++)
        os_read_file("/proc/self/status", text, sizeof text);
    const int after = dup(0);
    close(after);
    EXPECT_EQ(before, after);
}

TEST(System, ErrorsGoToStderrWhole)
{
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    const std::string line(3000, 'x');
    host_write_error(line.data(), line.size());
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    std::string got(4000, '\0');
    got.resize(static_cast<size_t>(read(ends[0], got.data(), got.size())));
    close(ends[0]);
    EXPECT_EQ(got, line);
}

TEST(System, ErrorsToNowhereAreDropped)
{
    const int saved = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = 12345;
    host_write_error("x", 1);
    EXPECT_EQ(errno, 12345);
    dup2(saved, STDERR_FILENO);
    close(saved);
}

std::string content_of(const std::string &path)
{
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(System, AFileForReportsThatCannotBeOpened)
{
    const auto report_to = [](const std::string &name) {
        return os_report_to(name.data(), name.size());
    };
    EXPECT_EQ(report_to("relative"), -EINVAL);
    EXPECT_EQ(report_to("/no/such/file"), -ENOENT);
    EXPECT_EQ(report_to("/"), -EISDIR);
}

TEST(SystemDeathTest, AFileForReports)
{
    const std::string path = testing::TempDir() + "report-" + std::to_string(getpid());
    const auto report_to = [](const std::string &name) {
        return os_report_to(name.data(), name.size()) == 0;
    };
    EXPECT_EXIT(
        {
            bool taken = report_to(path) && !report_to("relative") && !report_to("/no/such/file");
            taken = taken && !report_to("/" + std::string(300, 'x')) && !report_to("");
            close(STDOUT_FILENO); // like a program that closes all descriptors
            for (const char *line : {"one\n", "two\n"})
                host_write_error(line, 4);
            _exit(taken ? 0 : 1);
        },
        testing::ExitedWithCode(0), "^$");
    EXPECT_EQ(content_of(path), "one\ntwo\n");
    struct stat facts;
    ASSERT_EQ(stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u) << "reports contain addresses";
    unlink(path.c_str());
    EXPECT_EXIT( // the folder was removed
        {
            const std::string folder = path + ".d";
            mkdir(folder.c_str(), 0700);
            const bool taken = report_to(folder + "/file");
            unlink((folder + "/file").c_str());
            rmdir(folder.c_str());
            host_write_error("here\n", 5);
            _exit(taken ? 0 : 1);
        },
        testing::ExitedWithCode(0), "^here\n$");
}

TEST(System, WaitReturnsAtOnceWhenTheWordChanged)
{
    uint32_t word = 1;
    host_wait(&word, 2);
}

TEST(System, WakeEndsAWait)
{
    uint32_t word = 0;
    std::atomic<bool> woken{false};
    std::thread waiter([&] {
        while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0)
            host_wait(&word, 0);
        woken = true;
    });
    os_sleep_ms(20);
    EXPECT_FALSE(woken);
    __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
    host_wake(&word, UINT32_MAX);
    waiter.join();
    EXPECT_TRUE(woken);
}

// Ends of threads, and fork: each handler is called at the right time and as often as it should be.

// Written by a thread that ends, read after it was joined.
std::string ends;
int again;

void thread_end(void *value)
{
    ends += static_cast<const char *>(value);
    if (again > 0) {
        again--;
        os_thread_end_arm(value);
    }
}

std::string forks;

TEST(Thread, CannotBeArmedWhereNoKeyIsLeft)
{
    std::vector<pthread_key_t> keys;
    pthread_key_t key;
    while (pthread_key_create(&key, nullptr) == 0)
        keys.push_back(key);
    EXPECT_EQ(os_thread_end_register(thread_end), -EAGAIN);
    char value[] = "x";
    EXPECT_EQ(os_thread_end_arm(value), -EAGAIN);
    for (const pthread_key_t taken : keys)
        pthread_key_delete(taken);
}

TEST(Thread, TheHandlerRunsAtEachArmedThreadsEnd)
{
    ASSERT_EQ(os_thread_end_register(thread_end), 0);
    char first[] = "a";
    char second[] = "b";
    std::thread([] {}).join();
    EXPECT_EQ(ends, "") << "the thread was not armed";
    std::thread([&] {
        EXPECT_EQ(os_thread_end_arm(first), 0);
        EXPECT_EQ(ends, "");
    }).join();
    EXPECT_EQ(ends, "a");
    std::thread([&] {
        EXPECT_EQ(os_thread_end_arm(first), 0);
        EXPECT_EQ(os_thread_end_arm(second), 0); // the last value counts
    }).join();
    EXPECT_EQ(ends, "ab");

    ends.clear();
    again = 2;
    std::thread([&] { EXPECT_EQ(os_thread_end_arm(first), 0); }).join();
    EXPECT_EQ(ends, "aaa") << "the thread was armed again while destructors ran";
}

TEST(Thread, ForkHandlersRunOnBothSides)
{
    ASSERT_EQ(os_fork_register([] { forks += "before "; }, [] { forks += "parent"; },
                               [] { forks += "child"; }),
              0);
    const pid_t child = fork();
    if (child == 0)
        _exit(forks == "before child" ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(forks, "before parent");
}

uint32_t started; // atomic: the kernel's number of the thread

void note_start() { store_release(&started, os_thread_id()); }

TEST(Thread, IsStartedAndNobodyJoinsIt)
{
    for (int round = 0; round < 10; round++) {
        store_relaxed(&started, 0u);
        ASSERT_EQ(os_thread_start(note_start, "cairn"), 0);
        for (int i = 0; i < 30000 && load_acquire(&started) == 0; i++)
            os_sleep_ms(1);
        EXPECT_NE(load_acquire(&started), 0u);
        EXPECT_NE(load_acquire(&started), os_thread_id());
    }
}

// Control groups: both versions, parent groups, containers, and files that are missing or
// malformed, each in a folder of the test that replaces the root.

class ControlGroup : public testing::Test
{
  protected:
    void SetUp() override
    {
        char name[] = "/tmp/cairn-cgroup-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        root_ = name;
    }

    void TearDown() override { std::filesystem::remove_all(root_); }

    void write(const std::string &path, const std::string &text)
    {
        const std::filesystem::path full = root_ + path;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full) << text;
    }

    os_group read() const
    {
        os_group group;
        errno = 4321;
        os_read_group(root_.c_str(), &group);
        EXPECT_EQ(errno, 4321);
        return group;
    }

    std::string root_;
};

TEST_F(ControlGroup, NoFilesAreNoLimits)
{
    const os_group group = read();
    EXPECT_EQ(group.max_bytes, 0u);
    EXPECT_EQ(group.high_bytes, 0u);
    EXPECT_EQ(group.system_stall_us, 0u);
    EXPECT_EQ(group.group_stall_us, 0u);
}

TEST_F(ControlGroup, Version2HasMaxHighAndPressure)
{
    write("/proc/self/cgroup", "0::/shop/cart\n");
    write("/proc/pressure/memory", "some avg10=1.00 avg60=0.00 avg300=0.00 total=777\n");
    write("/sys/fs/cgroup/shop/cart/memory.max", "1000000\n");
    write("/sys/fs/cgroup/shop/cart/memory.high", "800000\n");
    write("/sys/fs/cgroup/shop/cart/memory.pressure",
          "some avg10=0.00 avg60=0.00 avg300=0.00 total=123456\nfull avg10=0.00 total=5\n");
    const os_group group = read();
    EXPECT_EQ(group.max_bytes, 1000000u);
    EXPECT_EQ(group.high_bytes, 800000u);
    EXPECT_EQ(group.system_stall_us, 777u);
    EXPECT_EQ(group.group_stall_us, 123456u);
}

TEST_F(ControlGroup, TheLeastOfTheGroupsAboveCounts)
{
    write("/proc/self/cgroup", "0::/shop/cart\n");
    write("/sys/fs/cgroup/shop/cart/memory.max", "max\n");
    write("/sys/fs/cgroup/shop/memory.max", "500000\n");
    write("/sys/fs/cgroup/memory.max", "900000\n");
    write("/sys/fs/cgroup/shop/cart/memory.high", "max\n");
    EXPECT_EQ(read().max_bytes, 500000u);
    EXPECT_EQ(read().high_bytes, 0u);
    write("/sys/fs/cgroup/shop/cart/memory.max", "400000\n");
    EXPECT_EQ(read().max_bytes, 400000u) << "the present content of the files";
}

TEST_F(ControlGroup, AContainerSeesItsGroupAtTheMountPoint)
{
    write("/proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
    write("/sys/fs/cgroup/memory.max", "600000\n");
    EXPECT_EQ(read().max_bytes, 600000u);
    write("/proc/self/cgroup", "0::/\n");
    EXPECT_EQ(read().max_bytes, 600000u);
}

TEST_F(ControlGroup, Version1)
{
    write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/shop\n1:name=systemd:/b\n");
    write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_EQ(read().max_bytes, 0u) << "a malformed file is no limit";
    write("/sys/fs/cgroup/memory/shop/memory.limit_in_bytes", "700000\n");
    write("/sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "3\n");
    EXPECT_EQ(read().max_bytes, 700000u);
}

TEST_F(ControlGroup, BothVersionsAtOnce)
{
    write("/proc/self/cgroup", "4:memory:/shop\n0::/shop\n");
    write("/sys/fs/cgroup/memory/shop/memory.limit_in_bytes", "700000\n");
    write("/sys/fs/cgroup/unified/shop/memory.max", "600000\n");
    EXPECT_EQ(read().max_bytes, 600000u);
}

TEST_F(ControlGroup, Nonsense)
{
    const std::string longest(3000, 'x');
    for (const std::string &line :
         {std::string("0"), std::string("::"), std::string("0::"), std::string("::::\n\n:"),
          "0::/" + longest, "1:memory:/" + longest, std::string("0::relative")}) {
        write("/proc/self/cgroup", line);
        (void)read();
    }
    write("/proc/self/cgroup", "0::/a\n");
    for (const char *text : {"", "-5", "x", "99999999999999999999999999", " 12", "some total="}) {
        write("/sys/fs/cgroup/a/memory.max", text);
        write("/sys/fs/cgroup/a/memory.pressure", text);
        EXPECT_EQ(read().max_bytes, 0u) << text;
        EXPECT_EQ(read().group_stall_us, 0u) << text;
    }
}

// The candidates of this machine, read by other means: the limit is the least of them, or there is
// none.
TEST_F(ControlGroup, TheMachinesOwn)
{
    std::set<size_t> limits;
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        const bool second = line.rfind("0::", 0) == 0;
        if (!second && line.find("memory") == std::string::npos)
            continue;
        std::string own = line.substr(line.find(':', line.find(':') + 1) + 1);
        for (const std::string mount :
             {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"})
            for (std::filesystem::path at = own;; at = at.parent_path()) {
                std::ifstream file(mount + at.string() + "/" +
                                   (second ? "memory.max" : "memory.limit_in_bytes"));
                size_t value = 0;
                if (file >> value && value <= size_t{1} << 46)
                    limits.insert(value);
                if (at == at.parent_path())
                    break;
            }
    }
    struct os_group group;
    os_read_group("", &group);
    EXPECT_EQ(group.max_bytes, limits.empty() ? 0u : *limits.begin());
}

// The module of a code address and its build identifier, compared with the dynamic linker's report.

// A module as dl_iterate_phdr reports it.
struct Loaded {
    uintptr_t address = 0; // the address that is looked up
    uintptr_t base = 0;
    std::string id;
    bool found = false;
};

void read_notes(const char *notes, size_t bytes, std::string *id)
{
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) head;
        memcpy(&head, notes, sizeof head);
        const size_t name = (head.n_namesz + 3) / 4 * 4;
        const size_t whole = sizeof head + name + (head.n_descsz + 3) / 4 * 4;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4)
            *id = std::string(notes + sizeof head + name, head.n_descsz);
        if (whole > bytes)
            return;
        notes += whole;
        bytes -= whole;
    }
}

Loaded look(uintptr_t address)
{
    Loaded loaded;
    loaded.address = address;
    dl_iterate_phdr(
        [](struct dl_phdr_info *info, size_t, void *context) {
            auto *wanted = static_cast<Loaded *>(context);
            for (int i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) &part = info->dlpi_phdr[i];
                const uintptr_t start = info->dlpi_addr + part.p_vaddr;
                if (part.p_type == PT_LOAD && wanted->address >= start &&
                    wanted->address - start < part.p_memsz)
                    wanted->found = true;
            }
            for (int i = 0; wanted->found && i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) &part = info->dlpi_phdr[i];
                wanted->base = info->dlpi_addr;
                if (part.p_type == PT_NOTE && wanted->id.empty())
                    read_notes(reinterpret_cast<const char *>(info->dlpi_addr + part.p_vaddr),
                               part.p_memsz, &wanted->id);
            }
            return wanted->found ? 1 : 0;
        },
        &loaded);
    return loaded;
}

void expect_same(uintptr_t address)
{
    struct os_module module;
    if (!os_module_of(address, &module))
        GTEST_SKIP() << "this libc does not provide the module of an address";
    const Loaded loaded = look(address);
    ASSERT_TRUE(loaded.found);
    EXPECT_EQ(module.base, loaded.base);
    uintptr_t base = 0;
    EXPECT_EQ(os_locate(address, &base), module.path);
    EXPECT_EQ(base, loaded.base);
    EXPECT_GE(address, module.start);
    EXPECT_LT(address, module.end);
    const unsigned char *id = nullptr;
    const size_t bytes = os_module_build_id(&module, &id);
    EXPECT_EQ(std::string(reinterpret_cast<const char *>(id), bytes), loaded.id);
}

TEST(Module, OfTheProgram)
{
    const auto own = reinterpret_cast<uintptr_t>(&look);
    expect_same(own);
    struct os_module module;
    if (!os_module_of(own, &module))
        GTEST_SKIP() << "this libc does not provide the module of an address";
    EXPECT_TRUE(module.is_program);
    char path[4096] = "";
    char found[4096] = "";
    ASSERT_GT(readlink("/proc/self/exe", path, sizeof path - 1), 0);
    EXPECT_STREQ(realpath(module.path, found), path);
}

TEST(Module, OfLibraries)
{
    expect_same(reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "qsort")));
    void *library = dlopen("libz.so.1", RTLD_NOW);
    if (library == nullptr)
        GTEST_SKIP() << "no library to load";
    const auto late = reinterpret_cast<uintptr_t>(dlsym(library, "zlibVersion"));
    expect_same(late);
    struct os_module module;
    if (!os_module_of(late, &module))
        GTEST_SKIP() << "this libc does not provide the module of an address";
    EXPECT_FALSE(module.is_program);
    EXPECT_NE(std::string(module.path).find("libz.so"), std::string::npos);
}

TEST(Module, OfNothing)
{
    struct os_module module;
    int local = 0;
    EXPECT_FALSE(os_module_of(16, &module));
    EXPECT_FALSE(os_module_of(reinterpret_cast<uintptr_t>(&local), &module));
    uintptr_t base = 0;
    EXPECT_EQ(os_locate(0, &base), nullptr);
}

} // namespace process_test
