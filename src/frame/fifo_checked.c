/* Checked FIFOs: each object between a header, which tells live from dead, and a canary. See
 * fifo_state.h. */
#include "frame/fifo_state.h"

#include <string.h>

struct checked_header {
    uint32_t offset; /* of the object within the plain one */
    uint32_t state;  /* atomic: LIVE, QUEUED by another thread's free, or DEAD */
    size_t size;
    void *link; /* while queued */
    uint64_t unused;
};

static_check(sizeof(struct checked_header) == FIFO_HEADER_BYTES, "right before the object");

enum {
    LIVE = 0x11feca00,
    QUEUED = 0x7feeca00,
    DEAD = 0xdeadca,
    CANARY_BYTE = 0xca,
    DEAD_BYTE = 0xdd
};

void *fifo_checked_lay(void *plain, size_t size, size_t align)
{
    size_t offset = larger_of(align, FIFO_HEADER_BYTES);
    char *object = (char *)plain + offset;
    mark_undefined(plain, fifo_checked_bytes(size, align));
    struct checked_header *header = (struct checked_header *)(void *)object - 1;
    *header = (struct checked_header){.offset = (uint32_t)offset, .state = LIVE, .size = size};
    memset(object + size, CANARY_BYTE, FIFO_CANARY_BYTES);
    mark_inaccessible(header, sizeof *header);
    mark_inaccessible(object + size, FIFO_CANARY_BYTES);
    return object;
}

static void verify_canary(struct fifo *fifo, void *pointer, const struct checked_header *header)
{
    const unsigned char *canary = (unsigned char *)pointer + header->size;
    mark_defined(canary, FIFO_CANARY_BYTES);
    for (size_t i = 0; i < FIFO_CANARY_BYTES; i++)
        if (canary[i] != CANARY_BYTE)
            die("fifo \"%s\": write past the end of %p (%zu-byte object)", fifo->name, pointer,
                header->size);
}

/* The header of an object in use; `next` is the state it goes to. */
static struct checked_header *claim(struct fifo *fifo, void *pointer, uint32_t expected,
                                    uint32_t next)
{
    struct checked_header *header = (struct checked_header *)pointer - 1;
    mark_defined(header, sizeof *header);
    uint32_t state = exchange_acq_rel(&header->state, next);
    if (state == DEAD || (state == QUEUED && expected == LIVE))
        die("fifo \"%s\": double free of %p", fifo->name, pointer);
    if (state != LIVE && state != QUEUED)
        die("fifo \"%s\": free of %p, which is not an object of it", fifo->name, pointer);
    return header;
}

void **fifo_checked_queue(struct fifo *fifo, void *pointer)
{
    return &claim(fifo, pointer, LIVE, QUEUED)->link;
}

void **fifo_checked_link(void *pointer) { return &((struct checked_header *)pointer - 1)->link; }

void *fifo_checked_end(struct fifo *fifo, void *pointer, bool queued)
{
    struct checked_header *header = claim(fifo, pointer, queued ? QUEUED : LIVE, DEAD);
    verify_canary(fifo, pointer, header);
    void *plain = (char *)pointer - header->offset;
    size_t size = header->size;
    mark_undefined(pointer, size);
    memset(pointer, DEAD_BYTE, size);
    mark_inaccessible(pointer, size + FIFO_CANARY_BYTES);
    mark_inaccessible(header, sizeof *header);
    return plain;
}

void fifo_checked_verify(struct fifo *fifo, void *pointer, size_t size)
{
    struct checked_header *header = claim(fifo, pointer, LIVE, LIVE);
    verify_canary(fifo, pointer, header);
    if (header->size != larger_of(size, 1))
        die("fifo \"%s\": realloc of %p with old size %zu (%zu-byte object)", fifo->name, pointer,
            size, header->size);
    mark_inaccessible((char *)pointer + header->size, FIFO_CANARY_BYTES);
    mark_inaccessible(header, sizeof *header);
}
