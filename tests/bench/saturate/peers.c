/* The two ends of `make saturate` and `make latency`: a broker that only responds, and a generator that only asks.
 *
 *   peers broker PORT CANNED [STORE]                    responds to each request with the canned response of its API;
 *                                                       over TLS with STORE, a PEM file of certificate and key
 *   peers generator PORT CANNED CONNECTIONS IN_FLIGHT   keeps IN_FLIGHT requests under way on each connection
 *                   [tls]                               the same over TLS, without verifying the certificate
 *
 * CANNED is a file of entries (big-endian): api key int16, version int16, size int32, frame. A frame has its length
 * prefix; the correlation id at its known place is replaced: offset 4 of a response, 8 of a request. An entry with key -1
 * is the response to what is in no other. A generator sends all entries but the last once, one after the other, and then
 * the last one again and again.
 *
 * The generator prints "ready" when all connections are open. Then each line "SECONDS" on standard input is one
 * measurement: it asks for a moment, until what was under way at the end of the last one is done, prints "begins", and at
 * the end a line of JSON: responses, seconds, and percentiles of the time of one response in us.
 * With IN_FLIGHT 0 it is an open loop: each line "SCHEDULE FOUND" names two files. SCHEDULE has an entry for each request
 * in order of time: when it is due, in seconds after the begin (double), on which connection (uint32), 4 unused bytes, as
 * this machine orders bytes. A request is sent when it is due, whatever has come back. When all responses are in, FOUND
 * has for each of them, in order of arrival, three floats in seconds: when its request was due, how late it was sent, and
 * its latency from when it was due. Then a line of JSON: responses, and seconds from the begin to the last of them.
 * Responses must come in the order of the requests: a wrong correlation id ends it with exit code 1.
 * Neither decodes anything else, and payloads are not copied: what is sent again and again is one buffer.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, EVENTS = 512, VECTORS = 64, ENTRIES_MAX = 4096, QUEUE_MAX = 4096, HEAD = 12, TIMES = 1 << 20 };
enum { ASKED_MAX = 64, ASKED_MAX_OPEN = 1 << 14 }; /* under way on one connection; powers of two */

typedef struct {
    int key, version;
    uint32_t size;
    unsigned char *frame;
} Entry;

typedef struct {
    const Entry *entry;
    uint32_t correlation_id;
} Item;

/* When a request was to be sent, and was given to its connection. */
typedef struct {
    double due, sent;
} Asked;

/* An entry of a schedule, and what is found of its request. */
typedef struct {
    double at;
    uint32_t connection, unused;
} Due;
typedef struct {
    float due, late, latency;
} Found;

/* One connection: what is to be sent (a ring), and how far the frame that arrives has been read. */
typedef struct {
    int fd, writes, fresh;
    SSL *tls;
    Item queue[QUEUE_MAX];
    uint32_t first, count, sent; /* sent: bytes of the first item */
    unsigned char head[HEAD];
    uint32_t have, left;               /* bytes of the head, of the rest */
    uint32_t sends, expects, shown;    /* correlation ids; opening entries that were sent */
    Asked *asked;                      /* the request with this correlation id (modulo) */
} Peer;

static const double SETTLE_SECONDS = 0.2, LEAD_SECONDS = 0.01, DRAIN_SECONDS = 10;

