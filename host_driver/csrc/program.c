/* Programs: their life, their completions, and waiting for their end. */
#include "program.h"

#include <stdlib.h>

void program_deliver(driver_program *p, const struct tsemu_cqe *cqe, uint32_t index)
{
    uint32_t age = (uint32_t)p->next - index;
    if (__builtin_expect(age - 1u <= p->map_mask, 1)) {
        p->map[index & p->map_mask] = TSEMU_NO_SLOT;
    } else {
        struct old_task *old = program_find_old(p, index);
        if (old) {
            old->slot = TSEMU_NO_SLOT;
            p->old_live--;
        }
    }
    p->outstanding--;
    p->counts.consumed++;
    if (__builtin_expect(cqe->status != TSEMU_STATUS_OK, 0))
        program_add_failed(p, index, cqe);
    if (cqe->start_ps < p->counts.first_start_ps)
        p->counts.first_start_ps = cqe->start_ps;
    if (cqe->end_ps > p->counts.last_end_ps)
        p->counts.last_end_ps = cqe->end_ps;
    if (p->sink) {
        p->sink[p->sink_at] = *cqe;
        if (++p->sink_at == p->sink_size)
            p->sink_at = 0;
        p->sink_used++;
    }
}

int program_check_usable(driver_program *p)
{
    int code = context_check(p->c);
    if (!code && p->short_of_memory)
        code = driver_fail(TSEMU_E_NO_RESOURCE, "failed", p->failed_count, 0, "free memory",
                           "no memory to remember the tasks that did not succeed");
    return code;
}

/* Without a limit of the caller's a program may take longer than the device's longest wait, as long
 * as it moves. */
static bool still_moves(const driver_program *p, int code, uint64_t timeout_ps,
                        driver_operation *operation)
{
    if (code != TSEMU_E_TIMEOUT || timeout_ps != TSEMU_NO_LIMIT)
        return false;
    bool moved = operation->stream != (uint32_t)p->counts.consumed;
    *operation = (driver_operation){.stream = (uint32_t)p->counts.consumed};
    return moved;
}

int driver_program_finish(driver_program *p, uint64_t timeout_ps, driver_operation *operation)
{
    struct tsemu_context *c = p->c;
    context_lock(c);
    int code = program_check_usable(p);
    c->users++;
    while (!code && (p->outstanding || operation->stage != STAGE_START)) {
        driver_wait wait = {
            .kind = TSEMU_WAIT_KIND_ALL, .a = p->last_ticket, .timeout_ps = timeout_ps};
        code = wait_locked(c, &wait, operation, false);
        if (still_moves(p, code, timeout_ps, operation))
            code = TSEMU_OK;
    }
    c->users--;
    code = callbacks_first(c, code);
    context_unlock(c);
    return code;
}

uint32_t driver_program_drain(driver_program *p, uint32_t *first)
{
    context_lock(p->c);
    p->sink_head += p->sink_lent;
    if (p->sink_head >= p->sink_size)
        p->sink_head -= p->sink_size;
    uint32_t straight = p->sink_size - p->sink_head;
    p->sink_lent = p->sink_used < straight ? p->sink_used : straight;
    p->sink_used -= p->sink_lent;
    *first = p->sink_head;
    uint32_t count = p->sink_lent;
    context_unlock(p->c);
    return count;
}

void driver_program_counts(const driver_program *p, struct driver_program_counts *counts)
{
    context_lock(p->c);
    *counts = p->counts;
    context_unlock(p->c);
}

static void release(driver_program *p)
{
    free(p->map);
    free(p->old);
    free(p->failed);
    free(p->streams);
    free(p->events);
    free(p->classes);
    free(p);
}

void driver_program_free(driver_program *p)
{
    if (!p)
        return;
    struct tsemu_context *c = p->c;
    context_lock(c);
    for (uint32_t i = 0; i < c->slots; i++)
        if (c->slot[i].kind == OWNER_PROGRAM && c->slot[i].owner == p)
            c->slot[i].kind = OWNER_NOBODY;
    context_unlock(c);
    release(p);
}

static void *copy_table(const void *table, uint32_t count, size_t size)
{
    void *copy = calloc(count ? count : 1, size);
    if (copy && count)
        memcpy(copy, table, count * size);
    return copy;
}

driver_program *driver_program_new(tsemu_context *c, const uint16_t *streams,
                                   uint32_t stream_count, const uint32_t *events,
                                   uint32_t event_count, const uint8_t *classes,
                                   uint32_t class_count, struct tsemu_cqe *sink,
                                   uint32_t sink_count)
{
    if (sink && sink_count < c->slots) {
        driver_fail(TSEMU_E_INVALID, "sink_count", sink_count, c->slots,
                    "use at least as many entries as slots, better twice as many",
                    "a sink of %u completions is smaller than the %u slots", sink_count, c->slots);
        return NULL;
    }
    driver_program *p = calloc(1, sizeof *p);
    if (!p) {
        driver_fail(TSEMU_E_NO_RESOURCE, "memory", 0, 0, "free memory", "no memory");
        return NULL;
    }
    uint32_t size = 64;
    while (size < 2 * c->slots)
        size *= 2;
    p->c = c;
    p->map_mask = size - 1u;
    p->old_capacity = 2 * c->slots + 2;
    p->counts.first_start_ps = UINT64_MAX;
    p->sink = sink;
    p->sink_size = sink ? sink_count : 0;
    p->stream_count = stream_count;
    p->event_count = event_count;
    p->class_count = class_count;
    p->map = malloc(size * sizeof *p->map);
    p->old = malloc(p->old_capacity * sizeof *p->old);
    p->streams = copy_table(streams, stream_count, sizeof *streams);
    p->events = copy_table(events, event_count, sizeof *events);
    p->classes = copy_table(classes, class_count, sizeof *classes);
    if (!p->map || !p->old || !p->streams || !p->events || !p->classes) {
        release(p);
        driver_fail(TSEMU_E_NO_RESOURCE, "memory", 0, 0, "free memory", "no memory");
        return NULL;
    }
    memset(p->map, 0xFF, size * sizeof *p->map);
    return p;
}
