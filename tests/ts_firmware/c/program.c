/* Random work. Everything that it asks for is legal, apart from damage done on purpose. */
#include "program.h"

#include <string.h>

#include <tsemu/ring.h>

static uint64_t ceiling(uint64_t amount, uint32_t rate)
{
    return (amount * 1000000u + rate - 1u) / rate;
}

/* What one block has to take, worked out apart from the model. */
static uint64_t duration(const struct client *client, const struct record *task,
                         const struct tsemu_sqe *sqe)
{
    const struct device_class *class = &client->config->classes[task->engine_class];
    uint64_t setup = ceiling(class->setup_cycles, class->frequency_mhz);
    uint32_t rate = class->bandwidth_mbps;
    if (task->opcode != TSEMU_OPCODE_KERNEL)
        return setup + (rate ? ceiling(task->length, rate) : 0);
    uint64_t compute = ceiling(sqe->cycles, class->frequency_mhz);
    uint64_t memory = rate ? ceiling((uint64_t)sqe->bytes_read + sqe->bytes_written, rate) : 0;
    if (class->cost == DEVICE_COST_ROOFLINE && memory > compute)
        compute = memory;
    return setup + compute;
}

static void add_edge(struct record *task, uint32_t ticket)
{
    if (ticket && task->edge_count < MAX_EDGES)
        task->edges[task->edge_count++] = ticket;
}

/* Any slot that has ever held a task may be named, even that of the new task itself. */
static void choose_edges(struct client *client, struct record *task)
{
    struct seeded *random = client->random;
    uint32_t most = 3;
    if (seeded_chance(random, 8))
        most = 60;
    uint32_t count = seeded_below(random, most + 1u);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = seeded_below(random, client->options.slots);
        if (seeded_chance(random, 50) && client->submitted)
            slot = client->tasks[client->submitted - seeded_below(random, client->submitted < 4
                                                                             ? client->submitted
                                                                             : 4)].slot;
        add_edge(task, client->owner[slot]);
    }
}

/* A copy depends on every copy in flight that uses one of its cells. False: too many. */
static bool use_cell(struct client *client, struct record *task, uint32_t cell)
{
    uint32_t free = 0;
    for (uint32_t i = 0; i < CELL_USERS; i++) {
        add_edge(task, client->cells[cell].users[i]);
        free += !client->cells[cell].users[i];
    }
    return free != 0;
}

static void enter_cell(struct client *client, uint32_t cell, uint32_t ticket)
{
    for (uint32_t i = 0; i < CELL_USERS; i++)
        if (client->cells[cell].users[i] == ticket)
            return;
    for (uint32_t i = 0; i < CELL_USERS; i++)
        if (!client->cells[cell].users[i]) {
            client->cells[cell].users[i] = ticket;
            return;
        }
}

static bool choose_copy(struct client *client, struct record *task, struct tsemu_sqe_copy *copy)
{
    struct seeded *random = client->random;
    task->engine_class = (uint8_t)(client->config->class_count - 1u);
    task->opcode = seeded_chance(random, 60) ? TSEMU_OPCODE_MEMCPY : TSEMU_OPCODE_MEMSET;
    task->to = seeded_below(random, CELLS);
    task->from = task->opcode == TSEMU_OPCODE_MEMCPY ? seeded_below(random, CELLS) : task->to;
    task->length = seeded_chance(random, 5) ? 0 : seeded_between(random, 1, CELL_BYTES);
    task->pattern = seeded_next(random);
    if (!use_cell(client, task, task->to) || !use_cell(client, task, task->from))
        return false;
    copy->source = task->opcode == TSEMU_OPCODE_MEMCPY ? client_cell_address(client, task->from)
                                                       : task->pattern;
    copy->destination = client_cell_address(client, task->to);
    copy->length = task->length;
    return true;
}

