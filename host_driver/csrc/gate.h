/* The gate between Python objects and a context: makes closing safe while other threads are inside
 * a call. Every call of the binding goes through it. Compiled into `_driver` only. */
#ifndef TSEMU_GATE_H
#define TSEMU_GATE_H

#include <stdatomic.h>
#include <string.h>
#include <driver.h>

/* Stands between Python objects and the context. Once `context` is NULL nobody gets in, and once
 * `inside` is 0 as well nobody is in. */
struct handle_gate {
    uintptr_t context;
    uint32_t inside;
    uint32_t padding;
};

static tsemu_context *handle_enter(struct handle_gate *gate)
{
    atomic_fetch_add((_Atomic uint32_t *)&gate->inside, 1u);
    uintptr_t context = atomic_load((_Atomic uintptr_t *)&gate->context);
    if (context == 0)
        atomic_fetch_sub((_Atomic uint32_t *)&gate->inside, 1u);
    return (tsemu_context *)context;
}

static void handle_leave(struct handle_gate *gate)
{
    atomic_fetch_sub((_Atomic uint32_t *)&gate->inside, 1u);
}

static void handle_set(struct handle_gate *gate, tsemu_context *context)
{
    atomic_store((_Atomic uintptr_t *)&gate->context, (uintptr_t)context);
}

static uint32_t handle_inside(struct handle_gate *gate)
{
    return atomic_load((_Atomic uint32_t *)&gate->inside);
}

/* Steps, through the gate. */
static int handle_launch_step(struct handle_gate *gate, const tsemu_launch_desc *desc,
                              tsemu_task *const *after, uint32_t after_count, uintptr_t task,
                              int block, driver_operation *operation)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_launch_step(context, desc, after, after_count, (tsemu_task *)task, block, operation);
    handle_leave(gate);
    return code;
}

static int handle_batch_step(struct handle_gate *gate, const tsemu_batch *batch,
                             driver_operation *operation)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_batch_step(context, batch, operation);
    handle_leave(gate);
    return code;
}

static int handle_batch_wait_step(struct handle_gate *gate, const tsemu_batch *batch,
                                  uint64_t timeout_ps, driver_operation *operation)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_batch_wait_step(context, batch, timeout_ps, operation);
    handle_leave(gate);
    return code;
}

static int handle_wait_step(struct handle_gate *gate, const driver_wait *wait,
                            driver_operation *operation)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_wait_step(context, wait, operation);
    handle_leave(gate);
    return code;
}

static int handle_wait_task(struct handle_gate *gate, uintptr_t task, uint64_t timeout_ps,
                            driver_operation *operation)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    const tsemu_task *record = (const tsemu_task *)task;
    driver_wait wait = {.kind = TSEMU_WAIT_KIND_TASK,
                        .a = record->ticket,
                        .b = record->slot,
                        .timeout_ps = timeout_ps};
    int code = driver_wait_step(context, &wait, operation);
    handle_leave(gate);
    return code;
}

static int handle_wait_poll(struct handle_gate *gate, const driver_wait *wait,
                            driver_operation *operation)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_wait_poll(context, wait, operation);
    handle_leave(gate);
    return code;
}

static int handle_control_step(struct handle_gate *gate, uint16_t kind, const uint32_t *argument,
                               struct tsemu_control_message *reply, driver_operation *operation)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_control_step(context, kind, argument, reply, operation);
    handle_leave(gate);
    return code;
}

static void handle_abandon(struct handle_gate *gate, driver_operation *operation)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return;
    driver_abandon(context, operation);
    handle_leave(gate);
}

/* Everything else, through the gate. */
static int handle_watch(struct handle_gate *gate, uintptr_t task)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_watch(context, (tsemu_task *)task);
    handle_leave(gate);
    return code;
}

/* The next task whose callbacks have to run, in *task: a place of the caller's that survives if a
 * signal ends him before he looks at it. Takes none while *task is not 0. False: there is none. */
static int handle_take_callback(struct handle_gate *gate, uintptr_t *task)
{
    tsemu_context *context = *task ? NULL : handle_enter(gate);
    if (context == NULL)
        return *task != 0;
    *task = (uintptr_t)driver_take_callback(context);
    handle_leave(gate);
    return *task != 0;
}

static void handle_in_callback(struct handle_gate *gate, int inside)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return;
    driver_in_callback(context, inside);
    handle_leave(gate);
}

static int handle_keep_completions(struct handle_gate *gate, uint32_t capacity)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_keep_completions(context, capacity);
    handle_leave(gate);
    return code;
}

