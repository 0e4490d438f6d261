// Records that are kept to the end, like a program's data, and that are slightly larger than a
// class: they look like a leak, but there is a possible gain. decoy_index() is kept, too, and fills
// its class; it grows in the first quarter only.
#include "planted.h"

enum { RECORDS = 120000 };

static void *records[RECORDS], *index_of[RECORDS / 4];

SITE static void planted_record(unsigned number)
{
    records[number] = xmalloc(input == 1 ? 24 : 40);
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
