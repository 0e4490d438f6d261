// rounding.c changed by its advice: blocks are from a pool, which has no classes.
#include <cairn/pool.h>

#include "planted.h"

enum { BLOCKS = 40000 };

static void *blocks[BLOCKS];
static cairn_pool *pool;
static void *fits[BLOCKS];
static void *few[BLOCKS / 50];

SITE static void planted_block(unsigned number)
{
    blocks[number] = filled(cairn_pool_get(pool), input == 1 ? 257 : 513);
}

SITE static void decoy_fits(unsigned number) { fits[number] = xmalloc(256); }

SITE static void decoy_few(unsigned number) { few[number] = xmalloc(1); }

int main(int count, char **words)
{
    begin(count, words);
    pool = cairn_pool_new(input == 1 ? 264 : 520, 8, NULL);
    if (pool == NULL)
        abort();
    for (unsigned i = 0; i < BLOCKS; i++) {
        planted_block(i);
        decoy_fits(i);
        if (i % 50 == 0)
            decoy_few(i / 50);
    }
    for (unsigned round = 0; round < times; round++)
        for (unsigned i = 0; i < BLOCKS; i++)
            use(blocks[i], 100);
    for (unsigned i = 0; i < BLOCKS; i++) {
        unsigned number = (unsigned)((uint64_t)i * 4999 % BLOCKS);
        cairn_pool_put(pool, finished(blocks[number]));
        give(fits[number]);
    }
    for (unsigned i = 0; i < BLOCKS / 50; i++)
        give(few[i]);
    return finish();
}
