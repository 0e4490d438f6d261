// Ring frame: a request takes parts, several requests are on their way at once, and all parts of
// one end together, though not in the order in which they were taken. decoy_parts() takes as many
// at a time, which end one here and one there.
#include "planted.h"

enum { REQUESTS = 8, PARTS = 24, LOOSE = 600 };

static void *part[REQUESTS][PARTS];
static void *loose[LOOSE];

SITE static void planted_part(unsigned request, unsigned number)
{
    part[request][number] = xmalloc(24 + random_below(150 * input));
}

SITE static void decoy_parts(void)
{
    for (unsigned i = 0; i < 3; i++) {
        unsigned number = random_below(LOOSE);
        give(loose[number]);
        loose[number] = xmalloc(24 + random_below(150));
    }
}

SITE static void finish_request(unsigned request)
{
    // Not the order of their making, nor its reverse.
    for (unsigned i = 0; i < PARTS; i++) {
        void **place = &part[request][i * 7 % PARTS];
        if (*place != NULL)
            use(*place, 8);
        give(*place);
        *place = NULL;
    }
}

int main(int count, char **words)
{
    begin(count, words);
    for (unsigned i = 0; i < 4000 * times; i++) {
        unsigned request = i % REQUESTS;
        finish_request(request);
        for (unsigned number = 0; number < PARTS; number++)
            planted_part(request, number);
        decoy_parts();
    }
    for (unsigned i = 0; i < REQUESTS; i++)
        finish_request(i);
    for (unsigned i = 0; i < LOOSE; i++)
        give(loose[i]);
    return finish();
}