static bool choose_event(struct client *client, struct record *task, struct tsemu_sqe_event *sqe)
{
    struct seeded *random = client->random;
    task->event = seeded_below(random, MAX_EVENTS);
    struct event_state *event = &client->events[task->event];
    if (!event->used)
        return false;
    uint32_t kind = seeded_below(random, 10);
    if (kind < 5) {
        task->opcode = TSEMU_OPCODE_EVENT_RECORD;
        task->event_value = event->recorded + 1u;
    } else if (kind < 9) {
        task->opcode = TSEMU_OPCODE_EVENT_WAIT;
        task->event_value = event->recorded ? event->recorded : 1u;
        if (seeded_chance(random, 20))
            task->event_value = event->recorded + 1u;
        if (seeded_chance(random, 10))
            task->event_value = 0;
    } else {
        task->opcode = TSEMU_OPCODE_EVENT_RESET;
    }
    sqe->event = task->event;
    sqe->event_value = task->event_value;
    sqe->event_context = (uint16_t)client->id;
    return true;
}

static void choose_kernel(struct client *client, struct record *task, struct tsemu_sqe *sqe)
{
    struct seeded *random = client->random;
    task->engine_class = (uint8_t)seeded_below(random, client->config->class_count - 1u);
    task->opcode = TSEMU_OPCODE_KERNEL;
    task->blocks = seeded_chance(random, 30) ? (uint16_t)seeded_between(random, 2, 20) : 1;
    sqe->cycles = seeded_chance(random, 10) ? 0 : seeded_between(random, 1, 5000);
    if (seeded_chance(random, 40)) /* many ends on one tick */
        sqe->cycles = 500u * seeded_between(random, 1, 4);
    sqe->bytes_read = seeded_below(random, 5000);
    sqe->bytes_written = seeded_below(random, 5000);
    sqe->blocks = task->blocks;
    if (seeded_chance(random, 20))
        sqe->argument = client->page->device_base + seeded_below(random, 4096);
}

static void poison(struct client *client, struct record *task, union entry *entry)
{
    bool event = task->opcode >= TSEMU_OPCODE_EVENT_RECORD;
    struct tsemu_sqe_poisoned poisoned = {
        .event = event ? entry->event.event : 0,
        .event_value = event ? entry->event.event_value : 0,
        .event_context = event ? entry->event.event_context : 0,
        .ancestor = seeded_between(client->random, 1, client->submitted + 1u),
        .ancestor_context = TSEMU_OWN_CONTEXT,
    };
    entry->poisoned = poisoned;
    task->poisoned = true;
    task->ancestor = poisoned.ancestor;
    task->edge_count = 0;
}

/* Fill one task; false when this kind of task is not possible now. */
static bool choose(struct client *client, struct record *task, union entry *entry)
{
    struct seeded *random = client->random;
    uint32_t kind = seeded_below(random, 100);
    task->blocks = 1;
    if (kind < 55)
        choose_kernel(client, task, &entry->sqe);
    else if (kind < 70 && !choose_copy(client, task, &entry->copy))
        return false;
    else if (kind >= 70 && kind < 92 && !choose_event(client, task, &entry->event))
        return false;
    task->duration = duration(client, task, &entry->sqe);
    do
        task->stream = (uint16_t)seeded_below(random, MAX_STREAMS);
    while (!client->streams[task->stream].used);
    if (seeded_chance(random, 50))
        choose_edges(client, task);
    if (seeded_chance(random, 3))
        poison(client, task, entry);
    if (seeded_chance(random, 20))
        task->timeout_us = seeded_between(random, 1, 6);
    entry->sqe.priority = (uint8_t)seeded_below(random, TSEMU_PRIORITY_LEVELS);
    entry->sqe.value = seeded_below(random, 16);
    entry->sqe.flags = seeded_chance(random, 40) ? TSEMU_SQE_FLAG_NEW_CALL : 0;
    return true;
}

