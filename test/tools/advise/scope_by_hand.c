// scope.c changed by its advice: handle() opens a scope, and planted_copy() allocates from it.
#include <cairn/scope.h>

#include "planted.h"

enum { PARTS = 12, PILE = 4000 };

static void *kept;
static void *pile[PILE];
static unsigned height;

SITE static char *t_planted_copy(size_t size)
{
    return filled(t_alloc(size), size);
}

SITE static void decoy_kept(void)
{
    void *next = xmalloc(3000);
    give(kept);
    kept = next;
}

SITE static void decoy_pile(void) { pile[height++] = xmalloc(20 + random_below(100 * input)); }

SITE static void handle(void)
{
    t_scope;
    char *part[PARTS];
    size_t size[PARTS];
    for (unsigned i = 0; i < PARTS; i++) {
        size[i] = 16 + random_below(60 * input);
        part[i] = t_planted_copy(size[i]);
    }
    decoy_kept();
    for (unsigned i = PARTS; i-- != 0;)
        use(part[i], size[i] / 8);
}

SITE static void move_pile(void)
{
    if (height < PILE && (height == 0 || random_below(3) != 0))
        decoy_pile();
    else
        give(pile[--height]);
}

int main(int count, char **words)
{
    begin(count, words);
    for (unsigned i = 0; i < 6000 * times; i++) {
        handle();
        move_pile();
        move_pile();
        move_pile();
    }
    while (height != 0)
        give(pile[--height]);
    give(kept);
    return finish();
}
