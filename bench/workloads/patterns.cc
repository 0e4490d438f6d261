// Patterns of one thread: random live sets, large blocks, growing blocks, aligned and sparse ones,
// trees, a heap that is filled and emptied again and again, a cold start.
#include <algorithm>
#include <string.h>

#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

// A random block of the set is freed and replaced by one of another size.
void live_set(Run &run, size_t slots, size_t low, size_t high, bool every_page)
{
    MappedArray<void *> blocks(run.scaled(slots, 16));
    const size_t count = run.scaled(2 * slots, 16);
    Sizes sizes(low, high, Sizes::kDoublings);
    Random random(3);
    size_t drawn = 0;
    const size_t before = resident_bytes();
    run.time_passes(static_cast<double>(count), [&] {
        return time_ns([&] {
            for (size_t i = 0; i < count; i++) {
                void *&slot = blocks[random.below(blocks.size())];
                const size_t size = sizes[drawn++];
                free(slot);
                slot = allocate_touched(size);
                if (every_page) {
                    touch_pages(slot, size);
                }
            }
        });
    });
    run.figure("held_kib", static_cast<double>(resident_bytes() - before) / kKiB, "KiB");
    for (void *block : blocks) {
        free(block);
    }
}

void live_small(Run &run) { live_set(run, 200000, 8, 256, false); }
void live_mixed(Run &run) { live_set(run, 50000, 8, 16 * kKiB, false); }
void live_medium(Run &run) { live_set(run, 1000, 8 * kKiB, 256 * kKiB, true); }
// A live set of about a megabyte.
void live_megabyte(Run &run) { live_set(run, 114, kKiB, 32 * kKiB, true); }
void large_blocks(Run &run) { live_set(run, 50, 128 * kKiB, 4 * kMiB, true); }

// Large blocks that the program hardly touches: the cost is mostly that of the heap.
void large_untouched(Run &run) { live_set(run, 200, 128 * kKiB, 16 * kMiB, false); }

// Sixteen buffers grow in turn by half of their size, to 4 MiB; the operation is a realloc.
void realloc_many(Run &run)
{
    constexpr size_t kBuffers = 16, kFirst = 64;
    const size_t last = run.scaled(4 * kMiB, 4 * kFirst);
    size_t steps = 0;
    for (size_t size = kFirst; size <= last; size += size / 2) {
        steps++;
    }
    run.time_passes(static_cast<double>(kBuffers * steps), [&] {
        return time_ns([&] {
            char *buffers[kBuffers] = {};
            size_t had = 0;
            for (size_t size = kFirst; size <= last; size += size / 2) {
                for (char *&buffer : buffers) {
                    buffer = static_cast<char *>(checked(realloc(buffer, size)));
                    memset(buffer + had, 1, size - had);
                }
                had = size;
            }
            for (char *buffer : buffers) {
                free(buffer);
            }
        });
    });
}

// One buffer grows by 64 KiB at a time to 64 MiB, like the content of a file that is read to its
// end.
void realloc_large(Run &run)
{
    constexpr size_t kStep = 64 * kKiB;
    const size_t steps = run.scaled(1024);
    run.time_passes(static_cast<double>(steps), [&] {
        return time_ns([&] {
            char *buffer = nullptr;
            for (size_t step = 1; step <= steps; step++) {
                buffer = static_cast<char *>(checked(realloc(buffer, step * kStep)));
                touch_pages(buffer + (step - 1) * kStep, kStep);
            }
            free(buffer);
        });
    });
}

struct TreeNode {
    TreeNode *left, *right;
    uint64_t payload[3];
};

TreeNode *grow(size_t nodes)
{
    if (nodes == 0) {
        return nullptr;
    }
    TreeNode *node = static_cast<TreeNode *>(checked(malloc(sizeof(TreeNode))));
    node->payload[0] = nodes;
    node->left = grow((nodes - 1) / 2);
    node->right = grow(nodes - 1 - (nodes - 1) / 2);
    return node;
}

void fell(TreeNode *node)
{
    if (node != nullptr) {
        fell(node->left);
        fell(node->right);
        free(node);
    }
}

// A balanced tree of nodes of 40 bytes is built and freed; the operation is a node.
void tree(Run &run)
{
    const size_t nodes = run.scaled(1000000);
    run.time_passes(static_cast<double>(nodes),
                    [&] { return time_ns([&] { fell(grow(nodes)); }); });
}

