/* The hand-writing client: its rings, damage to them and mending. */
#define _GNU_SOURCE
#include "client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <tsemu/crc32c.h>
#include <tsemu/ring.h>

#define SQE_CRC 12u
#define EXTENSION_CRC 8u
#define CQE_CRC 40u
#define ANY_REASON UINT32_MAX

void client_open(struct client *client, device *dev, const struct device_config *config,
                 const struct device_context_options *options, struct seeded *random)
{
    char detail[160] = "";
    memset(client, 0, sizeof *client);
    client->dev = dev;
    client->config = config;
    client->options = *options;
    client->random = random;
    client->hash = 1469598103934665603u;
    client->size = device_memory_size(config, options, detail, sizeof detail);
    if (!client->size)
        fail(NULL, "options refused: %s", detail);
    client->memory = mmap(NULL, client->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                          -1, 0);
    client->id = device_context_open(dev, options, client->memory, client->size);
    if (client->id < 0)
        fail(NULL, "context refused: %d", client->id);
    client->page = (struct tsemu_control_page *)client->memory;
    client->edge_nodes = client->page->edge_nodes;
    client->free_count = options->slots;
    for (uint32_t slot = 0; slot < options->slots; slot++)
        client->free_slots[slot] = (uint16_t)slot;
    client->streams[0].used = true;
    client->streams[0].life = ++client->lives;
    for (uint32_t at = 0; at < sizeof client->bytes; at++)
        client->bytes[at] = (uint8_t)seeded_next(random);
    for (uint32_t cell = 0; cell < CELLS; cell++) {
        bool host = cell < CELLS / 2u;
        uint64_t offset = host ? client->page->host_heap_offset : client->page->device_heap_offset;
        memcpy(client->memory + offset + (cell % (CELLS / 2u)) * CELL_BYTES,
               client->bytes + cell * CELL_BYTES, CELL_BYTES);
    }
}

void client_free(struct client *client)
{
    if (client->memory)
        munmap(client->memory, client->size);
    client->memory = NULL;
}

uint64_t client_cell_address(const struct client *client, uint32_t cell)
{
    uint64_t base = cell < CELLS / 2u ? client->page->host_base : client->page->device_base;
    return base + (cell % (CELLS / 2u)) * CELL_BYTES;
}

static uint8_t *ring_entry(const struct client *client, uint32_t position)
{
    return client->memory + client->page->sq_offset +
           64u * tsemu_ring_index(position, client->options.sq_entries);
}

static uint8_t *own_entry(struct client *client, uint32_t position)
{
    return client->sq + 64u * tsemu_ring_index(position, client->options.sq_entries);
}

bool client_has_room(const struct client *client, uint32_t entries)
{
    uint32_t head = tsemu_load_acquire(&client->page->sq_head);
    return client->free_count && client->submitted < MAX_TASKS &&
           tsemu_ring_room(head, client->tail, client->options.sq_entries) >= entries;
}

static void write_extensions(struct client *client, const struct record *task)
{
    uint32_t done = TSEMU_INLINE_PREDECESSORS;
    for (uint32_t i = 1; i < task->entries; i++) {
        _Alignas(8) struct tsemu_extension extension = {.kind = TSEMU_EXTENSION_KIND_PREDECESSORS};
        uint32_t position = task->position + i;
        uint32_t left = task->edge_count - done;
        extension.count = (uint16_t)(left < TSEMU_EXTENSION_SLOTS ? left : TSEMU_EXTENSION_SLOTS);
        for (uint32_t k = 0; k < extension.count; k++)
            extension.predecessors[k] = client->tasks[task->edges[done++]].slot;
        extension.ticket = task->ticket;
        extension.phase = (uint8_t)tsemu_ring_phase(position, client->options.sq_entries);
        extension.crc = tsemu_crc32c_entry(&extension, EXTENSION_CRC);
        memcpy(own_entry(client, position), &extension, sizeof extension);
    }
}

void client_write(struct client *client, struct record *task, struct tsemu_sqe *sqe)
{
    task->ticket = ++client->submitted;
    task->position = client->tail;
    uint32_t holder = client->owner[task->slot];
    if (holder)
        client->tasks[holder].slot_reused = true;
    client->owner[task->slot] = task->ticket;
    client->free_first = (client->free_first + 1u) % client->options.slots;
    client->free_count--;
    sqe->version = TSEMU_SQE_VERSION;
    sqe->opcode = task->opcode;
    sqe->flags = (uint16_t)((sqe->flags & TSEMU_SQE_FLAG_NEW_CALL) | (task->entries - 1u));
    if (tsemu_ring_phase(task->position, client->options.sq_entries))
        sqe->flags |= TSEMU_SQE_FLAG_PHASE;
    if (task->poisoned)
        sqe->flags |= TSEMU_SQE_FLAG_POISONED;
    sqe->engine_class = task->engine_class;
    sqe->stream = task->stream;
    sqe->ticket = task->ticket;
    sqe->user_tag = 0xABCD000000000000u | task->ticket;
    sqe->timeout_us = task->timeout_us;
    sqe->slot = task->slot;
    for (uint32_t i = 0; i < TSEMU_INLINE_PREDECESSORS; i++)
        sqe->predecessors[i] = i < task->edge_count ? client->tasks[task->edges[i]].slot
                                                    : (uint16_t)TSEMU_NO_SLOT;
    sqe->crc = tsemu_crc32c_entry(sqe, SQE_CRC);
    memcpy(own_entry(client, task->position), sqe, sizeof *sqe);
    write_extensions(client, task);
    for (uint32_t i = 0; i < task->entries; i++)
        memcpy(ring_entry(client, task->position + i), own_entry(client, task->position + i), 64);
    client->tasks[task->ticket] = *task;
    client->tail += task->entries;
}

