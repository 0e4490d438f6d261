// Ring frame: a request allocates parts, several requests are in progress at once, and all parts of
// one are freed together, though not in the order of allocation. decoy_parts() allocates as many at
// a time, which are freed one by one.
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
    // Neither the order of allocation nor its reverse.
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
