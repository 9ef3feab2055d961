/* A program in the driver: what has been fed, what of it is still outstanding, what has failed.
 *
 * Memory does not grow with the number of tasks. A ring map holds the slots of the latest tasks that
 * have not been consumed; a task that is still outstanding when its place is needed moves to a list
 * of old ones (at most as many as slots). Only tasks that did not succeed are remembered. */
#ifndef TSEMU_DRIVER_PROGRAM_H
#define TSEMU_DRIVER_PROGRAM_H

#include "internal.h"

#pragma GCC visibility push(hidden)

struct old_task {
    uint32_t index;
    uint16_t slot; /* NO_SLOT: consumed, to be swept out */
};

struct failed_task {
    uint64_t key; /* index + 1; 0: free */
    struct failure failure;
};

struct driver_program {
    struct tsemu_context *c;
    uint64_t next;      /* index of the next task */
    uint16_t *map;      /* by index: slot, or NO_SLOT when consumed */
    uint32_t map_mask;
    uint32_t outstanding;
    uint32_t last_ticket;
    struct old_task *old; /* by index, rising */
    uint32_t old_count, old_live, old_capacity;
    struct failed_task *failed;
    uint32_t failed_count, failed_capacity; /* a power of two */
    bool short_of_memory;
    struct tsemu_cqe *sink;
    uint32_t sink_size, sink_at, sink_used, sink_head, sink_lent;
    struct driver_program_counts counts;
    uint32_t stream_count, event_count, class_count;
    uint16_t *streams;
    uint32_t *events;
    uint8_t *classes;
};

/* program_index.c */
void program_add_old(driver_program *p, uint32_t index, uint16_t slot);
struct old_task *program_find_old(driver_program *p, uint32_t index);
void program_add_failed(driver_program *p, uint32_t index, const struct tsemu_cqe *cqe);
const struct failed_task *program_find_failed(const driver_program *p, uint64_t index);

/* program.c */
int program_check_usable(driver_program *p);

#pragma GCC visibility pop
#endif
