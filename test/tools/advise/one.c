// One at a time: a list of words for each command, which the next command frees. decoy_last() makes
// blocks as often, but the next one before the last one is freed; the next call frees a block of
// decoy_kept(), too, but rarely.
#include "planted.h"

static void *words, *last, *kept, *others[300];

SITE static void planted_words(void) { words = xmalloc(16 + 8 * random_below(12 * input)); }

SITE static void decoy_last(void)
{
    void *next = xmalloc(20 + random_below(60));
    give(last);
    last = next;
}

SITE static void decoy_kept(void)
{
    give(kept);
    kept = xmalloc(2000);
}

SITE static void *decoy_other(void) { return xmalloc(20 + random_below(100)); }

SITE static void read_command(void)
{
    planted_words();
    decoy_last();
}

SITE static void end_command(void)
{
    use(words, 16);
    give(words);
}

int main(int count, char **arguments)
{
    begin(count, arguments);
    for (unsigned i = 0; i < 60000 * times; i++) {
        read_command();
        unsigned number = random_below(300);
        give(others[number]);
        others[number] = decoy_other();
        if (i % 100 == 0)
            decoy_kept();
        end_command();
    }
    for (unsigned i = 0; i < 300; i++)
        give(others[i]);
    give(last);
    give(kept);
    return finish();
}
