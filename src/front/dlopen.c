/* dlopen without RTLD_DEEPBIND, in a process whose malloc is that of this library. In the shared
 * library only.
 *
 * A plug-in that is opened with this flag finds libc's malloc and free before all others. Such a
 * plug-in would free blocks of this library with libc's free, and return blocks that this library
 * did not make; both end the process. libc cannot recognise the blocks, so the flag has to be
 * removed. Without it the plug-in finds the program's functions before its own of the same names.
 *
 * libc's dlopen uses its return address: the run path, $ORIGIN and the namespace are those of the
 * caller. So the last call here must be a jump, for which this file is compiled with
 * -foptimize-sibling-calls. test/hard/deep_bind.c checks that it is a jump.
 *
 * Threads: any. The only state is the address of the next dlopen. */
#include "base/atomic.h"
#include "base/check.h"
#include "base/libc.h"
#include "front/replaced.h"
#include "front/settings.h"

#include <dlfcn.h>

typedef void *loader_open(const char *file, int mode);

static loader_open *next_open; /* atomic, relaxed: all threads store one value */

/* Finds the next dlopen.
 *
 * Returns: NULL if there is none; then dlerror says so. */
static cold loader_open *dlopen_find_next(void)
{
    loader_open *found = (loader_open *)dlsym(RTLD_NEXT, "dlopen");
    store_relaxed(&next_open, found);
    return found;
}

/* Returns the mode without RTLD_DEEPBIND. */
static cold int dlopen_without_deep_bind(const char *file, int mode)
{
    if (process_libc.malloc != libc_own.malloc)
        return mode; /* the program has a malloc of its own, and is responsible for it */
    if (settings_are_verbose())
        report("dlopen of %s: RTLD_DEEPBIND ignored, the plug-in would use libc's malloc",
               file ? file : "the program");
    return mode & ~RTLD_DEEPBIND;
}

api void *dlopen(const char *file, int mode)
{
    loader_open *next = load_relaxed(&next_open);
    if (unlikely(next == NULL) && (next = dlopen_find_next()) == NULL)
        return NULL;
    if (unlikely((mode & RTLD_DEEPBIND) != 0))
        mode = dlopen_without_deep_bind(file, mode);
    return next(file, mode);
}
