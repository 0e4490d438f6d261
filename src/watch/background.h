/* The background thread: option `background:on`, or `control:PATH`; there is none else.
 *
 * It looks four times in a decay interval, at least each 10 ms and once in 250 ms, once a second
 * while nobody runs and nothing is left to give:
 *   decay        what is due by age, though nobody calls
 *   idle threads slabs of threads that took no slow path for an interval; at most a hundredth of a
 *                processor goes into it
 *   idle process when no other thread ran for a decay time, all that is free goes back
 *   surroundings the control group's limits and the pressure on memory (surroundings.h)
 *   control      the socket (control_socket.h), at any time
 *
 *   state       NONE --start--> RUNNING --stop--> ENDING --the thread--> NONE
 *               ENDING --start--> RUNNING
 *               in a child of fork: RUNNING --> OWED, ENDING --> NONE
 *               OWED --start or restart--> RUNNING, OWED --stop--> NONE
 *
 * The thread has every signal blocked but libc's own, a small stack, and takes no block of the
 * general heap. In a child of fork there is none at first: the first malloc that takes a slow path
 * some time after the fork starts it, so that children that only execute a program have none.
 */
#ifndef CAIRN_WATCH_BACKGROUND_H
#define CAIRN_WATCH_BACKGROUND_H

#include "base/compiler.h"

enum { BACKGROUND_CHILD_WAITS_MS = 100 };

/* 0, also when it runs already, or a negative errno. No lock held; libc allocates. */
int background_start(void);
/* It ends soon; waits for that, but at most a second, unless it is the caller itself. */
void background_stop(void);
bool background_runs(void);
uint64_t background_rounds(void);

/* In the child of a fork there ought to be one: background_restart makes it when it is time. Who
 * stops it meanwhile has stopped it: the state is OWED until one of both changes it. */
extern hidden_data bool background_is_owed; /* atomic, hint: the state may be OWED */
void background_restart(void);

#endif
