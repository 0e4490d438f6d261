// fifo.c changed by its advice: messages are from a FIFO.
#include <cairn/fifo.h>

#include "planted.h"

enum { QUEUE = 4096, OBJECTS = 1500, PILE = 4000, EVENTS = 256, HELD = 64 };

static void *queue[QUEUE];
static unsigned first, last;
static cairn_fifo *messages;
static void *objects[OBJECTS];
static void *pile[PILE];
static unsigned height;
static void *events[EVENTS];
static void *volatile held;

SITE static void planted_message(void)
{
    size_t size = 40 + random_below(200 * input);
    queue[last++ % QUEUE] = filled(cairn_fifo_alloc(messages, size, 16), size);
}

SITE static void decoy_random(unsigned number)
{
    give(objects[number]);
    objects[number] = xmalloc(24 + random_below(150));
}

SITE static void decoy_pile(void) { pile[height++] = xmalloc(30 + random_below(200)); }

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
        cairn_fifo_free(messages, finished(message));
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
    messages = cairn_fifo_new(NULL);
    if (messages == NULL)
        abort();
    for (unsigned i = 0; i < 60000 * times; i++)
        step(i);
    while (first != last)
        cairn_fifo_free(messages, finished(queue[first++ % QUEUE]));
    for (unsigned i = 0; i < OBJECTS; i++)
        give(objects[i]);
    while (height != 0)
        give(pile[--height]);
    for (unsigned i = 0; i < EVENTS; i++)
        give(events[i]);
    return finish();
}
