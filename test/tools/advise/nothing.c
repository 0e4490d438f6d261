// No possible gain: objects of all sizes with any lifetime, freed in any order.
#include "planted.h"

enum { OBJECTS = 3000 };

static void *objects[OBJECTS];

SITE static void decoy_object(unsigned number)
{
    give(objects[number]);
    objects[number] = xmalloc(16 + random_below(8 + (random_below(20) == 0 ? 1000 : 100) * input));
}

SITE static void decoy_value(unsigned number)
{
    give(objects[number]);
    objects[number] = xmalloc(16 + random_below(300));
}

int main(int count, char **words)
{
    begin(count, words);
    for (unsigned i = 0; i < 40000; i++)
        if (random_below(3) == 0)
            decoy_value(random_below(OBJECTS));
        else
            decoy_object(random_below(OBJECTS));
    for (unsigned i = 0; i < OBJECTS; i++)
        give(objects[i]);
    return finish();
}
