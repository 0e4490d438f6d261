/* Computes the table of size classes: size_class.h. */
#include "heap/size_class.h"

#include "base/check.h"

struct slab_shape size_classes[sealed_count(struct slab_shape, CLASS_COUNT)] sealed_data;
sealed_fills(size_classes);

static size_t size_class_step_size(unsigned class)
{
    if (class_is_zero_size(class))
        return PAGE_BYTES;
    if (class_is_packed(class))
        return PACKED_BYTES;
    if (class < 8)
        return 16 * (class + 1);
    return (size_t)(8 + (class % 8) + 1) << (4 + (class - 8) / 8);
}

/* The smallest number of slots of a slab: eight, or those that fit into the longest slab. */
static size_t size_class_least_capacity(size_t size_bytes)
{
    return smaller_of(8, ((size_t)SLAB_PAGES_MAX << PAGE_SHIFT) / size_bytes);
}

/* The length in pages up to which only waste counts when the run of a slab is chosen. It is short
 * for small blocks, which soon fill it, and always holds the least capacity. */
static size_t size_class_usual_pages(unsigned class, size_t size_bytes)
{
    enum { SMALL = (16 << 10) >> PAGE_SHIFT, LARGE = (32 << 10) >> PAGE_SHIFT };
    if (class_is_zero_size(class))
        return CAPACITY_MAX;
    if (size_bytes <= 128)
        return SMALL;
    size_t least_bytes = size_class_least_capacity(size_bytes) * size_bytes;
    return larger_of(LARGE, align_up(least_bytes, PAGE_BYTES) >> PAGE_SHIFT);
}

/* Chooses the run with the smallest share of waste, which is its tail and the header. Blocks above
 * 128 bytes may have a run longer than usual if their blocks fit it better: 3,328 bytes leave 8 %
 * of 28 KiB, and 1 % of 36 KiB. Each further page counts as 1/256 of waste, because long slabs are
 * empty less often. */
static void size_class_choose_run(struct slab_shape *class)
{
    enum { LONGEST_PAGES = 15, PART = 256 };
    size_t size = class->size_bytes;
    size_t usual = size_class_usual_pages((unsigned)(class - size_classes), size);
    size_t longest = size <= 128 ? usual : larger_of(usual, LONGEST_PAGES);
    size_t least_num = SIZE_MAX;
    size_t least_den = 1;
    for (size_t pages = 1; pages <= longest; pages++) {
        size_t bytes = pages * PAGE_BYTES;
        size_t capacity = smaller_of(bytes / size, CAPACITY_MAX);
        if (capacity < size_class_least_capacity(size))
            continue;
        size_t waste = bytes - capacity * size + sizeof(struct span);
        waste += pages > usual ? (pages - usual) * bytes / PART : 0;
        if (least_num == SIZE_MAX || waste * least_den < least_num * bytes) {
            least_num = waste;
            least_den = bytes;
            class->pages = (uint16_t)pages;
            class->capacity = (uint8_t)capacity;
        }
    }
}

/* The inverse of an odd number modulo 2^32. Newton's iteration doubles the number of correct bits,
 * starting from 5: Hacker's Delight, 2nd edition, section 10-16. */
static uint32_t size_class_odd_inverse(uint32_t odd)
{
    uint32_t inverse = (odd * 3) ^ 2;
    for (int i = 0; i < 3; i++)
        inverse *= 2 - odd * inverse;
    return inverse;
}

void size_classes_init(void)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        struct slab_shape *class = &size_classes[i];
        class->size_bytes = (uint32_t)size_class_step_size(i);
        class->unit_bytes =
            class_is_packed(i) ? (uint16_t)PACKED_SLOT_BYTES : (uint16_t)class->size_bytes;
        if (class_is_packed(i)) {
            class->pages = PACKED_SLOTS * PACKED_SLOT_BYTES / PAGE_BYTES;
            class->capacity = PACKED_SLOTS;
        } else {
            size_class_choose_run(class);
        }
        size_t link_bytes = class_is_packed(i) ? sizeof(uint64_t) : 1;
        size_t links = align_up(class->capacity * link_bytes, 8); /* read in whole words */
        class->side_units = (uint8_t)(align_up(LINKS_AT + 1 + links + SLAB_COLD_BYTES, 64) / 64);
        unsigned twos = lowest_bit(class->size_bytes);
        class->alignment_pages = (uint8_t)(1 << (larger_of(twos, PAGE_SHIFT) - PAGE_SHIFT));
        class->inverse = size_class_odd_inverse(class->size_bytes >> twos)
                         << (INVERSE_SHIFT - twos);
        check_internal(i >= SIZED_CLASSES || class_of_size(class->size_bytes) == i);
        check_internal(class->capacity >= size_class_least_capacity(class->size_bytes));
    }
}

unsigned class_of_aligned(size_t size_bytes, size_t alignment_bytes)
{
    if (size_bytes > MEDIUM_BLOCK_MAX || alignment_bytes > MEDIUM_REQUEST_MAX)
        return CLASS_COUNT;
    size_t size = larger_of(size_bytes, 1);
    /* A large block has the pages of its size, also next to a canary. */
    if (alignment_bytes > PAGE_BYTES &&
        (config_hardened || align_up(size, PAGE_BYTES) % alignment_bytes != 0))
        return CLASS_COUNT;
    /* A power of two that divides the requested size divides that of its class: the step from class
     * to class is a multiple of the power, or the requested size is that of a class. */
    return class_of_size(align_up(size, alignment_bytes));
}
