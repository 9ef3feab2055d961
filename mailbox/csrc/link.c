/* Client half of the socket link. */
#include "tsemu/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tsemu/crc32c.h"

#define MESSAGE_CRC 20u
#define FILES 3
#define MAX_TEXT 4096u

__attribute__((format(printf, 4, 5))) static enum tsemu_link_problem
fail(struct tsemu_link *link, enum tsemu_link_problem problem, const char *hint,
     const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(link->message, sizeof link->message, format, arguments);
    va_end(arguments);
    snprintf(link->hint, sizeof link->hint, "%s", hint);
    return problem;
}

void tsemu_link_close(struct tsemu_link *link)
{
    int *files[] = {&link->socket, &link->memory, &link->doorbell, &link->interrupt};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (*files[i] >= 0)
            close(*files[i]);
        *files[i] = -1;
    }
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* True when the socket is ready for `events` before `end`. */
static bool ready(int fd, short events, int64_t end)
{
    for (;;) {
        int64_t left = end - now_ms();
        struct pollfd poller = {.fd = fd, .events = events};
        if (left <= 0)
            return false;
        int count = poll(&poller, 1, left > 1000000 ? 1000000 : (int)left);
        if (count > 0)
            return true;
        if (count < 0 && errno != EINTR)
            return false;
    }
}

static enum tsemu_link_problem connect_to(const char *path, int64_t end, struct tsemu_link *link)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    snprintf(link->field, sizeof link->field, "address");
    if (length == 0 || length >= sizeof address.sun_path)
        return fail(link, TSEMU_LINK_PATH, "use a shorter path, in XDG_RUNTIME_DIR for instance",
                    "a socket path has 1 to %zu bytes, this one has %zu",
                    sizeof address.sun_path - 1, length);
    memcpy(address.sun_path, path, length);
    link->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->socket < 0)
        return fail(link, TSEMU_LINK_PATH, "close files, or raise the limit (ulimit -n)",
                    "no socket: %s", strerror(errno));
    for (;;) {
        if (connect(link->socket, (const struct sockaddr *)&address, sizeof address) == 0)
            return TSEMU_LINK_OK;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN || now_ms() >= end)
            break;
        struct timespec pause = {.tv_nsec = 1000000}; /* its backlog is full: others connect too */
        nanosleep(&pause, NULL);
    }
    const char *hint = errno == ENOENT         ? "start the device first: tsemu run"
                       : errno == ECONNREFUSED ? "the socket is stale, no device listens: start it "
                                                 "again with tsemu run"
                       : errno == EACCES       ? "run as the user who runs the device"
                                               : "use the address that tsemu run prints";
    return fail(link, TSEMU_LINK_PATH, hint, "cannot connect to %s: %s", path, strerror(errno));
}

static bool send_all(int fd, const void *data, size_t size, int64_t end)
{
    const char *at = data;
    while (size) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
            size -= (size_t)sent;
        } else if (errno != EINTR &&
                   !((errno == EAGAIN || errno == EWOULDBLOCK) && ready(fd, POLLOUT, end))) {
            return false;
        }
    }
    return true;
}

/* Keep the descriptors that came with a message, as far as there is a place for them. */
static void take_files(struct msghdr *header, int files[FILES])
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd, place = 0;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            while (place < FILES && files[place] >= 0)
                place++;
            if (place < FILES)
                files[place] = fd;
            else
                close(fd);
        }
    }
}

static bool receive_all(int fd, void *data, size_t size, int files[FILES], int64_t end)
{
    char *at = data;
    while (size) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(8 * sizeof(int))];
        } space;
        struct iovec vector = {at, size};
        struct msghdr header = {.msg_iov = &vector,
                                .msg_iovlen = 1,
                                .msg_control = space.bytes,
                                .msg_controllen = sizeof space.bytes};
        ssize_t got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
        if (got > 0) {
            take_files(&header, files);
            at += got;
            size -= (size_t)got;
        } else if (got == 0 ||
                   (errno != EINTR && !((errno == EAGAIN || errno == EWOULDBLOCK) &&
                                        ready(fd, POLLIN, end)))) {
            return false;
        }
    }
    return true;
}

static uint32_t message_crc(const struct tsemu_control_message *message)
{
    uint64_t words[8];
    memcpy(words, message, sizeof words);
    return tsemu_crc32c_entry(words, MESSAGE_CRC);
}

/* "field|value|message|hint" */
static void split_text(char *text, struct tsemu_link *link)
{
    struct {
        char *to;
        size_t size;
    } parts[] = {{link->field, sizeof link->field},
                 {link->value, sizeof link->value},
                 {link->message, sizeof link->message},
                 {link->hint, sizeof link->hint}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && text; i++) {
        char *bar = i < 3 ? strchr(text, '|') : NULL;
        if (bar)
            *bar = 0;
        snprintf(parts[i].to, parts[i].size, "%s", text);
        text = bar ? bar + 1 : NULL;
    }
}

