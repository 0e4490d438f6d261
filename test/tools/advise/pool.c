// Pool: very many nodes of one size, freed in any order. decoy_text() makes as many blocks, of all
// sizes.
#include "planted.h"

enum { NODES = 20000 };

static void *nodes[NODES];
static void *texts[NODES / 4];

SITE static void planted_node(unsigned number)
{
    nodes[number] = xmalloc(48 * input);
}

SITE static void decoy_text(unsigned number)
{
    texts[number] = xmalloc(8 + random_below(120));
}

int main(int count, char **words)
{
    begin(count, words);
    for (unsigned i = 0; i < 90000 * times; i++) {
        unsigned number = random_below(NODES);
        if (nodes[number] != NULL)
            give(nodes[number]);
        planted_node(number);
        if (i % 4 == 0) {
            number = random_below(NODES / 4);
            give(texts[number]);
            decoy_text(number);
        }
    }
    for (unsigned i = 0; i < NODES; i++)
        if (nodes[i] != NULL)
            give(nodes[i]);
    for (unsigned i = 0; i < NODES / 4; i++)
        give(texts[i]);
    return finish();
}
