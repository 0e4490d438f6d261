/* Use before the dynamic linker has finished: an IFUNC resolver of the program or of a library may
 * allocate while the program is still being relocated, when thread-local storage reads zero, not
 * yet the initial values.
 *
 * The linker calls our own resolver at the end of this library's relocation, which is before that
 * of the program; it gives the thread-local word its value. The linker later lays the initial
 * values over it; what was allocated until then stays valid and is freed as another thread's.
 * Programs that contain Cairn statically are relocated last: their own resolvers and those of their
 * libraries cannot allocate.
 */
#include "base/libc.h"
#include "heap/heap.h"
#include "os/os.h"

static void nothing(void) {}

typedef void resolved(void);

__attribute__((used, no_sanitize("address", "thread", "undefined"))) static resolved *
resolve_early(void)
{
    if (os_has_thread_pointer())
        heap_set_up_thread();
    return nothing;
}

static void early(void) resolved_by("resolve_early", "nothing");

/* The reference that makes the linker resolve it. */
resolved *const front_early = early;
