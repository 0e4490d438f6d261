// Pinned pages: a few records of each phase stay among many blocks that end with it, and keep their
// pages in use. decoy_index() stays as well, but its blocks are adjacent; decoy_short() makes the
// blocks that end.
#include "planted.h"

enum { SHORT = 20000, PHASES = 6, EVERY = 40, INDEX = 4000 };

static void *shorts[SHORT];
static void *records[PHASES * SHORT / EVERY];
static void *entries[INDEX];
static unsigned record_count;

SITE static void planted_record(size_t size)
{
    records[record_count++] = xmalloc(size);
}

SITE static void decoy_short(unsigned number, size_t size)
{
    shorts[number] = xmalloc(size);
}

SITE static void decoy_index(void)
{
    for (unsigned i = 0; i < INDEX; i++)
        entries[i] = xmalloc(300);
}

int main(int count, char **words)
{
    begin(count, words);
    decoy_index();
    for (unsigned phase = 0; phase < PHASES; phase++) {
        size_t size = 48 + 112 * phase + 16 * input;
        for (unsigned i = 0; i < SHORT; i++) {
            decoy_short(i, size - random_below(16));
            if (i % EVERY == 0)
                planted_record(size - random_below(16));
        }
        for (unsigned i = 0; i < SHORT; i++) {
            use(shorts[i], 8);
            give(shorts[i]);
        }
    }
    for (unsigned i = 0; i < record_count; i++)
        give(records[i]);
    for (unsigned i = 0; i < INDEX; i++)
        give(entries[i]);
    return finish();
}
