/* Building submission entries: the hot path of launches, batches and programs, inlined into each.
 * Entries are built as eight words in the shadow ring, checked by CRC and copied to the ring. */
#ifndef TSEMU_DRIVER_ENTRY_H
#define TSEMU_DRIVER_ENTRY_H

#include "internal.h"

/* Who gets the outcome of the task, and its edges. */
struct emission {
    void *owner;
    enum owner kind;
    uint32_t index;
    uint16_t *edges;      /* slots of predecessors that have not been consumed */
    uint32_t edge_count;
    bool failed;          /* a predecessor has failed: `failure` is the first */
    bool new_call;
    bool callback;
    struct failure failure;
};

static inline void put_entry(struct tsemu_context *c, uint32_t position, const struct entry *entry)
{
    uint32_t at = position & (c->sq_entries - 1u);
    c->shadow[at] = *entry;
    c->sq[at] = *entry;
}

/* Predecessors 4 and up, in typed extension entries behind the task's entry. */
__attribute__((noinline)) static uint32_t put_extensions(struct tsemu_context *c, uint32_t ticket,
                                                         const uint16_t *edges, uint32_t count)
{
    uint32_t position = c->tail + 1u;
    for (; count; position++) {
        uint32_t here = count < TSEMU_EXTENSION_SLOTS ? count : TSEMU_EXTENSION_SLOTS;
        struct tsemu_extension extension = {
            .kind = TSEMU_EXTENSION_KIND_PREDECESSORS,
            .phase = (uint8_t)tsemu_ring_phase(position, c->sq_entries),
            .count = (uint16_t)here,
            .ticket = ticket};
        memcpy(extension.predecessors, edges, here * sizeof *edges);
        struct entry entry;
        memcpy(&entry, &extension, sizeof entry);
        entry.word[1] = here ? tsemu_crc32c_entry(&entry, EXTENSION_CRC) |
                                   (entry.word[1] & 0xFFFFFFFF00000000ull)
                             : 0;
        put_entry(c, position, &entry);
        edges += here;
        count -= here;
    }
    return position - c->tail - 1u;
}

/* What only event tasks need: the value that they carry. */
static inline uint32_t event_value(struct tsemu_context *c, const tsemu_launch_desc *d,
                                   struct emission *emission)
{
    struct event *event = &c->event[d->event];
    if (d->opcode == TSEMU_OPCODE_EVENT_RECORD) {
        event->failed = false;
        return ++event->value;
    }
    if (d->opcode == TSEMU_OPCODE_EVENT_RESET)
        return event->value;
    if (event->failed)
        first_failure(&emission->failure, &emission->failed, &event->failure, c->consumed);
    return event->value ? event->value : 1u;
}

/* Write one task to the ring; the tail is published later. Room has been reserved, `d` checked.
 * Returns its slot; the value of an event task goes to *value. */
static inline uint16_t emit(struct tsemu_context *c, const tsemu_launch_desc *d,
                            struct emission *emission, uint32_t *value)
{
    uint32_t ticket = ++c->submitted;
    uint16_t place = c->free_slot[c->free_pop];
    if (++c->free_pop == c->slots)
        c->free_pop = 0;
    struct slot *slot = &c->slot[place];
    struct stream *stream = &c->stream[d->stream];
    uint8_t slot_flags = emission->callback ? SLOT_CALLBACK : 0;
    struct entry entry;
    uint64_t *w = entry.word;

