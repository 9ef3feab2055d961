/* Client half of the socket link: connects to a device process, asks for a context and receives its
 * memory object and eventfds. Talks only during the handshake; afterwards the open socket says that
 * both sides are there. */
#ifndef TSEMU_LINK_H
#define TSEMU_LINK_H

#include <stddef.h>
#include <stdint.h>

#include <tsemu/abi.h>

#define TSEMU_LINK_OPTIONS 8

/* Why a link could not be opened. */
enum tsemu_link_problem {
    TSEMU_LINK_OK = 0,
    TSEMU_LINK_PATH,        /* nothing can be reached at the path */
    TSEMU_LINK_NO_ANSWER,   /* connected, but no reply in time, or the peer hung up */
    TSEMU_LINK_NONSENSE,    /* the reply is no control message, or damaged */
    TSEMU_LINK_REFUSED      /* the device refused: `status` and the texts say why */
};

struct tsemu_link {
    int socket, memory, doorbell, interrupt; /* file descriptors; the caller closes them */
    uint32_t context;
    uint64_t size;          /* bytes of the memory object */
    uint16_t status;        /* REFUSED: enum tsemu_control_status */
    char field[32];
    char value[64];
    char message[256];
    char hint[192];
};

/* Connect to the Unix socket `path` (without a prefix) and open a context for client `name` (may be
 * empty). `options` are the arguments of the OPEN request, 0: default. On failure nothing is open. */
enum tsemu_link_problem tsemu_link_open(const char *path, const char *name,
                                        const uint32_t options[TSEMU_LINK_OPTIONS],
                                        int timeout_ms, struct tsemu_link *link);
void tsemu_link_close(struct tsemu_link *link);

#endif
