/* The control socket of a running program: a Unix stream socket, one JSON object a line each way.
 *
 * A thread of its own reads requests and writes answers, so a slow client never holds up packets. What touches tables is
 * an errand: a worker runs it between two batches (cora_control_poll) while the control thread waits.
 *
 * Answers that are refused have {"error": {"what": ..., "why": ..., "change": ...}}. Link with jansson and -pthread. */
#ifndef CORA_CONTROL_H
#define CORA_CONTROL_H

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base.h"

#define CORA_CONTROL_CLIENTS 16
#define CORA_CONTROL_LINE ((size_t)1 << 28) /* longest request */
#define CORA_CONTROL_PATIENCE 5             /* seconds that a client may take to read its answer */
#ifndef CORA_WORKERS_MOST
#define CORA_WORKERS_MOST 64
#endif

struct cora_errand {
    void (*run)(void *argument);
    void *argument;
    bool done;
};

struct cora_client {
    int fd; /* -1: no client */
    char *line;
    size_t used, room;
    uint64_t number; /* of the connection; a request's owner */
};

/* Answers one request on the control thread; the caller owns what is returned. `client` is the same for all requests of
 * one connection. With `request` NULL the connection is closed, and nothing is answered. */
typedef json_t *(*cora_control_answer)(void *context, uint64_t client, const json_t *request);

struct cora_control {
    char path[108];
    int listening, stopping; /* stopping: an event that ends the thread */
    int wake[CORA_WORKERS_MOST]; /* events for workers that sleep, or -1 */
    struct cora_errand *errands[CORA_WORKERS_MOST];
    bool open;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t finished;
    cora_control_answer answer;
    void *context;
    struct cora_client clients[CORA_CONTROL_CLIENTS];
    uint64_t connections;
};

/* --- answers --- */

static inline json_t *cora_control_refuse(const char *what, const char *why, const char *change)
{
    return json_pack("{s{ssssss}}", "error", "what", what, "why", why, "change", change);
}

static const char cora_base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* RFC 4648, section 4. */
CORA_COLD json_t *cora_control_bytes(const uint8_t *bytes, size_t size)
{
    char *text = malloc((size + 2) / 3 * 4 + 1), *at = text;
    if (!text)
        return NULL;
    for (size_t i = 0; i < size; i += 3) {
        uint32_t left = (uint32_t)(size - i), word = (uint32_t)bytes[i] << 16;
        word |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        word |= left > 2 ? bytes[i + 2] : 0;
        *at++ = cora_base64_digits[word >> 18];
        *at++ = cora_base64_digits[word >> 12 & 63];
        *at++ = left > 1 ? cora_base64_digits[word >> 6 & 63] : '=';
        *at++ = left > 2 ? cora_base64_digits[word & 63] : '=';
    }
    json_t *out = json_stringn_nocheck(text, (size_t)(at - text));
    free(text);
    return out;
}

static inline int cora_base64_value(char c)
{
    const char *at = c ? strchr(cora_base64_digits, c) : NULL;
    return at ? (int)(at - cora_base64_digits) : -1;
}

/* The bytes of a base64 string, to be freed; NULL: it is none. */
CORA_COLD uint8_t *cora_control_decode(const json_t *text, size_t *size)
{
    size_t length = json_string_length(text);
    const char *at = json_string_value(text);
    uint8_t *out = at && length % 4 == 0 ? malloc(length / 4 * 3 + 1) : NULL;
    *size = 0;
    for (size_t i = 0; out && i < length; i += 4) {
        bool last = i + 4 == length;
        int ends = last ? (at[i + 3] == '=') + (at[i + 2] == '=' && at[i + 3] == '=') : 0;
        int digits[4] = {cora_base64_value(at[i]), cora_base64_value(at[i + 1]),
                         ends == 2 ? 0 : cora_base64_value(at[i + 2]), ends ? 0 : cora_base64_value(at[i + 3])};
        if ((digits[0] | digits[1] | digits[2] | digits[3]) < 0) {
            free(out);
            return NULL;
        }
        uint32_t word = (uint32_t)(digits[0] << 18 | digits[1] << 12 | digits[2] << 6 | digits[3]);
        for (int k = 0; k < 3 - ends; k++)
            out[(*size)++] = (uint8_t)(word >> (16 - 8 * k));
    }
    return out;
}