    if (stream->in_order) {
        if (__builtin_expect(stream->has_last && stream->failed, 0))
            first_failure(&emission->failure, &emission->failed, &stream->failure, c->consumed);
        stream->has_last = true;
        stream->failed = false;
        stream->last_ticket = ticket;
    }
    switch (d->opcode) {
    case TSEMU_OPCODE_KERNEL:
        w[3] = d->argument;
        w[4] = d->cycles | (uint64_t)d->bytes_read << 32;
        w[5] = d->bytes_written | (uint64_t)d->blocks << 32 | (uint64_t)d->kernel << 48;
        break;
    case TSEMU_OPCODE_MEMCPY:
    case TSEMU_OPCODE_MEMSET:
        w[3] = d->argument;
        w[4] = d->destination;
        w[5] = d->length;
        break;
    case TSEMU_OPCODE_NOP:
        w[3] = w[4] = w[5] = 0;
        break;
    default:
        *value = event_value(c, d, emission);
        slot->event = d->event;
        slot->value = *value;
        slot_flags |= d->opcode == TSEMU_OPCODE_EVENT_RECORD ? SLOT_RECORD
                      : d->opcode == TSEMU_OPCODE_EVENT_WAIT ? SLOT_EVENT_WAIT
                                                             : 0;
        w[3] = d->event | (uint64_t)*value << 32;
        w[4] = 0;
        w[5] = c->number;
        break;
    }
    uint32_t flags = d->flags;
    if (tsemu_ring_phase(c->tail, c->sq_entries))
        flags |= TSEMU_SQE_FLAG_PHASE;
    if (emission->new_call)
        flags |= TSEMU_SQE_FLAG_NEW_CALL;
    uint32_t edge_count = emission->edge_count, entries = 1;
    if (__builtin_expect(emission->failed, 0)) {
        flags = (flags & ~(uint32_t)TSEMU_SQE_FLAG_GANG) | TSEMU_SQE_FLAG_POISONED;
        edge_count = 0;
        bool is_event = d->opcode >= TSEMU_OPCODE_EVENT_RECORD;
        w[3] = is_event ? w[3] : 0;
        w[4] = emission->failure.ancestor | (uint64_t)emission->failure.context << 32;
        w[5] = is_event ? w[5] : 0;
    }
    if (__builtin_expect(edge_count > TSEMU_INLINE_PREDECESSORS, 0)) {
        uint32_t extensions = put_extensions(c, ticket, emission->edges + TSEMU_INLINE_PREDECESSORS,
                                             edge_count - TSEMU_INLINE_PREDECESSORS);
        flags |= extensions;
        entries += extensions;
    }
    const uint64_t none = TSEMU_NO_SLOT;
    const uint16_t *edges = emission->edges;
    w[0] = TSEMU_SQE_VERSION | (uint64_t)d->opcode << 8 | (uint64_t)flags << 16 |
           (uint64_t)d->engine_class << 32 | (uint64_t)d->priority << 40 |
           (uint64_t)d->stream << 48;
    w[1] = ticket;
    w[2] = d->user_tag;
    w[6] = d->timeout_us | (uint64_t)d->value << 32;
    w[7] = place | (edge_count > 0 ? (uint64_t)edges[0] : none) << 16 |
           (edge_count > 1 ? (uint64_t)edges[1] : none) << 32 |
           (edge_count > 2 ? (uint64_t)edges[2] : none) << 48;
    w[1] |= (uint64_t)tsemu_crc32c_entry(&entry, SQE_CRC) << 32;
    put_entry(c, c->tail, &entry);
    c->tail += entries;

    slot->owner = emission->owner;
    slot->ticket = ticket;
    slot->index = emission->index;
    slot->mark = ticket;
    slot->stream = d->stream;
    slot->kind = (uint8_t)emission->kind;
    slot->flags = slot_flags;
    stream->outstanding++;
    return place;
}

/* Turn handles into edges: pending ones into slots, each once; failed ones into a failure. */
static inline void resolve_after(struct tsemu_context *c, tsemu_task *const *after, uint32_t count,
                                 uint32_t ticket, struct emission *emission)
{
    for (uint32_t i = 0; i < count; i++) {
        const tsemu_task *task = after[i];
        if (task->status == TSEMU_PENDING) {
            struct slot *slot = &c->slot[task->slot];
            if (slot->mark == ticket)
                continue;
            slot->mark = ticket;
            emission->edges[emission->edge_count++] = task->slot;
        } else if (__builtin_expect(task->status != TSEMU_STATUS_OK, 0)) {
            struct failure failure = {task->order, task->ancestor, task->ancestor_context};
            first_failure(&emission->failure, &emission->failed, &failure, c->consumed);
        }
    }
}

#endif