static Entry entries[ENTRIES_MAX];
static int entry_count, generating, in_flight, opened;
static unsigned char scratch[READ_BYTES];
static uint64_t responses;
static float *times;
static uint64_t timed;
static uint32_t asked_max = ASKED_MAX;
static double began; /* the open loop */
static Found *found;

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "");
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static uint32_t read32(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

static void load(const char *path) {
    FILE *file = fopen(path, "rb");
    unsigned char head[8];
    if (!file) die(path);
    while (fread(head, 1, 8, file) == 8) {
        if (entry_count == ENTRIES_MAX) die("too many entries");
        Entry *entry = &entries[entry_count++];
        entry->key = (int16_t)(head[0] << 8 | head[1]);
        entry->version = (int16_t)(head[2] << 8 | head[3]);
        entry->size = read32(head + 4);
        entry->frame = malloc(entry->size);
        if (fread(entry->frame, 1, entry->size, file) != entry->size) die("a cut entry");
    }
    fclose(file);
}

static const Entry *canned(int key, int version) {
    const Entry *other = NULL;
    for (int i = 0; i < entry_count; i++) {
        if (entries[i].key == key && entries[i].version == version) return &entries[i];
        if (entries[i].key == -1) other = &entries[i];
    }
    if (!other) die("no entry for what is in no other");
    return other;
}

static void queue(Peer *peer, const Entry *entry, uint32_t correlation_id) {
    if (peer->count == QUEUE_MAX) die("more requests under way than fit");
    peer->queue[(peer->first + peer->count++) % QUEUE_MAX] = (Item){entry, correlation_id};
}

/* The bytes to send as vectors; `heads` gets the part of each frame with the correlation id. */
static int gather(const Peer *peer, struct iovec *vectors, unsigned char (*heads)[HEAD]) {
    uint32_t id_at = generating ? 8 : 4, head_bytes = id_at + 4, skip = peer->sent;
    int used = 0;
    for (uint32_t i = 0; i < peer->count && used + 2 <= VECTORS; i++) {
        const Item *item = &peer->queue[(peer->first + i) % QUEUE_MAX];
        unsigned char *head = heads[used];
        memcpy(head, item->entry->frame, id_at);
        uint32_t id = htonl(item->correlation_id);
        memcpy(head + id_at, &id, 4);
        if (skip < head_bytes) vectors[used++] = (struct iovec){head + skip, head_bytes - skip};
        uint32_t from = skip > head_bytes ? skip : head_bytes;
        if (from < item->entry->size) vectors[used++] = (struct iovec){item->entry->frame + from, item->entry->size - from};
        skip = 0;
    }
    return used;
}

static ssize_t send_tls(Peer *peer, const struct iovec *vectors, int used) {
    static unsigned char joined[READ_BYTES];
    size_t size = 0;
    for (int i = 0; i < used && size < sizeof joined; i++) {
        size_t part = vectors[i].iov_len < sizeof joined - size ? vectors[i].iov_len : sizeof joined - size;
        memcpy(joined + size, vectors[i].iov_base, part);
        size += part;
    }
    int sent = SSL_write(peer->tls, joined, (int)size);
    if (sent > 0) return sent;
    if (SSL_get_error(peer->tls, sent) == SSL_ERROR_WANT_WRITE) errno = EAGAIN;
    return -1;
}

static void flush(int loop, Peer *peer) {
    struct iovec vectors[VECTORS];
    unsigned char heads[VECTORS][HEAD];
    while (peer->count) {
        int used = gather(peer, vectors, heads);
        ssize_t sent = peer->tls ? send_tls(peer, vectors, used) : writev(peer->fd, vectors, used);
        if (sent < 0) {
            if (errno != EAGAIN) die("cannot send");
            break;
        }
        peer->sent += (uint32_t)sent;
        while (peer->count && peer->sent >= peer->queue[peer->first].entry->size) {
            peer->sent -= peer->queue[peer->first].entry->size;
            peer->count--;
            peer->first = peer->count ? (peer->first + 1) % QUEUE_MAX : 0; /* so that few lines of the cache are used */
        }
    }
    int writes = peer->count > 0;
    if (writes != peer->writes) {
        struct epoll_event event = {.events = EPOLLIN | (writes ? EPOLLOUT : 0), .data.ptr = peer};
        epoll_ctl(loop, EPOLL_CTL_MOD, peer->fd, &event);
        peer->writes = writes;
    }
}

/* Queue the generator's next request: an opening one, whose response is waited for, or the one that is measured. */
static void ask(Peer *peer, double due, double at) {
    int opening = peer->shown < (uint32_t)entry_count - 1;
    if (peer->sends - peer->expects == asked_max) errno = 0, die("more requests under way on a connection than fit");
    peer->asked[peer->sends & (asked_max - 1)] = (Asked){due, at};
    queue(peer, opening ? &entries[peer->shown++] : &entries[entry_count - 1], peer->sends++);
}

/* Begin with what is measured: all opening entries have been responded to. */
static void begin_asking(Peer *peer, double at) {
    peer->fresh = 0;
    opened++;
    for (int i = 0; i < in_flight; i++) ask(peer, at, at);
}

static void take_response(Peer *peer, double at) {
    uint32_t id = read32(peer->head + 4);
    if (id != peer->expects) {
        errno = 0;
        fprintf(stderr, "response %u, expected %u\n", id, peer->expects);
        exit(1);
    }
    const Asked *asked = &peer->asked[peer->expects++ & (asked_max - 1)];
    responses++;
    if (peer->fresh && peer->shown < (uint32_t)entry_count - 1) {
        ask(peer, at, at);
    } else if (peer->fresh) {
        begin_asking(peer, at);
    } else if (in_flight) {
        times[timed++ % TIMES] = (float)(at - asked->due);
        ask(peer, at, at);
    } else {
        found[timed++] = (Found){(float)(asked->due - began), (float)(asked->sent - asked->due), (float)(at - asked->due)};
    }
}

/* Take what was read; a frame's head is kept, the rest counted. */
static void take(Peer *peer, const unsigned char *data, size_t size, double at) {
    uint32_t head_bytes = generating ? 8 : 12;
    while (size) {
        if (peer->have < head_bytes) {
            size_t part = head_bytes - peer->have < size ? head_bytes - peer->have : size;
            memcpy(peer->head + peer->have, data, part);
            peer->have += part;
            data += part;
            size -= part;
            if (peer->have < head_bytes) return;
            peer->left = read32(peer->head) + 4 - head_bytes;
        }
        size_t part = peer->left < size ? peer->left : size;
        peer->left -= part;
        data += part;
        size -= part;
        if (peer->left) return;
        peer->have = 0;
        if (generating) {
            take_response(peer, at);
        } else {
            int key = peer->head[4] << 8 | peer->head[5], version = peer->head[6] << 8 | peer->head[7];
            queue(peer, canned(key, version), read32(peer->head + 8));
        }
    }
}

/* Read all that has arrived; 0 when the other side has closed. */
static int receive(int loop, Peer *peer) {
    double at = generating ? now() : 0;
    for (;;) {
        ssize_t size;
        if (peer->tls) {
            size = SSL_read(peer->tls, scratch, READ_BYTES);
            if (size <= 0) {
                if (SSL_get_error(peer->tls, (int)size) == SSL_ERROR_WANT_READ) break;
                return 0;
            }
        } else {
            size = read(peer->fd, scratch, READ_BYTES);
            if (size < 0 && errno == EAGAIN) break;
            if (size <= 0) return 0;
        }
        take(peer, scratch, (size_t)size, at);
        if (!peer->tls && size < READ_BYTES) break;
        if (peer->count > QUEUE_MAX / 2) flush(loop, peer);
    }
    flush(loop, peer);
    return 1;
}

static void add(int loop, Peer *peer) {
    int yes = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(peer->fd, F_SETFL, fcntl(peer->fd, F_GETFL) | O_NONBLOCK);
    if (epoll_ctl(loop, EPOLL_CTL_ADD, peer->fd, &event)) die("epoll_ctl");
}

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static SSL *secure(SSL_CTX *context, int fd) {
    SSL *tls = SSL_new(context);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_set_fd(tls, fd);
    return tls;
}

static void broker(int port, const char *store) {
    struct epoll_event events[EVENTS];
    struct sockaddr_in address = loopback(port);
    SSL_CTX *context = store ? SSL_CTX_new(TLS_server_method()) : NULL;
    if (context && SSL_CTX_use_certificate_chain_file(context, store) != 1) die("no certificate");
    if (context && SSL_CTX_use_PrivateKey_file(context, store, SSL_FILETYPE_PEM) != 1) die("no key");
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0), loop = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) die("cannot listen");
    fcntl(listener, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(loop, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            Peer *peer = events[i].data.ptr;
            if (!peer) {
                int fd = accept(listener, NULL, NULL);
                if (fd < 0) continue;
                peer = calloc(1, sizeof *peer);
                peer->fd = fd;
                if (context) peer->tls = secure(context, fd), SSL_set_accept_state(peer->tls);
                add(loop, peer);
            } else if ((events[i].events & EPOLLOUT) && !(events[i].events & EPOLLIN)) {
                flush(loop, peer);
            } else if (!receive(loop, peer)) {
                SSL_free(peer->tls);
                ERR_clear_error(); /* or SSL_get_error() would report it of the next connection */
                close(peer->fd);
                free(peer);
            }
        }
    }
}

