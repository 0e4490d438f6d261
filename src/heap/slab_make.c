/* Making slabs: see slab_make.h. */
#include "heap/slab_make.h"

#include "heap/harden.h"
#include "heap/remote.h"

#include <string.h>

struct span *slab_take(unsigned class, bool *is_new)
{
    const struct size_class *shape = &size_classes[class];
    struct span *slab = class_is_void(class) ? pages_take_void_slab(class) : pages_take_slab(class);
    if (slab == NULL)
        return NULL;
    *is_new = !class_is_void(class) && slab->dirty_pages < shape->pages;
    /* A header that served a slab before has link bytes of then; those of a new one are zero and
     * stay untouched. So do the post word and what lies behind the links: frees that are late still
     * look at them, see remote.c and frozen.c. */
    if (slab->capacity != 0)
        memset(slab_link(slab, 1), 0,
               (size_t)shape->cold_64 * 64 - sizeof(struct own_line) - sizeof(struct remote));
    slab->base -= shape->size_bytes;
    slab->inverse = shape->inverse;
    store_relaxed(&slab->limit, (uint64_t)1);
    slab->size_bytes = shape->size_bytes;
    slab_own(slab)->until = 0;
    slab_own(slab)->head = LINK_END;
    slab->capacity = shape->capacity;
    return slab;
}

void slab_open(struct heap *heap, struct span *slab)
{
    if (config_random_slots)
        harden_shuffle(heap, slab);
    store_relaxed(&slab_remote(slab)->swept.given, (uint64_t)0);
    slab_set_use(slab, SLAB_IDLE);
    remote_open(heap, slab);
    store_release(&slab->owner, (uintptr_t)heap); /* pairs with load_acquire of who looks at it */
}

struct span *slab_make(struct heap *heap, unsigned class)
{
    bool is_new = false;
    struct span *slab = slab_take(class, &is_new);
    if (slab)
        slab_open(heap, slab);
    if (is_new && heap->program == NULL)
        (void)run_cache_empty(&heap->runs); /* the next takes what was kept, before it grows on */
    return slab;
}
