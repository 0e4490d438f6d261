/* Serving clients: see control_socket.h.
 *
 *   client    line not whole yet --newline--> answered --all sent--> line not whole yet
 *             nothing for a while in the first (with a begun line) or the second: dropped
 *
 * A client with an answer on its way is not read, so none has more than one. One line of each
 * client a round, so none keeps the others waiting. After an answer that took t nobody is answered
 * for 4 t, so all clients together get a fifth of a processor at most.
 */
#include "watch/control_socket.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

enum { REFUSED_REST_MS = 250 };

struct control_place control_place;

struct client {
    struct os_own_file file;             /* none: the place is free */
    bool last;                           /* the connection ends behind this answer */
    uint64_t heard_ms;                   /* of the last progress */
    size_t held;                         /* bytes of `line` */
    size_t length;                       /* of `answer`, 0: none is on its way */
    size_t sent;                         /* of those */
    char line[CONTROL_REQUEST_MOST + 2]; /* a byte too many, and the end */
    char answer[CONTROL_ANSWER_BYTES];
};

/* The background thread's but where it says otherwise. */
static struct {
    char path[CONTROL_PATH_MOST + 1]; /* const after the options; empty: none is wanted */
    control_answer *answer;           /* const after the options */
    struct os_own_file listener;
    struct client *clients; /* CONTROL_CLIENTS of them, or NULL */
    uint64_t rest_until_us; /* nobody is answered before */
    bool inherits;          /* this process is the child of one that has a socket */
} control = {.listener = {.number = -1}};

static bool listens(void) { return load_relaxed(&control.listener.number) >= 0; }

static bool is_there(const struct client *client)
{
    return load_relaxed(&client->file.number) >= 0;
}

bool control_configure(const char *path, size_t length_bytes, control_answer *answer)
{
    if (length_bytes == 0 || length_bytes >= sizeof control.path || path[0] != '/')
        return false;
    memcpy(control.path, path, length_bytes);
    control.path[length_bytes] = '\0';
    control.answer = answer;
    return true;
}

bool control_is_wanted(void) { return control.path[0] != '\0'; }

/* False: it does not fit. */
static bool make_path(char *to)
{
    char number[12];
    size_t digits = format_text(number, sizeof number, "%u", os_process_id());
    size_t used = 0;
    for (const char *from = control.path; *from != '\0'; from++) {
        bool is_number = from[0] == '%' && from[1] == 'p';
        size_t more = is_number ? digits : 1;
        if (used + more >= CONTROL_FULL_PATH_BYTES)
            return false;
        memcpy(to + used, is_number ? number : from, more);
        used += more;
        from += is_number;
    }
    to[used] = '\0';
    return true;
}

int control_open(void)
{
    char path[CONTROL_FULL_PATH_BYTES] = "";
    if (!control_is_wanted() || listens())
        return 0;
    size_t bytes = align_up(CONTROL_CLIENTS * sizeof(struct client), os_page_size());
    if (control.clients == NULL)
        control.clients = os_map(bytes);
    int error = control.clients == NULL ? -ENOMEM : make_path(path) ? 0 : -ENAMETOOLONG;
    int listener = error == 0 ? os_socket_listen(path) : error;
    if (listener == -EADDRINUSE && control.inherits)
        return listener; /* the parent's, or a sibling's */
    if (listener < 0) {
        report("no control socket at %s: error %d", path[0] != '\0' ? path : control.path,
               -listener);
        return listener;
    }
    os_name(control.clients, bytes, "cairn: control");
    for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
        store_relaxed(&control.clients[i].file.number, -1);
    int error_of_own = os_file_own(&control.listener, listener);
    if (error_of_own != 0)
        return error_of_own;
    memcpy(control_place.path, path, sizeof path);
    store_release(&control_place.owner, os_process_id()); /* pairs with control_remove */
    return 0;
}

/* Its place is free, and without memory. */
static void drop(struct client *client)
{
    size_t page = os_page_size();
    char *from = (char *)align_up((uintptr_t)client->answer, page);
    char *to = (char *)align_down((uintptr_t)client->answer + sizeof client->answer, page);
    os_file_close_own(&client->file);
    if (client->length + client->sent > page)
        (void)os_purge(from, (size_t)(to - from));
}

at_process_end void control_remove(void)
{
    if (load_relaxed(&control_place.owner) == 0)
        return; /* nobody's, and nobody asks the system who it is */
    uint32_t own = os_process_id();
    /* acquire: pairs with control_open */
    if (compare_swap_acq_rel(&control_place.owner, &own, 0u))
        (void)os_file_remove(control_place.path);
}

void control_close(void)
{
    if (!listens())
        return;
    control_remove();
    control_forget(false);
    control.inherits = false;
}

void control_forget(bool served)
{
    for (unsigned i = 0; listens() && i < CONTROL_CLIENTS; i++)
        if (is_there(&control.clients[i]))
            drop(&control.clients[i]);
    control.inherits = control.inherits || served;
    os_file_close_own(&control.listener);
    store_relaxed(&control_place.owner, 0u);
}

static void welcome(uint64_t now_ms)
{
    int file = os_socket_accept(os_file_own_number(&control.listener));
    if (file < 0) {
        if (file != -EAGAIN && file != -EPERM) /* no descriptor is left: it goes on waiting */
            control.rest_until_us = os_now_us() + 1000 * REFUSED_REST_MS;
        return;
    }
    struct client *place = &control.clients[0];
    for (unsigned i = 0; i < CONTROL_CLIENTS && is_there(place); i++)
        if (!is_there(&control.clients[i]) || control.clients[i].heard_ms < place->heard_ms)
            place = &control.clients[i];
    if (is_there(place))
        drop(place);
    if (os_file_own(&place->file, file) != 0)
        return;
    place->last = false;
    place->heard_ms = now_ms;
    place->held = place->length = place->sent = 0;
}