static int by_size(const void *a, const void *b) {
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

static void handle(int loop, const struct epoll_event *event) {
    Peer *peer = event->data.ptr;
    if ((event->events & EPOLLOUT) && !(event->events & EPOLLIN)) flush(loop, peer);
    else if (!receive(loop, peer)) errno = 0, die("the proxy has closed a connection");
}

static void turn(int loop, double seconds) {
    struct epoll_event events[EVENTS];
    double start = now();
    while (now() - start < seconds) {
        int ready = epoll_wait(loop, events, EVENTS, 100);
        for (int i = 0; i < ready; i++) handle(loop, &events[i]);
    }
}

static void run(int loop, double seconds) {
    turn(loop, SETTLE_SECONDS);
    responses = timed = 0;
    puts("begins");
    fflush(stdout);
    double began = now();
    turn(loop, seconds);
    seconds = now() - began;
    uint64_t kept = timed < TIMES ? timed : TIMES;
    qsort(times, kept, sizeof *times, by_size);
    double p50 = kept ? times[kept / 2] * 1e6 : 0, p99 = kept ? times[(uint64_t)(kept * 0.99)] * 1e6 : 0;
    printf("{\"responses\": %llu, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", (unsigned long long)responses, seconds, p50, p99);
    fflush(stdout);
}

static void *read_all(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) die(path);
    *size = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(*size + 1);
    if (fread(data, 1, *size, file) != *size) die(path);
    fclose(file);
    return data;
}