static void submitted(struct client *client, const struct record *task)
{
    struct stream_state *stream = &client->streams[task->stream];
    stream->last = task->ticket;
    stream->recovered = false;
    stream->open++;
    if (task->opcode == TSEMU_OPCODE_EVENT_RECORD) {
        struct event_state *event = &client->events[task->event];
        event->record[event->recorded++] = task->ticket;
    } else if (task->opcode == TSEMU_OPCODE_MEMCPY || task->opcode == TSEMU_OPCODE_MEMSET) {
        enter_cell(client, task->to, task->ticket);
        enter_cell(client, task->from, task->ticket);
    }
}

static bool submit_one(struct client *client)
{
    struct record task = {0};
    union entry entry;
    memset(&entry, 0, sizeof entry);
    if (!client_has_room(client, 1) || !choose(client, &task, &entry))
        return false;
    uint32_t longest = client->options.sq_entries - 1u;
    uint32_t fits = TSEMU_INLINE_PREDECESSORS + longest * TSEMU_EXTENSION_SLOTS;
    bool copies = task.opcode == TSEMU_OPCODE_MEMCPY || task.opcode == TSEMU_OPCODE_MEMSET;
    if (task.edge_count > fits && copies)
        return false; /* its edges keep the bytes in order */
    if (task.edge_count > fits)
        task.edge_count = fits;
    task.entries = 1;
    if (task.edge_count > TSEMU_INLINE_PREDECESSORS)
        task.entries += (task.edge_count - TSEMU_INLINE_PREDECESSORS + TSEMU_EXTENSION_SLOTS - 1u) /
                        TSEMU_EXTENSION_SLOTS;
    if (!client_has_room(client, task.entries))
        return false;
    const struct stream_state *stream = &client->streams[task.stream];
    if (stream->in_order)
        task.previous = stream->last;
    task.recovered = stream->recovered;
    task.stream_life = stream->life;
    task.slot = client->free_slots[client->free_first];
    client_write(client, &task, &entry.sqe);
    submitted(client, &task);
    return true;
}

void program_submit(struct client *client, uint32_t most)
{
    if (client->harm == HARM_TAIL || client->waits[CONTROL_WAIT].used || client->errored ||
        client->closed || client->page->closing)
        return;
    for (; most; most--) {
        bool damages = client_may_damage(client) &&
                       seeded_chance(client->random, client->gives_up ? 5 : 2);
        if (submit_one(client) && damages)
            client_damage(client);
    }
    client_publish(client);
}

/* Every wait ends, whatever is in it. */
static void post_garbage(struct client *client)
{
    struct seeded *random = client->random;
    struct answer asked = {
        .kind = seeded_below(random, 20),
        .flags = seeded_below(random, 8),
        .a = seeded_chance(random, 50) ? seeded_below(random, 100) : (uint32_t)seeded_next(random),
        .b = seeded_chance(random, 50) ? seeded_below(random, 100) : (uint32_t)seeded_next(random),
        .submitted = seeded_below(random, 3),
        .deadline = seeded_next(random) >> seeded_below(random, 64),
        .garbage = true,
    };
    if (asked.kind != TSEMU_WAIT_KIND_CONTROL)
        client_post(client, seeded_below(random, 3), &asked);
}

