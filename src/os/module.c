/* Modules and their build ids, from the ELF headers that are mapped with them: see module.h.
 *
 * Async-signal-safe: _dl_find_object takes no lock. Only memory that a readable segment of the
 * module covers is read, which is possible while the module is loaded.
 *
 * Source: System V ABI, chapter 5 (program headers); the note NT_GNU_BUILD_ID of GNU ld.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* _dl_find_object */
#endif
#include "os/module.h"
#include "base/atomic.h"
#include "base/bits.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#ifdef DLFO_STRUCT_HAS_EH_DBASE /* defined together with _dl_find_object */
/* The path by which the program was started. */
static const char *os_program_path(void)
{
    static const char *path; /* atomic */
    const char *found = load_relaxed(&path);
    if (unlikely(found == NULL)) {
        found = (const char *)getauxval(AT_EXECFN);
        store_relaxed(&path, found);
    }
    return found;
}

bool os_module_of(uintptr_t address, struct os_module *module)
{
    struct dl_find_object found;
    if (_dl_find_object((void *)address, &found) != 0 || found.dlfo_link_map == NULL)
        return false;
    const struct link_map *object = found.dlfo_link_map;
    module->base = object->l_addr;
    module->is_program = object->l_name[0] == '\0';
    module->path = module->is_program ? os_program_path() : object->l_name;
    module->start = (uintptr_t)found.dlfo_map_start;
    module->end = (uintptr_t)found.dlfo_map_end;
    return module->path != NULL;
}
#else
bool os_module_of(uintptr_t address, struct os_module *module)
{
    (void)address, (void)module;
    return false;
}
#endif

const char *os_locate(uintptr_t address, uintptr_t *base)
{
    struct os_module module;
    if (!os_module_of(address, &module))
        return NULL;
    *base = module.base;
    return module.path;
}

struct headers {
    const ElfW(Phdr) * first;
    size_t count;
};

/* The program headers of a module. The program may have been linked without its ELF header in
 * memory, so the kernel's values are used for it. */
static struct headers os_headers_of(const struct os_module *module)
{
    struct headers headers = {NULL, 0};
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)module->start;
    if (module->is_program) {
        headers.first = (const ElfW(Phdr) *)getauxval(AT_PHDR);
        headers.count = headers.first ? getauxval(AT_PHNUM) : 0;
    } else if (module->end - module->start >= sizeof *head &&
               memcmp(head->e_ident, ELFMAG, SELFMAG) == 0 &&
               head->e_phentsize == sizeof(ElfW(Phdr)) &&
               head->e_phoff % __alignof__(ElfW(Phdr)) == 0 &&
               head->e_phoff + head->e_phnum * sizeof(ElfW(Phdr)) <= 4096) {
        headers.first = (const ElfW(Phdr) *)(module->start + head->e_phoff);
        headers.count = head->e_phnum;
    }
    return headers;
}

/* Whether a readable segment covers the part. */
static bool os_is_loaded(struct headers headers, const ElfW(Phdr) * part)
{
    for (size_t i = 0; i < headers.count; i++) {
        const ElfW(Phdr) *segment = &headers.first[i];
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_R) != 0 &&
            part->p_vaddr >= segment->p_vaddr && part->p_memsz <= segment->p_filesz &&
            part->p_vaddr - segment->p_vaddr <= segment->p_filesz - part->p_memsz)
            return true;
    }
    return false;
}

size_t os_build_id_of_notes(const unsigned char *notes, size_t bytes, const unsigned char **id)
{
    ElfW(Nhdr) head;
    for (size_t at = 0; at + sizeof head <= bytes;) {
        memcpy(&head, notes + at, sizeof head);
        size_t text = at + sizeof head + align_up(head.n_namesz, 4);
        if (head.n_namesz > bytes || head.n_descsz > bytes || text + head.n_descsz > bytes)
            return 0;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
            memcmp(notes + at + sizeof head, "GNU", 4) == 0) {
            *id = notes + text;
            return head.n_descsz <= OS_BUILD_ID_MAX ? head.n_descsz : 0;
        }
        at = text + align_up(head.n_descsz, 4);
    }
    return 0;
}

size_t os_module_build_id(const struct os_module *module, const unsigned char **id)
{
    struct headers headers = os_headers_of(module);
    for (size_t i = 0; i < headers.count; i++) {
        const ElfW(Phdr) *part = &headers.first[i];
        if (part->p_type != PT_NOTE || !os_is_loaded(headers, part))
            continue;
        const unsigned char *notes = (const unsigned char *)(module->base + part->p_vaddr);
        size_t length = os_build_id_of_notes(notes, part->p_memsz, id);
        if (length != 0)
            return length;
    }
    return 0;
}
