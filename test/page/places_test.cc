// The places of blocks, metadata and the library's data: the distance from one to another cannot be
// guessed. Each case needs a process of its own, since it starts others.

#include <gtest/gtest.h>
#include <sys/personality.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "behaviour/subject.h"
#include "page/page_layer.h"

extern "C" {
#include "os/process.h"
#include "page/page_map.h"
}

namespace places_test
{

using page_layer::kMiB;

constexpr char kVariable[] = "CAIRN_TEST_PLACES";
constexpr size_t kPlaces = 4;
using Places = std::array<uintptr_t, kPlaces>;

// In a process that the other cases start: prints the addresses of a run, of a run of a later
// arena, of a header and of the page map.
TEST(Places, Print)
{
    if (getenv(kVariable) == nullptr)
        GTEST_SKIP() << "the other cases start it";
    page_layer::start();
    struct span *run = pages_take(2, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    struct span *later = pages_take(16 * kMiB >> PAGE_SHIFT, PAGE_BYTES);
    ASSERT_NE(later, nullptr);
    ASSERT_NE(arena_of(later->base), arena_of(run->base));
    EXPECT_TRUE(config_tsan || config_random_runs || reinterpret_cast<char *>(run) < run->base)
        << "metadata comes first in core files";
    printf("\nplaces %p %p %p %p\n", static_cast<void *>(run->base),
           static_cast<void *>(later->base), static_cast<void *>(run),
           static_cast<void *>(&page_map));
}

// Starts a process that prints its places.
Places places_of_process()
{
    setenv(kVariable, "1", 1);
    const subject::Outcome outcome =
        subject::run_program({"/proc/self/exe", "--gtest_filter=Places.Print"});
    unsetenv(kVariable);
    EXPECT_EQ(outcome.end, "exit 0") << outcome.out << outcome.err;
    Places places = {};
    const size_t at = outcome.out.find("places 0x");
    EXPECT_TRUE(at != std::string::npos &&
                sscanf(outcome.out.c_str() + at, "places %lx %lx %lx %lx", &places[0], &places[1],
                       &places[2], &places[3]) == kPlaces);
    return places;
}

// How often the most frequent distance between two of the places occurs in some processes.
size_t most_frequent_distance(const std::vector<Places> &processes, size_t from, size_t to)
{
    std::map<uintptr_t, size_t> counts;
    size_t most = 0;
    for (const Places &places : processes)
        most = std::max(most, ++counts[places[to] - places[from]]);
    return most;
}

TEST(Places, DistancesDifferBetweenProcesses)
{
    if (config_tsan || CAIRN_TEST_EMULATED || os_places_are_fixed())
        GTEST_SKIP() << "the places are not random here";
    std::vector<Places> processes;
    for (int i = 0; i < 200; i++)
        processes.push_back(places_of_process());
    // There are more than 2^24 distances. Three equal ones are a chance of 1 in 10^8.
    for (size_t from = 0; from < kPlaces; from++) {
        for (size_t to = from + 1; to < kPlaces; to++) {
            const bool arenas = !config_random_runs && to == 1; // next to each other
            EXPECT_LE(arenas ? 0 : most_frequent_distance(processes, from, to), 2u)
                << from << " " << to;
        }
    }
}

// A debugger shows the same addresses again.
TEST(Places, TheyAreFixedWhereTheKernelsAre)
{
    if (config_random_runs || CAIRN_TEST_EMULATED ||
        personality(static_cast<unsigned long>(personality(0xffffffff)) | ADDR_NO_RANDOMIZE) < 0)
        GTEST_SKIP() << "the places are random everywhere";
    const Places first = places_of_process();
    EXPECT_EQ(places_of_process(), first);
}

} // namespace places_test
