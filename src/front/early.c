/* Allocation before the dynamic linker has finished. An IFUNC resolver of the program or of a
 * library may allocate while the program is still being relocated. At that time thread-local
 * storage reads zero and does not have its initial values yet.
 *
 * The linker calls the resolver of this file at the end of this library's relocation, which is
 * before the relocation of the program. The resolver sets the thread-local word to its value. Later
 * the linker overwrites it with the initial value. The blocks that were allocated before stay valid
 * and are freed as blocks of another thread.
 *
 * Programs that contain Cairn statically are relocated last: their own resolvers and those of their
 * libraries cannot allocate. */
#include "base/libc.h"
#include "heap/heap.h"
#include "os/process.h"

static void early_nothing(void) {}

typedef void resolved(void);

__attribute__((used)) not_instrumented static resolved *resolve_early(void)
{
    if (os_has_thread_pointer())
        heap_set_up_thread();
    return early_nothing;
}

static void early(void) resolved_by("resolve_early", "early_nothing");

/* The linker resolves `early` because of this reference. */
resolved *const front_early = early;