void program_wait(struct client *client)
{
    struct seeded *random = client->random;
    struct answer asked = {.deadline = FOREVER};
    uint32_t ticket = client->submitted ? seeded_between(random, 1, client->submitted) : 0;
    if (seeded_chance(random, 30))
        asked.deadline = seeded_below(random, 20) * 500000ull;
    if (seeded_chance(random, 10)) {
        asked.flags = TSEMU_WAIT_FLAG_ABSOLUTE;
        asked.deadline = seeded_chance(random, 20) ? FOREVER
                                                   : seeded_below(random, 40) * 1000000ull;
    }
    if (seeded_chance(random, 3)) {
        post_garbage(client);
        return;
    }
    asked.kind = seeded_between(random, TSEMU_WAIT_KIND_TASK, TSEMU_WAIT_KIND_EVENT);
    switch (asked.kind) {
    case TSEMU_WAIT_KIND_TASK:
        if (!ticket)
            return;
        asked.a = ticket;
        asked.b = client->tasks[ticket].slot;
        break;
    case TSEMU_WAIT_KIND_ALL:
        asked.a = client->submitted;
        break;
    case TSEMU_WAIT_KIND_STREAM:
        asked.a = seeded_below(random, MAX_STREAMS);
        asked.b = client->submitted;
        break;
    case TSEMU_WAIT_KIND_STREAM_LIMIT:
        asked.a = seeded_below(random, MAX_STREAMS);
        asked.b = seeded_below(random, 5);
        if (!(asked.flags & TSEMU_WAIT_FLAG_ABSOLUTE))
            asked.flags |= TSEMU_WAIT_FLAG_LAUNCH;
        break;
    case TSEMU_WAIT_KIND_ROOM:
        asked.a = seeded_below(random, client->submitted + 1u);
        break;
    case TSEMU_WAIT_KIND_NEXT:
        asked.a = client->consumed;
        break;
    default:
        asked.a = seeded_below(random, MAX_EVENTS);
        if (!client->events[asked.a].used)
            return;
        asked.b = client->events[asked.a].recorded;
        if (!asked.b)
            return;
        break;
    }
    if ((asked.kind == TSEMU_WAIT_KIND_STREAM || asked.kind == TSEMU_WAIT_KIND_STREAM_LIMIT) &&
        !client->streams[asked.a].used)
        return;
    if (seeded_chance(random, 20)) {
        asked.flags |= TSEMU_WAIT_FLAG_NEXT;
        asked.next_completed = client->consumed;
    }
    client_post(client, seeded_below(random, 3), &asked);
}

void program_control(struct client *client)
{
    struct seeded *random = client->random;
    uint32_t kind = seeded_below(random, 100);
    uint32_t stream = seeded_below(random, MAX_STREAMS);
    if (client->waits[CONTROL_WAIT].used || client->closed)
        return;
    if (kind < 25) {
        client_post_request(client, TSEMU_CONTROL_KIND_STREAM_CREATE, seeded_below(random, 2), 0);
    } else if (kind < 35) {
        if (stream && client->streams[stream].used && !client->streams[stream].open)
            client_post_request(client, TSEMU_CONTROL_KIND_STREAM_DESTROY, stream, 0);
    } else if (kind < 45) {
        client_post_request(client, TSEMU_CONTROL_KIND_EVENT_CREATE, 0, 0);
    } else if (kind < 55) {
        if (client->streams[stream].used)
            client_post_request(client, TSEMU_CONTROL_KIND_STREAM_RECOVER, stream, 0);
    } else if (kind < 75) {
        if (!client->submitted)
            return;
        uint32_t age = seeded_below(random, client->submitted < 12 ? client->submitted : 12);
        const struct record *task = &client->tasks[client->submitted - age];
        client_post_request(client, TSEMU_CONTROL_KIND_CANCEL, task->ticket, task->slot);
    } else if (kind < 88) {
        client_post_bad_request(client);
    } else if (kind < 98) {
        client_post_repeat(client);
    } else if (seeded_chance(random, 20)) {
        client->closed = true;
        client_post_request(client, TSEMU_CONTROL_KIND_CLOSE, 0, 0);
    }
}

void program_pipe(struct client *client)
{
    struct tsemu_control_page *page = client->page;
    bool entries = client->free_count != 0;
    if (client_has_room(client, 1) || client->closed || client->errored)
        return;
    page->pipe_kind = entries ? TSEMU_PIPE_KIND_ENTRIES : TSEMU_PIPE_KIND_COMPLETIONS;
    page->pipe_need = entries ? client->tail + 1u - client->options.sq_entries
                              : client->consumed + 1u;
    tsemu_store_release(&page->pipe_sequence, page->pipe_sequence + 1u);
}
