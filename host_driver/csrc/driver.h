/* What the Python driver binds beyond tsemu.h: attaching to an embedded device, calls that do not
 * block for longer than a slice, callbacks, programs.
 *
 * Every call that may wait is given as a step: it returns TSEMU_AGAIN when it has to be called
 * again with the same operation (a slice of wall time is over, so that Python can look at signals),
 * and TSEMU_CALLBACKS when callbacks have to run first (`driver_take_callback`, until it returns
 * NULL; then the same step again). An operation is zeroed memory when it starts. */
#ifndef TSEMU_DRIVER_H
#define TSEMU_DRIVER_H

#include <tsemu.h>

enum driver_step { TSEMU_AGAIN = 1, TSEMU_CALLBACKS = 2 };

/* How an embedded device is pumped: it runs until it would wait in wall time for this client;
 * returns a device_reason (1: slice over). */
typedef int (*driver_pump)(void *device, uint64_t slice_ns);

/* State of a call that may wait. */
typedef struct driver_operation {
    uint32_t stage;
    int32_t wait;            /* index of the posted wait, minus 1; 0: none */
    uint32_t sequence;
    uint32_t value;
    uint64_t deadline_ps;    /* absolute, once the device has told it */
    uint64_t need;
} driver_operation;

/* One wait, with its condition as struct tsemu_wait_request has it. */
typedef struct driver_wait {
    uint32_t kind, a, b, c;
    uint64_t timeout_ps;     /* TSEMU_NO_LIMIT: the device's limit */
} driver_wait;

/* `memory` stays mapped until driver_detach. Checks the control page (magic, version, bounds). */
int driver_attach(void *memory, uint64_t size, driver_pump pump, void *pump_argument,
                  int doorbell_fd, int interrupt_fd, int link_fd, tsemu_context **context);

int driver_launch_try(tsemu_context *context, const tsemu_launch_desc *desc,
                      tsemu_task *const *after, uint32_t after_count, tsemu_task *task);
int driver_launch_step(tsemu_context *context, const tsemu_launch_desc *desc,
                       tsemu_task *const *after, uint32_t after_count, tsemu_task *task,
                       int block, driver_operation *operation);
int driver_batch_step(tsemu_context *context, const tsemu_batch *batch,
                      driver_operation *operation);
/* TSEMU_OK: the condition holds; TSEMU_E_TIMEOUT: it did not in time. */
int driver_wait_step(tsemu_context *context, const driver_wait *wait,
                     driver_operation *operation);
/* The same without sleeping or spinning: TSEMU_AGAIN while there is no answer (asyncio). */
int driver_wait_poll(tsemu_context *context, const driver_wait *wait,
                     driver_operation *operation);
/* Give up an operation between two steps: its posted wait is taken back when it is answered. */
void driver_abandon(tsemu_context *context, driver_operation *operation);
int driver_control_step(tsemu_context *context, uint16_t kind, const uint32_t argument[10],
                        struct tsemu_control_message *reply, driver_operation *operation);

/* Handles with a callback that were consumed, in completion order; NULL: none left. */
tsemu_task *driver_take_callback(tsemu_context *context);
void driver_in_callback(tsemu_context *context, int inside);
void driver_expect(tsemu_context *context, int more);   /* awaitables pending: +1 / -1 */

/* Completions kept for next_completion and the completion iterator: off by default, because they
 * are a queue; on, the driver keeps those of handles and batches, at most `capacity`. */
int driver_keep_completions(tsemu_context *context, uint32_t capacity);
uint32_t driver_take_completions(tsemu_context *context, struct tsemu_cqe *cqes, uint32_t count);

/* A program: chunks of tasks in program order. Edges are program-wide task indices. */
typedef struct driver_program driver_program;
typedef struct driver_program_task {  /* same layout as the task record of the program file */
    uint64_t user_tag;
    uint64_t argument;
    uint64_t destination;
    uint64_t length;
    uint32_t cycles;
    uint32_t bytes_read;
    uint32_t bytes_written;
    uint32_t value;
    uint32_t timeout_us;
    uint32_t edge_start;      /* first edge, in the chunk's edge array */
    uint32_t event;           /* index in the program's event table */
    uint16_t edge_count;
    uint16_t stream;          /* index in the program's stream table */
    uint16_t blocks;
    uint16_t kernel;
    uint8_t opcode;
    uint8_t engine_class;     /* index in the program's class table */
    uint8_t priority;
    uint8_t reserved;
} driver_program_task;
_Static_assert(sizeof(driver_program_task) == 72, "program task record");

driver_program *driver_program_new(tsemu_context *context, const uint16_t *streams,
                                   uint32_t stream_count, const uint32_t *events,
                                   uint32_t event_count, const uint8_t *classes,
                                   uint32_t class_count, struct tsemu_cqe *sink,
                                   uint32_t sink_count);
/* Check a chunk without submitting: TSEMU_OK or TSEMU_E_INVALID (last error: field such as
 * "tasks[17].blocks", value). `first` is the program-wide index of the chunk's first task. */
int driver_program_check(driver_program *program, const driver_program_task *tasks,
                         uint32_t count, const uint32_t *edges, uint64_t edge_count,
                         uint64_t first);
/* Submit tasks of a chunk from `*position` on; TSEMU_OK when all are in. Also returns TSEMU_AGAIN
 * when the sink is full: take what is in it with driver_program_drain and go on. */
int driver_program_feed(driver_program *program, const driver_program_task *tasks,
                        uint32_t count, const uint32_t *edges, uint32_t *position,
                        driver_operation *operation);
/* Wait until every task of the program has been consumed, or the sink is full (TSEMU_AGAIN). */
int driver_program_finish(driver_program *program, uint64_t timeout_ps,
                          driver_operation *operation);
/* Completions in the sink, in completion order; empties it. */
uint32_t driver_program_drain(driver_program *program);
struct driver_program_counts {
    uint64_t submitted, consumed, failed;
    uint64_t first_start_ps, last_end_ps;
};
void driver_program_counts(const driver_program *program, struct driver_program_counts *counts);
void driver_program_free(driver_program *program);

struct driver_status {
    uint32_t submitted, consumed, answered, waits_posted, slot_blocks, ring_blocks, rewrites;
    uint64_t now_ps;          /* of the last answer */
};
void driver_status(const tsemu_context *context, struct driver_status *status);
uint32_t driver_stream_outstanding(const tsemu_context *context, uint16_t stream);

#endif
