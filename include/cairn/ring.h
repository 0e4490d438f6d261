/* Ring allocator: frames made by one thread and released by any, in any order, without a lock.
 *
 * The owner opens a frame, allocates in it, seals it and hands it to whoever consumes it; the last
 * release of a frame ends all its memory. Allocation is a bump of a pointer, without atomic
 * operations; release is one atomic operation.
 */
/* clang-format off */
/*     // owner                                              // worker
 *     cairn_frame frame = cairn_ring_open(ring);
 *     if (frame.chunk == NULL)
 *         return false; // full: wait for releases
 *     struct job *job = cairn_ring_alloc(ring, sizeof *job, _Alignof(struct job));
 *     if (job != NULL)
 *         job->frame = frame;
 *     cairn_ring_seal(ring);
 *     if (job == NULL) {
 *         cairn_ring_release(frame);
 *         return false;
 *     }
 *     queue_put(queue, job);                                struct job *job = queue_get(queue);
 *                                                           ...
 *                                                           cairn_ring_release(job->frame);
 */
/* clang-format on */
/* Algorithm: chunks of 64 KiB to 2 MiB are filled from start to end; each has a bitmap with a bit a
 * frame, which the release clears, and a count of bitmap words that are not clear yet; who brings
 * that to zero pushes the chunk to a stack that the owner empties by exchange. A frame that
 * outgrows its chunk goes on in the next, with a bit in each. The frame stack with release from any
 * thread is that of Intersec's ring pools, without their lock.
 *
 * Memory: a chunk whose frames are all released is filled next, the current one from its start, so
 * small frames stay in cache. Chunks that were not needed for half a second go back to the system;
 * the clock is looked at when chunks change. One frame that is not released holds its chunks.
 *
 * Threads: retain, release and the free of cairn_ring_allocator (which does nothing) belong to any
 * thread, all else to the one that made the ring, or adopted it last. Handles are values. A signal
 * handler may call retain, and release while the ring is not closed, nothing else. Fork: the
 * child's thread owns the rings that it owned in the parent. Frames held by other threads stay
 * unreleased in the child.
 *
 * Failure: NULL with errno ENOMEM when memory is out or `max_bytes` is reached, which is
 * backpressure: it works again after releases. EINVAL for an alignment that is no power of two.
 * Misuse dies with one line (docs/MESSAGES-frame.md), always: open while a frame is open,
 * allocation or seal while none is, a second release of a frame, a thread that does not own the
 * ring, any use after its end while its memory does not serve another ring. Debug builds, and every
 * build under AddressSanitizer or Valgrind, also find uses of released frames.
 */
#ifndef CAIRN_RING_H
#define CAIRN_RING_H

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The part of a ring that the inline functions work on; not for other use. Owner thread writes all
 * of it. */
typedef struct cairn_ring {
    uintptr_t position; /* next free byte, a multiple of 8; 0 while every allocation takes the slow
                           path */
    uintptr_t limit;    /* of inline allocation, a multiple of 4096; 0 likewise */
    void *owner;        /* atomic: its thread pointer; NULL after the end */
} cairn_ring;

/* A frame, for its release. All zero: there is none, the open failed. */
typedef struct cairn_frame {
    void *chunk;
    uint32_t index;
    uint32_t generation;
} cairn_frame;

/* A point within the making of frames; see cairn_ring_rewind. */
typedef struct cairn_checkpoint {
    void *chunk;
    uintptr_t position;
    uint64_t sealed;
    uint64_t opened;
    bool open;
} cairn_checkpoint;

typedef struct cairn_ring_options {
    size_t max_bytes; /* most that live frames and the chunk being filled may hold, in whole chunks
                         of at least 64 KiB; 0: no limit; less than one chunk: EINVAL */
    const char *name; /* for messages, at most 23 bytes are kept; NULL: "ring" */
    /* Called when there is no memory for so many bytes, or `max_bytes` is reached: true to try
     * again, after it released frames or made memory free elsewhere. It must not open, allocate in,
     * seal, rewind or end this ring, and must return. NULL: none. */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *out_of_memory_context;
} cairn_ring_options;

typedef struct cairn_ring_stats {
    size_t chunk_bytes; /* in chunks that hold frames or are being filled */
    size_t spare_bytes; /* in free chunks that are kept */
    uint64_t sealed;    /* frames, since the start */
    size_t chunks;      /* that hold frames or are being filled */
} cairn_ring_stats;

/* A new ring, owned by the calling thread. NULL as `options` is all zero. NULL with ENOMEM or
 * EINVAL. */
CAIRN_API CAIRN_NODISCARD cairn_ring *
cairn_ring_new(const cairn_ring_options *options) CAIRN_NOEXCEPT;

/* Ends the ring: 0; or EBUSY while a frame is open or not released, and then nothing happened. NULL
 * gives 0. */
CAIRN_API int cairn_ring_delete(cairn_ring *ring) CAIRN_NOEXCEPT;

/* Ends the ring with the last release of its frames, which may be now. Nothing may be opened any
 * more, and no frame may be open. NULL is ignored. */
