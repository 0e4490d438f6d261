/* The table of size classes: see size_class.h. */
#include "heap/size_class.h"

#include "base/check.h"
#include "page/page.h"

struct size_class size_classes[sealed_count(struct size_class, CLASS_COUNT)] sealed_data;
sealed_fills(size_classes);

static size_t size_of(unsigned class)
{
    if (class_is_void(class))
        return PAGE_BYTES;
    if (class < 8)
        return 16 * (class + 1);
    if (class < SMALL_CLASSES)
        return (size_t)(8 + (class % 8) + 1) << (4 + (class - 8) / 8);
    unsigned step = class - SMALL_CLASSES;
    return (size_t)(16 + (step % 16) + 1) << (6 + step / 16);
}

/* Eight blocks, or as many as fit the longest slab. */
static size_t least_capacity(size_t size_bytes)
{
    return smaller_of(8, ((size_t)SLAB_PAGES_MOST << PAGE_SHIFT) / size_bytes);
}

/* The longest run that a slab of the class may have: short for small blocks, which fill it soon;
 * the least capacity always; as many as there may be where they cost nothing. */
static size_t longest_run(unsigned class, size_t size_bytes)
{
    if (class_is_void(class))
        return CAPACITY_MAX * size_bytes;
    if (size_bytes <= 128)
        return 16 << 10;
    if (size_bytes <= SMALL_MAX)
        return 32 << 10;
    return larger_of(64 << 10, align_up(least_capacity(size_bytes) * size_bytes, PAGE_BYTES));
}

/* Chooses the run with the least waste: its tail, and the header that it needs. */
static void choose_run(struct size_class *class)
{
    size_t size = class->size_bytes;
    size_t longest = longest_run((unsigned)(class - size_classes), size);
    size_t least_num = SIZE_MAX;
    size_t least_den = 1;
    for (size_t pages = 1; pages * PAGE_BYTES <= longest; pages++) {
        size_t bytes = pages * PAGE_BYTES;
        size_t capacity = smaller_of(bytes / size, CAPACITY_MAX);
        if (capacity < least_capacity(size))
            continue;
        size_t waste = bytes - capacity * size + sizeof(struct span);
        if (least_num == SIZE_MAX || waste * least_den < least_num * bytes) {
            least_num = waste;
            least_den = bytes;
            class->pages = (uint16_t)pages;
            class->capacity = (uint8_t)capacity;
        }
    }
}

/* The inverse of an odd number modulo 2^32. Newton's iteration doubles the correct bits, from 5:
 * Hacker's Delight, 2nd edition, section 10-16. */
static uint32_t odd_inverse(uint32_t odd)
{
    uint32_t inverse = (odd * 3) ^ 2;
    for (int i = 0; i < 3; i++)
        inverse *= 2 - odd * inverse;
    return inverse;
}

static uint8_t cold_64_of(unsigned capacity)
{
    size_t links = align_up(capacity, 8); /* they are read by words */
    return (uint8_t)(align_up(LINKS_AT + 1 + links + SLAB_REMOTE_BYTES, 64) / 64);
}

void size_classes_init(void)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        struct size_class *class = &size_classes[i];
        class->size_bytes = (uint32_t)size_of(i);
        choose_run(class);
        class->cold_64 = cold_64_of(class->capacity);
        unsigned twos = lowest_bit(class->size_bytes);
        class->inverse = odd_inverse(class->size_bytes >> twos) << (INVERSE_SHIFT - twos);
        check_internal(class_of_size(class->size_bytes) == i || class_is_void(i));
        check_internal(class->capacity >= least_capacity(class->size_bytes));
    }
}

unsigned class_of_aligned(size_t size_bytes, size_t alignment_bytes)
{
    if (alignment_bytes > PAGE_BYTES || size_bytes > MEDIUM_MAX)
        return CLASS_COUNT;
    unsigned class = class_of_size(align_up(larger_of(size_bytes, 1), alignment_bytes));
    /* By arithmetic, not by the table: this may be the first call of all. */
    while (class < SIZED_CLASSES && size_of(class) % alignment_bytes != 0)
        class ++;
    return class < SIZED_CLASSES ? class : (unsigned)CLASS_COUNT;
}