void client_publish(struct client *client)
{
    if (client->harm != HARM_TAIL)
        tsemu_store_release(&client->page->sq_tail, client->tail);
}

bool client_may_damage(const struct client *client)
{
    return client->harm == HARM_NONE && !client->errored &&
           (!client->refusals || client->page->sq_head != client->refused_at);
}

/* Spoil an entry that is written and not yet published. */
void client_damage(struct client *client)
{
    static const struct {
        uint32_t reason;
        uint32_t offset;
    } kinds[] = {
        {TSEMU_REFUSAL_STALE, 3},        {TSEMU_REFUSAL_TICKET, 8},
        {TSEMU_REFUSAL_SLOT, 56},        {TSEMU_REFUSAL_STREAM, 6},
        {TSEMU_REFUSAL_PRIORITY, 5},     {TSEMU_REFUSAL_VERSION, 0},
        {TSEMU_REFUSAL_RESERVED_BITS, 3}, {TSEMU_REFUSAL_UNSUPPORTED, 1},
    };
    const struct record *task = &client->tasks[client->submitted];
    uint32_t at = seeded_below(client->random, task->entries);
    uint8_t *entry = ring_entry(client, task->position + at);
    client->harm = HARM_ENTRY;
    client->harm_position = task->position;
    client->harm_reason = TSEMU_REFUSAL_CRC;
    if (at || seeded_chance(client->random, 50)) {
        for (uint32_t flips = seeded_between(client->random, 1, 3), bit; flips; flips--) {
            bit = seeded_below(client->random, 8);
            entry[(flips * 20u + bit) % 64u] ^= (uint8_t)(1u << bit);
        }
        return;
    }
    struct tsemu_sqe sqe;
    memcpy(&sqe, entry, sizeof sqe);
    uint32_t kind = seeded_below(client->random, sizeof kinds / sizeof kinds[0]);
    client->harm_reason = kinds[kind].reason;
    switch (client->harm_reason) {
    case TSEMU_REFUSAL_STALE: sqe.flags ^= TSEMU_SQE_FLAG_PHASE; break;
    case TSEMU_REFUSAL_TICKET: sqe.ticket += seeded_chance(client->random, 50) ? 1u : 7u; break;
    case TSEMU_REFUSAL_SLOT: sqe.slot = (uint16_t)client->options.slots; break;
    case TSEMU_REFUSAL_STREAM: sqe.stream = 60000; break;
    case TSEMU_REFUSAL_PRIORITY: sqe.priority = 8; break;
    case TSEMU_REFUSAL_VERSION: sqe.version = 2; break;
    case TSEMU_REFUSAL_RESERVED_BITS: sqe.flags |= 0x8000u; break;
    default: sqe.opcode = TSEMU_OPCODE_DELAY; break;
    }
    sqe.crc = tsemu_crc32c_entry(&sqe, SQE_CRC);
    memcpy(entry, &sqe, sizeof sqe);
}

/* Publish a tail behind which nothing was written. */
void client_damage_tail(struct client *client)
{
    uint32_t entries = client->options.sq_entries;
    uint32_t head = tsemu_load_acquire(&client->page->sq_head);
    bool ghost = client->tail - head < entries && seeded_chance(client->random, 50);
    client->harm = HARM_TAIL;
    client->harm_position = client->tail;
    client->harm_reason = ghost ? ANY_REASON : TSEMU_REFUSAL_DOORBELL;
    tsemu_store_release(&client->page->sq_tail,
                        client->tail + (ghost ? 1u : entries + 1u + seeded_below(client->random, 9)));
}

