/* Objects of code: see stack_object.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* _dl_find_object */
#endif
#include "os/stack_object.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

/* Where the segments of the program leave gaps, libc says of its code only where that is: the
 * segment of the tables. Const after stack_objects_prepare. */
static struct {
    uintptr_t from, to;
} program_tables;

struct stack_object stack_program;

static void find_tables_of_program(void)
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
bool stack_object_of(uintptr_t address, struct stack_object *object)
{
    (void)address, (void)object;
    return false;
}
#endif

void stack_objects_prepare(void)
{
    struct stack_object object;
    find_tables_of_program();
    if (stack_object_of(getauxval(AT_ENTRY), &object))
        stack_program = object;
}
