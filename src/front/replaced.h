/* The functions that the process has under the names of libc and C++: those of the program if it
 * defines them, or of a library loaded before this one; else those of this library.
 *
 * Where a standard defines a function by another one, the first calls the second through these
 * tables: reallocarray calls realloc, operator new[] calls operator new. The linker fills the
 * tables when it relocates the library and makes them read-only, so no name is looked up later. A
 * static program has the addresses from its link.
 *
 * There are two tables, because a static program may define the names of one itself and take those
 * of the other from the archive.
 *
 * Threads: any; the tables are const. */
#ifndef CAIRN_FRONT_REPLACED_H
#define CAIRN_FRONT_REPLACED_H

#include "base/compiler.h"

/* The functions of libc of which others are made. */
struct libc_functions {
    void *(*malloc)(size_t size);
    void (*free)(void *pointer);
    void *(*realloc)(void *pointer, size_t size);
    void *(*aligned_alloc)(size_t alignment, size_t size);
};

/* The operators new and delete from which [new.delete] makes all other forms: calls `each` with the
 * result, the name, the symbol and the parameters of each. */
/* clang-format off */
#define EACH_CXX_FUNCTION(each)                                                                    \
    each(void *, new_single, _Znwm, (size_t size))                                                 \
    each(void *, new_array, _Znam, (size_t size))                                                  \
    each(void *, new_single_aligned, _ZnwmSt11align_val_t, (size_t size, size_t alignment))        \
    each(void *, new_array_aligned, _ZnamSt11align_val_t, (size_t size, size_t alignment))         \
    each(void, delete_single, _ZdlPv, (void *pointer))                                             \
    each(void, delete_array, _ZdaPv, (void *pointer))                                              \
    each(void, delete_single_aligned, _ZdlPvSt11align_val_t, (void *pointer, size_t alignment))    \
    each(void, delete_array_aligned, _ZdaPvSt11align_val_t, (void *pointer, size_t alignment))

#define CXX_FIELD(result, name, symbol, parameters) result (*name) parameters;
struct cxx_functions { EACH_CXX_FUNCTION(CXX_FIELD) };
/* clang-format on */

/* The functions of libc that the process has. */
extern const struct libc_functions process_libc hidden_data;

/* The operators that the process has. */
extern const struct cxx_functions process_cxx hidden_data;

/* The functions of this library, in libc.c. The address of libc.c's function is null in a static
 * program that defines malloc itself, because that program does not link libc.c. */
extern const struct libc_functions libc_own hidden_data __attribute__((weak));

/* The operators of this library, in cxx.c. */
extern const struct cxx_functions cxx_own hidden_data;

/* Whether the process has this library's function under each name of both tables. */
bool replaced_nothing(void);

#endif
