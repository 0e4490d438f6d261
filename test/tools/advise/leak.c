// Leak: a record for each request that is never freed. decoy_table() is made at the start and
// stays, decoy_cache() grows to its limit and stays, decoy_archive() grows all the time and is
// freed at the end.
#include "planted.h"

enum { TABLE = 2000, CACHE = 500, ARCHIVE = 20000, REQUESTS = 20000 };

static void *table[TABLE];
static void *cache[CACHE];
static void *archive[ARCHIVE];
static void *volatile lost;

SITE static void planted_record(void)
{
    lost = xmalloc(100 + random_below(60 * input));
}

SITE static void decoy_table(void)
{
    for (unsigned i = 0; i < TABLE; i++)
        table[i] = xmalloc(400);
}

SITE static void decoy_cache(unsigned number)
{
    if (cache[number] == NULL)
        cache[number] = xmalloc(1200);
}

SITE static void decoy_archive(unsigned number)
{
    archive[number] = xmalloc(90);
}

SITE static void decoy_work(void)
{
    void *block = xmalloc(700 + random_below(300));
    use(block, 20);
    void *other = xmalloc(64);
    give(block);
    give(other);
}

int main(int count, char **words)
{
    begin(count, words);
    decoy_table();
    for (unsigned i = 0; i < REQUESTS; i++) {
        planted_record();
        if (i % 4 == 0)
            decoy_cache(random_below(CACHE));
        decoy_archive(i);
        if (i % 100 == 0)
            decoy_work();
    }
    for (unsigned i = 0; i < ARCHIVE; i++)
        give(archive[i]);
    return finish();
}
