/* Fault injection, see fault.h: counts the calls of os/ that can fail, and fails those that a
 * plan names. Costs nothing in release builds. */
#include "os/fault.h"
#include "base/atomic.h"
#include "os/kernel.h"

static struct {
    size_t seen;  /* atomic: calls since the plan was made */
    size_t first; /* const while a plan runs: number of the first call that fails */
    size_t count; /* const while a plan runs: length of the plan in calls; 0: no plan */
    size_t every; /* const while a plan runs: distance between calls that fail */
    int error;    /* const while a plan runs: positive errno */
} plan;

at_process_start bool fault_strikes(int *error)
{
    if (!config_debug)
        return false;
    size_t turn = fetch_add_relaxed(&plan.seen, (size_t)1);
    if (turn - plan.first >= plan.count || (turn - plan.first) % plan.every != 0)
        return false;
    *error = -plan.error;
    return true;
}

size_t os_fault_plan(size_t skip, size_t count, int error)
{
    return os_fault_plan_every(skip, count, 1, error);
}

size_t os_fault_plan_every(size_t skip, size_t count, size_t every, int error)
{
    size_t seen = load_relaxed(&plan.seen);
    plan.count = 0;
    plan.first = skip;
    plan.every = every;
    plan.error = error;
    store_relaxed(&plan.seen, (size_t)0);
    plan.count = count;
    return seen;
}
