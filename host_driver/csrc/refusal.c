/* When something is wrong: refused entries are written again from the driver's own copy; a context in
 * error, a lost device or a damaged completion end all that is outstanding, once. */
#include "internal.h"

#include <stdlib.h>

/* The device counts the tries of one entry; this is for a device that does not. */
#define REFUSAL_REPEATS 8u
#define DRAIN_NS 2000000000u

static const char *refusal_name(uint32_t reason)
{
    static const char *const names[] = {
        "none", "version", "crc", "stale entry", "ticket", "opcode", "reserved bits",
        "engine class", "priority", "stream", "blocks", "slot", "empty slot", "predecessors",
        "extension", "address", "alignment", "event", "doorbell", "unsupported"};
    return reason < sizeof names / sizeof *names ? names[reason] : "unknown reason";
}

static int refusal_error(struct tsemu_context *c, int code)
{
    const struct tsemu_control_page *page = c->page;
    uint32_t position = page->refusal_position, reason = page->refusal_reason;
    uint64_t value = page->refusal_value, expected = page->refusal_expected;
    uint32_t ticket = 0;
    if (c->tail - position - 1u < c->sq_entries)
        ticket = (uint32_t)c->shadow[position & (c->sq_entries - 1u)].word[1];
    driver_fail(code, refusal_name(reason), value, expected,
                "open a new context; the entry was damaged on its way, or driver and firmware "
                "disagree about it",
                "entry at ring position %u refused: %s is %#llx, expected %#llx", position,
                refusal_name(reason), (unsigned long long)value, (unsigned long long)expected);
    driver_fail_about(ticket, TSEMU_ALL_STREAMS);
    return code;
}

void refusal_mend(struct tsemu_context *c, uint32_t sequence)
{
    uint32_t position = c->page->refusal_position;
    c->refusal_mended = sequence;
    if (position == c->refusal_position && c->refusal_repeats) {
        if (++c->refusal_repeats > REFUSAL_REPEATS) {
            refusal_error(c, TSEMU_E_CONTEXT);
            context_break(c, TSEMU_E_CONTEXT, TSEMU_STATUS_INVALID_ENTRY);
            return;
        }
    } else {
        c->refusal_position = position;
        c->refusal_repeats = 1;
    }
    /* The entry, its extensions and all behind them: fetching stands there. */
    uint32_t mask = c->sq_entries - 1u;
    if (c->published - position <= c->sq_entries)
        for (uint32_t at = position; at != c->published; at++)
            c->sq[at & mask] = c->shadow[at & mask];
    c->counters.rewrites++;
    tsemu_store_release(&c->page->sq_tail, c->published);
    tsemu_store_release(&c->page->refusal_seen, sequence);
    publish_fence(c);
}

/* Use all valid completions that are there. */
static int consume_available(struct tsemu_context *c)
{
    int code = load_cq_tail(c);
    return code ? code : consume_published(c, c->tail_seen);
}

int context_in_error(struct tsemu_context *c)
{
    /* What was admitted ends by completions, which come as the ring is emptied. */
    uint64_t end = wall_ns() + DRAIN_NS;
    while (!c->broken && !c->closed) {
        if (consume_available(c))
            break;
        if (!tsemu_after(tsemu_load_acquire(&c->page->admitted), c->consumed) ||
            wall_ns() >= end)
            break;
        context_unlock(c);
        if (c->embedded)
            c->pump(c->pump_argument, 1000000u);
        context_lock(c);
        if (!tsemu_after(tsemu_load_acquire(&c->page->cq_tail), c->consumed))
            block_for_threads(c, wall_ns() + 1000000u);
    }
    if (c->closed || c->broken)
        return context_refuses(c);
    refusal_error(c, TSEMU_E_CONTEXT);
    context_break(c, TSEMU_E_CONTEXT, TSEMU_STATUS_INVALID_ENTRY);
    return c->broken;
}

/* Outcomes that a lost device has left in its status table: stored before the completion entry. */
static void read_status_table(struct tsemu_context *c)
{
    for (uint32_t i = 0; i < c->slots; i++) {
        struct slot *slot = &c->slot[i];
        uint32_t word = tsemu_load_relaxed(&c->status_table[i]);
        uint32_t status = word & 0xFFFFu;
        if (slot->kind == OWNER_FREE || word >> 16 != (slot->ticket & 0xFFFFu) ||
            status > TSEMU_STATUS_NO_RESOURCE || word == 0)
            continue;
        struct tsemu_cqe cqe = {.ticket = slot->ticket, .slot = (uint16_t)i,
                                .stream = slot->stream, .status = (uint16_t)status,
                                .core = TSEMU_NO_SLOT, .flags = TSEMU_CQE_FLAG_NO_CORE,
                                .start_ps = c->now_ps, .end_ps = c->now_ps};
        if (status != TSEMU_STATUS_OK) {
            cqe.ancestor = slot->ticket;
            cqe.ancestor_context = TSEMU_OWN_CONTEXT;
        }
        deliver(c, &cqe, slot);
    }
}

int device_lost(struct tsemu_context *c, const char *reason)
{
    if (c->broken)
        return context_refuses(c);
    if (!load_cq_tail(c))
        consume_published(c, c->tail_seen);
    if (c->broken)
        return context_refuses(c);
    read_status_table(c);
    driver_fail(TSEMU_E_DEVICE_LOST, "device", c->number, 0,
                "start the device again and open a new context", "device lost: %s", reason);
    context_break(c, TSEMU_E_DEVICE_LOST, TSEMU_STATUS_RESET);
    return context_refuses(c);
}

void context_break(struct tsemu_context *c, int code, uint16_t status)
{
    if (c->broken)
        return;
    c->broken = code;
    c->broken_error = *driver_error();
    end_outstanding(c, status);
    wake_threads(c);
}

struct ended {
    uint32_t age; /* tickets since: larger is older */
    uint32_t slot;
};

static int by_age(const void *a, const void *b)
{
    uint32_t x = ((const struct ended *)a)->age, y = ((const struct ended *)b)->age;
    return x < y ? 1 : x > y ? -1 : 0;
}

void end_outstanding(struct tsemu_context *c, uint16_t status)
{
    struct ended *ended = malloc(c->slots * sizeof *ended);
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->slots; i++) {
        const struct slot *slot = &c->slot[i];
        if (slot->kind == OWNER_FREE)
            continue;
        if (ended)
            ended[count] = (struct ended){c->submitted - slot->ticket, i};
        count++;
    }
    if (ended)
        qsort(ended, count, sizeof *ended, by_age);
    /* Without memory for the list: in order of slots rather than not at all. */
    for (uint32_t i = 0; i < (ended ? count : c->slots); i++) {
        uint32_t place = ended ? ended[i].slot : i;
        struct slot *slot = &c->slot[place];
        if (slot->kind == OWNER_FREE)
            continue;
        struct tsemu_cqe cqe = {.ticket = slot->ticket, .slot = (uint16_t)place,
                                .stream = slot->stream, .status = status,
                                .ancestor = slot->ticket,
                                .ancestor_context = TSEMU_OWN_CONTEXT,
                                .core = TSEMU_NO_SLOT, .flags = TSEMU_CQE_FLAG_NO_CORE,
                                .start_ps = c->now_ps, .end_ps = c->now_ps};
        deliver(c, &cqe, slot);
    }
    free(ended);
}
