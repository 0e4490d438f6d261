/* Fault injection for tests: system calls fail according to a plan. Debug builds only; in release
 * builds these functions have no effect. The tests in test/oom use it.
 *
 * Threads: any may make system calls while a plan is in effect; a plan is made while no
 * other thread runs.
 */
#ifndef CAIRN_OS_FAULT_H
#define CAIRN_OS_FAULT_H

#include "base/compiler.h"

/* Lets the `skip`-th call from now on and the `count - 1` calls after it fail with -error. `skip`
 * counts from 0; `count` 0 ends the plan.
 * Returns: the number of calls since the last plan. */
size_t os_fault_plan(size_t skip, size_t count, int error);

/* Lets the `skip`-th call from now on fail with -error, and each `every`-th call after it, within
 * `count` calls. `skip` counts from 0; `count` 0 ends the plan.
 * Returns: the number of calls since the last plan. */
size_t os_fault_plan_every(size_t skip, size_t count, size_t every, int error);

#endif
