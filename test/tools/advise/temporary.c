// Temporary: each call makes a buffer and frees it. decoy_result() makes blocks of that size as
// often, but its caller keeps them; decoy_large() frees its block at once, but is rarely called.
#include "planted.h"

enum { RESULTS = 3000 };

static void *results[RESULTS];

SITE static unsigned planted_buffer(unsigned number)
{
    size_t size = 64 + random_below(100 * input);
    char *buffer = xmalloc(size);
    snprintf(buffer, size, "%u", number);
    unsigned length = (unsigned)strlen(buffer);
    give(buffer);
    return length;
}

SITE static void *decoy_result(void)
{
    return xmalloc(50 + random_below(80));
}

SITE static void decoy_large(void)
{
    void *block = xmalloc(5000);
    use(block, 100);
    give(block);
}

int main(int count, char **words)
{
    begin(count, words);
    for (unsigned i = 0; i < 60000 * times; i++) {
        checksum += planted_buffer(i);
        unsigned number = random_below(RESULTS);
        if (i % 2 == 0) {
            give(results[number]);
            results[number] = decoy_result();
        }
        if (i % 2000 == 0)
            decoy_large();
    }
    for (unsigned i = 0; i < RESULTS; i++)
        give(results[i]);
    return finish();
}
