// pool.c changed by its advice: nodes are from a pool.
#include <cairn/pool.h>

#include "planted.h"

enum { NODES = 20000 };

static void *nodes[NODES];
static cairn_pool *pool;
static void *texts[NODES / 4];

SITE static void planted_node(unsigned number)
{
    nodes[number] = filled(cairn_pool_get(pool), 48 * input);
}

SITE static void decoy_text(unsigned number) { texts[number] = xmalloc(8 + random_below(120)); }

int main(int count, char **words)
{
    begin(count, words);
    pool = cairn_pool_new(48 * input, 16, NULL);
    if (pool == NULL)
        abort();
    for (unsigned i = 0; i < 90000 * times; i++) {
        unsigned number = random_below(NODES);
        if (nodes[number] != NULL)
            cairn_pool_put(pool, finished(nodes[number]));
        planted_node(number);
        if (i % 4 == 0) {
            number = random_below(NODES / 4);
            give(texts[number]);
            decoy_text(number);
        }
    }
    for (unsigned i = 0; i < NODES; i++)
        if (nodes[i] != NULL)
            cairn_pool_put(pool, finished(nodes[i]));
    for (unsigned i = 0; i < NODES / 4; i++)
        give(texts[i]);
    return finish();
}