/* --- errands --- */

/* Control thread: has a worker run something between two batches and waits for it; false: the program is ending. */
CORA_COLD bool cora_control_call(struct cora_control *c, uint32_t worker, void (*run)(void *), void *argument)
{
    struct cora_errand errand = {run, argument, false};
    uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    if (c->open)
        __atomic_store_n(&c->errands[worker], &errand, __ATOMIC_RELEASE);
    if (c->open && c->wake[worker] >= 0 && write(c->wake[worker], &one, sizeof one) < 0)
        errno = 0; /* the event is set already */
    while (c->open && !errand.done)
        pthread_cond_wait(&c->finished, &c->lock);
    c->errands[worker] = NULL;
    pthread_mutex_unlock(&c->lock);
    return errand.done;
}

CORA_COLD void cora_control_run(struct cora_control *c, uint32_t worker)
{
    pthread_mutex_lock(&c->lock);
    struct cora_errand *errand = c->errands[worker];
    if (errand && !errand->done) {
        errand->run(errand->argument);
        errand->done = true;
        __atomic_store_n(&c->errands[worker], NULL, __ATOMIC_RELEASE);
        pthread_cond_signal(&c->finished);
    }
    pthread_mutex_unlock(&c->lock);
}

/* Worker: between two batches. */
static inline void cora_control_poll(struct cora_control *c, uint32_t worker)
{
    if (CORA_UNLIKELY(__atomic_load_n(&c->errands[worker], __ATOMIC_RELAXED) != NULL))
        cora_control_run(c, worker);
}

/* Worker that sleeps: the event that wakes it is over. */
static inline void cora_control_awake(struct cora_control *c, uint32_t worker)
{
    uint64_t count;
    if (read(c->wake[worker], &count, sizeof count) < 0)
        errno = 0; /* it was not set */
}

/* --- clients --- */

CORA_COLD void cora_control_hang_up(struct cora_control *c, struct cora_client *client)
{
    json_decref(c->answer(c->context, client->number, NULL));
    close(client->fd);
    free(client->line);
    *client = (struct cora_client){.fd = -1};
}

