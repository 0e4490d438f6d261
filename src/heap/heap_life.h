/* The life of heaps: made, adopted and borrowed, left by threads that end, frozen by a fork. The
 * states are in thread_heap.h.
 *
 * The heap layer is started (heap_start.h) before any of it.
 */
#ifndef CAIRN_HEAP_HEAP_LIFE_H
#define CAIRN_HEAP_HEAP_LIFE_H

#include "heap/thread_heap.h"

/* Registers the end of threads; once, at the start. */
void heap_watch_threads(void);

/* This thread's heap, made or adopted if need be; NULL when memory is out or the thread has ended.
 */
struct heap *heap_enter(void);

inline_always struct heap *heap_at_hand(void)
{
    return thread_heap == &no_heap ? heap_enter() : thread_heap;
}

/* Trims the heap that the thread which ended last has left ready for the next, if it is still
 * there; whether it was. Any thread. */
bool heap_trim_ended(void);

/* For a thread that has none: a heap for one operation. NULL when memory is out. Pairs with
 * heap_return. */
struct heap *heap_borrow(void);
void heap_return(struct heap *heap);

/* Holds the heap if it is an orphan. Pairs with heap_return. Any thread. */
bool heap_try_hold(struct heap *heap);

/* After a post, by who posted: empties the mailbox if nobody holds the heap, and tells who does but
 * will not look at it by itself. Heaps never go, so this one is there. */
void heap_tend_threadless(struct heap *heap, unsigned mailbox);
inline_always void heap_tend_after_post(struct heap *heap, unsigned mailbox)
{
    if (unlikely(heap_is_threadless(load_seq_cst(&heap->state))))
        heap_tend_threadless(heap, mailbox);
}

/* Fork, in the child. The heaps of threads that are not here were in use while the kernel copied
 * the pages one after another, so what the child sees of them is of different instants: lists may
 * contradict pointers that the program holds. They are frozen: nothing is allocated from them
 * again, their blocks stay valid, and a free of one is taken without the checks that their state
 * could fail falsely: a second free in this process still dies. This thread's own heap goes on.
 * Time: that of a few stores, for most children have another program to start. */
void heaps_after_fork(void);

/* What first-class heaps do then, at its end. Once there is one. */
void heaps_on_fork(void (*in_child)(void));

/* This thread's state of the tracer; NULL after the thread's end, and where memory is out. */
struct traced_thread *heap_traced_thread(void);

#endif
