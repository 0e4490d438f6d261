// Control groups: both versions, groups above, containers, and files that are missing or nonsense,
// each in a folder of the test's own that stands for the root.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

extern "C" {
#include "os/os.h"
}

namespace
{

class Cgroup : public testing::Test
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

TEST_F(Cgroup, NoFilesAreNoLimits)
{
    const os_group group = read();
    EXPECT_EQ(group.max_bytes, 0u);
    EXPECT_EQ(group.high_bytes, 0u);
    EXPECT_EQ(group.system_stall_us, 0u);
    EXPECT_EQ(group.group_stall_us, 0u);
}

TEST_F(Cgroup, Version2HasMaxHighAndPressure)
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

TEST_F(Cgroup, TheLeastOfTheGroupsAboveCounts)
{
    write("/proc/self/cgroup", "0::/shop/cart\n");
    write("/sys/fs/cgroup/shop/cart/memory.max", "max\n");
    write("/sys/fs/cgroup/shop/memory.max", "500000\n");
    write("/sys/fs/cgroup/memory.max", "900000\n");
    write("/sys/fs/cgroup/shop/cart/memory.high", "max\n");
    EXPECT_EQ(read().max_bytes, 500000u);
    EXPECT_EQ(read().high_bytes, 0u);
    write("/sys/fs/cgroup/shop/cart/memory.max", "400000\n");
    EXPECT_EQ(read().max_bytes, 400000u) << "as the files say now";
}

TEST_F(Cgroup, AContainerSeesItsGroupAtTheMountPoint)
{
    write("/proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
    write("/sys/fs/cgroup/memory.max", "600000\n");
    EXPECT_EQ(read().max_bytes, 600000u);
    write("/proc/self/cgroup", "0::/\n");
    EXPECT_EQ(read().max_bytes, 600000u);
}

TEST_F(Cgroup, Version1)
{
    write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/shop\n1:name=systemd:/b\n");
    write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_EQ(read().max_bytes, 0u) << "that is none";
    write("/sys/fs/cgroup/memory/shop/memory.limit_in_bytes", "700000\n");
    write("/sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "3\n");
    EXPECT_EQ(read().max_bytes, 700000u);
}

TEST_F(Cgroup, BothVersionsAtOnce)
{
    write("/proc/self/cgroup", "4:memory:/shop\n0::/shop\n");
    write("/sys/fs/cgroup/memory/shop/memory.limit_in_bytes", "700000\n");
    write("/sys/fs/cgroup/unified/shop/memory.max", "600000\n");
    EXPECT_EQ(read().max_bytes, 600000u);
}

TEST_F(Cgroup, Nonsense)
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

// The candidates of the machine read by other means: the limit is the least of them, or none has
// any.
TEST_F(Cgroup, TheMachinesOwn)
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

} // namespace
