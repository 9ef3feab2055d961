/* Batches: accepted or refused as a whole, published by one store of the tail. */
#include "entry.h"

#include <stdio.h>

static uint32_t edges_of(const tsemu_batch *batch, uint32_t i)
{
    return batch->edge_start ? batch->edge_start[i + 1] - batch->edge_start[i] : 0;
}

static int check_edges(const tsemu_batch *batch, uint32_t i)
{
    if (!batch->edge_start)
        return TSEMU_OK;
    uint32_t from = batch->edge_start[i], to = batch->edge_start[i + 1];
    if (from > to || (i == 0 && from != 0) || (to > from && !batch->edges))
        return driver_fail(TSEMU_E_INVALID, "edge_start", to, from,
                           "edge_start counts up from 0, one more entry than tasks",
                           "edge_start[%u] is %u after %u", i + 1, to, from);
    for (uint32_t e = from; e < to; e++)
        if (batch->edges[e] >= i)
            return driver_fail(TSEMU_E_INVALID, "edges", batch->edges[e], i,
                               "an edge names an earlier task of the batch: sort the tasks",
                               "edges[%u] of task %u names task %u", e, i, batch->edges[e]);
    return TSEMU_OK;
}

/* Everything that can be wrong, and the ring entries needed at most. */
static int check_batch(const struct tsemu_context *c, const tsemu_batch *batch, uint32_t *entries)
{
    if (batch->count > c->batch)
        return driver_fail(TSEMU_E_INVALID, "count", batch->count, c->batch,
                           "split it, or open the context with a larger `batch`",
                           "a batch of %u tasks, at most %u can be submitted as a whole",
                           batch->count, c->batch);
    if (!batch->tasks && batch->count)
        return driver_fail(TSEMU_E_INVALID, "tasks", 0, batch->count, "pass the tasks",
                           "%u tasks, but no array", batch->count);
    *entries = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        char prefix[24];
        uint32_t needed = 1;
        int code = TSEMU_OK;
        if (!task_valid(c, &batch->tasks[i])) {
            snprintf(prefix, sizeof prefix, "tasks[%u].", i);
            return check_task(c, &batch->tasks[i], prefix);
        }
        if ((code = check_edges(batch, i)))
            return code;
        if (i == 0 || edges_of(batch, i) + batch->after_count > TSEMU_INLINE_PREDECESSORS)
            code = check_after(c, batch->after, batch->after_count, edges_of(batch, i), &needed);
        if (code)
            return code;
        *entries += needed;
        if (*entries > c->sq_entries)
            return driver_fail(TSEMU_E_INVALID, "sq_entries", *entries, c->sq_entries,
                               "split the batch, or open the context with a larger `sq_entries`",
                               "the first %u tasks of the batch need %u ring entries, the ring "
                               "has %u", i + 1, *entries, c->sq_entries);
    }
    return TSEMU_OK;
}

static void submit(struct tsemu_context *c, const tsemu_batch *batch)
{
    uint32_t first_slot = c->free_pop;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct emission emission = {.owner = batch->status ? &batch->status[i] : NULL,
                                    .kind = batch->status ? OWNER_STATUS : OWNER_NOBODY,
                                    .edges = c->edge_slot,
                                    .new_call = i == 0};
        uint32_t ticket = c->submitted + 1u, value = 0;
        resolve_after(c, batch->after, batch->after_count, ticket, &emission);
        for (uint32_t e = 0; e < edges_of(batch, i); e++) {
            uint32_t at = first_slot + batch->edges[batch->edge_start[i] + e];
            uint16_t place = c->free_slot[at < c->slots ? at : at - c->slots];
            if (c->slot[place].mark == ticket)
                continue;
            c->slot[place].mark = ticket;
            emission.edges[emission.edge_count++] = place;
        }
        if (batch->status)
            batch->status[i] = TSEMU_PENDING;
        emit(c, &batch->tasks[i], &emission, &value);
    }
    thread_launched(c, thread_record(c));
    publish_tail(c);
}

int driver_batch_step(tsemu_context *c, const tsemu_batch *batch, driver_operation *operation)
{
    uint32_t entries = 0;
    context_lock(c);
    int code = context_check(c);
    if (!code)
        code = attend(c);
    if (!code)
        code = check_batch(c, batch, &entries);
    if (!code && batch->count) {
        struct room room = {.count = batch->count,
                            .entries = entries,
                            .stream = batch->tasks[0].stream,
                            .tasks = batch->tasks,
                            .block = batch->block != 0};
        c->users++;
        code = room_reserve(c, &room, operation, wall_ns() + SLICE_NS);
        c->users--;
        if (!code)
            code = kept_reserve(c, batch->count);
        if (!code)
            submit(c, batch);
    }
    if (code < 0)
        operation_drop(c, operation);
    code = callbacks_first(c, code);
    context_unlock(c);
    return code;
}

/* A slot whose task belongs to the batch and is pending, or NULL. */
static const struct slot *pending_task(const struct tsemu_context *c, const tsemu_batch *batch)
{
    for (uint32_t i = 0; i < c->slots; i++) {
        const struct slot *slot = &c->slot[i];
        const uint16_t *status = slot->owner;
        if (slot->kind == OWNER_STATUS && status >= batch->status &&
            status < batch->status + batch->count)
            return slot;
    }
    return NULL;
}

int driver_batch_wait_step(tsemu_context *c, const tsemu_batch *batch, uint64_t timeout_ps,
                           driver_operation *operation)
{
    context_lock(c);
    int code = context_check(c);
    c->users++;
    while (!code) {
        const struct slot *slot = pending_task(c, batch);
        if (!slot && (operation->stage & 0xFFu) == STAGE_START)
            break;
        driver_wait wait = {.kind = TSEMU_WAIT_KIND_TASK, .timeout_ps = timeout_ps};
        if (slot) {
            wait.a = slot->ticket;
            wait.b = (uint32_t)(slot - c->slot);
        }
        operation->keep_deadline = 1;
        code = wait_locked(c, &wait, operation, false);
    }
    c->users--;
    code = callbacks_first(c, code);
    context_unlock(c);
    return code;
}
