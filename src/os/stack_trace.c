/* Stacks, by the unwinder that libc brings: Debian's programs are compiled without frame pointers.
 *
 * backtrace() loads libgcc_s at its first call; from then on it neither allocates nor locks, unless
 * the process has registered unwind tables of its own (__register_frame). _dl_find_object, which it
 * uses too, is lock-free and safe in signal handlers; glibc has it since 2.35. Wholly static
 * programs register their tables after the first constructors, and before the unwinder aborts: no
 * stack is walked there, nor with another libc.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* _dl_find_object */
#endif
#include "base/atomic.h"
#include "base/bits.h"
#include "os/kernel.h"
#include "os/os.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#else
static int backtrace(void **frames, int capacity)
{
    (void)frames, (void)capacity;
    return 0;
}
#endif

enum { RAW_FRAMES = 48 }; /* this library's own frames among them */

static bool can_walk; /* atomic: os_stack_prepare, which may come again */

#ifdef DLFO_STRUCT_HAS_EH_DBASE /* comes with the function */
static const struct link_map *object_of(uintptr_t address)
{
    struct dl_find_object found;
    return _dl_find_object((void *)address, &found) == 0 ? found.dlfo_link_map : NULL;
}
#else
static const struct link_map *object_of(uintptr_t address)
{
    (void)address;
    return NULL;
}
#endif

uint32_t os_thread_id(void) { return (uint32_t)kernel_call(SYS_gettid, 0, 0, 0, 0, 0, 0); }

void os_stack_prepare(void)
{
    void *frames[2];
    const struct link_map *own = object_of((uintptr_t)&os_stack);
    if (own == NULL || (own->l_name[0] == '\0' && getauxval(AT_BASE) == 0))
        return;
    (void)backtrace(frames, 2);
    store_relaxed(&can_walk, true);
}

/* The frames that belong to this library; linked statically it is the program, and none is told
 * from the others. */
static unsigned count_own(void *const *frames, unsigned count)
{
    const struct link_map *own = object_of((uintptr_t)&os_stack);
    unsigned i = 0;
    if (own && own->l_name[0] != '\0')
        while (i < count && object_of((uintptr_t)frames[i]) == own)
            i++;
    return i;
}

unsigned os_stack(uintptr_t *frames, unsigned capacity, uintptr_t instruction)
{
    void *raw[RAW_FRAMES];
    int got = load_relaxed(&can_walk) ? backtrace(raw, RAW_FRAMES) : 0;
    unsigned count = got > 0 ? (unsigned)got : 0;
    unsigned first = count_own(raw, count);
    for (unsigned i = 0; instruction != 0 && i < count; i++)
        if ((uintptr_t)raw[i] == instruction)
            first = i;
    unsigned kept = (unsigned)smaller_of(count - first, capacity);
    for (unsigned i = 0; i < kept; i++)
        frames[i] = (uintptr_t)raw[first + i];
    return kept;
}

const char *os_locate(uintptr_t address, uintptr_t *base)
{
    const struct link_map *object = object_of(address);
    if (object == NULL)
        return NULL;
    *base = object->l_addr;
    return object->l_name[0] != '\0' ? object->l_name : (const char *)getauxval(AT_EXECFN);
}
