/* Launches of single tasks. */
#include "entry.h"

static void start_handle(struct tsemu_context *c, tsemu_task *task, uint16_t slot, uint16_t stream,
                         uint32_t value)
{
    task->context = c;
    task->ticket = c->submitted;
    task->slot = slot;
    task->start_ps = 0;
    task->end_ps = 0;
    task->fault_address = 0;
    task->ancestor = 0;
    task->order = 0;
    task->ancestor_context = 0;
    task->core = TSEMU_NO_SLOT;
    task->stream = stream;
    task->block = 0;
    task->value = value;
    task->status = TSEMU_PENDING;
}

/* There is room: build the entry and publish it. */
static inline int launch_now(struct tsemu_context *c, const tsemu_launch_desc *desc,
                             tsemu_task *const *after, uint32_t after_count, tsemu_task *task)
{
    int code = TSEMU_OK;
    if (__builtin_expect(task && task->flags & 1u, 0))
        code = callback_reserve(c);
    if (!code)
        code = kept_reserve(c, 1);
    if (code)
        return code;
    struct emission emission = {.owner = task,
                                .kind = task ? OWNER_HANDLE : OWNER_NOBODY,
                                .edges = c->edge_slot,
                                .new_call = true,
                                .callback = task && task->flags & 1u};
    resolve_after(c, after, after_count, c->submitted + 1u, &emission);
    uint32_t value = 0;
    uint16_t slot = emit(c, desc, &emission, &value);
    if (emission.callback)
        c->pending++;
    if (task)
        start_handle(c, task, slot, desc->stream, value);
    thread_launched(c, thread_record(c));
    publish_tail(c);
    return TSEMU_OK;
}

static inline int check_launch(struct tsemu_context *c, const tsemu_launch_desc *desc,
                               tsemu_task *const *after, uint32_t after_count, tsemu_task *task,
                               uint32_t *entries)
{
    int code = context_check(c);
    if (code)
        return code;
    if (__builtin_expect((c->submitted & 63u) == 63u, 0) && (code = attend(c)))
        return code;
    code = check_task(c, desc, "");
    if (code)
        return code;
    (void)task;
    return check_after(c, after, after_count, 0, entries);
}

int driver_launch_try(tsemu_context *c, const tsemu_launch_desc *desc, tsemu_task *const *after,
                      uint32_t after_count, tsemu_task *task)
{
    uint32_t entries = 1;
    context_lock(c);
    int code = check_launch(c, desc, after, after_count, task, &entries);
    if (!code) {
        struct room room = {.count = 1, .entries = entries, .stream = desc->stream, .block = true};
        code = room_try(c, &room);
        if (!code)
            code = launch_now(c, desc, after, after_count, task);
    }
    context_unlock(c);
    return code;
}

int driver_launch_step(tsemu_context *c, const tsemu_launch_desc *desc, tsemu_task *const *after,
                       uint32_t after_count, tsemu_task *task, int block,
                       driver_operation *operation)
{
    uint32_t entries = 1;
    context_lock(c);
    int code = check_launch(c, desc, after, after_count, task, &entries);
    if (!code) {
        struct room room = {.count = 1, .entries = entries, .stream = desc->stream,
                            .block = block != 0};
        code = TSEMU_AGAIN;
        if (block && operation->stage == STAGE_START)
            code = room_try(c, &room);
        if (code == TSEMU_AGAIN) {
            c->users++;
            code = room_reserve(c, &room, operation, wall_ns() + SLICE_NS);
            c->users--;
        }
        if (!code) /* `after` may have been consumed meanwhile: looked at again */
            code = launch_now(c, desc, after, after_count, task);
    }
    if (code < 0)
        operation_drop(c, operation);
    code = callbacks_first(c, code);
    context_unlock(c);
    return code;
}
