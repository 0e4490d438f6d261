/* Which sizes the fast path serves: see class_table.h. */
#include "heap/class_table.h"

#include "base/check.h"
#include "heap/packed_words.h"

#include <string.h>

uint32_t heap_watch;

static bool all_armed;  /* written once, before there are threads */
static bool all_traced; /* atomic: likewise, and taken back by any thread */

/* Void blocks always take the slow path: their size shows a class whose current slab is the empty
 * one. */
enum { FIRST_SHOWN = config_void_blocks ? CANARY_BYTES + 1 : 0 };

void heap_show_class(struct heap *heap, unsigned class)
{
    bool armed = all_armed || load_relaxed(&all_traced) || heap->sampling.armed == class + 1 ||
                 heap_profile_arms(heap, class);
    unsigned shown = armed ? (unsigned)CLASS_COUNT : class;
    size_t first = class != 0        ? (size_t)size_classes[class - 1].size_bytes + 1
                   : heap->packed.on ? (size_t)PACKED_BYTES + 1 /* packed_turn_on's stay */
                                     : (size_t)FIRST_SHOWN;
    memset(&heap->small_class[first], (int)shown, size_classes[class].size_bytes + 1 - first);
}

void heap_disarm(struct heap *heap)
{
    unsigned armed = heap->sampling.armed;
    heap->sampling.armed = 0;
    if (armed != 0)
        heap_show_class(heap, armed - 1);
}

void heap_arm(struct heap *heap, unsigned class)
{
    heap_disarm(heap);
    heap->sampling.armed = (uint8_t)(class + 1);
    heap_show_class(heap, class);
}

static void arm_all(struct heap *heap)
{
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        heap_show_class(heap, class);
}

void heap_set_up_classes(struct heap *heap)
{
    for (unsigned class = 0; class <= CLASS_COUNT; class ++)
        heap->current[class] = &empty_slab.header;
    for (size_t size = 0; size <= SMALL_MAX; size++)
        heap->small_class[size] = (uint8_t)small_class(size);
    memset(heap->small_class, CLASS_COUNT, FIRST_SHOWN);
    if (all_armed || load_relaxed(&all_traced))
        arm_all(heap);
}

void heap_arm_all(void)
{
    all_armed = true;
    if (thread_heap != &no_heap)
        arm_all(thread_heap);
}

void heap_arm_traced(bool on)
{
    store_relaxed(&all_traced, on);
    if (thread_heap != &no_heap)
        arm_all(thread_heap);
}

void class_table_verify(const struct heap *heap)
{
    if (all_armed || heap_is_traced())
        return;
    for (unsigned class = 0; class < SMALL_CLASSES; class ++) {
        bool armed = heap->sampling.armed == class + 1 || heap_profile_arms(heap, class);
        check_internal(heap->small_class[size_classes[class].size_bytes] ==
                       (armed ? (unsigned)CLASS_COUNT : class));
    }
}
