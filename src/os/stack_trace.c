/* Stacks: by the walk of stack_walk.h, and where that does not know how, by the unwinder that libc
 * brings. Debian's programs are compiled without frame pointers.
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
#include "os/stack_walk.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
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

static bool preparing;             /* atomic: os_stack_prepare was called before */
static bool can_walk;              /* atomic: published by os_stack_prepare */
static uintptr_t own_from, own_to; /* const before can_walk: this library; empty in a program */

/* Where the segments of the program leave gaps, libc says of its code only where that is: the
 * segment of the tables. Const before can_walk. */
static struct {
    uintptr_t from, to;
} program_tables;

static void find_program_tables(void)
{
    const ElfW(Phdr) *headers = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    size_t count = headers ? getauxval(AT_PHNUM) : 0;
    uintptr_t base = 0;
    uintptr_t tables = 0;
    for (size_t i = 0; i < count; i++)
        if (headers[i].p_type == PT_PHDR)
            base = (uintptr_t)headers - headers[i].p_vaddr;
        else if (headers[i].p_type == PT_GNU_EH_FRAME)
            tables = headers[i].p_vaddr;
    for (size_t i = 0; i < count; i++)
        if (headers[i].p_type == PT_LOAD && tables >= headers[i].p_vaddr &&
            tables - headers[i].p_vaddr < headers[i].p_memsz) {
            program_tables.from = base + headers[i].p_vaddr;
            program_tables.to = program_tables.from + headers[i].p_memsz;
        }
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE /* comes with the function */
static const struct link_map *object_of(uintptr_t address)
{
    struct dl_find_object found;
    return _dl_find_object((void *)address, &found) == 0 ? found.dlfo_link_map : NULL;
}

/* Its head and the last entry of its table. Two builds of one library differ there. */
static uint64_t tag_of(const struct stack_object *object)
{
    uint32_t head[3]; /* kinds, .eh_frame's place, number of functions */
    uint64_t last = 0;
    memcpy(head, (const void *)object->tables, sizeof head);
    uintptr_t at = object->tables + sizeof head + ((uint64_t)head[2] - 1) * sizeof last;
    if (head[2] != 0 && at + sizeof last <= object->readable_to)
        memcpy(&last, (const void *)at, sizeof last);
    uint64_t tag = (last ^ (uint64_t)head[1] << 32 ^ head[2]) * 0x9e3779b97f4a7c15u;
    return (tag ^ tag >> 32 ^ object->tables) << 16; /* addresses of code differ below, too */
}

bool stack_object_of(uintptr_t address, struct stack_object *object)
{
    struct dl_find_object found;
    if (_dl_find_object((void *)address, &found) != 0)
        return false;
    object->start = (uintptr_t)found.dlfo_map_start;
    object->end = (uintptr_t)found.dlfo_map_end;
    object->tables = (uintptr_t)found.dlfo_eh_frame;
    object->readable_from = object->start;
    object->readable_to = object->end;
    if (object->tables >= program_tables.from && object->tables < program_tables.to) {
        object->readable_from = program_tables.from;
        object->readable_to = program_tables.to;
    }
    if (object->tables < object->readable_from || object->tables + 64 > object->readable_to)
        return false;
    object->tag = tag_of(object);
    return true;
}
#else
static const struct link_map *object_of(uintptr_t address)
{
    (void)address;
    return NULL;
}

bool stack_object_of(uintptr_t address, struct stack_object *object)
{
    (void)address, (void)object;
    return false;
}
#endif

uint32_t os_thread_id(void) { return (uint32_t)kernel_call(SYS_gettid, 0, 0, 0, 0, 0, 0); }

void os_stack_prepare(void)
{
    void *frames[2];
    struct stack_object object;
    const struct link_map *own = object_of((uintptr_t)&os_stack);
    if (own == NULL || (own->l_name[0] == '\0' && getauxval(AT_BASE) == 0) ||
        exchange_acq_rel(&preparing, true))
        return;
    if (own->l_name[0] != '\0' && stack_object_of((uintptr_t)&os_stack, &object)) {
        own_from = object.start;
        own_to = object.end;
    }
    find_program_tables();
    stack_walk_prepare();
    (void)backtrace(frames, 2);
    store_release(&can_walk, true); /* pairs with os_stack */
}

/* The frames that belong to this library; linked statically it is the program, and none is told
 * from the others. */
static unsigned count_own(void *const *frames, unsigned count)
{
    unsigned i = 0;
    while (i < count && (uintptr_t)frames[i] >= own_from && (uintptr_t)frames[i] < own_to)
        i++;
    return i;
}

/* By the C runtime, from the caller of os_stack on. */
static no_inline unsigned stack_by_runtime(uintptr_t *frames, unsigned capacity, uintptr_t caller,
                                           uintptr_t instruction)
{
    void *raw[RAW_FRAMES];
    int got = backtrace(raw, RAW_FRAMES);
    unsigned count = got > 0 ? (unsigned)got : 0;
    unsigned first = 0;
    while (first < count && (uintptr_t)raw[first] != caller)
        first++;
    first = first == count ? 0 : first;
    first += count_own(raw + first, count - first);
    for (unsigned i = 0; instruction != 0 && i < count; i++)
        if ((uintptr_t)raw[i] == instruction)
            first = i;
    unsigned kept = (unsigned)smaller_of(count - first, capacity);
    for (unsigned i = 0; i < kept; i++)
        frames[i] = (uintptr_t)raw[first + i];
    return kept;
}

/* Both walks begin with the caller's frame, whatever is called in between. */
no_inline unsigned os_stack(uintptr_t *frames, unsigned capacity, uintptr_t instruction)
{
    uintptr_t caller = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
    if (!load_acquire(&can_walk)) /* pairs with os_stack_prepare */
        return 0;
    int walked = instruction == 0 ? stack_walk(frames, capacity, caller, own_from, own_to) : -1;
    return walked >= 0 ? (unsigned)walked : stack_by_runtime(frames, capacity, caller, instruction);
}

no_inline int os_stack_again(struct os_stack_memo *memo)
{
    uintptr_t caller = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
    if (!load_acquire(&can_walk)) /* pairs with os_stack_prepare */
        return -1;
    return stack_walk_again(memo, caller, own_from, own_to);
}

const char *os_locate(uintptr_t address, uintptr_t *base)
{
    const struct link_map *object = object_of(address);
    if (object == NULL)
        return NULL;
    *base = object->l_addr;
    return object->l_name[0] != '\0' ? object->l_name : (const char *)getauxval(AT_EXECFN);
}
