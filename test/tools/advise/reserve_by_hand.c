// reserve.c changed by its advice: a list starts with the length that most lists reach.
#include "planted.h"

enum { KEPT = 512 };

static void *lists[KEPT];
static void *trimmed[KEPT];

SITE static void *xrealloc(void *block, size_t size)
{
    block = realloc(block, size);
    if (block == NULL)
        abort();
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

SITE static unsigned *planted_list(unsigned length)
{
    unsigned room = 1408 + 192 * (input - 1), *list = xrealloc(NULL, room * sizeof *list);
    for (unsigned i = 0; i < length; i++) {
        if (i == room) {
            room += 64;
            list = xrealloc(list, room * sizeof *list);
        }
        list[i] = i * input;
    }
    return list;
}

SITE static void *decoy_trim(void)
{
    size_t size = 200 + random_below(400);
    void *block = xmalloc(600);
    return xrealloc(block, size);
}

SITE static void *decoy_log(void) { return xrealloc(xmalloc(32 + random_below(32)), 200); }

int main(int count, char **words)
{
    begin(count, words);
    for (unsigned i = 0; i < 4000 * times; i++) {
        unsigned number = random_below(KEPT);
        give(lists[number]);
        lists[number] = planted_list(1200 + random_below(200 * input));
        number = random_below(KEPT);
        give(trimmed[number]);
        trimmed[number] = i % 2 ? decoy_trim() : decoy_log();
    }
    for (unsigned i = 0; i < KEPT; i++) {
        give(lists[i]);
        give(trimmed[i]);
    }
    return finish();
}
