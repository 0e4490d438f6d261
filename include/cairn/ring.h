/* Ring allocator: frames that one thread fills and any thread releases, in any order, without a
 * lock.
 *
 * The owner opens a frame, allocates blocks in it, seals it and passes it to a consumer. The last
 * release of a frame ends all its blocks at once. An allocation moves a pointer, without atomic
 * operations; a release is one atomic operation.
 *
 * Use a ring between a producer and its consumers: jobs, packets, log records. Do not use a ring if
 * frames live long, for one frame that is not released holds its chunk (64 KiB to 2 MiB), or if
 * single blocks of a frame must be freed (cairn/fifo.h does that).
 *
 * Example:
 *
 *     #include <cairn/ring.h>
 *
 *     struct job {
 *         cairn_frame frame;
 *         int number;
 *     };
 *
 *     struct job *produce(cairn_ring *ring, int number) // the owner of the ring
 *     {
 *         cairn_frame frame = cairn_ring_open(ring);
 *         if (frame.chunk == NULL)
 *             return NULL;                              // the ring is full: wait for releases
 *         struct job *job = cairn_ring_alloc(ring, sizeof *job, _Alignof(struct job));
 *         if (job != NULL)
 *             *job = (struct job){frame, number};
 *         cairn_ring_seal(ring);
 *         if (job == NULL)
 *             cairn_ring_release(frame);
 *         return job;
 *     }
 *
 *     void consume(struct job *job)                     // any thread
 *     {
 *         cairn_ring_release(job->frame);               // ends the job
 *     }
 *
 * Algorithm: chunks of 64 KiB to 2 MiB are filled from start to end. Each has a bitmap with one bit
 * for each frame, which the release clears, and a count of the bitmap words that are not clear yet.
 * The thread that brings this count to zero pushes the chunk to a stack, which the owner empties by
 * an exchange. A frame that outgrows its chunk continues in the next one, with a bit in each.
 * Frames that any thread may release come from Intersec's ring pools, which take a lock for it.
 *
 * Memory: a chunk whose frames are all released is the next one to be filled, so a ring of small
 * frames stays in cache. Chunks that were not needed for half a second return to the system; the
 * clock is read when chunks change.
 *
 * Threads: any thread may call cairn_ring_retain and cairn_ring_release. All other functions belong
 * to the owner: the thread that made the ring or adopted it last. Frame handles are values and may
 * be copied. A child of fork owns the rings of the forking thread.
 *
 * Failure: functions that allocate return NULL with errno ENOMEM when memory is out or `max_bytes`
 * is reached. The latter is backpressure: the call succeeds again after releases. No function waits
 * for them: let `out_of_memory` wait for a semaphore that consumers post after a release, and
 * return true. EINVAL if an alignment is no power of two.
 *
 * Cost: less than a nanosecond for an allocation, inline; one atomic operation for a release.
 *
 * Caveats:
 *  - A signal handler may call cairn_ring_retain, and cairn_ring_release while the ring is not
 *    closed, no other function.
 *  - Misuse ends the process with one line (docs/reference/MESSAGES.md) in all builds: an open
 *    while a frame is open, an allocation or a seal without an open frame, a second release, use by
 *    a thread that is not the owner, use after the end as long as no other ring has taken the
 *    place.
 *  - Debug builds, and all builds under AddressSanitizer or Valgrind, also find uses of released
 *    frames, and at the seal a release before it. Other builds do not find such a release: the
 *    chunk may be filled again while the frame is in use.
 *  - Frames that other threads held at the moment of a fork stay unreleased in the child.
 */
#ifndef CAIRN_RING_H
#define CAIRN_RING_H

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A ring. */
typedef struct cairn_ring cairn_ring;

/* The handle of a frame, for its release. A handle of zeros means that the open failed. */
typedef struct cairn_frame {
    void *chunk;
    uint32_t index;
    uint32_t generation;
} cairn_frame;

/* A point in the making of frames, for cairn_ring_rewind. */
typedef struct cairn_checkpoint {
    void *chunk;
    uintptr_t position;
    uint64_t sealed;
    uint64_t opened;
    bool open;
} cairn_checkpoint;

/* Options of cairn_ring_new. All zero: no limit. */
typedef struct cairn_ring_options {
    size_t max_bytes; /* the most memory for live frames and the chunk being filled, in whole chunks
                         of at least 64 KiB; 0: no limit; less than one chunk: EINVAL */
    const char *name; /* for messages, at most 23 bytes are kept; NULL: "ring" */
    /* Called when there is no memory for `size_bytes`, or `max_bytes` is reached; NULL: none. The
     * function returns true to try again after it has released frames or freed other memory. The
     * function must not open, allocate in, seal, rewind or end this ring, and must return, without
     * longjmp or an exception. */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *out_of_memory_context;
} cairn_ring_options;

/* Statistics of one ring. */
typedef struct cairn_ring_stats {
    size_t chunk_bytes; /* chunks with frames, and the one being filled */
    size_t spare_bytes; /* free chunks that the ring keeps */
    uint64_t sealed;    /* frames sealed since the start */
    size_t chunks;      /* number of chunks in chunk_bytes */
} cairn_ring_stats;

/* Creates a ring that the calling thread owns. `options` may be NULL.
 * Returns: the ring, or NULL with errno ENOMEM or EINVAL. */
