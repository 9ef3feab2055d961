/* Consumption: completions are checked, their outcomes go to handles, status words and programs, and
 * their slots become free in the order of the completion queue. */
#include "internal.h"

static int damaged(struct tsemu_context *c, uint32_t position, const char *field, uint64_t value,
                   uint64_t expected)
{
    driver_fail(TSEMU_E_PROTOCOL, field, value, expected,
                "the device's memory is damaged or its firmware is faulty: open a new context",
                "completion %u: %s is %#llx, expected %#llx", position, field,
                (unsigned long long)value, (unsigned long long)expected);
    context_break(c, TSEMU_E_PROTOCOL, TSEMU_STATUS_RESET);
    return c->broken;
}

/* Why an entry cannot be used; the caller has found that something is wrong with it. */
__attribute__((cold, noinline)) static int find_damage(struct tsemu_context *c, uint32_t position,
                                                       const struct tsemu_cqe *cqe)
{
    uint32_t phase = tsemu_ring_phase(position, c->cq_entries);
    uint32_t crc = tsemu_crc32c_entry(cqe, CQE_CRC);
    if (cqe->crc != crc)
        return damaged(c, position, "crc", cqe->crc, crc);
    if (cqe->phase != phase)
        return damaged(c, position, "phase", cqe->phase, phase);
    if (cqe->slot >= c->slots)
        return damaged(c, position, "slot", cqe->slot, c->slots - 1);
    const struct slot *slot = &c->slot[cqe->slot];
    if (slot->kind == OWNER_FREE)
        return damaged(c, position, "slot", cqe->slot, TSEMU_NO_SLOT);
    if (cqe->ticket != slot->ticket)
        return damaged(c, position, "ticket", cqe->ticket, slot->ticket);
    if (cqe->stream != slot->stream)
        return damaged(c, position, "stream", cqe->stream, slot->stream);
    return damaged(c, position, "status", cqe->status, TSEMU_STATUS_NO_RESOURCE);
}

static inline void tell_handle(tsemu_task *task, const struct tsemu_cqe *cqe, uint32_t order)
{
    task->start_ps = cqe->start_ps;
    task->end_ps = cqe->end_ps;
    task->fault_address = cqe->fault_address;
    task->ancestor = cqe->ancestor;
    task->order = order;
    task->ancestor_context = cqe->ancestor_context;
    task->core = cqe->core;
    task->block = cqe->block;
    __atomic_store_n(&task->status, cqe->status, __ATOMIC_RELEASE);
}

/* A task that did not succeed: its stream, its event and its dependents have to know. */
__attribute__((cold, noinline)) static void note_failure(struct tsemu_context *c,
                                                         const struct slot *slot,
                                                         const struct tsemu_cqe *cqe)
{
    struct failure failure = {c->consumed, cqe->ancestor, cqe->ancestor_context};
    tsemu_task *first = &c->first_failure[slot->stream];
    if (!first->context) {
        *first = (tsemu_task){.ticket = cqe->ticket, .stream = cqe->stream, .slot = cqe->slot};
        tell_handle(first, cqe, c->consumed);
        first->context = c;
    }
    struct stream *stream = &c->stream[slot->stream];
    if (stream->has_last && stream->last_ticket == slot->ticket) {
        stream->failed = true;
        stream->failure = failure;
    }
    if (slot->flags & SLOT_RECORD) {
        struct event *event = &c->event[slot->event];
        if (event->value == slot->value) {
            event->failed = true;
            event->failure = failure;
        }
    }
}

