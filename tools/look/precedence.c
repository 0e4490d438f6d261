// Raises the priority of this program over others (SCHED_FIFO) while another process waits for it:
// for a thread that this program has stopped, or for the lock of an address space that the kernel
// takes to read it. If this program lost its processor at that moment, the other process would wait
// for milliseconds. Raising the precedence needs root or CAP_SYS_NICE. Without them, or under a
// scheduling policy other than the usual one, nothing changes.
#include "look.h"

#include <sched.h>

static enum { UNKNOWN, ALLOWED, REFUSED } precedence;
static unsigned depth; // of nested calls

bool go_first(void)
{
    if (precedence == UNKNOWN && sched_getscheduler(0) != SCHED_OTHER)
        precedence = REFUSED;
    if (precedence == REFUSED || depth++ > 0)
        return precedence == ALLOWED;
    const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
    precedence = sched_setscheduler(0, SCHED_FIFO, &lowest) == 0 ? ALLOWED : REFUSED;
    return precedence == ALLOWED;
}

void go_as_before(void)
{
    const struct sched_param none = {0};
    if (precedence == ALLOWED && --depth == 0)
        (void)sched_setscheduler(0, SCHED_OTHER, &none);
}
