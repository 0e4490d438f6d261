/* The functions of fifo_state.h that end the process. */
#include "frame/fifo_state.h"

void fifo_die_foreign(const struct fifo *fifo, const void *pointer)
{
    die("fifo \"%s\": free of %p, which is not an object of it", fifo->name, pointer);
}

void fifo_die_surplus(const struct fifo *fifo, const void *pointer)
{
    die("fifo \"%s\": more frees than objects in the page of %p", fifo->name, pointer);
}

void fifo_die_not_owned(const struct fifo *fifo)
{
    if (load_relaxed(&fifo->owner) == NULL)
        die("fifo \"%s\": used after its end", fifo->name);
    die("fifo \"%s\": used by a thread that does not own it", fifo->name);
}