/* Give one checked outcome to whoever wants it, and free the slot. Order: c->consumed. */
static inline void deliver_one(struct tsemu_context *c, const struct tsemu_cqe *cqe,
                               struct slot *slot)
{
    uint32_t order = c->consumed;
    struct stream *stream = &c->stream[slot->stream];
    stream->outstanding--;
    if (__builtin_expect(cqe->status != TSEMU_STATUS_OK, 0))
        note_failure(c, slot, cqe);
    else if (stream->has_last && stream->last_ticket == slot->ticket)
        stream->has_last = false;
    if (__builtin_expect(slot->flags & SLOT_CALLBACK, 0))
        c->pending--;
    switch (slot->kind) {
    case OWNER_HANDLE:
        tell_handle(slot->owner, cqe, order);
        if (__builtin_expect(slot->flags & SLOT_CALLBACK, 0))
            callback_push(c, slot->owner);
        break;
    case OWNER_STATUS:
        __atomic_store_n((uint16_t *)slot->owner, cqe->status, __ATOMIC_RELEASE);
        break;
    case OWNER_PROGRAM:
        program_deliver(slot->owner, cqe, slot->index);
        break;
    default:
        break;
    }
    if (__builtin_expect(c->kept.capacity != 0, 0) && slot->kind != OWNER_PROGRAM)
        kept_push(c, cqe);
    slot->kind = OWNER_FREE;
    c->free_slot[c->free_push] = cqe->slot;
    if (++c->free_push == c->slots)
        c->free_push = 0;
    c->consumed = order + 1;
}

void deliver(struct tsemu_context *c, const struct tsemu_cqe *cqe, struct slot *slot)
{
    deliver_one(c, cqe, slot);
}

int consume_published(struct tsemu_context *c, uint32_t upto)
{
    uint32_t position = c->consumed;
    if (position == upto)
        return TSEMU_OK;
    uint32_t mask = c->cq_entries - 1u;
    for (; position != upto; position++) {
        struct tsemu_cqe cqe;
        memcpy(&cqe, &c->cq[position & mask], sizeof cqe); /* a copy, then look only at the copy */
        __builtin_prefetch(&c->cq[(position + 8u) & mask]);
        struct slot *slot = &c->slot[cqe.slot < c->slots ? cqe.slot : 0];
        if (__builtin_expect(cqe.crc != tsemu_crc32c_entry(&cqe, CQE_CRC) ||
                                 cqe.phase != tsemu_ring_phase(position, c->cq_entries) ||
                                 cqe.slot >= c->slots || slot->kind == OWNER_FREE ||
                                 cqe.ticket != slot->ticket || cqe.stream != slot->stream ||
                                 cqe.status > TSEMU_STATUS_NO_RESOURCE,
                             0))
            return find_damage(c, position, &cqe);
        deliver_one(c, &cqe, slot);
    }
    tsemu_store_release(&c->page->cq_head, position);
    if (__builtin_expect(c->cq_entries < c->slots, 0))
        publish_fence(c); /* the device may be waiting for room */
    return TSEMU_OK;
}

int load_cq_tail(struct tsemu_context *c)
{
    uint32_t tail = tsemu_load_acquire(&c->page->cq_tail);
    if (__builtin_expect(tail - c->consumed > c->cq_entries ||
                             tsemu_after(tail, c->submitted),
                         0)) {
        if (c->broken)
            return c->broken;
        return damaged(c, tail, "cq_tail", tail, c->submitted);
    }
    c->tail_seen = tail;
    return TSEMU_OK;
}

int consume_to(struct tsemu_context *c, uint32_t upto, uint64_t until)
{
    while (tsemu_after(upto, c->consumed)) {
        if (!tsemu_after(c->tail_seen, c->consumed)) {
            int code = load_cq_tail(c);
            if (code)
                return code;
        }
        if (tsemu_after(c->tail_seen, c->consumed)) {
            int code = consume_published(c, tsemu_after(c->tail_seen, upto) ? upto : c->tail_seen);
            if (code)
                return code;
            continue;
        }
        /* A ring smaller than the window: the bytes come as the ring is emptied. */
        struct condition more = {.kind = FOR_COMPLETIONS, .need = c->consumed + 1};
        int code = block_until(c, &more, until);
        if (code && (code != TSEMU_AGAIN || wall_ns() >= until))
            return code;
    }
    return TSEMU_OK;
}
