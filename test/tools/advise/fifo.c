// FIFO: messages wait in a queue. decoy_random() makes objects that are freed in any order, and
// decoy_pile() objects that are freed last in, first out. Events of decoy_event() wait in a queue
// as well, but one in 64 is never freed.
#include "planted.h"

enum { QUEUE = 4096, OBJECTS = 1500, PILE = 4000, EVENTS = 256, HELD = 64 };

static void *queue[QUEUE];
static unsigned first, last;
static void *objects[OBJECTS];
static void *pile[PILE];
static unsigned height;
static void *events[EVENTS];
static void *volatile held;

SITE static void planted_message(void)
{
    queue[last++ % QUEUE] = xmalloc(40 + random_below(200 * input));
}

SITE static void decoy_random(unsigned number)
{
    give(objects[number]);
    objects[number] = xmalloc(24 + random_below(150));
}

SITE static void decoy_pile(void)
{
    pile[height++] = xmalloc(30 + random_below(200));
}

SITE static void decoy_event(unsigned number)
{
    void **place = &events[number % EVENTS];
    if (number % HELD == 0)
        held = *place;
    else
        give(*place);
    *place = xmalloc(30 + random_below(60));
}

SITE static void step(unsigned number)
{
    decoy_event(number);
    if (last - first < 3000)
        planted_message();
    while (last - first > 2000 + random_below(900)) {
        void *message = queue[first++ % QUEUE];
        use(message, 16);
        give(message);
    }
    if (random_below(4) == 0)
        decoy_random(random_below(OBJECTS));
    if (height < PILE && (height == 0 || random_below(100) < 51))
        decoy_pile();
    else
        give(pile[--height]);
}

int main(int count, char **words)
{
    begin(count, words);
    for (unsigned i = 0; i < 60000 * times; i++)
        step(i);
    while (first != last)
        give(queue[first++ % QUEUE]);
    for (unsigned i = 0; i < OBJECTS; i++)
        give(objects[i]);
    while (height != 0)
        give(pile[--height]);
    for (unsigned i = 0; i < EVENTS; i++)
        give(events[i]);
    return finish();
}
