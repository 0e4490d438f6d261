/* See canary.h. */
#include "heap/canary.h"

#include "os/os.h"

struct secrets secrets_of_process[sealed_count(struct secrets, 1)] sealed_data; /* const */
sealed_fills(secrets_of_process);

_Noreturn void canary_damaged(const struct span *slab, const void *block)
{
    unsigned slot = (unsigned)slab_slot(slab, block);
    /* Another thread may have freed it since it was found in use. */
    if (!link_shows_use(load_relaxed(slab_link(slab, slot))))
        die("double free of %p (%u-byte block)", block, slab->size_bytes);
    die("overflow of %p (%u-byte block)", block, slab->size_bytes);
}

_Noreturn void block_written(const void *block, size_t block_bytes)
{
    die("write after free to %p (%zu-byte block)", block, block_bytes);
}

void canary_start(void)
{
    secrets_of_process[0] = (struct secrets){.factor = os_entropy() | 1, .mask = os_entropy()};
    if (config_sealed)
        (void)os_protect(secrets_of_process, sizeof secrets_of_process, OS_READ);
}
