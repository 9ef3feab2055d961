/* Programs: chunks of tasks in program order, edges by program-wide index.
 *
 * Memory does not grow with the number of tasks. A ring map holds the slots of the latest tasks that
 * have not been consumed; a task that is still outstanding when its place is needed moves to a list
 * of old ones (at most as many as slots). Only tasks that did not succeed are remembered. */
#include "entry.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK 64u /* tasks published at once */

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

static void sweep_old(driver_program *p)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->old_count; i++)
        if (p->old[i].slot != TSEMU_NO_SLOT)
            p->old[kept++] = p->old[i];
    p->old_count = kept;
}

__attribute__((cold, noinline)) static void add_old(driver_program *p, uint32_t index,
                                                    uint16_t slot)
{
    if (p->old_count == p->old_capacity)
        sweep_old(p); /* never full of live ones: the capacity is twice the number of slots */
    p->old[p->old_count++] = (struct old_task){index, slot};
    p->old_live++;
}

static struct old_task *find_old(driver_program *p, uint32_t index)
{
    uint32_t age = (uint32_t)p->next - index, low = 0, high = p->old_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint32_t its_age = (uint32_t)p->next - p->old[middle].index;
        if (its_age == age)
            return &p->old[middle];
        if (its_age > age)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static uint32_t hash(uint64_t key, uint32_t capacity)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15ull) >> 32) & (capacity - 1u);
}

static bool grow_failed(driver_program *p)
{
    uint32_t capacity = p->failed_capacity ? 2 * p->failed_capacity : 64;
    struct failed_task *table = calloc(capacity, sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 0; i < p->failed_capacity; i++) {
        if (!p->failed[i].key)
            continue;
        uint32_t at = hash(p->failed[i].key, capacity);
        while (table[at].key)
            at = (at + 1) & (capacity - 1u);
        table[at] = p->failed[i];
    }
    free(p->failed);
    p->failed = table;
    p->failed_capacity = capacity;
    return true;
}

static const struct failed_task *find_failed(const driver_program *p, uint64_t index)
{
    if (!p->failed_count)
        return NULL;
    uint32_t at = hash(index + 1, p->failed_capacity);
    for (; p->failed[at].key; at = (at + 1) & (p->failed_capacity - 1u))
        if (p->failed[at].key == index + 1)
            return &p->failed[at];
    return NULL;
}

__attribute__((cold, noinline)) static void add_failed(driver_program *p, uint32_t index,
                                                       const struct tsemu_cqe *cqe)
{
    uint64_t key = p->next - (uint64_t)((uint32_t)p->next - index) + 1;
    if (2 * p->failed_count >= p->failed_capacity && !grow_failed(p)) {
        p->short_of_memory = true; /* the next feed or finish says so */
        return;
    }
    uint32_t at = hash(key, p->failed_capacity);
    while (p->failed[at].key)
        at = (at + 1) & (p->failed_capacity - 1u);
    p->failed[at] = (struct failed_task){
        key, {p->c->consumed, cqe->ancestor, cqe->ancestor_context}};
    p->failed_count++;
    p->counts.failed++;
}

void program_deliver(driver_program *p, const struct tsemu_cqe *cqe, uint32_t index)
{
    uint32_t age = (uint32_t)p->next - index;
    if (__builtin_expect(age - 1u <= p->map_mask, 1)) {
        p->map[index & p->map_mask] = TSEMU_NO_SLOT;
    } else {
        struct old_task *old = find_old(p, index);
        if (old) {
            old->slot = TSEMU_NO_SLOT;
            p->old_live--;
        }
    }
    p->outstanding--;
    p->counts.consumed++;
    if (__builtin_expect(cqe->status != TSEMU_STATUS_OK, 0))
        add_failed(p, index, cqe);
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
        const struct old_task *old = find_old(p, edge);
        slot = old ? old->slot : TSEMU_NO_SLOT;
    }
    if (__builtin_expect(slot == TSEMU_NO_SLOT && p->failed_count != 0, 0)) {
        const struct failed_task *failed = find_failed(p, p->next - distance);
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
        add_old(p, (uint32_t)p->next - p->map_mask - 1u, *place);
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

static int check_program(driver_program *p)
{
    int code = context_check(p->c);
    if (!code && p->short_of_memory)
        code = driver_fail(TSEMU_E_NO_RESOURCE, "failed", p->failed_count, 0, "free memory",
                           "no memory to remember the tasks that did not succeed");
    return code;
}

int driver_program_feed(driver_program *p, const driver_program_task *tasks, uint32_t count,
                        const uint32_t *edges, uint64_t edge_count, uint32_t *position,
                        driver_operation *operation)
{
    struct tsemu_context *c = p->c;
    context_lock(c);
    int code = check_program(p);
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
    context_unlock(c);
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
    int code = check_program(p);
    c->users++;
    while (!code && (p->outstanding || operation->stage != STAGE_START)) {
        driver_wait wait = {
            .kind = TSEMU_WAIT_KIND_ALL, .a = p->last_ticket, .timeout_ps = timeout_ps};
        code = wait_locked(c, &wait, operation, false);
        if (still_moves(p, code, timeout_ps, operation))
            code = TSEMU_OK;
    }
    c->users--;
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
