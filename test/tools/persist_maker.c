// Makes heaps for persist_command_test.py.
//
// usage: persist_maker make|small|new|grow|crash|late|hold|read|age FILE
// make   two roots, with a large freed block between them, closed
// small  two roots, with much free memory behind them
// new    opened and closed, without a commit
// grow   another large block, committed, closed
// crash  another commit, and then an end without a close
// late   as `crash`, with two later commits that it does not wait for
// hold   as `crash`, but reports it and stays until its input ends
// read   prints the number and the text that the roots point to
// age    sets the next version of the format
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cairn/persist.h>

#include "region/persist_heap.h"

enum { LARGE_BYTES = 4 << 20 };

static void *give(cairn_persist *heap, size_t size)
{
    return cairn_allocator_alloc(cairn_persist_allocator(heap), size, 16);
}

static int make(cairn_persist *heap)
{
    unsigned *number = give(heap, sizeof *number);
    char *large = give(heap, LARGE_BYTES);
    char *text = give(heap, 64);
    *number = 1;
    memset(large, 'x', LARGE_BYTES);
    snprintf(text, 64, "behind the hole");
    if (cairn_persist_set_root(heap, "number", number) != 0 ||
        cairn_persist_set_root(heap, "t\xc3\xa4xt\t\xff", text) != 0 ||
        cairn_persist_set_root(heap, "nothing", NULL) != 0 || cairn_persist_commit(heap) != 0)
        return 1;
    cairn_allocator_free(cairn_persist_allocator(heap), large, LARGE_BYTES);
    return cairn_persist_commit(heap) != 0 || cairn_persist_close(heap) != 0;
}

static int make_small(cairn_persist *heap)
{
    unsigned *number = give(heap, sizeof *number);
    char *text = give(heap, 64);
    *number = 1;
    snprintf(text, 64, "small");
    if (cairn_persist_grow(heap, 2 * LARGE_BYTES) != 0 ||
        cairn_persist_set_root(heap, "number", number) != 0 ||
        cairn_persist_set_root(heap, "t\xc3\xa4xt\t\xff", text) != 0)
        return 1;
    return cairn_persist_commit(heap) != 0 || cairn_persist_close(heap) != 0;
}

static int commit_more(cairn_persist *heap)
{
    unsigned *number = cairn_persist_get_root(heap, "number");
    ++*number;
    return cairn_persist_commit(heap);
}

static int age(const char *path)
{
    struct persist_header header;
    const char *why;
    int file = open(path, O_RDWR);
    int error = header_read(file, &header, &why);
    header.version++;
    for (int i = 0; error == 0 && i < 2; i++)
        error = header_write(file, &header);
    return error != 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    if (strcmp(argv[1], "age") == 0)
        return age(argv[2]);
    struct cairn_persist_options options = {.flags = CAIRN_PERSIST_CREATE};
    cairn_persist *heap = cairn_persist_open(argv[2], &options);
    if (!heap)
        return perror("persist_maker"), 1;
    if (strcmp(argv[1], "new") == 0)
        return cairn_persist_close(heap);
    if (strcmp(argv[1], "make") == 0)
        return make(heap);
    if (strcmp(argv[1], "small") == 0)
        return make_small(heap);
    if (strcmp(argv[1], "grow") == 0) {
        void *large = give(heap, LARGE_BYTES);
        if (large)
            memset(large, 1, LARGE_BYTES);
        return !large || commit_more(heap) != 0 || cairn_persist_close(heap) != 0;
    }
    if (strcmp(argv[1], "read") == 0) {
        const unsigned *number = cairn_persist_get_root(heap, "number");
        const char *text = cairn_persist_get_root(heap, "t\xc3\xa4xt\t\xff");
        printf("%u %s\n", *number, text);
        return cairn_persist_close(heap);
    }
    int error = commit_more(heap);
    for (int i = 0; error == 0 && strcmp(argv[1], "late") == 0 && i < 2; i++) {
        cairn_persist_ticket ticket;
        ++*(unsigned *)cairn_persist_get_root(heap, "number");
        error = cairn_persist_commit_async(heap, &ticket);
    }
    if (strcmp(argv[1], "hold") == 0) {
        puts("ready");
        fflush(stdout);
        (void)getchar();
    }
    _exit(error != 0);
}
