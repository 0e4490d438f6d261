/* The background thread. The background thread exists only if an option asks for it:
 * `background:on` or `control:PATH`.
 *
 * The background thread does about four rounds in a decay interval, 10 to 250 ms apart. While no
 * other thread runs and no free memory is left to release, it does one round a second. A round does
 * this:
 *
 *   decay        does what is due by age (pages_tick), although no thread calls the heap
 *   idle process releases all free memory when no other thread ran for the decay time
 *   pressure     follows the limits of the control group and the pressure on memory, see
 *                memory_pressure.h
 *   end          ends, if it is the last thread of the process: libc then ends the process, as it
 *                would have done without this thread
 *
 * Between rounds it serves the control socket (control_socket.h).
 *
 *   state       NONE --owe--> OWED
 *               NONE --start--> RUNNING --stop--> ENDING --the thread--> NONE
 *               RUNNING --the thread, if it is the last--> ENDING
 *               ENDING --start--> RUNNING
 *               in a child of fork: RUNNING --> OWED, ENDING --> NONE
 *               OWED --start or restart--> RUNNING, OWED --stop--> NONE
 *
 * The thread blocks every signal except those of libc, has a small stack, and takes no block of the
 * general heap. With `background:on` in the environment, the first malloc that takes a slow path
 * once the heap is large enough starts it. So programs that only prepare others, like setpriv and
 * shells, never have one: libc aborts a program whose threads have different rights. A child of
 * fork has no such thread at first: the first malloc that takes a slow path some time after the
 * fork starts it. So children that only execute a program never have one.
 *
 * Threads: any may call these functions. */
#ifndef CAIRN_WATCH_BACKGROUND_H
#define CAIRN_WATCH_BACKGROUND_H

#include "base/compiler.h"

enum { BACKGROUND_CHILD_WAITS_MS = 100, BACKGROUND_FROM_BYTES = 4 << 20 };

/* Starts the thread, unless it runs already. libc allocates.
 *
 * Locking: none held.
 * Returns: 0 or a negative errno. */
int background_start(void);

/* Lets a malloc start the thread once the heap has BACKGROUND_FROM_BYTES. With musl, which cannot
 * do that, starts it.
 *
 * Threads: the first one, before others exist.
 * Returns: 0 or a negative errno. */
int background_owe(void);

/* Ends the thread and waits for its end, at most a second. Does not wait if the caller is that
 * thread. */
void background_stop(void);

/* Whether the thread runs. */
bool background_runs(void);

/* The number of rounds since the start of the process. */
uint64_t background_rounds(void);

/* A hint that the state may be OWED: background_restart has to be called. Atomic. */
extern hidden_data bool background_is_owed;

/* Starts the thread if the state is OWED, the heap is large enough, and enough time has passed
 * since a fork.
 *
 * Locking: none held. */
void background_restart(void);

#endif
