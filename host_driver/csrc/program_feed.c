/* Feeding a program: chunks of tasks in program order, edges by program-wide index, checked, turned
 * into entries and published some tens at a time. */
#include "entry.h"
#include "program.h"

#include <sched.h>
#include <stdio.h>

#define CHUNK 64u /* tasks published at once */

/* The task as a launch, table indices replaced; false when an index is out of its table. */
static inline bool describe(const driver_program *p, const driver_program_task *t,
                            tsemu_launch_desc *d)
{
    if (t->stream >= p->stream_count || t->engine_class >= p->class_count || t->reserved)
        return false;
    bool event = t->opcode >= TSEMU_OPCODE_EVENT_RECORD;
    if (event && t->event >= p->event_count)
        return false;
    d->opcode = t->opcode;
    d->stream = p->streams[t->stream];
    d->engine_class = p->classes[t->engine_class];
    d->priority = t->priority;
    d->blocks = t->blocks;
    d->cycles = t->cycles;
    d->bytes_read = t->bytes_read;
    d->bytes_written = t->bytes_written;
    d->kernel = t->kernel;
    d->flags = 0;
    d->timeout_us = t->timeout_us;
    d->value = t->value;
    d->event = event ? p->events[t->event] : 0;
    d->argument = t->argument;
    d->destination = t->destination;
    d->length = t->length;
    d->user_tag = t->user_tag;
    return true;
}

static int bad_task(uint64_t index, const char *field, uint64_t value, uint64_t limit,
                    const char *hint)
{
    char name[32];
    snprintf(name, sizeof name, "tasks[%llu].%s", (unsigned long long)index, field);
    return driver_fail(TSEMU_E_INVALID, name, value, limit, hint, "%s is %llu (limit %llu)", name,
                       (unsigned long long)value, (unsigned long long)limit);
}

/* Says what is wrong with a task; TSEMU_OK when nothing is. */
__attribute__((noinline)) static int explain(const driver_program *p,
                                             const driver_program_task *t, const uint32_t *edges,
                                             uint64_t edge_count, uint64_t index)
{
    tsemu_launch_desc desc;
    if (t->reserved)
        return bad_task(index, "reserved", t->reserved, 0, "write zero");
    if (t->stream >= p->stream_count)
        return bad_task(index, "stream", t->stream, p->stream_count,
                        "use an index of the program's stream table");
    if (t->engine_class >= p->class_count)
        return bad_task(index, "engine_class", t->engine_class, p->class_count,
                        "use an index of the program's class table");
    if (!describe(p, t, &desc))
        return bad_task(index, "event", t->event, p->event_count,
                        "use an index of the program's event table");
    if (!task_valid(p->c, &desc)) {
        char prefix[28];
        snprintf(prefix, sizeof prefix, "tasks[%llu].", (unsigned long long)index);
        return check_task(p->c, &desc, prefix);
    }
    uint32_t entries;
    int code = check_entries(p->c, t->edge_count, &entries);
    if (code)
        return code;
    uint64_t end = (uint64_t)t->edge_start + t->edge_count;
    if (t->edge_count && (end > edge_count || !edges))
        return bad_task(index, "edge_start", end, edge_count,
                        "edges have to lie in the chunk's edge array");
    for (uint64_t e = t->edge_start; e < end; e++) {
        uint32_t distance = (uint32_t)index - edges[e];
        if (!distance || distance > index)
            return bad_task(index, "edges", edges[e], index,
                            "an edge names an earlier task: sort the tasks");
    }
    return TSEMU_OK;
}

/* The same conditions, in the shape that the hot path wants. */
static inline bool acceptable(const driver_program *p, const driver_program_task *t,
                              const uint32_t *edges, uint64_t edge_count, uint64_t index,
                              tsemu_launch_desc *desc)
{
    if (!describe(p, t, desc) || !task_valid(p->c, desc))
        return false;
    if (!t->edge_count)
        return true;
    if ((uint64_t)t->edge_start + t->edge_count > edge_count || !edges ||
        t->edge_count > TSEMU_MAX_PREDECESSORS || entries_for(t->edge_count) > p->c->sq_entries)
        return false;
    for (uint32_t e = 0; e < t->edge_count; e++) {
        uint32_t distance = (uint32_t)index - edges[t->edge_start + e];
        if (!distance || distance > index)
            return false;
    }
    return true;
}

int driver_program_check(driver_program *p, const driver_program_task *tasks, uint32_t count,
                         const uint32_t *edges, uint64_t edge_count, uint64_t first)
{
    int code = TSEMU_OK;
    for (uint32_t from = 0; from < count && !code; from += 4096) {
        uint32_t to = count - from < 4096 ? count : from + 4096;
        context_lock(p->c); /* streams and events may come and go */
        code = context_check(p->c);
        for (uint32_t i = from; i < to && !code; i++) {
            tsemu_launch_desc desc;
            if (!acceptable(p, &tasks[i], edges, edge_count, first + i, &desc))
                code = explain(p, &tasks[i], edges, edge_count, first + i);
        }
        context_unlock(p->c);
    }
    return code;
}

/* Slot of the predecessor, NO_SLOT when it has been consumed; then a failure is taken over. */
static inline uint16_t edge_slot(driver_program *p, uint32_t edge, struct emission *emission)
{
    uint32_t distance = (uint32_t)p->next - edge;
    uint16_t slot = TSEMU_NO_SLOT;
    if (__builtin_expect(distance - 1u <= p->map_mask, 1)) {
        slot = p->map[edge & p->map_mask];
    } else if (p->old_live) {
        const struct old_task *old = program_find_old(p, edge);
        slot = old ? old->slot : TSEMU_NO_SLOT;
    }
    if (__builtin_expect(slot == TSEMU_NO_SLOT && p->failed_count != 0, 0)) {
        const struct failed_task *failed = program_find_failed(p, p->next - distance);
        if (failed)
            first_failure(&emission->failure, &emission->failed, &failed->failure,
                          p->c->consumed);
    }
    return slot;
}