/* Writes an answer; false: the client does not read, or is gone. */
CORA_COLD bool cora_control_write(int fd, json_t *answer)
{
    char *text = json_dumps(answer, JSON_COMPACT);
    json_decref(answer);
    if (!text)
        return false;
    size_t length = strlen(text), sent = 0;
    text[length++] = '\n'; /* in place of the end of the string */
    while (sent < length) {
        ssize_t n = send(fd, text + sent, length - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    free(text);
    return sent == length;
}

CORA_COLD json_t *cora_control_line(struct cora_control *c, const struct cora_client *client, const char *line,
                                    size_t length)
{
    json_error_t error;
    json_t *request = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error), *answer;
    if (!request)
        return cora_control_refuse("the request is no JSON", error.text, "write one JSON object in one line");
    if (!json_is_object(request) || !json_is_string(json_object_get(request, "do")))
        answer = cora_control_refuse("the request does not say what to do", "it has no string \"do\"",
                                     "write {\"do\": \"status\"}");
    else
        answer = c->answer(c->context, client->number, request);
    json_decref(request);
    return answer ? answer : cora_control_refuse("there is no answer", "memory ran out", "ask for less");
}

/* Reads what a client sent and answers every whole line; false: hang up. */
CORA_COLD bool cora_control_serve(struct cora_control *c, struct cora_client *client)
{
    if (client->used == client->room) {
        size_t room = client->room ? 2 * client->room : 4096;
        char *line = room <= CORA_CONTROL_LINE ? realloc(client->line, room) : NULL;
        if (!line)
            return false;
        client->line = line;
        client->room = room;
    }
    ssize_t n = recv(client->fd, client->line + client->used, client->room - client->used, 0);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    size_t from = client->used, first = 0;
    client->used += (size_t)n;
    for (size_t i = from; i < client->used; i++) {
        if (client->line[i] != '\n')
            continue;
        if (!cora_control_write(client->fd, cora_control_line(c, client, client->line + first, i - first)))
            return false;
        first = i + 1;
    }
    memmove(client->line, client->line + first, client->used - first);
    client->used -= first;
    return true;
}

CORA_COLD void cora_control_accept(struct cora_control *c)
{
    struct timeval patience = {.tv_sec = CORA_CONTROL_PATIENCE};
    int fd = accept(c->listening, NULL, NULL);
    if (fd < 0)
        return;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    for (int i = 0; i < CORA_CONTROL_CLIENTS; i++)
        if (c->clients[i].fd < 0) {
            c->clients[i] = (struct cora_client){.fd = fd, .number = ++c->connections};
            return;
        }
    cora_control_write(fd, cora_control_refuse("too many clients", "16 are connected already", "close one"));
    close(fd);
}

static void *cora_control_thread(void *argument)
{
    struct cora_control *c = argument;
    struct pollfd polled[CORA_CONTROL_CLIENTS + 2];
    for (;;) {
        polled[0] = (struct pollfd){.fd = c->stopping, .events = POLLIN};
        polled[1] = (struct pollfd){.fd = c->listening, .events = POLLIN};
        for (int i = 0; i < CORA_CONTROL_CLIENTS; i++)
            polled[i + 2] = (struct pollfd){.fd = c->clients[i].fd, .events = POLLIN};
        if (poll(polled, CORA_CONTROL_CLIENTS + 2, -1) < 0)
            continue;
        if (polled[0].revents)
            return NULL;
        if (polled[1].revents)
            cora_control_accept(c);
        for (int i = 0; i < CORA_CONTROL_CLIENTS; i++)
            if (polled[i + 2].revents && !cora_control_serve(c, &c->clients[i]))
                cora_control_hang_up(c, &c->clients[i]);
    }
}

/* --- opening and closing --- */

/* Whether somebody listens on a socket. */
CORA_COLD bool cora_control_is_served(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool served = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0;
    if (fd >= 0)
        close(fd);
    return served;
}

/* Listens on a socket that only this user can open, and serves it; `workers` of them are woken by events. Signals stay
 * with the caller's thread. On failure errno says why; EADDRINUSE: another program serves the socket. */
CORA_COLD bool cora_control_open(struct cora_control *c, const char *path, uint32_t workers, cora_control_answer answer,
                                 void *context)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sigset_t all, before;
    *c = (struct cora_control){.answer = answer, .context = context, .listening = -1, .stopping = -1, .open = true};
    for (int i = 0; i < CORA_CONTROL_CLIENTS; i++)
        c->clients[i].fd = -1;
    for (uint32_t i = 0; i < CORA_WORKERS_MOST; i++)
        c->wake[i] = i < workers ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->finished, NULL);
    if (strlen(path) >= sizeof c->path) {
        errno = ENAMETOOLONG;
        return false;
    }
    strcpy(c->path, path);
    strcpy(address.sun_path, path);
    if (cora_control_is_served(&address)) {
        errno = EADDRINUSE;
        return false;
    }
    unlink(path);
    c->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->stopping = eventfd(0, EFD_CLOEXEC);
    mode_t mask = umask(0177);
    bool bound = c->listening >= 0 && bind(c->listening, (struct sockaddr *)&address, sizeof address) == 0;
    umask(mask);
    if (!bound || c->stopping < 0 || listen(c->listening, CORA_CONTROL_CLIENTS) != 0)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    errno = pthread_create(&c->thread, NULL, cora_control_thread, c);
    int failed = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

/* Answers nobody any more; errands that wait are given up. The workers have stopped. */
CORA_COLD void cora_control_close(struct cora_control *c)
{
    uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    c->open = false;
    pthread_cond_broadcast(&c->finished);
    pthread_mutex_unlock(&c->lock);
    if (write(c->stopping, &one, sizeof one) == sizeof one)
        pthread_join(c->thread, NULL);
    for (int i = 0; i < CORA_CONTROL_CLIENTS; i++)
        if (c->clients[i].fd >= 0)
            cora_control_hang_up(c, &c->clients[i]);
    for (uint32_t i = 0; i < CORA_WORKERS_MOST; i++)
        if (c->wake[i] >= 0)
            close(c->wake[i]);
    close(c->listening);
    close(c->stopping);
    unlink(c->path);
}

#endif
