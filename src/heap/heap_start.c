/* See heap_start.h. */
#include "heap/heap_start.h"

#include "heap/canary.h"
#include "heap/heap_life.h"
#include "heap/heap_sweep.h"
#include "heap/packed_words.h"
#include "heap/tick.h"
#include "os/os.h"

enum { NOT_STARTED, STARTING, STARTED };

static uint32_t started; /* atomic */
static struct slab_shape shapes[sealed_count(struct slab_shape, CLASS_COUNT + 1)] sealed_data;
sealed_fills(shapes);

void heap_start(void)
{
    if (likely(load_acquire(&started) == STARTED)) /* pairs with the release below */
        return;
    uint32_t expected = NOT_STARTED;
    if (!compare_swap_acq_rel(&started, &expected, (uint32_t)STARTING)) {
        while (load_acquire(&started) != STARTED)
            pause_processor();
        return;
    }
    os_init();
    size_classes_init();
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        shapes[i] = (struct slab_shape){
            size_classes[i].pages, size_classes[i].cold_64,
            size_classes[i].size_bytes <= PAGE_BYTES ? size_classes[i].size_bytes : 0};
    shapes[PACKED_CLASS] = (struct slab_shape){PACKED_PAGES, PACKED_COLD_64, 64 * PACKED_BYTES};
    if (config_sealed) { /* refused, they stay writable */
        (void)os_protect(size_classes, sizeof size_classes, OS_READ);
        (void)os_protect(shapes, sizeof shapes, OS_READ);
    }
    if (config_hardened)
        canary_start();
    pages_init(shapes);
    pages_on_fork(heaps_after_fork);
    pages_on_refusal(heaps_empty_run_caches);
    heap_watch_threads();
    heaps_on_tick(sweep_others, heap_trim_ended);
    store_release(&started, (uint32_t)STARTED);
    pages_start();
}
