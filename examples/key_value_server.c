/* A key-value store over TCP that survives kill -9, in the protocol of Redis: redis-cli and
 * redis-benchmark talk to it: GET, SET, DEL, INCR, DBSIZE, PING. The data: in a persistent heap.
 *
 * usage: key_value_server FILE [PORT [CAPACITY_MIB]]; on 127.0.0.1 only
 *
 * Rounds: epoll says who has sent something; all whole requests are carried out; one commit makes
 * it durable; only then the replies go out. So what was acknowledged survives, and many clients
 * share one fdatasync. A commit that finds no room: an abort undoes the round, its replies are
 * errors. A failed fdatasync: the end without a reply. SIGTERM: the end between two rounds. */
#define _GNU_SOURCE /* accept4 */
#include <arpa/inet.h>
#include <cairn/persist.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    TEXT_MOST = 64 << 20,   /* of a key or value */
    WORDS_MOST = 1024,      /* of a request */
    UNSENT_MOST = 64 << 20, /* a client with more unread replies is closed */
    READ_BYTES = 64 << 10,  /* at once; and a longer line is none */
};

struct text {
    const char *bytes;
    size_t size;
};
_Noreturn static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "key_value_server: %s: %s\n", what, why);
    exit(1);
}

/* ---- the data, in the persistent heap ---- */

/* A hash trie: the root leads to an entry, each entry to four, by two bits of the key's hash at a
 * time. It grows with each key, so no request waits for a larger table to be filled. */
struct entry {
    cairn_offset next[4];
    uint32_t key_size, value_size;
    char bytes[]; /* the key, then the value */
};

struct store {
    uint64_t seed; /* of the hash; random, so that clients cannot choose colliding keys */
    uint64_t entries;
    cairn_offset root;
};

static cairn_persist *heap;
static cairn_allocator from;
static struct store *store;
static bool changed; /* since the last commit */

/* The link that leads to the key's entry, or the empty one where it would be. */
static cairn_offset *find(struct text key)
{
    uint64_t hash = store->seed;
    for (size_t i = 0; i < key.size; i++)
        hash = (hash ^ (unsigned char)key.bytes[i]) * 0x100000001b3u;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
    cairn_offset *link = &store->root;
    for (struct entry *entry; (entry = cairn_offset_get(link)) != NULL; hash <<= 2) {
        if (entry->key_size == key.size && memcmp(entry->bytes, key.bytes, key.size) == 0)
            break;
        link = &entry->next[hash >> 62];
    }
    return link;
}

/* The link leads to `entry` (NULL: to nothing), and what was there before is freed. */
static void replace(cairn_offset *link, struct entry *entry)
{
    struct entry *old = cairn_offset_get(link);
    for (int i = 0; i < 4 && entry != NULL; i++)
        cairn_offset_set(&entry->next[i], old ? cairn_offset_get(&old->next[i]) : NULL);
    cairn_offset_set(link, entry);
    if (old != NULL)
        cairn_allocator_free(from, old, sizeof *old + old->key_size + old->value_size);
}

/* false: out of memory, and nothing was changed. */
static bool put(struct text key, struct text value)
{
    cairn_offset *link = find(key);
    struct entry *entry = cairn_offset_get(link);
    bool fresh = entry == NULL;
    if (fresh || entry->value_size != value.size) {
        entry = cairn_allocator_alloc(from, sizeof *entry + key.size + value.size, 8);
        if (entry == NULL)
            return false;
        entry->key_size = (uint32_t)key.size;
        entry->value_size = (uint32_t)value.size;
        memcpy(entry->bytes, key.bytes, key.size);
        replace(link, entry);
        store->entries += fresh;
    }
    memcpy(entry->bytes + key.size, value.bytes, value.size);
    return changed = true;
}

/* Into its place goes any leaf below it: that has the bits that lead there. */
static bool take_out(struct text key)
{
    cairn_offset *link = find(key), *last = link;
    struct entry *entry = cairn_offset_get(link), *leaf = entry, *next;
    if (entry == NULL)
        return false;
    for (int i = 0; i < 4; i++)
        if ((next = cairn_offset_get(&leaf->next[i])) != NULL) {
            last = &leaf->next[i];
            leaf = next;
            i = -1;
        }
    if (leaf != entry)
        cairn_offset_set(last, NULL);
    replace(link, leaf != entry ? leaf : NULL);
    store->entries--;
    return changed = true;
}

static void open_store(const char *path, size_t capacity)
{
    const char *why = "";
    unsigned flags = CAIRN_PERSIST_CREATE | CAIRN_PERSIST_WRITERS_PAUSE;
    cairn_persist_options options = {.flags = flags, .capacity_bytes = capacity, .why = &why};
    heap = cairn_persist_open(path, &options);
    if (heap == NULL)
        give_up(path, why);
    from = cairn_persist_allocator(heap);
    store = cairn_persist_get_root(heap, "store");
    if (store != NULL)
        return;
    store = cairn_allocator_alloc_zero(from, sizeof *store, 8);
    if (store == NULL || getrandom(&store->seed, sizeof store->seed, 0) != sizeof store->seed ||
        cairn_persist_set_root(heap, "store", store) != 0 || cairn_persist_commit(heap) != 0)
        give_up(path, "it cannot be set up");
}