static void mend(struct client *client)
{
    const struct tsemu_control_page *page = client->page;
    uint32_t position = page->refusal_position;
    if (client->harm == HARM_NONE)
        fail(client, "entry %u refused without need: reason %u, found %llu, expected %llu",
             position, page->refusal_reason, (unsigned long long)page->refusal_value,
             (unsigned long long)page->refusal_expected);
    if (client->harm_reason != ANY_REASON && page->refusal_reason != client->harm_reason)
        fail(client, "refusal names reason %u, not %u", page->refusal_reason, client->harm_reason);
    if (client->harm_reason != TSEMU_REFUSAL_DOORBELL && position != client->harm_position)
        fail(client, "refusal names entry %u, not %u", position, client->harm_position);
    if (!client->gives_up) {
        for (uint32_t at = position; at != client->tail && client->harm == HARM_ENTRY; at++)
            memcpy(ring_entry(client, at), own_entry(client, at), 64);
        client->harm = HARM_NONE;
        tsemu_store_release(&client->page->sq_tail, client->tail);
    }
    client->refusals = page->refusal_sequence;
    client->refused_at = page->sq_head;
    tsemu_store_release(&client->page->refusal_seen, client->refusals);
}

void client_tend(struct client *client)
{
    if (tsemu_load_acquire(&client->page->refusal_sequence) != client->refusals)
        mend(client);
    if (tsemu_load_acquire(&client->page->state) == TSEMU_CONTEXT_STATE_ERROR) {
        if (!client->gives_up)
            fail(client, "context is in error although everything was mended");
        client->errored = true;
    }
    client_take_answers(client);
    client->armed = false;
}

void client_arm(struct client *client)
{
    client->armed = true;
    tsemu_store_relaxed(&client->page->host_sleeps, 1);
}

static void leave_cell(struct client *client, uint32_t cell, uint32_t ticket)
{
    for (uint32_t i = 0; i < CELL_USERS; i++)
        if (client->cells[cell].users[i] == ticket)
            client->cells[cell].users[i] = 0;
}

static void apply_bytes(struct client *client, const struct record *task)
{
    uint8_t *to = client->bytes + task->to * CELL_BYTES;
    if (task->opcode != TSEMU_OPCODE_MEMCPY && task->opcode != TSEMU_OPCODE_MEMSET)
        return;
    leave_cell(client, task->to, task->ticket);
    leave_cell(client, task->from, task->ticket);
    if (task->status != TSEMU_STATUS_OK)
        return;
    if (task->opcode == TSEMU_OPCODE_MEMCPY)
        memmove(to, client->bytes + task->from * CELL_BYTES, task->length);
    else
        for (uint32_t i = 0; i < task->length; i++)
            to[i] = (uint8_t)(task->pattern >> i % 8u * 8u);
}

static void take(struct client *client, const struct tsemu_cqe *cqe)
{
    uint32_t position = client->consumed;
    if (cqe->crc != tsemu_crc32c_entry(cqe, CQE_CRC))
        fail(client, "completion %u has a wrong CRC", position);
    if (cqe->phase != tsemu_ring_phase(position, client->options.cq_entries) || cqe->epoch ||
        cqe->reserved)
        fail(client, "completion %u: phase, epoch or reserved field is wrong", position);
    if (cqe->ticket == 0 || cqe->ticket > client->submitted)
        fail(client, "completion %u names ticket %u, which was not submitted", position,
             cqe->ticket);
    struct record *task = &client->tasks[cqe->ticket];
    if (task->done)
        fail(client, "ticket %u completes a second time", cqe->ticket);
    if (cqe->slot != task->slot || cqe->stream != task->stream ||
        cqe->user_tag != (0xABCD000000000000u | task->ticket))
        fail(client, "ticket %u: slot, stream or tag is wrong", cqe->ticket);
    uint32_t word = ((uint32_t *)(client->memory + client->page->status_offset))[task->slot];
    if (word != ((task->ticket & 0xFFFFu) << 16 | cqe->status))
        fail(client, "ticket %u: status table has %08x, not status %u", task->ticket, word,
             cqe->status);
    task->done = true;
    task->order = position;
    task->status = cqe->status;
    task->core = cqe->core;
    task->start = cqe->start_ps;
    task->end = cqe->end_ps;
    task->found_ancestor = cqe->ancestor;
    client->in_order_of_completion[position] = task->ticket;
    client->streams[task->stream].open--;
    client->free_slots[(client->free_first + client->free_count++) % client->options.slots] =
        task->slot;
    apply_bytes(client, task);
    for (uint32_t i = 0; i < sizeof *cqe; i++)
        client->hash = (client->hash ^ ((const uint8_t *)cqe)[i]) * 1099511628211u;
    client->consumed++;
}

void client_drain(struct client *client, uint32_t most)
{
    while (most-- && client->consumed != tsemu_load_acquire(&client->page->cq_tail)) {
        struct tsemu_cqe cqe;
        memcpy(&cqe,
               client->memory + client->page->cq_offset +
                   64u * tsemu_ring_index(client->consumed, client->options.cq_entries),
               sizeof cqe);
        take(client, &cqe);
        tsemu_store_release(&client->page->cq_head, client->consumed);
    }
}
