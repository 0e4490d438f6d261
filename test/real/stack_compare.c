/* A library for stack_truth_test.py. The library is loaded before malloc and walks the stack of
 * every CAIRN_COMPARE_EVERY-th call in three ways: by a full walk, by the cache of earlier walks,
 * and by the C runtime's unwinder. At the end of the process it reports how many stacks were equal,
 * refused, and different.
 */
#include "base/atomic.h"
#include "os/memory.h"
#include "os/process.h"
#include "unwind/unwind.h"
#include "unwind/unwind_walk.h"

#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 40, RAW = 80 };

void *__libc_malloc(size_t size_bytes);
__attribute__((visibility("default"))) void *malloc(size_t size_bytes);

static thread_local_word int inside;
static thread_local_word bool begun;
static unsigned long every;                   /* const after the start; 0: not yet */
static unsigned long calls;                   /* atomic */
static unsigned long equal, refused, differs; /* atomic */

/* One cache for all threads, used in turn. */
static struct unwind_cache memo; /* lock: held */
static uint32_t held;             /* atomic: 1 while a thread uses the cache */

static no_inline void count(bool walked, bool as_expected)
{
    fetch_add_relaxed(!walked ? &refused : as_expected ? &equal : &differs, 1ul);
}

/* Compares the cached walk with the runtime's. malloc calls it directly, so the caller of malloc is
 * the first address that both must find. */
static no_inline void compare_again(uintptr_t caller)
{
    void *raw[RAW];
    uint32_t free = 0;
    if (!compare_swap_acq_rel(&held, &free, 1u)) /* pairs with the release at the end */
        return;
    const struct unwind_step *step = unwind_cached(&memo, os_thread_id());
    int there = backtrace(raw, RAW);
    int first = 0;
    while (first < there && (uintptr_t)raw[first] != caller)
        first++;
    bool walked = step != NULL;
    int depth = there - first;
    bool same = walked && (there == RAW ? step->depth >= depth : step->depth == depth);
    for (int i = 0; same && i < depth; i++, step = step->outer)
        same = step->address == (uintptr_t)raw[first + i];
    count(walked, same);
    store_release(&held, 0u); /* pairs with the swap at the beginning */
}

static no_inline void compare(uintptr_t caller)
{
    uintptr_t walked[MOST];
    void *raw[RAW];
    int got = unwind_walk(walked, MOST, caller, 0, 0);
    int there = backtrace(raw, RAW);
    int first = 0;
    while (first < there && (uintptr_t)raw[first] != caller)
        first++;
    int expected = there - first < MOST ? there - first : MOST;
    count(got >= 0,
          got == expected && memcmp(walked, raw + first, (size_t)expected * sizeof *walked) == 0);
}

void *malloc(size_t size_bytes)
{
    void *block = __libc_malloc(size_bytes);
    unsigned long step = load_acquire(&every); /* pairs with start */
    if (inside || step == 0 || fetch_add_relaxed(&calls, 1ul) % step != 0)
        return block;
    inside = 1;
    if (!begun)
        unwind_forget_thread();
    begun = true;
    uintptr_t caller = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
    compare(caller);
    compare_again(caller);
    inside = 0;
    return block;
}

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("CAIRN_COMPARE_EVERY");
    os_init();
    unwind_prepare();
    store_release(&every, text ? strtoul(text, NULL, 10) : 1ul); /* pairs with malloc */
}

__attribute__((destructor)) static void end(void)
{
    store_relaxed(&every, 0ul);
    fprintf(stderr, "stacks: %lu equal, %lu refused, %lu differ\n", load_relaxed(&equal),
            load_relaxed(&refused), load_relaxed(&differs));
}