static uint32_t handle_take_completions(struct handle_gate *gate, struct tsemu_cqe *cqes,
                                        uint32_t count)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return 0;
    uint32_t result = driver_take_completions(context, cqes, count);
    handle_leave(gate);
    return result;
}

static int handle_stream_failure(struct handle_gate *gate, uint32_t stream, tsemu_task *task)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_stream_failure(context, stream, task);
    handle_leave(gate);
    return code;
}

static uint32_t handle_outstanding(struct handle_gate *gate, uint16_t stream)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return 0;
    uint32_t result = driver_stream_outstanding(context, stream);
    handle_leave(gate);
    return result;
}

static int handle_alloc(struct handle_gate *gate, int on_device, uint64_t size, uint64_t *address)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = tsemu_buffer_alloc(context, on_device, size, address);
    handle_leave(gate);
    return code;
}

static int handle_free(struct handle_gate *gate, uint64_t address)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    int code = tsemu_buffer_free(context, address);
    handle_leave(gate);
    return code;
}

static int handle_driver_status(struct handle_gate *gate, struct driver_status *status)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    driver_status(context, status);
    handle_leave(gate);
    return TSEMU_OK;
}

static int handle_page(struct handle_gate *gate, struct tsemu_control_page *page)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    memcpy(page, tsemu_page(context), sizeof(*page));
    handle_leave(gate);
    return TSEMU_OK;
}

/* The eventfd that the device rings; -1: embedded, or closed. */
static int handle_interrupt_fd(struct handle_gate *gate)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return -1;
    int fd = driver_interrupt_fd(context);
    handle_leave(gate);
    return fd;
}

/* The socket, which becomes readable when the device is gone; -1: embedded, or closed. */
static int handle_link_fd(struct handle_gate *gate)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return -1;
    int fd = driver_link_fd(context);
    handle_leave(gate);
    return fd;
}

/* The caller has taken the context out of the gate, and nobody is inside. */
static void handle_close(uintptr_t context)
{
    tsemu_close((tsemu_context *)context);
}

static void handle_forget(uintptr_t context)
{
    driver_forget((tsemu_context *)context);
}

static int handle_attach(uintptr_t memory, uint64_t size, uintptr_t pump, uintptr_t device,
                         tsemu_context **context)
{
    return driver_attach((void *)memory, size, (driver_pump)pump, (void *)device, -1, -1, -1,
                         context);
}

static int handle_program_feed(struct handle_gate *gate, driver_program *program,
                               const driver_program_task *tasks, uint32_t count,
                               const uint32_t *edges, uint64_t edge_count, uint32_t *position,
                               driver_operation *operation)
{
    if (handle_enter(gate) == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_program_feed(program, tasks, count, edges, edge_count, position, operation);
    handle_leave(gate);
    return code;
}

static int handle_program_finish(struct handle_gate *gate, driver_program *program,
                                 uint64_t timeout_ps, driver_operation *operation)
{
    if (handle_enter(gate) == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_program_finish(program, timeout_ps, operation);
    handle_leave(gate);
    return code;
}

static uint32_t handle_program_drain(struct handle_gate *gate, driver_program *program,
                                     uint32_t *first)
{
    if (handle_enter(gate) == NULL)
        return 0;
    uint32_t count = driver_program_drain(program, first);
    handle_leave(gate);
    return count;
}

static int handle_program_counts(struct handle_gate *gate, const driver_program *program,
                                 struct driver_program_counts *counts)
{
    if (handle_enter(gate) == NULL)
        return TSEMU_E_CLOSED;
    driver_program_counts(program, counts);
    handle_leave(gate);
    return TSEMU_OK;
}

static driver_program *handle_program_new(struct handle_gate *gate, const uint16_t *streams,
                                          uint32_t stream_count, const uint32_t *events,
                                          uint32_t event_count, const uint8_t *classes,
                                          uint32_t class_count, struct tsemu_cqe *sink,
                                          uint32_t sink_count)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return NULL;
    driver_program *program = driver_program_new(context, streams, stream_count, events,
                                                 event_count, classes, class_count, sink,
                                                 sink_count);
    handle_leave(gate);
    return program;
}

static int handle_program_check(struct handle_gate *gate, driver_program *program,
                                const driver_program_task *tasks, uint32_t count,
                                const uint32_t *edges, uint64_t edge_count, uint64_t first)
{
    if (handle_enter(gate) == NULL)
        return TSEMU_E_CLOSED;
    int code = driver_program_check(program, tasks, count, edges, edge_count, first);
    handle_leave(gate);
    return code;
}

#endif