// All blocks are made, then all freed, and so on; the operation is a block.
void fill_and_empty(Run &run)
{
    MappedArray<void *> blocks(run.scaled(6000000));
    run.time_passes(static_cast<double>(blocks.size()),
                    [&] { return time_fill_and_empty(blocks); });
}

// One block of 32 to 96 MiB at a time, every page of it written, as numeric programs do.
void come_and_go(Run &run)
{
    constexpr size_t kBlocks = 20;
    Sizes sizes(run.scaled(32 * kMiB), run.scaled(96 * kMiB), Sizes::kUniform);
    run.time_passes(kBlocks, [&] {
        return time_ns([&] {
            for (size_t i = 0; i < kBlocks; i++) {
                void *block = checked(malloc(sizes[i]));
                touch_pages(block, sizes[i]);
                free(block);
            }
        });
    });
}

// A thousand blocks of 8 KiB that are aligned to their size are made, then freed.
void aligned(Run &run)
{
    constexpr size_t kSize = 8 * kKiB;
    MappedArray<void *> blocks(run.scaled(1000));
    run.time_passes(static_cast<double>(blocks.size()), [&] {
        return time_ns([&] {
            for (void *&block : blocks) {
                block = checked(aligned_alloc(kSize, kSize));
                touch(block, kSize);
            }
            for (void *block : blocks) {
                free(block);
            }
        });
    });
}

// A block of 1 GiB of which a byte in 2 MiB is written.
void sparse(Run &run)
{
    constexpr size_t kStep = 2 * kMiB;
    const size_t size = run.scaled(kGiB);
    const size_t before = resident_bytes();
    char *block = nullptr;
    const double spent_ns = time_ns([&] {
        block = static_cast<char *>(checked(malloc(size)));
        for (size_t at = 0; at < size; at += kStep) {
            touch(block + at, 1);
        }
    });
    run.figure("warm_ns", spent_ns, "ns");
    run.figure("held_kib", static_cast<double>(resident_bytes() - before) / kKiB, "KiB");
    free(block);
}

// A program that starts, fills 64 MiB with small blocks and ends: every page is new. There is no
// warm pass.
void cold_start(Run &run)
{
    Sizes sizes(16, kKiB, Sizes::kDoublings);
    const size_t wanted = run.scaled(64 * kMiB);
    size_t count = 0;
    for (size_t bytes = 0; bytes < wanted; bytes += sizes[count++]) {
    }
    MappedArray<void *> blocks(count);
    const double cold_ns = time_ns([&] {
        for (size_t i = 0; i < count; i++) {
            blocks[i] = checked(malloc(sizes[i]));
            memset(blocks[i], 1, sizes[i]);
        }
    });
    run.figure("cold_ns", cold_ns / static_cast<double>(count), "ns");
}

const Workload kRows[] = {
    {"live-small", "field", "random live set, 8-256 B", "warm_ns", "peak_rss", 128, live_small},
    {"live-mixed", "field", "random live set, 8 B-16 KiB", "warm_ns", "peak_rss", 512, live_mixed},
    {"live-medium", "field", "random live set, 8-256 KiB", "warm_ns", "peak_rss", 512, live_medium},
    {"live-megabyte", "medium", "a megabyte of blocks of 1-32 KiB", "warm_ns", "held_kib", 64,
     live_megabyte},
    {"large-blocks", "field", "large blocks, touched", "warm_ns", "peak_rss", 512, large_blocks},
    {"large-untouched", "field", "large blocks, hardly touched", "warm_ns", "peak_rss", 1024,
     large_untouched},
    {"realloc-many", "field", "realloc growth, 16 buffers", "warm_ns", "peak_rss", 512,
     realloc_many},
    {"realloc-large", "field", "realloc growth to 64 MiB", "warm_ns", "peak_rss", 512,
     realloc_large},
    {"tree", "field", "bulk build and tear-down", "warm_ns", "peak_rss", 256, tree},
    {"fill-and-empty", "field", "6 million blocks made, then freed", "warm_ns", "peak_rss", 1024,
     fill_and_empty},
    {"come-and-go", "field", "a block of 32-96 MiB made, written, freed", "warm_ns", "peak_rss",
     512, come_and_go},
    {"aligned-8k", "field", "8 KiB aligned to 8 KiB", "warm_ns", "peak_rss", 128, aligned},
    {"sparse-1g", "memory", "1 GiB with 512 bytes written", "warm_ns", "held_kib", 1600, sparse},
    {"cold-start", "field", "cold start, 64 MiB", "cold_ns", "peak_rss", 256, cold_start},
};

} // namespace

const WorkloadTable kPatterns = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
