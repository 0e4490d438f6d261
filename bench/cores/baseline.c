/* The baseline of the counts: an allocator whose blocks are fresh lines of the thread's own memory,
 * and whose free does nothing. Its counts are those of the program itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE_BYTES = 64, CHUNK_BYTES = 32 << 20 };

static _Thread_local __attribute__((tls_model("initial-exec"))) uintptr_t next, end;

static uintptr_t baseline_place(size_t alignment)
{
    return (next + LINE_BYTES + alignment - 1) & -alignment;
}

/* The line before the block has its size. */
void *memalign(size_t alignment, size_t size)
{
    if (alignment < LINE_BYTES)
        alignment = LINE_BYTES;
    size = size != 0 ? (size + LINE_BYTES - 1) & ~(size_t)(LINE_BYTES - 1) : LINE_BYTES;
    if (next == 0 || baseline_place(alignment) + size > end) {
        size_t chunk = size + alignment + 2 * LINE_BYTES;
        if (chunk < CHUNK_BYTES)
            chunk = CHUNK_BYTES;
        void *memory = mmap(NULL, chunk, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            return NULL;
        next = (uintptr_t)memory;
        end = next + chunk;
    }
    uintptr_t block = baseline_place(alignment);
    next = block + size;
    *(size_t *)(block - LINE_BYTES) = size;
    return (void *)block;
}

void *malloc(size_t size) { return memalign(LINE_BYTES, size); }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void free(void *block) { (void)block; }

size_t malloc_usable_size(void *block)
{
    return *(const size_t *)((const char *)block - LINE_BYTES);
}

void *realloc(void *block, size_t size)
{
    void *moved = malloc(size);
    if (block && moved) {
        size_t old = malloc_usable_size(block);
        memcpy(moved, block, old < size ? old : size);
    }
    return moved;
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}
