/* For stack_truth_test.py: a library in front of malloc that walks the stack of every
 * CAIRN_COMPARE_EVERY-th call thrice, by itself, by what is known of walks before, and by the C
 * runtime's unwinder, and says at the process's end how many were equal, how many it refused, and
 * how many differed.
 */
#include "base/atomic.h"
#include "os/os.h"
#include "os/stack_walk.h"

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

/* One for all threads, in turn. */
static struct os_stack_memo memo; /* who holds it */
static uint32_t held;             /* atomic: 1 while somebody does */

static no_inline void count(bool walked, bool as_expected)
{
    fetch_add_relaxed(!walked ? &refused : as_expected ? &equal : &differs, 1ul);
}

/* Called by malloc itself, whose caller is the first that both are to find. */
static no_inline void compare_again(uintptr_t caller)
{
    void *raw[RAW];
    uint32_t free = 0;
    if (!compare_swap_acq_rel(&held, &free, 1u)) /* pairs with the end of this */
        return;
    const struct os_stack_step *step = os_stack_again(&memo, os_thread_id());
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
    store_release(&held, 0u); /* pairs with the beginning */
}

static no_inline void compare(uintptr_t caller)
{
    uintptr_t walked[MOST];
    void *raw[RAW];
    int got = stack_walk(walked, MOST, caller, 0, 0);
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
        os_stack_forget();
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
    os_stack_prepare();
    store_release(&every, text ? strtoul(text, NULL, 10) : 1ul); /* pairs with malloc */
}

__attribute__((destructor)) static void end(void)
{
    store_relaxed(&every, 0ul);
    fprintf(stderr, "stacks: %lu equal, %lu refused, %lu differ\n", load_relaxed(&equal),
            load_relaxed(&refused), load_relaxed(&differs));
}
