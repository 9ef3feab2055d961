/* A client that writes its entries by hand into a context of an embedded device, and remembers
 * what it asked for, so that the oracle can judge what came back. */
#ifndef CLIENT_H
#define CLIENT_H

#include "device.h"
#include "seeded.h"

#include <tsemu/abi.h>

#define MAX_TASKS 400u
#define MAX_EDGES 64u
#define MAX_ANSWERS 1024u
#define MAX_STREAMS 6u
#define MAX_EVENTS 3u
#define MAX_SQ 64u
#define MAX_SLOTS 128u
#define CELLS 32u          /* both heaps together */
#define CELL_BYTES 256u
#define CELL_USERS 6u
#define CONTROL_WAIT 15u
#define FOREVER UINT64_MAX

union entry {
    struct tsemu_sqe sqe;
    struct tsemu_sqe_copy copy;
    struct tsemu_sqe_event event;
    struct tsemu_sqe_poisoned poisoned;
};

/* One task: what was asked for, then what the completion said. */
struct record {
    uint32_t ticket, edges[MAX_EDGES], edge_count;
    uint32_t previous;       /* implicit predecessor of an in-order stream, 0: none */
    uint32_t stream_life;    /* streams with the same number are told apart by this */
    uint32_t ancestor;       /* of a poisoned entry */
    uint32_t timeout_us, event, event_value, position, entries;
    uint16_t stream, slot, blocks;
    uint8_t opcode, engine_class;
    bool poisoned, cancel, slot_reused;
    bool recovered;          /* the stream was recovered after the implicit predecessor */
    uint64_t duration;       /* of one block, ps */
    uint32_t from, to, length;
    uint64_t pattern;
    bool done;
    uint32_t order, found_ancestor;
    uint16_t status, core;
    uint64_t start, end;
};

struct answer {
    uint32_t kind, flags, a, b, submitted, next_completed;
    bool garbage;            /* nothing is known about when it should be answered */
    uint32_t reason, completed;
    uint64_t now, deadline;
};

struct posted {
    bool used;
    uint32_t sequence;
    struct answer asked;
};

struct stream_state {
    bool used, in_order, recovered;
    uint32_t life, last, open;
};

struct event_state {
    bool used;
    uint32_t recorded;
    uint32_t record[MAX_TASKS]; /* ticket by value - 1 */
};

struct cell {
    uint32_t users[CELL_USERS];
};

/* Damage done to the ring, until the device has refused it and it is mended. */
enum harm { HARM_NONE, HARM_ENTRY, HARM_TAIL };

struct client {
    device *dev;
    const struct device_config *config;
    struct seeded *random;
    int id;
    uint32_t edge_nodes;
    struct device_context_options options;
    uint8_t *memory;
    uint64_t size;
    struct tsemu_control_page *page;
    uint8_t sq[MAX_SQ * 64u];          /* what should be in the ring */
    uint32_t tail, submitted, consumed;
    uint16_t free_slots[MAX_SLOTS];
    uint32_t free_first, free_count;
    uint32_t owner[MAX_SLOTS];
    struct record tasks[MAX_TASKS + 1u]; /* by ticket */
    uint32_t in_order_of_completion[MAX_TASKS];
    struct stream_state streams[MAX_STREAMS];
    uint32_t lives;
    struct event_state events[MAX_EVENTS];
    struct cell cells[CELLS];
    uint8_t bytes[CELLS * CELL_BYTES]; /* what the heaps should hold */
    struct posted waits[TSEMU_MAX_WAITS];
    struct answer answers[MAX_ANSWERS];
    uint32_t answer_count;
    struct tsemu_control_message request, reply;           /* last ones */
    struct tsemu_control_message good_request, good_reply; /* last ones that were in order */
    uint32_t token;
    bool request_is_bad, request_is_repeat;
    enum harm harm;
    uint32_t harm_reason, harm_position, refusals, refused_at;
    bool gives_up;                     /* does not mend: the context goes into error */
    bool errored, closed, vanished;
    bool armed;                        /* sleeps until the device raises its interrupt */
    uint64_t hash;
};

/* Report what is wrong and end the program; `client` may be NULL. */
__attribute__((noreturn, format(printf, 2, 3))) void fail(const struct client *client,
                                                          const char *format, ...);
void client_open(struct client *client, device *dev, const struct device_config *config,
                 const struct device_context_options *options, struct seeded *random);
void client_free(struct client *client);
/* Look at refusals and answers, as a driver does whenever it has been woken. */
void client_tend(struct client *client);
/* Take the answers to posted waits, and the reply to a control request. */
void client_take_answers(struct client *client);
/* Take up to `most` completions. */
void client_drain(struct client *client, uint32_t most);
/* Slots and ring allow one more task of `entries` ring entries. */
bool client_has_room(const struct client *client, uint32_t entries);
/* Write the entry of `task` (filled but for ticket, slot and position) and its extensions. */
void client_write(struct client *client, struct record *task, struct tsemu_sqe *sqe);
void client_publish(struct client *client);
bool client_post(struct client *client, uint32_t index, const struct answer *asked);
void client_post_request(struct client *client, uint32_t kind, uint32_t a, uint32_t b);
/* A request whose bytes are wrong. */
void client_post_bad_request(struct client *client);
/* The last request that was in order, once more: nothing may be done twice. */
void client_post_repeat(struct client *client);
/* Nothing is damaged, and an entry was admitted since the last refusal (three in a row are an error
 * of the context). */
bool client_may_damage(const struct client *client);
void client_damage(struct client *client);
void client_damage_tail(struct client *client);
/* Ask for the interrupt, as before sleeping. */
void client_arm(struct client *client);
bool client_waits(const struct client *client);
uint64_t client_cell_address(const struct client *client, uint32_t cell);

#endif
