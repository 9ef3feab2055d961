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
    uint32_t stream;
    uint8_t control;         /* a control request: owns the request record */
    uint8_t filled;
    uint8_t keep_deadline;
    uint8_t reserved;
} driver_operation;

/* One wait, with its condition as struct tsemu_wait_request has it. */
typedef struct driver_wait {
    uint32_t kind, a, b, c;
    uint64_t timeout_ps;     /* TSEMU_NO_LIMIT: the device's limit */
} driver_wait;

/* `memory` stays mapped until the context is closed. Checks the control page (magic, version, bounds). The
 * three descriptors stay the caller's; -1 where there is none (embedded: all three). */
int driver_attach(void *memory, uint64_t size, driver_pump pump, void *pump_argument,
                  int doorbell_fd, int interrupt_fd, int link_fd, tsemu_context **context);

/* Close: posts the CLOSE request, waits for running work for a bounded wall time, ends what is left
 * CANCELLED. Afterwards every call says TSEMU_E_CLOSED. A second call does nothing. */
void driver_close(tsemu_context *context);
/* Free the context without talking to the device, in a forked child for instance. Contexts of
 * tsemu_open are unmapped and their descriptors closed; those of driver_attach stay the caller's.
 * tsemu_close is driver_close and then this. No other call may be running or follow. */
void driver_forget(tsemu_context *context);

/* `task` may be NULL in all launches: nobody wants to know how it ends. Launch without any waiting:
 * TSEMU_OK, an error, or TSEMU_AGAIN when it cannot be done at once and nothing has changed (then
 * use driver_launch_step with a zeroed operation). */
int driver_launch_try(tsemu_context *context, const tsemu_launch_desc *desc,
                      tsemu_task *const *after, uint32_t after_count, tsemu_task *task);
int driver_launch_step(tsemu_context *context, const tsemu_launch_desc *desc,
                       tsemu_task *const *after, uint32_t after_count, tsemu_task *task,
                       int block, driver_operation *operation);
int driver_batch_step(tsemu_context *context, const tsemu_batch *batch,
                      driver_operation *operation);
/* TSEMU_OK: the condition holds; TSEMU_E_TIMEOUT: it did not in time. With kinds ALL (a), STREAM (b)
 * and NEXT (a), c = 1 stands for "the driver fills in that operand": the last ticket launched so far,
 * or the number of completions used so far. TASK: at once TSEMU_OK when the task has been consumed. */
int driver_wait_step(tsemu_context *context, const driver_wait *wait,
                     driver_operation *operation);
/* The same without sleeping or spinning: TSEMU_AGAIN while there is no answer (asyncio). Embedded:
 * pumps the device once. Across processes: afterwards the descriptor of driver_interrupt_fd becomes
 * readable when it should be called again (the driver reads it); that of driver_link_fd when the
 * device is gone. -1: embedded. */
int driver_wait_poll(tsemu_context *context, const driver_wait *wait,
                     driver_operation *operation);
int driver_interrupt_fd(const tsemu_context *context);
int driver_link_fd(const tsemu_context *context);
/* Give up an operation between two steps: its posted wait is taken back when it is answered. */
void driver_abandon(tsemu_context *context, driver_operation *operation);
/* Waits until no task of a batch is pending. */
int driver_batch_wait_step(tsemu_context *context, const tsemu_batch *batch, uint64_t timeout_ps,
                           driver_operation *operation);
/* A control request. TSEMU_OK: `reply` holds the reply; the driver has taken over what it says
 * (streams, events, limits). Refused: TSEMU_E_INVALID, TSEMU_E_NO_RESOURCE, TSEMU_E_BUSY ... */
int driver_control_step(tsemu_context *context, uint16_t kind, const uint32_t argument[10],
                        struct tsemu_control_message *reply, driver_operation *operation);

/* Handles with a callback that were consumed, in completion order; NULL: none left. */
tsemu_task *driver_take_callback(tsemu_context *context);
/* Ask for a callback after the launch: 1 when the task is still pending (it will be returned by
 * driver_take_callback), 0 when it has been consumed. At launch: set bit 0 of task->flags. */
int driver_watch(tsemu_context *context, tsemu_task *task);
/* The calling thread runs a callback: launches do not wait, waits are TSEMU_E_IN_CALLBACK. */
void driver_in_callback(tsemu_context *context, int inside);

/* Completions kept for next_completion and the completion iterator: off by default, because they
 * are a queue; on, the driver keeps those of handles and batches, at most `capacity` (at least the
 * number of slots): a launch that would overfill it is TSEMU_E_NO_RESOURCE. 0 turns it off. */
int driver_keep_completions(tsemu_context *context, uint32_t capacity);
uint32_t driver_take_completions(tsemu_context *context, struct tsemu_cqe *cqes, uint32_t count);

/* A program: chunks of tasks in program order. Edges are program-wide task indices. */
typedef struct driver_program driver_program;
typedef struct tsemu_program_task driver_program_task;

/* `sink`: where completions are put, NULL or at least as many entries as the context has slots. */
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
                        uint32_t count, const uint32_t *edges, uint64_t edge_count,
                        uint32_t *position, driver_operation *operation);
/* Wait until every task of the program has been consumed (every submitted task has its place in the
 * sink reserved, so the sink need not be drained for that). */
int driver_program_finish(driver_program *program, uint64_t timeout_ps,
                          driver_operation *operation);
/* The oldest completions in the sink, in completion order: sink[*first] to sink[*first + count - 1].
 * They are the caller's until the next drain, which takes them back. The sink is a ring: call it
 * until it returns 0 to get everything. */
uint32_t driver_program_drain(driver_program *program, uint32_t *first);
struct driver_program_counts {
    uint64_t submitted, consumed, failed;
    uint64_t first_start_ps, last_end_ps;
};
void driver_program_counts(const driver_program *program, struct driver_program_counts *counts);
void driver_program_free(driver_program *program);

struct driver_status {
    uint32_t submitted, consumed, answered, waits_posted, slot_blocks, ring_blocks, rewrites;
    uint32_t doorbells;
    uint64_t now_ps;          /* of the last answer */
};
void driver_status(const tsemu_context *context, struct driver_status *status);
uint32_t driver_stream_outstanding(const tsemu_context *context, uint16_t stream);
/* First task of the stream (TSEMU_ALL_STREAMS: of any) that was consumed without success since the
 * stream was opened or recovered: 1 and *task filled, or 0. */
int driver_stream_failure(tsemu_context *context, uint32_t stream, tsemu_task *task);

#endif