/* ---- clients, replies and requests ---- */

struct client {
    FILE *replies; /* a stream over `out` */
    char *out, *in;
    size_t out_size, sent, in_size, in_room;
    off_t before;        /* in `out` when this round began */
    unsigned requests;   /* of this round */
    struct client *next; /* in this round */
    int socket;
    bool closing, gone; /* once all is sent; at once */
};

/* As printed, without blanks, plus or zeros in front. */
static bool to_number(struct text text, int64_t *number)
{
    char copy[24] = "", again[24];
    memcpy(copy, text.bytes, text.size < sizeof copy ? text.size : 0);
    *number = strtoll(copy, NULL, 10);
    int size = snprintf(again, sizeof again, "%" PRId64, *number);
    return (size_t)size == text.size && memcmp(again, copy, text.size) == 0;
}

static bool increment(struct text key, const struct entry *entry, char *reply)
{
    struct text value = {entry ? entry->bytes + key.size : "0", entry ? entry->value_size : 1};
    int64_t number;
    if (!to_number(value, &number) || number == INT64_MAX) {
        strcpy(reply, "-ERR value is not an integer or out of range");
        return true;
    }
    int size = sprintf(reply, ":%" PRId64, number + 1);
    return put(key, (struct text){reply + 1, (size_t)size - 1});
}

static void execute(FILE *replies, int count, const struct text *words)
{
    enum { GET, SET, DEL, INCR, DBSIZE, PING, UNKNOWN } which = GET;
    static const char *const names[] = {"get", "set", "del", "incr", "dbsize", "ping"};
    static const int least[] = {2, 3, 2, 2, 1, 1}, most[] = {2, 3, WORDS_MOST, 2, 1, 1};
    while (which < UNKNOWN && (strlen(names[which]) != words[0].size ||
                               strncasecmp(names[which], words[0].bytes, words[0].size) != 0))
        which++;
    const struct entry *entry = count == 2 ? cairn_offset_get(find(words[1])) : NULL;
    char reply[64] = "+OK";
    int64_t number = which == DEL ? 0 : (int64_t)store->entries;
    for (int i = 1; which == DEL && i < count; i++)
        number += take_out(words[i]);
    if (which == UNKNOWN)
        fputs("-ERR unknown command\r\n", replies);
    else if (count < least[which] || count > most[which])
        fprintf(replies, "-ERR wrong number of arguments for '%s' command\r\n", names[which]);
    else if (which == GET && entry == NULL)
        fputs("$-1\r\n", replies);
    else if (which == GET) {
        fprintf(replies, "$%" PRIu32 "\r\n", entry->value_size);
        fwrite(entry->bytes + entry->key_size, 1, entry->value_size, replies);
        fputs("\r\n", replies);
    } else if (which == PING)
        fputs("+PONG\r\n", replies);
    else if (which == DEL || which == DBSIZE)
        fprintf(replies, ":%" PRId64 "\r\n", number);
    else if (which == SET ? put(words[1], words[2]) : increment(words[1], entry, reply))
        fprintf(replies, "%s\r\n", reply);
    else
        fputs("-OOM there is no room for it; nothing was changed\r\n", replies);
}

/* Behind a line of KIND and a number; NULL: broken or not whole. */
static const char *take_count(const char *at, const char *end, char kind, int64_t *count,
                              const char **fault)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    if (newline == NULL)
        *fault = end - at < READ_BYTES ? NULL : "too long a line";
    else if (*at == kind && newline - at > 2 && newline[-1] == '\r' &&
             to_number((struct text){at + 1, (size_t)(newline - at) - 2}, count) && *count >= 0 &&
             *count <= (kind == '*' ? WORDS_MOST : TEXT_MOST))
        return newline + 1;
    else
        *fault = kind == '*' ? "invalid multibulk length" : "invalid bulk length";
    return NULL;
}

/* One request's size and words; 0: broken, with *fault, or not whole yet. */
static size_t parse(struct text input, int *count, struct text *words, const char **fault)
{
    const char *at = input.bytes, *end = at + input.size;
    int64_t number = 0, size = 0;
    *count = 0;
    if (*at == '*') {
        at = take_count(at, end, '*', &number, fault);
        for (; at != NULL && *count < number; ++*count, at += size + 2) {
            at = take_count(at, end, '$', &size, fault);
            if (at == NULL || end - at < size + 2)
                return 0;
            words[*count] = (struct text){at, (size_t)size};
        }
        return at != NULL ? (size_t)(at - input.bytes) : 0;
    }
    const char *newline = memchr(at, '\n', input.size); /* words in a line */
    if (newline == NULL)
        *fault = input.size < READ_BYTES ? NULL : "too big inline request";
    for (; newline != NULL; at += words[(*count)++].size) {
        at += strspn(at, " \r");
        if (*at == '\n' || *count == WORDS_MOST)
            return (size_t)(newline + 1 - input.bytes);
        words[*count] = (struct text){at, strcspn(at, " \r\n")};
    }
    return 0;
}

