// Patterns of one thread: random live sets, large blocks, growing blocks, trees, a cold start.
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
    for (void *block : blocks) {
        free(block);
    }
}

void live_small(Run &run) { live_set(run, 200000, 8, 256, false); }
void live_mixed(Run &run) { live_set(run, 50000, 8, 16 * kKiB, false); }
void live_medium(Run &run) { live_set(run, 1000, 8 * kKiB, 256 * kKiB, true); }
void large_blocks(Run &run) { live_set(run, 50, 128 * kKiB, 4 * kMiB, true); }

// Large blocks that the program hardly touches: what is left is the heap's own cost.
void large_untouched(Run &run) { live_set(run, 200, 128 * kKiB, 16 * kMiB, false); }

// Sixteen buffers grow in turn by half of themselves, to 4 MiB; the operation is a realloc.
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

// One buffer grows by 64 KiB at a time to 64 MiB, as a file that is read to its end.
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

// A balanced tree of nodes of 40 bytes is built and torn down; the operation is a node.
void tree(Run &run)
{
    const size_t nodes = run.scaled(1000000);
    run.time_passes(static_cast<double>(nodes),
                    [&] { return time_ns([&] { fell(grow(nodes)); }); });
}

// A program that starts, fills 64 MiB with small blocks and is done: every page is new. There is no
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
    {"large-blocks", "field", "large blocks, touched", "warm_ns", "peak_rss", 512, large_blocks},
    {"large-untouched", "field", "large blocks, hardly touched", "warm_ns", "peak_rss", 1024,
     large_untouched},
    {"realloc-many", "field", "realloc growth, 16 buffers", "warm_ns", "peak_rss", 512,
     realloc_many},
    {"realloc-large", "field", "realloc growth to 64 MiB", "warm_ns", "peak_rss", 512,
     realloc_large},
    {"tree", "field", "bulk build and tear-down", "warm_ns", "peak_rss", 256, tree},
    {"cold-start", "field", "cold start, 64 MiB", "cold_ns", "peak_rss", 256, cold_start},
};

} // namespace

const WorkloadTable kPatterns = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
