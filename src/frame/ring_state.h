/* The ring's inside: see cairn/ring.h for what it does. Internal to frame/.
 *
 * The protocol. A chunk has a bit for each frame that it can hold, all set when the chunk comes
 * into use. The owner gives bits out in rising order; that is a plain count of its own, so opening
 * and sealing touch nothing that other threads write. A release clears the frame's bit.
 * `unfinished` counts the words of the bitmap that are not clear yet, and one more while the owner
 * fills the chunk:
 */
/* clang-format off */
/*     unfinished =   words with a bit set
 *                  + words whose last bit a release has cleared and not counted yet
 *                  + 1 while the owner fills the chunk
 */
/* clang-format on */
/* Retiring a chunk, the owner clears the bits never given out, counts the words that are clear by
 * that, and gives up its one. Whoever brings `unfinished` to 0 owns the chunk: exactly one thread,
 * for the count only falls. A release that does not clear its word's last bit touches nothing of
 * the chunk after that one operation; one that does touches `unfinished` next, and the chunk cannot
 * end before. So nobody touches a chunk that is another's.
 *
 * Rewinding the chunk that is filled needs no word from the releases: when all words given out in
 * full are counted, and the bits given out of the last one are clear, then all frames are released
 * and no release is under way. The same test tells cairn_ring_delete, when that chunk is the only
 * one out, that no frame is left.
 *
 * A finished chunk is pushed to the ring's stack of returned chunks, which its owner empties as a
 * whole: no compare and swap there can mistake one state for another. When the ring is closed the
 * stack is closed; whoever finishes a chunk after that frees it and counts it: `remaining` is the
 * number of chunks that were out, less those freed since, and exactly one operation brings it to 0,
 * and frees the ring. A thread reads the ring only while a chunk of it is its own.
 */
/* clang-format off */
/*   may run together         on the same chunk
 *   release   release        yes, of different frames, or of one with several holds
 *   release   retain         yes, by different holders
 *   release   owner          yes: open, alloc, seal, retire, rewind, delete, close
 *   owner     owner          no: one thread
 */
/* clang-format on */
/* Memory order: releases are RMWs with acquire and release on the words and on `unfinished`, so who
 * sees all bits clear sees all that the consumers did. A frame's handle reaches another thread
 * through something that orders memory, and with it all that the owner wrote before. Generations
 * are read and written without order: only misuse reads a new one.
 *
 * Position and limit of the public head are 0 while no frame is open, and while the ring is
 * checked: then the inline functions take their slow paths, and the truth is in the private fields.
 * Its owner is the truth always; NULL from close or delete on, in the free descriptor, too.
 */
#ifndef CAIRN_FRAME_RING_STATE_H
#define CAIRN_FRAME_RING_STATE_H

#include "cairn/ring.h"
#include "frame/frame.h"

enum {
    RING_GRANULE = 8,
    CHUNK_LEAST_BYTES = 64 << 10,
    CHUNK_MOST_BYTES = 2 << 20, /* unless one allocation needs more */
    CHUNK_WORDS = 16,
    CHUNK_FRAMES = CHUNK_WORDS * 64,
    NO_FRAME = UINT32_MAX,
};

struct ring_chunk {
    struct ring_chunk *next; /* of who has the chunk: owner's list, or stack of returned ones */
    struct span *span;       /* const while in use */
    struct ring *ring;       /* const while in use */
    uint32_t *retains;       /* const: atomic extra holds, by frame; all 0 when no frame lives */
    struct ring_chunk
        *spill; /* owner, before the seal: where frame `spill_index` goes on, as its frame 0 */
    uint32_t spill_generation; /* owner, before the seal */
    uint32_t spill_index;      /* atomic, owner writes; NO_FRAME: none */
    uint32_t generation;       /* atomic, owner writes: changes whenever the bits are set again */
    uint32_t retained;         /* atomic: 1 when there may be extra holds */
    uint32_t unfinished cache_aligned;         /* atomic: see above */
    uint64_t words[CHUNK_WORDS] cache_aligned; /* atomic: see above */
};

static_check(sizeof(struct ring_chunk) <= CELL_BYTES, "a chunk is one descriptor");
static_check(offsetof(struct ring_chunk, unfinished) == 64,
             "what the owner reads shares no line with what others write");

struct ring {
    cairn_ring head;            /* first; what the inline functions know */
    struct ring_chunk *current; /* owner: the chunk being filled; NULL before the first frame */
    uintptr_t held_position;    /* owner: position while no frame is open, or checked */
    uint32_t issued;            /* owner: frames given out in the current chunk */
    uint32_t open_index;        /* owner: of the open frame in its first chunk */
    struct ring_chunk
        *first; /* owner: first chunk of the open frame; those up to the current are not retired */
    uintptr_t open_position; /* owner: where the open frame starts */
    bool open;               /* owner */
    bool checked;            /* const */
    uintptr_t look_at; /* owner: position from which on to look whether all frames are released */
    size_t look_step;  /* owner: bytes from one look to the next */
    uint64_t opened;   /* owner: frames so far */
    uint64_t sealed;   /* owner */
    struct ring_chunk *spare;                  /* owner: free chunks, hottest first */
    size_t spare_bytes;                        /* owner */
    size_t spare_low;                          /* owner: least since the interval began */
    size_t out_bytes;                          /* owner: of chunks that are not free */
    size_t out_count;                          /* owner */
    size_t max_bytes;                          /* const */
    uint64_t interval_start_ms;                /* owner */
    bool (*out_of_memory)(void *, size_t);     /* const; NULL: none */
    void *out_of_memory_context;               /* const */
    char name[FRAME_NAME_BYTES];               /* const */
    struct ring_chunk *returned cache_aligned; /* atomic: stack; CLOSED when the ring is closed */
    intptr_t remaining;                        /* atomic: see above */
};

static_check(sizeof(struct ring) <= CELL_BYTES, "a ring is one descriptor");

#define CHUNKS_CLOSED ((struct ring_chunk *)1)

inline_always uintptr_t chunk_base(const struct ring_chunk *chunk)
{
    return (uintptr_t)chunk->span->base;
}
inline_always size_t chunk_bytes(const struct ring_chunk *chunk) { return run_bytes(chunk->span); }

/* A chunk with room for `needed` bytes, all its bits set, filled by the owner. NULL when memory is
 * out or the maximum reached. */
struct ring_chunk *chunk_take(struct ring *ring, size_t needed);

/* Sets the bits of the first `issued` frames again: no frame of the chunk lives, the owner fills
 * it. */
void chunk_restart(struct ring_chunk *chunk, uint32_t issued);

/* The owner has given out `issued` frames and fills it no more. */
void chunk_retire(struct ring *ring, struct ring_chunk *chunk, uint32_t issued);

/* The chunk is the owner's alone, and free. */
void chunk_keep(struct ring *ring, struct ring_chunk *chunk);

/* Whether all of `issued` frames are released. */
bool chunk_is_clear(const struct ring_chunk *chunk, uint32_t issued);

/* One hold of one frame in one chunk is given up; any thread. */
void chunk_clear_frame(struct ring_chunk *chunk, uint32_t index);

size_t ring_give_back(struct ring *ring, size_t keep_bytes);
void ring_collect(struct ring *ring);
/* Gives back what an interval did not need, when one has passed. */
void ring_tick(struct ring *ring);
void ring_close(struct ring *ring);

#endif