/* ---- rounds ---- */

static int poll_file, listener;
static struct client *round_first;
static volatile sig_atomic_t ending;
static void on_end(int number) { ending = number; }

static void watch(int operation, int socket, uint32_t events, struct client *client)
{
    struct epoll_event event = {.events = events, .data.ptr = client};
    if (epoll_ctl(poll_file, operation, socket, &event) != 0)
        give_up("epoll", strerror(errno));
}

static void accept_client(void)
{
    int socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0)
        return;
    struct client *client = calloc(1, sizeof *client);
    if (client == NULL || !(client->replies = open_memstream(&client->out, &client->out_size)))
        give_up("a client", strerror(errno));
    client->socket = socket;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    watch(EPOLL_CTL_ADD, socket, EPOLLIN, client);
}

static void serve(struct client *client)
{
    static struct text words[WORDS_MOST];
    client->next = round_first;
    round_first = client;
    client->before = ftello(client->replies);
    client->requests = 0;
    if (client->closing)
        return;
    if (client->in_room - client->in_size < READ_BYTES) {
        client->in_room = 2 * client->in_size + READ_BYTES;
        if ((client->in = realloc(client->in, client->in_room)) == NULL)
            give_up("a request", strerror(errno));
    }
    ssize_t got = recv(client->socket, client->in + client->in_size, READ_BYTES, 0);
    client->in_size += got > 0 ? (size_t)got : 0;
    client->closing |= got == 0;
    client->gone |= got < 0 && errno != EAGAIN && errno != EINTR;
    size_t done = 0, size = 1;
    const char *fault = NULL;
    int count;
    for (; size > 0 && done < client->in_size && !client->gone; done += size) {
        struct text left = {client->in + done, client->in_size - done};
        size = parse(left, &count, words, &fault);
        if (size > 0 && count > 0) {
            client->requests++;
            execute(client->replies, count, words);
        }
        client->gone |= ftello(client->replies) > UNSENT_MOST;
    }
    client->in_size -= done;
    if (done > 0)
        memmove(client->in, client->in + done, client->in_size);
    if (fault == NULL)
        return;
    client->requests++;
    fprintf(client->replies, "-ERR Protocol error: %s\r\n", fault);
    client->closing = true;
}

static void end(struct client *client)
{
    close(client->socket);
    fclose(client->replies);
    free(client->out);
    free(client->in);
    free(client);
}

/* The replies go out, as far as the client takes them. */
static void send_to(struct client *client)
{
    client->gone |= fflush(client->replies) != 0;
    size_t left = client->gone ? 0 : client->out_size - client->sent;
    char *start = client->out + client->sent;
    ssize_t sent = left > 0 ? send(client->socket, start, left, MSG_NOSIGNAL) : 0;
    client->gone |= sent < 0 && errno != EAGAIN && errno != EINTR;
    client->sent += sent > 0 ? (size_t)sent : 0;
    if (client->sent == client->out_size) {
        rewind(client->replies);
        client->sent = client->out_size = 0;
    }
    uint32_t events = (client->closing ? 0 : EPOLLIN) | (client->out_size > 0 ? EPOLLOUT : 0);
    if (events == 0 || client->gone)
        end(client);
    else
        watch(EPOLL_CTL_MOD, client->socket, events, client);
}

static void end_round(void)
{
    int error = changed ? cairn_persist_commit(heap) : 0;
    if (error != 0 && cairn_persist_abort(heap) != 0) /* refused after a failed fdatasync */
        give_up("commit", strerror(error));
    changed = false;
    for (struct client *client; (client = round_first) != NULL; send_to(client)) {
        round_first = client->next;
        if (error != 0)
            fseeko(client->replies, client->before, SEEK_SET);
        for (unsigned i = 0; error != 0 && i < client->requests; i++)
            fprintf(client->replies, "-ERR not committed, so undone: %s\r\n", strerror(error));
    }
}

int main(int count, char **arguments)
{
    static struct epoll_event events[1024];
    if (count < 2)
        give_up("usage", "key_value_server FILE [PORT [CAPACITY_MIB]]");
    open_store(arguments[1], count > 3 ? strtoull(arguments[3], NULL, 10) << 20 : 0);
    struct sockaddr_in address = {AF_INET, htons(6379), {htonl(INADDR_LOOPBACK)}, {0}};
    if (count > 2)
        address.sin_port = htons((uint16_t)atoi(arguments[2]));
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 511) != 0)
        give_up("the port", strerror(errno));
    poll_file = epoll_create1(EPOLL_CLOEXEC);
    watch(EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    signal(SIGTERM, on_end);
    printf("ready, %" PRIu64 " keys\n", store->entries);
    fflush(stdout);
    while (!ending) { /* a signal just before the wait is seen a second later */
        for (int i = 0, ready = epoll_wait(poll_file, events, 1024, 1000); i < ready; i++)
            if (events[i].data.ptr == NULL)
                accept_client();
            else
                serve(events[i].data.ptr);
        end_round();
    }
    _exit(cairn_persist_close(heap) != 0); /* the process ends, so clients are not freed */
}
