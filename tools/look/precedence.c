// Precedence over other programs (SCHED_FIFO) while another process waits for this one: for a
// thread that it has stopped, or for the lock of an address space that the kernel takes to read it.
// A tool that loses its processor just then makes the other one wait for milliseconds. It takes
// root or CAP_SYS_NICE. Without, or where the tool runs by another policy than the usual one,
// nothing changes.
#include "look.h"

#include <sched.h>

static enum { UNKNOWN, ALLOWED, REFUSED } precedence;
static unsigned depth; // of calls within calls

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
