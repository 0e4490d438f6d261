/* The ring's structure, and the functions of its chunks. cairn/ring.h describes what a ring does;
 * ring.c has all functions.
 *
 * The protocol of releases. A chunk has a bit for each frame that it can hold; all bits are set
 * when the chunk comes into use. The owner gives bits out in ascending order, with a plain count of
 * its own. So opening and sealing touch nothing that other threads write. A release clears the
 * frame's bit. `unfinished` counts the words of the bitmap:
 *
 *     unfinished =   words with a bit set
 *                  + words whose last bit a release has cleared and not counted yet
 *                  + 1 while the owner fills the chunk
 *
 * When the owner retires a chunk, it clears the bits that it never gave out, counts the words that
 * become clear by this, and subtracts its own 1. The thread that brings `unfinished` to 0 owns the
 * chunk. This is exactly one thread, because the count only decreases. A release that does not
 * clear the last bit of its word touches nothing of the chunk after that operation. A release that
 * does touches `unfinished` next, and the chunk cannot end before. So no thread touches a chunk
 * that belongs to another one.
 *
 * A restart of the chunk that is being filled (ring_try_restart) needs no message from releases.
 * When all words that were given out completely are counted, and the given bits of the last word
 * are clear, then all frames are released and no release is in progress. cairn_ring_delete uses
 * this test too, when that chunk is the only one in use.
 *
 * A finished chunk is pushed to the ring's stack of returned chunks. The owner empties this stack
 * as a whole, so no compare and swap there can mistake one state for another. When the ring is
 * closed, the stack is closed. A thread that finishes a chunk after that frees the chunk and counts
 * it. `remaining` is the number of chunks in use at the close minus those freed since. Exactly one
 * operation brings it to 0, and frees the ring. A thread reads the ring only while it owns a chunk
 * of it.
 *
 *   operations            may run together on one chunk
 *   release   release     yes, of different frames, or of one frame with several holds
 *   release   retain      yes, by different holders
 *   release   owner       yes: open, alloc, seal, retire, restart, rewind, delete, close
 *   owner     owner       no: one thread
 *
 * Memory order. Releases are atomic operations with acquire and release on the words and on
 * `unfinished`, so a thread that sees all bits clear sees everything that the consumers did. A
 * frame's handle reaches another thread through an operation that orders memory, and with it
 * everything that the owner wrote before. Generations are read and written without order, because
 * only misuse reads a new one.
 *
 * Position and limit of the public head are 0 while no frame is open, and while the ring is
 * checked. Then the inline functions take their slow paths, and the private fields hold the values.
 * The head's owner is always valid; it is NULL from close or delete on, in the free descriptor too.
 *
 * Threads: the owner only, except chunk_clear_frame, cairn_ring_retain and cairn_ring_release.
 */
#ifndef CAIRN_FRAME_RING_H
#define CAIRN_FRAME_RING_H

#include "cairn/ring.h"
#include "frame/frame.h"

enum {
    RING_GRANULE = 8,
    CHUNK_MIN_BYTES = 64 << 10,
    CHUNK_MAX_BYTES = 2 << 20, /* unless one allocation needs more */
    CHUNK_WORDS = 16,
    CHUNK_FRAMES = CHUNK_WORDS * 64,
    NO_FRAME = UINT32_MAX,
};

struct ring_chunk {
    /* owner of the chunk: list of spare chunks, or stack of returned ones */
    struct ring_chunk *next;
    struct span *span; /* owner while it fills the chunk, then const */
    struct ring *ring; /* const while in use */
    /* const: atomic counts of extra holds, by frame; all 0 when no frame lives */
    uint32_t *retains;
    /* owner, before the seal: the chunk where frame `spill_index` continues, as frame 0 */
    struct ring_chunk *spill;
    uint32_t spill_generation; /* owner, before the seal: generation of `spill` */
    uint32_t spill_index;      /* atomic, written by the owner; NO_FRAME: none */
    /* atomic, written by the owner: changes when the bits are set again */
    uint32_t generation;
    uint32_t retained;                         /* atomic: 1 when there may be extra holds */
    uint32_t unfinished cache_aligned;         /* atomic: see the protocol */
    uint64_t words[CHUNK_WORDS] cache_aligned; /* atomic: see the protocol */
};