static void send_on(struct client *client, uint64_t now_ms)
{
    int sent = os_socket_send(os_file_own_number(&client->file), client->answer + client->sent,
                              client->length - client->sent);
    if (sent == -EAGAIN)
        return;
    if (sent <= 0) {
        drop(client);
        return;
    }
    client->heard_ms = now_ms;
    client->sent += (size_t)sent;
    if (client->sent < client->length)
        return;
    client->length = 0;
    if (client->last)
        drop(client);
}

/* The first line of what is held, which ends at `end`. */
static void answer_line(struct client *client, char *end, uint64_t now_ms)
{
    uint64_t start_us = os_now_us();
    *end = '\0';
    size_t length = control.answer(client->line, client->answer, sizeof client->answer - 1);
    client->answer[length] = '\n';
    client->length = length + 1;
    client->sent = 0;
    size_t used = smaller_of((size_t)(end + 1 - client->line), client->held);
    memmove(client->line, client->line + used, client->held - used);
    client->held -= used;
    uint64_t end_us = os_now_us();
    control.rest_until_us = end_us + CONTROL_REST_FACTOR * (end_us - start_us);
    send_on(client, now_ms);
}

/* Answers a line that is whole, if there is one. */
static bool answer_held(struct client *client, uint64_t now_ms)
{
    char *end = bytes_find(client->line, client->held, '\n');
    if (end == NULL && client->held > CONTROL_REQUEST_MOST) {
        client->last = true; /* where the next line begins is not known */
        end = client->line + client->held;
    }
    if (end == NULL)
        return false;
    answer_line(client, end, now_ms);
    return true;
}

static void receive(struct client *client, uint64_t now_ms)
{
    int got = os_socket_receive(os_file_own_number(&client->file), client->line + client->held,
                                CONTROL_REQUEST_MOST + 1 - client->held);
    if (got == -EAGAIN)
        return;
    if (got <= 0) {
        drop(client);
        return;
    }
    client->heard_ms = now_ms;
    client->held += (size_t)got;
    (void)answer_held(client, now_ms);
}

static void drop_stalled(uint64_t now_ms)
{
    for (unsigned i = 0; i < CONTROL_CLIENTS; i++) {
        struct client *client = &control.clients[i];
        bool owes = is_there(client) && (client->length != 0 || client->held != 0);
        if (owes && now_ms - client->heard_ms >= CONTROL_STALL_MS)
            drop(client);
    }
}

/* Whom to wait for. While there is a rest, nobody but the event. */
static unsigned gather(struct os_wait *entries, struct client **of, bool rests)
{
    unsigned count = 1;
    if (rests || !listens())
        return count;
    entries[count++] =
        (struct os_wait){.file = load_relaxed(&control.listener.number), .reads = true};
    for (unsigned i = 0; i < CONTROL_CLIENTS; i++) {
        struct client *client = &control.clients[i];
        int file = os_file_own_number(&client->file);
        if (file < 0)
            continue;
        bool sends = client->length != 0;
        of[count] = client;
        entries[count++] = (struct os_wait){.file = file, .reads = !sends, .writes = sends};
    }
    return count;
}

/* A line that came with the one before it. */
static bool any_held(void)
{
    for (unsigned i = 0; listens() && i < CONTROL_CLIENTS; i++) {
        struct client *client = &control.clients[i];
        if (is_there(client) && client->length == 0 &&
            bytes_find(client->line, client->held, '\n') != NULL)
            return true;
    }
    return false;
}

static void serve_ready(const struct os_wait *entries, struct client **of, unsigned count,
                        uint64_t now_ms)
{
    for (unsigned i = 2; i < count; i++) {
        struct client *client = of[i];
        if (client->length != 0 && entries[i].ready)
            send_on(client, now_ms);
        else if (client->length == 0 && !answer_held(client, now_ms) && entries[i].ready)
            receive(client, now_ms);
    }
    if (count > 1 && entries[1].ready)
        welcome(now_ms);
}

/* The program has closed the listener, or has a file of its own at its number. */
static void open_again(void)
{
    for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
        if (is_there(&control.clients[i]))
            drop(&control.clients[i]);
    (void)control_open();
}

void control_serve(uint64_t until_ms, int event)
{
    struct os_wait entries[CONTROL_CLIENTS + 2];
    struct client *of[CONTROL_CLIENTS + 2] = {NULL};
    for (uint64_t now = os_now_ms(); now < until_ms; now = os_now_ms()) {
        if (listens() && os_file_own_number(&control.listener) < 0)
            open_again();
        uint64_t now_us = os_now_us();
        bool rests = now_us < control.rest_until_us;
        uint64_t wait = until_ms - now;
        if (rests)
            wait = smaller_of(wait, (control.rest_until_us - now_us) / 1000 + 1);
        else if (any_held())
            wait = 0;
        entries[0] = (struct os_wait){.file = event, .reads = true};
        unsigned count = gather(entries, of, rests);
        os_wait_for(entries, count, (unsigned)wait);
        if (entries[0].ready)
            return;
        serve_ready(entries, of, count, os_now_ms());
        if (listens())
            drop_stalled(os_now_ms());
    }
}