/* Send what is due; return how long it is until the next is, at least 0; `DRAIN_SECONDS` after the last. */
static double send_due(int loop, Peer **peers, const Due *schedule, size_t count, size_t *next) {
    double at = now();
    while (*next < count && began + schedule[*next].at <= at) {
        Peer *peer = peers[schedule[*next].connection];
        ask(peer, began + schedule[(*next)++].at, at);
        flush(loop, peer);
        at = now();
    }
    return *next < count ? began + schedule[*next].at - at : DRAIN_SECONDS;
}

static void run_open(int loop, Peer **peers, int connections, const char *from, const char *to) {
    struct epoll_event events[EVENTS];
    size_t size, next = 0;
    Due *schedule = read_all(from, &size);
    size_t count = size / sizeof *schedule;
    for (size_t i = 0; i < count; i++)
        if (schedule[i].connection >= (uint32_t)connections) errno = 0, die("no such connection");
    found = calloc(count + 1, sizeof *found);
    responses = timed = 0;
    began = now() + LEAD_SECONDS;
    while (timed < count) {
        double wait = send_due(loop, peers, schedule, count, &next);
        struct timespec timeout = {(time_t)wait, (long)((wait - (time_t)wait) * 1e9)};
        int ready = epoll_pwait2(loop, events, EVENTS, &timeout, NULL);
        if (!ready && next == count) errno = 0, die("responses are missing");
        for (int i = 0; i < ready; i++) {
            handle(loop, &events[i]);
            send_due(loop, peers, schedule, count, &next); /* a batch of responses delays none */
        }
    }
    double seconds = now() - began;
    FILE *file = fopen(to, "wb");
    if (!file || fwrite(found, sizeof *found, count, file) != count || fclose(file)) die(to);
    free(schedule);
    free(found);
    printf("{\"responses\": %zu, \"seconds\": %.6f}\n", count, seconds);
    fflush(stdout);
}

static int generator(int port, int connections, int with_tls) {
    struct sockaddr_in address = loopback(port);
    int loop = epoll_create1(0);
    char line[4096], from[2048], to[2048];
    Peer **peers = calloc((size_t)connections, sizeof *peers);
    SSL_CTX *context = with_tls ? SSL_CTX_new(TLS_client_method()) : NULL;
    times = malloc(TIMES * sizeof *times);
    for (int i = 0; i < connections; i++) {
        Peer *peer = peers[i] = calloc(1, sizeof *peer);
        peer->asked = calloc(asked_max, sizeof *peer->asked);
        peer->fd = socket(AF_INET, SOCK_STREAM, 0);
        peer->fresh = 1;
        if (connect(peer->fd, (struct sockaddr *)&address, sizeof address)) die("cannot connect");
        if (context) {
            peer->tls = secure(context, peer->fd);
            if (SSL_connect(peer->tls) != 1) die("no TLS");
        }
        add(loop, peer);
        if (entry_count > 1) {
            ask(peer, now(), now());
        } else {
            begin_asking(peer, now());
        }
        flush(loop, peer);
    }
    while (!in_flight && opened < connections) turn(loop, 0.01);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (in_flight) run(loop, atof(line));
        else if (sscanf(line, "%2047s %2047s", from, to) == 2) run_open(loop, peers, connections, from, to);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "see the head of peers.c\n"), 2;
    load(argv[3]);
    if (!strcmp(argv[1], "broker")) broker(atoi(argv[2]), argc > 4 ? argv[4] : NULL);
    if (argc < 6) return fprintf(stderr, "see the head of peers.c\n"), 2;
    generating = 1;
    in_flight = atoi(argv[5]);
    if (!in_flight) {
        asked_max = ASKED_MAX_OPEN;
        prctl(PR_SET_TIMERSLACK, 1UL); /* ns: the default delays each wake-up by up to 50 us */
    }
    return generator(atoi(argv[2]), atoi(argv[4]), argc > 6);
}