static_check(sizeof(struct ring_chunk) <= DESCRIPTOR_BYTES_MAX, "a chunk is one descriptor");
static_check(offsetof(struct ring_chunk, unfinished) == 64,
             "what the owner reads shares no line with what others write");

struct ring {
    cairn_ring head;            /* the part that inline functions use; must be the first field */
    struct ring_chunk *current; /* owner: the chunk being filled; NULL before the first frame */
    uintptr_t held_position;    /* owner: the position while the head has zeros */
    uint32_t issued;            /* owner: number of frames given out in the current chunk */
    uint32_t open_index;        /* owner: number of the open frame in its first chunk */
    /* owner: first chunk of the open frame; from here on no chunk is retired */
    struct ring_chunk *first;
    uintptr_t open_position;  /* owner: where the open frame begins */
    bool open;                /* owner */
    bool marked;              /* owner: there may be a checkpoint in the open frame */
    bool checked;             /* const after init */
    uintptr_t look_at;        /* owner: position from which on ring_try_restart is tried */
    size_t look_step;         /* owner: bytes from one try to the next */
    uint64_t opened;          /* owner: number of frames so far */
    uint64_t sealed;          /* owner: number of sealed frames so far */
    struct ring_chunk *spare; /* owner: free chunks, hottest first */
    size_t spare_bytes;       /* owner: size of the free chunks */
    /* owner: minimum of spare_bytes since the interval began */
    size_t spare_low;
    size_t out_bytes;                      /* owner: size of the chunks in use */
    size_t out_count;                      /* owner: number of chunks in use */
    size_t max_bytes;                      /* const after init */
    uint64_t interval_start_ms;            /* owner */
    bool (*out_of_memory)(void *, size_t); /* const after init; NULL: none */
    void *out_of_memory_context;           /* const after init */
    char name[FRAME_NAME_BYTES];           /* const after init */
    /* atomic: stack; CHUNKS_CLOSED once the ring is closed */
    struct ring_chunk *returned cache_aligned;
    intptr_t remaining; /* atomic: see the protocol */
};

static_check(sizeof(struct ring) <= DESCRIPTOR_BYTES_MAX, "a ring is one descriptor");

#define CHUNKS_CLOSED ((struct ring_chunk *)1)

inline_always uintptr_t chunk_base(const struct ring_chunk *chunk)
{
    return (uintptr_t)chunk->span->base;
}
inline_always size_t chunk_bytes(const struct ring_chunk *chunk) { return run_bytes(chunk->span); }

/* Takes a chunk with space for `needed` bytes. All its bits are set, and the owner fills it.
 * Returns: NULL when out of memory, or when the maximum is reached. */
struct ring_chunk *chunk_take(struct ring *ring, size_t needed);

/* Sets the bits of the first `issued` frames again. No frame of the chunk lives, and the owner
 * fills it. */
void chunk_restart(struct ring_chunk *chunk, uint32_t issued);

/* Retires a chunk of which the owner has given out `issued` frames. The owner no longer fills
 * it. */
void chunk_retire(struct ring *ring, struct ring_chunk *chunk, uint32_t issued);

/* Makes a chunk spare. The chunk belongs to the owner alone. */
void chunk_keep(struct ring *ring, struct ring_chunk *chunk);

/* Whether all of the first `issued` frames are released. */
bool chunk_is_clear(const struct ring_chunk *chunk, uint32_t issued);

/* Releases one hold of a frame in one chunk.
 * Threads: any. */
void chunk_clear_frame(struct ring_chunk *chunk, uint32_t index);

/* Returns the spare chunks except `keep_bytes` to the system.
 * Returns: the number of bytes. */
size_t ring_give_back(struct ring *ring, size_t keep_bytes);

/* Makes the returned chunks spare. */
void ring_collect(struct ring *ring);

/* Returns the spare chunks that were not needed during an interval, when one has passed. */
void ring_tick(struct ring *ring);

/* Closes the stack of returned chunks. The ring ends when no chunk is in use. */
void ring_close(struct ring *ring);

#endif
