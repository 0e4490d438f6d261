// records.c changed by its advice: records are from a pool.
#include <cairn/pool.h>

#include "planted.h"

enum { RECORDS = 120000 };

static cairn_pool *pool;
static void *records[RECORDS], *index_of[RECORDS / 4];

SITE static void planted_record(unsigned number)
{
    records[number] = filled(cairn_pool_get(pool), input == 1 ? 24 : 40);
}

SITE static void decoy_index(unsigned number) { index_of[number] = xmalloc(64); }

SITE static void decoy_short(void)
{
    void *text = xmalloc(30 + random_below(100));
    void *more = xmalloc(30 + random_below(100));
    use(text, 8);
    give(text);
    give(more);
}

int main(int count, char **words)
{
    begin(count, words);
    pool = cairn_pool_new(input == 1 ? 24 : 40, 8, NULL);
    if (pool == NULL)
        abort();
    for (unsigned i = 0; i < RECORDS; i++) {
        planted_record(i);
        if (i < RECORDS / 4)
            decoy_index(i);
        if (i % 128 == 0)
            decoy_short();
    }
    for (unsigned i = 0; i < RECORDS; i++)
        use(records[i], 8);
    return finish();
}
