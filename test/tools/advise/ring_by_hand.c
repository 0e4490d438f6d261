// ring.c changed by its advice: all parts of a request are from a frame.
#include <cairn/ring.h>

#include "planted.h"

enum { REQUESTS = 8, PARTS = 24, LOOSE = 600 };

static void *part[REQUESTS][PARTS];
static cairn_ring *ring;
static cairn_frame frames[REQUESTS];
static void *loose[LOOSE];

SITE static void planted_part(unsigned request, unsigned number)
{
    size_t size = 24 + random_below(150 * input);
    part[request][number] = filled(cairn_ring_alloc(ring, size, 16), size);
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
    if (frames[request].chunk == NULL)
        return;
    for (unsigned i = 0; i < PARTS; i++) {
        use(part[request][i * 7 % PARTS], 8);
    }
    cairn_ring_release(frames[request]);
    frames[request].chunk = NULL;
}

int main(int count, char **words)
{
    begin(count, words);
    ring = cairn_ring_new(NULL);
    if (ring == NULL)
        abort();
    for (unsigned i = 0; i < 4000 * times; i++) {
        unsigned request = i % REQUESTS;
        finish_request(request);
        frames[request] = cairn_ring_open(ring);
        for (unsigned number = 0; number < PARTS; number++)
            planted_part(request, number);
        cairn_ring_seal(ring);
        decoy_parts();
    }
    for (unsigned i = 0; i < REQUESTS; i++)
        finish_request(i);
    for (unsigned i = 0; i < LOOSE; i++)
        give(loose[i]);
    return finish();
}