static enum tsemu_link_problem check_reply(const struct tsemu_control_message *reply,
                                           uint32_t token, struct tsemu_link *link)
{
    const char *hint = "use a socket that tsemu run has opened, and matching versions";
    if (reply->magic != TSEMU_CONTROL_MAGIC)
        return fail(link, TSEMU_LINK_NONSENSE, hint,
                    "the peer is no tsemu device: magic %#x, expected %#x", reply->magic,
                    TSEMU_CONTROL_MAGIC);
    if (reply->major != TSEMU_ABI_MAJOR && reply->status == TSEMU_CONTROL_STATUS_OK)
        return fail(link, TSEMU_LINK_NONSENSE, hint,
                    "the device speaks protocol %u.%u, this driver %u.%u", reply->major,
                    reply->minor, TSEMU_ABI_MAJOR, TSEMU_ABI_MINOR);
    if (reply->crc != message_crc(reply))
        return fail(link, TSEMU_LINK_NONSENSE, hint, "the reply is damaged: CRC %#x, expected %#x",
                    reply->crc, message_crc(reply));
    if (reply->length > MAX_TEXT ||
        (reply->status == TSEMU_CONTROL_STATUS_OK &&
         (reply->kind != TSEMU_CONTROL_KIND_OPEN || reply->token != token)))
        return fail(link, TSEMU_LINK_NONSENSE, hint,
                    "the reply does not belong to the request: kind %u, token %u, length %u",
                    reply->kind, reply->token, reply->length);
    return TSEMU_LINK_OK;
}

/* The memory object must be one that cannot shrink under us. */
static enum tsemu_link_problem check_memory(struct tsemu_link *link)
{
    struct stat about;
    int seals = fcntl(link->memory, F_GET_SEALS);
    if (link->memory < 0 || link->doorbell < 0 || link->interrupt < 0)
        return fail(link, TSEMU_LINK_NONSENSE, "use matching versions",
                    "the device accepted, but did not send its three descriptors");
    if (fstat(link->memory, &about) < 0 || seals < 0 || !(seals & F_SEAL_SHRINK))
        return fail(link, TSEMU_LINK_NONSENSE, "use matching versions",
                    "the device's memory object is not a memfd that is sealed against shrinking");
    link->size = (uint64_t)about.st_size;
    fcntl(link->doorbell, F_SETFL, O_NONBLOCK);
    fcntl(link->interrupt, F_SETFL, O_NONBLOCK);
    return TSEMU_LINK_OK;
}

static enum tsemu_link_problem handshake(const char *name, const uint32_t *options, int64_t end,
                                         struct tsemu_link *link)
{
    struct tsemu_control_message message = {.magic = TSEMU_CONTROL_MAGIC,
                                            .major = TSEMU_ABI_MAJOR,
                                            .minor = TSEMU_ABI_MINOR,
                                            .kind = TSEMU_CONTROL_KIND_OPEN,
                                            .token = 1,
                                            .length = (uint32_t)strlen(name)};
    memcpy(message.argument, options, TSEMU_LINK_OPTIONS * sizeof *options);
    message.crc = message_crc(&message);
    snprintf(link->field, sizeof link->field, "device");
    /* A refusal may come before everything is sent: what was received counts. */
    bool sent = send_all(link->socket, &message, sizeof message, end) &&
                send_all(link->socket, name, message.length, end);
    struct tsemu_control_message reply;
    int files[FILES] = {-1, -1, -1};
    bool got = receive_all(link->socket, &reply, sizeof reply, files, end);
    link->memory = files[0];
    link->doorbell = files[1];
    link->interrupt = files[2];
    if (!got)
        return fail(link, TSEMU_LINK_NO_ANSWER,
                    "look at the device's output, or start it again",
                    sent ? "the device did not answer the request for a context"
                         : "the device hung up during the request for a context");
    enum tsemu_link_problem problem = check_reply(&reply, message.token, link);
    if (problem)
        return problem;
    char text[MAX_TEXT + 1];
    if (!receive_all(link->socket, text, reply.length, files, end))
        return fail(link, TSEMU_LINK_NO_ANSWER, "look at the device's output",
                    "the device's answer is incomplete");
    text[reply.length] = 0;
    link->status = reply.status;
    if (reply.status != TSEMU_CONTROL_STATUS_OK) {
        fail(link, TSEMU_LINK_REFUSED, "look at the device's output",
             "the device refused, status %u", reply.status);
        split_text(text, link);
        return TSEMU_LINK_REFUSED;
    }
    link->context = reply.argument[0];
    return check_memory(link);
}

enum tsemu_link_problem tsemu_link_open(const char *path, const char *name,
                                        const uint32_t options[TSEMU_LINK_OPTIONS],
                                        int timeout_ms, struct tsemu_link *link)
{
    *link = (struct tsemu_link){.socket = -1, .memory = -1, .doorbell = -1, .interrupt = -1};
    int64_t end = now_ms() + timeout_ms;
    enum tsemu_link_problem problem = connect_to(path, end, link);
    if (!problem)
        problem = handshake(name, options, end, link);
    if (problem)
        tsemu_link_close(link);
    return problem;
}
