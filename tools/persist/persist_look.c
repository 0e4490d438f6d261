// The commands info, check and dump, which open a heap for reading only. The commits in its log are
// read into memory; no file changes.
#include "persist_tool.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cairn/tlsf.h>

#include "region/persist_heap.h" // the format and the headers

static int report_finding(const char *finding)
{
    printf("finding\t%s\n", finding);
    return STATUS_DAMAGED;
}

static bool count_root(const char *name, void *block, void *context)
{
    (void)name, (void)block;
    ++*(uint64_t *)context;
    return true;
}

// Prints the sizes of the heap's logs, and their disk space.
static void print_files(const char *path)
{
    char name[PATH_MAX + 8];
    struct stat status;
    uint64_t length = 0, disk = 0;
    for (int i = 0; i < 2; i++) {
        int size = snprintf(name, sizeof name, "%s.log%d", path, i);
        if (size < (int)sizeof name && stat(name, &status) == 0) {
            length += (uint64_t)status.st_size;
            disk += (uint64_t)status.st_blocks * 512;
        }
    }
    printf("log_file_bytes\t%" PRIu64 "\nlog_disk_bytes\t%" PRIu64 "\n", length, disk);
}

static void print_stats(cairn_persist *heap)
{
    struct cairn_persist_stats stats;
    cairn_persist_read_stats(heap, &stats);
    uint64_t roots = 0;
    cairn_persist_walk_roots(heap, count_root, &roots);
    printf("size_bytes\t%zu\nused_bytes\t%zu\nfree_bytes\t%zu\nused_blocks\t%zu\n",
           stats.size_bytes, stats.used_bytes, stats.free_bytes, stats.used_blocks);
    printf("roots\t%" PRIu64 "\nlast_commit\t%" PRIu64 "\nlog_commits\t%" PRIu64 "\n", roots,
           stats.last_commit, stats.recovered_commits);
}

int info(const char *path)
{
    struct stat status;
    int file = open_file(path, O_RDONLY, &status);
    const char *finding = NULL;
    cairn_persist *heap = open_heap(path, CAIRN_PERSIST_READ_ONLY, &finding);
    if (!heap)
        return report_finding(finding);
    struct persist_header header;
    int error = header_read(file, &header, &finding);
    if (error != 0)
        fail("cannot read its header", -error);
    printf("version\t%" PRIu32 "\npage_bytes\t%" PRIu32 "\n", header.version, header.page_bytes);
    printf("file_bytes\t%" PRIu64 "\ndisk_bytes\t%" PRIu64 "\n", (uint64_t)status.st_size,
           (uint64_t)status.st_blocks * 512);
    printf("address\t%" PRIu64 "\nidentity\t%" PRIu64 "\ncheckpoint\t%" PRIu64 "\nclosed\t%d\n",
           header.address, header.identity, header.checkpoint, header.log_use == PERSIST_CLOSED);
    print_files(path);
    print_stats(heap);
    close(file);
    return cairn_persist_close(heap) == 0 ? 0 : STATUS_FAILED;
}

// Opens the heap and checks it completely. Returns: NULL when it is damaged, with *finding.
static cairn_persist *open_sound(const char *path, const char **finding)
{
    struct stat status;
    close(open_file(path, O_RDONLY, &status));
    return open_heap(path, CAIRN_PERSIST_READ_ONLY | CAIRN_PERSIST_CHECK, finding);
}

int check(const char *path)
{
    const char *finding = NULL;
    cairn_persist *heap = open_sound(path, &finding);
    if (!heap)
        return report_finding(finding);
    print_stats(heap);
    return cairn_persist_close(heap) == 0 ? 0 : STATUS_FAILED;
}

struct dumping {
    const char *base;
    size_t bytes; // bytes of each block's contents to be printed
};

static void print_hex(const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        printf("%02x", ((const unsigned char *)bytes)[i]);
}

static bool print_root(const char *name, void *block, void *context)
{
    const struct dumping *dumping = context;
    printf("root\t");
    print_hex(name, strlen(name));
    if (block)
        printf("\t%td\n", (const char *)block - dumping->base);
    else
        printf("\t-\n");
    return true;
}

static bool print_block(void *block, size_t size, bool used, void *context)
{
    const struct dumping *dumping = context;
    printf("block\t%td\t%zu\t%d\t", (const char *)block - dumping->base, size, used);
    if (used)
        print_hex(block, size < dumping->bytes ? size : dumping->bytes);
    return putchar('\n') != EOF; // stops when the output cannot be written
}

int dump(const char *path, unsigned long bytes)
{
    const char *finding = NULL;
    cairn_persist *heap = open_sound(path, &finding);
    if (!heap)
        return report_finding(finding);
    struct cairn_persist_stats stats;
    cairn_persist_read_stats(heap, &stats);
    struct dumping dumping = {stats.address, bytes};
    cairn_persist_walk_roots(heap, print_root, &dumping);
    cairn_tlsf_walk(persist_tlsf_of(heap), print_block, &dumping);
    return cairn_persist_close(heap) == 0 ? 0 : STATUS_FAILED;
}
