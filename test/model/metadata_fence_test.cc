// No linear overflow of a block reaches metadata: after a mixed load, /proc/self/maps shows an
// inaccessible page before and behind every stretch of memory with metadata, and no block is within
// such a stretch.

#include <gtest/gtest.h>
#include <inttypes.h>
#include <stdio.h>

#include <map>
#include <set>
#include <thread>
#include <vector>

#include "model/shadow.h"

extern "C" {
#include "heap/heap.h"
#include "heap/refill.h"
#include "page/arena.h"
#include "page/state.h"
}

namespace metadata_fence_test
{

using model::kKiB;
using model::kMiB;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnsAddressSpace = true;
#elif defined(__has_feature)
constexpr bool kOwnsAddressSpace =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kOwnsAddressSpace = false;
#endif

struct Mapping {
    uintptr_t end;
    bool inaccessible;
    bool writable;
};

// Mappings by their first addresses.
using Mappings = std::map<uintptr_t, Mapping>;

Mappings read_mappings()
{
    Mappings mappings;
    FILE *file = fopen("/proc/self/maps", "re");
    char line[600];
    while (file && fgets(line, sizeof line, file)) {
        uintptr_t start = 0;
        uintptr_t end = 0;
        char permissions[5] = "";
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &start, &end, permissions) == 3)
            mappings[start] = {end, std::string(permissions).substr(0, 3) == "---",
                               permissions[1] == 'w'};
    }
    if (file)
        fclose(file);
    return mappings;
}

// A stretch of writable memory without a gap, around an address.
struct Stretch {
    uintptr_t start;
    uintptr_t end;
    bool fenced_before;
    bool fenced_behind;
};

Stretch stretch_around(const Mappings &mappings, uintptr_t address)
{
    auto first = std::prev(mappings.upper_bound(address));
    auto last = first;
    const auto joins = [](Mappings::const_iterator a, Mappings::const_iterator b) {
        return a->second.end == b->first && a->second.writable && b->second.writable;
    };
    while (first != mappings.begin() && joins(std::prev(first), first))
        first--;
    while (std::next(last) != mappings.end() && joins(last, std::next(last)))
        last++;
    Stretch stretch = {first->first, last->second.end, false, false};
    if (first != mappings.begin()) {
        const auto before = std::prev(first);
        stretch.fenced_before = before->second.end == stretch.start && before->second.inaccessible;
    }
    const auto behind = std::next(last);
    stretch.fenced_behind =
        behind != mappings.end() && behind->first == stretch.end && behind->second.inaccessible;
    return stretch;
}

std::set<uintptr_t> g_metadata;

void note(const void *metadata)
{
    if (metadata)
        g_metadata.insert(reinterpret_cast<uintptr_t>(metadata));
}

void note_span(struct span *span, char *, void *)
{
    if (span->tag != SPAN_GUARDED)
        note(span);
    if (span_is_slab(span))
        note(span + 1);
}

void note_heaps()
{
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        note(heap);
}

class Load
{
  public:
    std::vector<void *> blocks;

    void run(unsigned seed)
    {
        model::Random random(seed);
        for (int i = 0; i < 30000; i++) {
            const size_t kind = random.below(1000);
            take(kind < 900   ? random.below(1200)
                 : kind < 990 ? random.below(33 * kKiB)
                              : random.below(400 * kKiB));
            if (random.below(3) == 0) {
                const size_t victim = random.below(blocks.size());
                cairn_free(blocks[victim]);
                blocks[victim] = blocks.back();
                blocks.pop_back();
            }
        }
        for (size_t size : {3 * kMiB, 32 * kMiB, 40 * kMiB, 7 * kMiB})
            take(size);
        void *growing = cairn_malloc(100 * kKiB);
        for (size_t size = 200 * kKiB; size < 50 * kMiB; size = size * 3 / 2)
            growing = cairn_realloc(growing, size);
        blocks.push_back(growing);
    }

  private:
    void take(size_t size)
    {
        void *block = cairn_malloc(size);
        ASSERT_NE(block, nullptr);
        blocks.push_back(block);
    }
};

TEST(MetadataFence, StandsBeforeAndBehindAllOfIt)
{
    if (kOwnsAddressSpace)
        GTEST_SKIP() << "the sanitizer's runtime maps memory between the heap's mappings";
    std::vector<Load> loads(3);
    for (unsigned round = 0; round < 2; round++) {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < loads.size(); i++)
            threads.emplace_back([&loads, i, round] { loads[i].run(10 * round + i + 1); });
        for (std::thread &thread : threads)
            thread.join();
    }

    pages_each(note_span, nullptr);
    note_heaps();
    for (size_t i = 0; i < arena_count(); i++) {
        note(arenas_added[i]);
        note(arenas_added[i]->dirty);
    }
    for (size_t kind = 0; kind < META_KINDS; kind++)
        note(meta_take(static_cast<enum meta_kind>(kind), 64));
    for (uint64_t distance : page_map.root)
        if (distance != 0)
            note(
                reinterpret_cast<struct page_leaf *>(reinterpret_cast<char *>(&page_map) + distance)
                    ->entries);
    ASSERT_GT(g_metadata.size(), 500u);

    const Mappings mappings = read_mappings();
    std::map<uintptr_t, uintptr_t> stretches;
    size_t bytes = 0;
    for (uintptr_t address : g_metadata) {
        const Stretch stretch = stretch_around(mappings, address);
        if (!stretches.emplace(stretch.start, stretch.end).second)
            continue;
        bytes += stretch.end - stretch.start;
        // The null span before the entries of a leaf cannot be written. The first leaf is part of
        // the library's own data, and no block is next to it.
        if (address == reinterpret_cast<uintptr_t>(page_map.first.entries))
            continue;
        const bool is_leaf = stretch.end - stretch.start == sizeof page_map.first.entries;
        EXPECT_TRUE(stretch.fenced_before || is_leaf)
            << std::hex << address << " in " << stretch.start << " to " << stretch.end;
        EXPECT_TRUE(stretch.fenced_behind)
            << std::hex << address << " in " << stretch.start << " to " << stretch.end;
    }
    EXPECT_LE(bytes, load_relaxed(&meta_total_bytes) + 40 * sizeof(struct page_leaf));
    for (const Load &load : loads)
        for (void *block : load.blocks) {
            const auto place = reinterpret_cast<uintptr_t>(block);
            auto behind = stretches.upper_bound(place);
            EXPECT_TRUE(behind == stretches.begin() || std::prev(behind)->second <= place)
                << block << " is among metadata";
        }
    printf("%zu mappings in all; metadata: %zu bytes in %zu stretches\n", mappings.size(), bytes,
           stretches.size());
    for (Load &load : loads)
        for (void *block : load.blocks)
            cairn_free(block);
}

} // namespace metadata_fence_test
