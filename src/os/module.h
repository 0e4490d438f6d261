/* Modules: the program and the shared libraries from whose files code was loaded.
 *
 * Async-signal-safe. Needs _dl_find_object of glibc; otherwise no module is found.
 */
#ifndef CAIRN_OS_MODULE_H
#define CAIRN_OS_MODULE_H

#include "base/compiler.h"

/* The path of the file from which an address was loaded. `*base` gets the load address: the address
 * in the file is `address - *base`.
 * Returns: NULL when it is not known. */
const char *os_locate(uintptr_t address, uintptr_t *base);

/* A module. The description is valid while the module is loaded. */
struct os_module {
    uintptr_t base;       /* load address */
    const char *path;     /* path, as the dynamic linker has it */
    uintptr_t start, end; /* range of its mappings; for the program perhaps only of some */
    bool is_program;      /* it is the program, not a library */
};

/* Finds the module of an address.
 * Returns: false when it is not known. */
bool os_module_of(uintptr_t address, struct os_module *module);

/* The longest build id, in bytes. */
enum { OS_BUILD_ID_MAX = 64 };

/* Finds the build id of a module, which must stay loaded. `*id` gets its first byte.
 * Returns: the length; 0 if it has none. */
size_t os_module_build_id(const struct os_module *module, const unsigned char **id);

/* Finds the build id in a segment of notes. `*id` gets its first byte.
 * Returns: the length; 0 if there is none. */
size_t os_build_id_of_notes(const unsigned char *notes, size_t bytes, const unsigned char **id);

#endif
