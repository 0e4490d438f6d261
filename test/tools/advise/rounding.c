// Rounding: blocks slightly larger than a class, so that a considerable part of each is lost.
// decoy_fits() makes as many blocks that fill their class; decoy_few() loses most of each block,
// but makes few.
#include "planted.h"

enum { BLOCKS = 40000 };

static void *blocks[BLOCKS];
static void *fits[BLOCKS];
static void *few[BLOCKS / 50];

SITE static void planted_block(unsigned number)
{
    blocks[number] = xmalloc(input == 1 ? 257 : 513);
}

SITE static void decoy_fits(unsigned number)
{
    fits[number] = xmalloc(256);
}

SITE static void decoy_few(unsigned number)
{
    few[number] = xmalloc(1);
}

int main(int count, char **words)
{
    begin(count, words);
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
        give(blocks[number]);
        give(fits[number]);
    }
    for (unsigned i = 0; i < BLOCKS / 50; i++)
        give(few[i]);
    return finish();
}
