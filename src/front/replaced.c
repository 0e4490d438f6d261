/* The two tables of replaced.h, which the linker fills; const after the relocation.
 *
 * The functions are in a file of their own, because in the files that define the functions the
 * compiler assumes that the process has these. The shared library is linked so that these
 * references, unlike all others, find the program's functions (src/front/replaceable.list). */
#include "front/replaced.h"

extern void *process_malloc(size_t size) __asm__("malloc");

/* Weak, because one member of the archive has all these functions. A static program with a malloc
 * of its own does not link that member. */
extern void process_free(void *pointer) __asm__("free") __attribute__((weak));
extern void *process_realloc(void *pointer, size_t size) __asm__("realloc") __attribute__((weak));
extern void *process_aligned_alloc(size_t alignment, size_t size) __asm__("aligned_alloc")
    __attribute__((weak));

/* clang-format off */
#define CXX_EXTERN(result, name, symbol, parameters) extern result name parameters __asm__(#symbol);
EACH_CXX_FUNCTION(CXX_EXTERN)
/* clang-format on */

const struct libc_functions process_libc = {
    .malloc = process_malloc,
    .free = process_free,
    .realloc = process_realloc,
    .aligned_alloc = process_aligned_alloc,
};

#define CXX_ENTRY(result, name, symbol, parameters) .name = name,
const struct cxx_functions process_cxx = {EACH_CXX_FUNCTION(CXX_ENTRY)};

/* Whether two tables have equal addresses. */
static bool replaced_are_equal(const void *process, const void *own, size_t size_bytes)
{
    const uintptr_t *ours = own, *theirs = process;
    for (size_t i = 0; i < size_bytes / sizeof *ours; i++) {
        if (ours[i] != theirs[i])
            return false;
    }
    return true;
}

cold bool replaced_nothing(void)
{
    return &libc_own != NULL && replaced_are_equal(&process_libc, &libc_own, sizeof libc_own) &&
           replaced_are_equal(&process_cxx, &cxx_own, sizeof cxx_own);
}