CAIRN_API void cairn_ring_close(cairn_ring *ring) CAIRN_NOEXCEPT;

/* Opens a frame, to which allocations go until it is sealed. The handle may be stored in it and
 * used from the seal on. All zero with ENOMEM: none was opened. */
CAIRN_API CAIRN_NODISCARD cairn_frame cairn_ring_open(cairn_ring *ring) CAIRN_NOEXCEPT;

/* Ends the making of the open frame; its handle again. It needs one release from now on. */
CAIRN_API cairn_frame cairn_ring_seal(cairn_ring *ring) CAIRN_NOEXCEPT;

/* The frame needs `more` more releases. For who holds one, before handing it on: a frame for n
 * consumers is retained with n - 1. Any thread, the owner also while the frame is open. A frame all
 * zero is ignored. */
CAIRN_API void cairn_ring_retain(cairn_frame frame, unsigned more) CAIRN_NOEXCEPT;

/* Gives one hold on the frame up; the last one ends it. Any thread. A frame all zero is ignored. */
CAIRN_API void cairn_ring_release(cairn_frame frame) CAIRN_NOEXCEPT;

/* The current point; the rewind to it ends what was allocated since: in the frame that was open
 * then, or, when none was, the frame opened since, with its holds. 0; or EBUSY when a frame was
 * sealed since, for that has escaped, and nothing happened. A checkpoint that is undone dies: by a
 * rewind to an earlier one, or by a resize of the block that was the newest then. */
CAIRN_API CAIRN_NODISCARD cairn_checkpoint cairn_ring_checkpoint(const cairn_ring *ring)
    CAIRN_NOEXCEPT;
CAIRN_API int cairn_ring_rewind(cairn_ring *ring, cairn_checkpoint checkpoint) CAIRN_NOEXCEPT;

/* Gives all free chunks but `keep_bytes` back; returns how many bytes went. */
CAIRN_API size_t cairn_ring_trim(cairn_ring *ring, size_t keep_bytes) CAIRN_NOEXCEPT;

/* The calling thread owns the ring from now on. The last owner must have stopped using it before.
 */
CAIRN_API void cairn_ring_adopt(cairn_ring *ring) CAIRN_NOEXCEPT;

CAIRN_API void cairn_ring_read_stats(const cairn_ring *ring,
                                     cairn_ring_stats *stats) CAIRN_NOEXCEPT;

/* alloc in the open frame; free does nothing; resize of the newest block. */
CAIRN_API CAIRN_NODISCARD cairn_allocator
cairn_ring_allocator(cairn_ring *ring) CAIRN_NOEXCEPT;

/* The slow half of alloc; complete in itself. */
CAIRN_API CAIRN_NODISCARD void *cairn_ring_alloc_slow(cairn_ring *ring, size_t size,
                                                      size_t align) CAIRN_NOEXCEPT;

#define CAIRN_RING_INLINE_ALIGN 4096

/* A block in the open frame; size 0 counts as 1. Contents are undefined. Alignment: any power of
 * two. Under a nanosecond; inline when `align` is a constant. */
CAIRN_NODISCARD static inline void *cairn_ring_alloc(cairn_ring *ring, size_t size,
                                                     size_t align) CAIRN_NOEXCEPT
{
    if (__builtin_constant_p(align) && align <= CAIRN_RING_INLINE_ALIGN && align != 0 &&
        (align & (align - 1)) == 0) {
        uintptr_t start = ring->position; /* a multiple of 8 */
        if (align > 8)
            start = (start + align - 1) & ~(uintptr_t)(align - 1);
        size_t rounded = (size + 7) & ~(size_t)7;
        /* Position and limit are both 0, or the limit is a multiple of `align` and not below
         * `start`. */
        if (__builtin_expect(rounded - 1 < ring->limit - start &&
                                 __atomic_load_n(&ring->owner, __ATOMIC_RELAXED) ==
                                     __builtin_thread_pointer(),
                             1)) {
            ring->position = start + rounded;
            return (void *)start;
        }
    }
    return cairn_ring_alloc_slow(ring, size, align);
}

/* The same, all zero. */
CAIRN_NODISCARD static inline void *cairn_ring_alloc_zero(cairn_ring *ring, size_t size,
                                                          size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_ring_alloc(ring, size, align);
    return block ? __builtin_memset(block, 0, size) : block;
}

/* The same for `count` elements of `size` bytes; a product that overflows fails with ENOMEM. */
CAIRN_NODISCARD static inline void *cairn_ring_alloc_array(cairn_ring *ring, size_t count,
                                                           size_t size, size_t align) CAIRN_NOEXCEPT
{
    return cairn_ring_alloc(ring, cairn_array_bytes(count, size), align);
}

CAIRN_NODISCARD static inline void *cairn_ring_alloc_array_zero(cairn_ring *ring, size_t count,
                                                                size_t size,
                                                                size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_ring_alloc_array(ring, count, size, align);
    return block ? __builtin_memset(block, 0, count * size) : block;
}

#ifdef __cplusplus
}
#endif
#endif