static inline void resolve_edges(driver_program *p, const uint32_t *edges, uint32_t count,
                                 struct emission *emission)
{
    struct tsemu_context *c = p->c;
    uint32_t ticket = c->submitted + 1u, found = 0;
    for (uint32_t e = 0; e < count; e++) {
        uint16_t slot = edge_slot(p, edges[e], emission);
        if (slot == TSEMU_NO_SLOT)
            continue;
        if (count > 1) {
            if (c->slot[slot].mark == ticket)
                continue;
            c->slot[slot].mark = ticket;
        }
        emission->edges[found++] = slot;
    }
    emission->edge_count = found;
}

static inline void emit_task(driver_program *p, const driver_program_task *t,
                             const tsemu_launch_desc *desc, const uint32_t *edges)
{
    struct emission emission = {.owner = p,
                                .kind = OWNER_PROGRAM,
                                .index = (uint32_t)p->next,
                                .edges = p->c->edge_slot,
                                .new_call = p->next == 0};
    uint32_t value;
    if (t->edge_count)
        resolve_edges(p, edges + t->edge_start, t->edge_count, &emission);
    uint16_t slot = emit(p->c, desc, &emission, &value);
    uint16_t *place = &p->map[(uint32_t)p->next & p->map_mask];
    if (__builtin_expect(*place != TSEMU_NO_SLOT, 0))
        program_add_old(p, (uint32_t)p->next - p->map_mask - 1u, *place);
    *place = slot;
    p->next++;
    p->outstanding++;
}

/* The next tasks to publish at once, checked. Where it ends depends on the program only. */
static int cut_chunk(driver_program *p, const driver_program_task *tasks, uint32_t count,
                     const uint32_t *edges, uint64_t edge_count, tsemu_launch_desc *descs,
                     struct room *room)
{
    struct tsemu_context *c = p->c;
    uint32_t most = CHUNK - ((uint32_t)p->next & (CHUNK - 1u));
    most = most < count ? most : count;
    most = most < c->batch ? most : c->batch;
    if (c->pending && most > c->window)
        most = c->window;
    room->count = 0;
    room->entries = 0;
    for (uint32_t i = 0; i < most; i++) {
        if (__builtin_expect(
                !acceptable(p, &tasks[i], edges, edge_count, p->next + i, &descs[i]), 0)) {
            int code = explain(p, &tasks[i], edges, edge_count, p->next + i);
            return i && code ? TSEMU_OK : code; /* what is before it goes first */
        }
        uint32_t entries = entries_for(tasks[i].edge_count);
        if (room->entries + entries > c->sq_entries)
            break;
        room->entries += entries;
        room->count++;
    }
    return TSEMU_OK;
}

/* Let threads in that want the lock. */
static void yield_lock(struct tsemu_context *c)
{
    if (__builtin_expect(__atomic_load_n(&c->contenders, __ATOMIC_RELAXED) == 0, 1))
        return;
    context_unlock(c);
    for (int i = 0; i < 100 && __atomic_load_n(&c->contenders, __ATOMIC_RELAXED); i++)
        sched_yield();
    context_lock(c);
}

static int feed(driver_program *p, const driver_program_task *tasks, uint32_t count,
                const uint32_t *edges, uint64_t edge_count, uint32_t *position,
                driver_operation *operation)
{
    struct tsemu_context *c = p->c;
    tsemu_launch_desc descs[CHUNK];
    uint64_t until = wall_ns() + SLICE_NS;
    for (uint32_t rounds = 1; *position < count; rounds++) {
        const driver_program_task *next = tasks + *position;
        struct room room = {.block = true};
        int code = attend(c);
        if (!code)
            code = cut_chunk(p, next, count - *position, edges, edge_count, descs, &room);
        if (code)
            return code;
        room.stream = descs[0].stream;
        code = operation->stage == STAGE_START ? room_try(c, &room) : TSEMU_AGAIN;
        if (code == TSEMU_AGAIN)
            code = room_reserve(c, &room, operation, until);
        if (code)
            return code;
        if (p->sink && p->sink_lent + p->sink_used + p->outstanding + room.count > p->sink_size)
            return TSEMU_AGAIN;
        uint32_t done = 0;
        do {
            emit_task(p, &next[done], &descs[done], edges);
            done++;
        } while (done < room.count &&
                 c->stream[descs[done].stream].outstanding < c->stream[descs[done].stream].limit);
        p->last_ticket = c->submitted;
        p->counts.submitted += done;
        *position += done;
        thread_launched(c, thread_record(c));
        publish_tail(c);
        yield_lock(c);
        if ((rounds & 255u) == 0 && wall_ns() >= until && *position < count)
            return TSEMU_AGAIN;
    }
    return TSEMU_OK;
}

int driver_program_feed(driver_program *p, const driver_program_task *tasks, uint32_t count,
                        const uint32_t *edges, uint64_t edge_count, uint32_t *position,
                        driver_operation *operation)
{
    struct tsemu_context *c = p->c;
    context_lock(c);
    int code = program_check_usable(p);
    if (!code && thread_record(c)->in_callback)
        code = driver_fail(TSEMU_E_IN_CALLBACK, "callback", 1, 0,
                           "feed after the callback has returned",
                           "a callback may launch tasks but not feed a program");
    if (!code) {
        c->users++;
        code = feed(p, tasks, count, edges, edge_count, position, operation);
        c->users--;
    }
    if (code < 0)
        operation_drop(c, operation);
    code = callbacks_first(c, code);
    context_unlock(c);
    return code;
}
