/* The control socket: lines in, answers out. docs/CONTROL.md describes the protocol for clients.
 *
 * The background thread calls all of this, but what says otherwise. Memory: one mapping, made when
 * the socket is opened; buffers that were used by a client go back when it leaves.
 */
#ifndef CAIRN_WATCH_CONTROL_SOCKET_H
#define CAIRN_WATCH_CONTROL_SOCKET_H

#include "base/compiler.h"

enum {
    CONTROL_PATH_MOST = 100,
    CONTROL_FULL_PATH_BYTES = CONTROL_PATH_MOST + 1,
    CONTROL_CLIENTS = 8,
    CONTROL_REQUEST_MOST = 512,
    CONTROL_ANSWER_BYTES = 65536,
    CONTROL_STALL_MS = 5000, /* a client that takes or ends nothing for so long is dropped */
    CONTROL_REST_FACTOR = 4, /* after an answer nobody is answered for so many times its time */
};

/* Where the socket is; readers outside find it by library_layout.c. */
struct control_place {
    uint32_t owner;                     /* atomic: process that has the file; 0: none */
    char path[CONTROL_FULL_PATH_BYTES]; /* background thread, before `owner` */
};
extern hidden_data struct control_place control_place;

/* Writes the answer to a line, ended by zero, and returns its length; 0 when it cannot. */
typedef size_t control_answer(const char *request, char *answer, size_t capacity_bytes);

/* Where, and who answers; "%p" in the path is the process. Before there are threads. False: the
 * path is too long or relative. */
bool control_configure(const char *path, size_t length_bytes, control_answer *answer);
bool control_is_wanted(void);

/* 0, or a negative errno, once said; then there is none. */
int control_open(void);
void control_close(void); /* of this process: removes the file */

/* Serves until then, or until `event` is set, and waits in between. */
void control_serve(uint64_t until_ms, int event);

/* In the child of a fork: what was open is the parent's. `served`: the parent has a socket, or is
 * about to. Where the path is the parent's, too, it becomes this process's once the parent is gone,
 * and until then there is none, without a word. */
void control_forget(bool served);

/* At the process's end, by any thread. */
void control_remove(void);

#endif