CAIRN_API CAIRN_NODISCARD cairn_ring *
cairn_ring_new(const cairn_ring_options *options) CAIRN_NOEXCEPT;

/* Ends a ring without frames. NULL is ignored. Frames that are not released may be on their way to
 * another thread, so the ring
 * keeps them; after cairn_ring_close it ends with their last release.
 * Returns: 0; EBUSY while a frame is open or not released, then nothing has changed. */
CAIRN_API int cairn_ring_delete(cairn_ring *ring) CAIRN_NOEXCEPT;

/* Ends the ring with the last release of its frames, at once if it has none. No frame may be open,
 * and none can be opened from now on. NULL is ignored. */
CAIRN_API void cairn_ring_close(cairn_ring *ring) CAIRN_NOEXCEPT;

/* Opens a frame, which receives all allocations until cairn_ring_seal. The handle may be stored in
 * the frame and is valid for a release from the seal on.
 * Returns: the handle of the frame; all zero with errno ENOMEM if none was opened. */
CAIRN_API CAIRN_NODISCARD cairn_frame cairn_ring_open(cairn_ring *ring) CAIRN_NOEXCEPT;

/* Ends the making of the open frame. The frame needs one release from now on, and one more for each
 * retain.
 * Returns: the handle of the frame, equal to that of the open. */
CAIRN_API cairn_frame cairn_ring_seal(cairn_ring *ring) CAIRN_NOEXCEPT;

/* Makes the frame need `more` further releases: call it with n - 1 before passing a frame to n
 * consumers. A handle of all zero is ignored.
 * Threads: any thread that holds the frame; the owner also while the frame is open. */
CAIRN_API void cairn_ring_retain(cairn_frame frame, unsigned more) CAIRN_NOEXCEPT;

/* Gives up one hold on the frame; the last release ends it and all its blocks. A handle of all zero
 * is ignored.
 * Threads: any thread. */
CAIRN_API void cairn_ring_release(cairn_frame frame) CAIRN_NOEXCEPT;

/* Returns: the current point of the ring, for a later cairn_ring_rewind. A checkpoint becomes
 * invalid through a rewind to an earlier one, or a resize of the block that was the newest at the
 * checkpoint. */
CAIRN_API CAIRN_NODISCARD cairn_checkpoint cairn_ring_checkpoint(const cairn_ring *ring)
    CAIRN_NOEXCEPT;

/* Ends all blocks allocated since the checkpoint in the frame that was open then. If none was open,
 * it ends the frame opened since, with its holds. An invalid checkpoint is misuse.
 * Returns: 0; EBUSY if a frame was sealed since, then nothing has changed. */
CAIRN_API int cairn_ring_rewind(cairn_ring *ring, cairn_checkpoint checkpoint) CAIRN_NOEXCEPT;

/* Returns the free chunks to the system and keeps `keep_bytes` of them.
 * Returns: the number of bytes returned to the system. */
CAIRN_API size_t cairn_ring_trim(cairn_ring *ring, size_t keep_bytes) CAIRN_NOEXCEPT;

/* Makes the calling thread the owner of the ring. The previous owner must have stopped using it,
 * and the program must order the two, as a queue or a mutex does. */
CAIRN_API void cairn_ring_adopt(cairn_ring *ring) CAIRN_NOEXCEPT;

/* Fills *stats. */
CAIRN_API void cairn_ring_read_stats(const cairn_ring *ring,
                                     cairn_ring_stats *stats) CAIRN_NOEXCEPT;

/* Makes a cairn_allocator (cairn/allocator.h) that allocates in the open frame. The free of this
 * cairn_allocator does nothing, and its resize changes the newest block only. The cairn_allocator
 * is valid until the ring ends. */
CAIRN_API CAIRN_NODISCARD cairn_allocator
cairn_ring_allocator(cairn_ring *ring) CAIRN_NOEXCEPT;

/* Allocates a block of `size` bytes in the open frame at a multiple of `align` bytes, a power of
 * two, with undefined contents. A size of 0 counts as 1.
 * Returns: the block, or NULL with errno ENOMEM or EINVAL.
 * Cost: less than a nanosecond; inline if `align` is a constant. */
CAIRN_NODISCARD static inline void *cairn_ring_alloc(cairn_ring *ring, size_t size,
                                                     size_t align) CAIRN_NOEXCEPT;

/* Allocates a block of `size` bytes in the open frame at a multiple of `align` bytes and sets it to
 * 0.
 * Returns: the block, or NULL with errno ENOMEM or EINVAL. */
CAIRN_NODISCARD static inline void *cairn_ring_alloc_zero(cairn_ring *ring, size_t size,
                                                          size_t align) CAIRN_NOEXCEPT;

/* Allocates an array of `count` elements of `size` bytes each in the open frame, at a multiple of
 * `align` bytes, with undefined contents.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
CAIRN_NODISCARD static inline void *cairn_ring_alloc_array(cairn_ring *ring, size_t count,
                                                           size_t size,
                                                           size_t align) CAIRN_NOEXCEPT;

/* Allocates an array of `count` elements of `size` bytes each in the open frame, at a multiple of
 * `align` bytes, and sets it to 0.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
CAIRN_NODISCARD static inline void *cairn_ring_alloc_array_zero(cairn_ring *ring, size_t count,
                                                                size_t size,
                                                                size_t align) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#include <cairn/detail/ring.h> /* the bodies of the inline functions */
#endif
