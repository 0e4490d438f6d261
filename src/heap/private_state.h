/* A private heap (private_heap.h): fields, lock, list of slabs, limit, and notes of large blocks.
 *
 * Invariants (private_heap_verify): slab_bytes == bytes of `slabs`, slab_bytes <= held_bytes.
 * Threads: the lock protects the struct heap inside. Each other field says what protects it. */
#ifndef CAIRN_HEAP_PRIVATE_STATE_H
#define CAIRN_HEAP_PRIVATE_STATE_H

#include "cairn/private_heap.h"
#include "heap/thread_heap.h"

struct private_heap {
    /* First. Fields of its holder are those of the thread that holds the lock below. */
    struct heap heap;
    struct fork_lock lock;
    uint32_t serial;                        /* atomic: serial of the handle; 0 if never used */
    struct private_heap *next_private_heap; /* const after it is listed: all heaps */
    struct private_heap *next_unused;       /* lock: registry: heaps that wait to be used again */
    struct span *slabs;                     /* lock: all slabs */
    struct large_note *notes;               /* atomic, lock to write: all notes, see below */
    uintptr_t spare_notes;              /* atomic: list of base/tagged.h: notes without a block */
    cairn_private_heap_options options; /* const in use; limit_bytes replaces its limit */
    uint32_t made_in;                   /* const in use: generation of the process that made it */
    size_t slab_bytes;                  /* lock: bytes of `slabs` */
    size_t held_bytes;  /* atomic: bytes of slabs and large blocks, those being taken included */
    size_t peak_bytes;  /* atomic: largest value of held_bytes */
    size_t limit_bytes; /* atomic: limit of held_bytes */
    size_t refusals;    /* atomic: requests that the limit refused */
};

/* The private heap of a block, or NULL if the block belongs to none. */
inline_always struct private_heap *span_private_heap(const struct span *span)
{
    struct heap *heap = slab_heap(span);
    return heap ? heap->private_heap : NULL;
}

/* Takes the heap's lock. Dies when the heap has ended. */
void private_heap_lock(struct private_heap *private_heap);
/* Releases the heap's lock, and gives the retired slabs to the pages. */
void private_heap_unlock(struct private_heap *private_heap);

/* The bytes of a slab of the class, as the limit counts them. */
inline_always size_t private_heap_slab_bytes(unsigned size_class)
{
    return class_is_zero_size(size_class) ? 0
                                          : (size_t)size_classes[size_class].pages << PAGE_SHIFT;
}

/* Adds a slab whose bytes are reserved to the list of all slabs. Locking: the heap's lock held. */
void private_heap_list_slab(struct private_heap *private_heap, struct span *slab);

inline_always struct span *private_heap_next_slab(const struct span *slab)
{
    return slab_cold(slab)->of_heap.next;
}

void private_heap_unreserve(struct private_heap *private_heap, size_t bytes);
/* Raises the peak to held_bytes. Called once reserved bytes were taken: failures do not count. */
void private_heap_note_peak(struct private_heap *private_heap);

/* Sets the limit; 0 for none. */
void private_heap_set_limit(struct private_heap *private_heap, size_t limit_bytes);

/* Checks the heap and the invariants, with assertions. Locking: the heap's lock held. */
void private_heap_verify(struct private_heap *private_heap);

/* The limit of a private heap, and the notes of its large blocks, which end with it.
 *
 * Each large block has a note in metadata memory. The owner word of its span is the heap, and the
 * span's `next` is the note. Any thread takes spare notes, and a free makes the note spare again.
 * Notes are never given back: the list of all notes only grows, so any thread may walk over it.
 * Threads: any; the functions lock the heap themselves unless a tag says otherwise. */

struct large_note {
    struct large_note *next;       /* const after it is listed: all notes of the heap */
    struct large_note *next_spare; /* see base/tagged.h */
    struct span *span;             /* atomic: the block's span; NULL without a block */
    size_t bytes;                  /* atomic: length of the span */
};

/* The note of a large block of a private heap. No other module uses the field meanwhile. */
inline_always struct large_note *private_heap_note_of(const struct span *span)
{
    return (struct large_note *)(void *)span->next;
}

/* Takes a note for a block that is going to be allocated. The note is passed on to
 * private_heap_link_note or, if there is no block, to private_heap_spare_note.
 * Returns: NULL when out of memory. */
struct large_note *private_heap_take_note(struct private_heap *private_heap);
/* Makes the span a large block of the heap, described by the note. */
void private_heap_link_note(struct private_heap *private_heap, struct large_note *note,
                            struct span *span);
/* Gives back a note that no block uses any more. */
void private_heap_spare_note(struct private_heap *private_heap, struct large_note *note);

/* The span of the note's block. Returns: NULL if the note has no block in use. */
struct span *private_heap_noted(const struct private_heap *private_heap,
                                const struct large_note *note);

/* Removes a freed block from its heap. Threads: the one that swapped the block's tag. */
void private_heap_lose_large(struct span *span);

/* The bytes of the large blocks in use, in the child of fork. Notes that other threads of the
 * parent were taking or giving back are lost. */
size_t private_heap_recount_large(struct private_heap *private_heap);

/* Adds `bytes`, which are going to be taken, to held_bytes if the limit allows it. If it does not
 * at first, the heap gives back what it keeps without need.
 * Returns: false when the limit does not allow it. */
bool private_heap_reserve(struct private_heap *private_heap, size_t bytes);

/* Reserves the growth of a large block to `pages`; `*counted_pages` gets the length counted now.
 * Returns: false when the limit does not allow it.
 * Locking: large_lock held for the block. */
bool private_heap_begin_resize(struct span *span, size_t pages, size_t *counted_pages);
/* Replaces the count of private_heap_begin_resize by the block's length, resized or not.
 * Locking: large_lock held for the block. */
void private_heap_end_resize(struct span *span, size_t counted_pages);

/* Gives back the memory that the heap keeps without need. */
void private_heap_trim(struct private_heap *private_heap);

#endif
