/* Submission: fetch the entry at the head of the ring once, check the copy, admit it when the
 * window, the edge nodes and the host's cost allow. */
#include "state.h"

#define SQE_CRC_OFFSET 12u
#define EXTENSION_CRC_OFFSET 8u
#define UNSUPPORTED_FLAGS                                                                        \
    (TSEMU_SQE_FLAG_REPLAYABLE | TSEMU_SQE_FLAG_SPECULATIVE | TSEMU_SQE_FLAG_CHECKSUM |            \
     TSEMU_SQE_FLAG_REDUNDANT)

/* Why an entry is refused: reason, what was found, what was expected. */
struct complaint {
    uint32_t reason;
    uint64_t value, expected;
};

__attribute__((cold, noinline)) static bool complain(struct complaint *complaint, uint32_t reason, uint64_t value,
                     uint64_t expected)
{
    complaint->reason = reason;
    complaint->value = value;
    complaint->expected = expected;
    return false;
}

/* The entry will be read again: what it named as predecessors is as if it had not been read. */
static void forget_predecessors(struct context *context)
{
    struct head *head = &context->head;
    while (head->predecessor_count) {
        struct task *task = context_task(context, head->predecessors[--head->predecessor_count]);
        task->mark = task->ticket;
    }
}

__attribute__((cold, noinline)) static void refuse(struct fw *fw, struct context *context,
                                                   const struct complaint *complaint)
{
    struct tsemu_control_page *page = context_page(fw, context);
    forget_predecessors(context);
    context->refused = true;
    context->blocked = false;
    context->head.valid = false;
    context->refusal++;
    context->tries++;
    page->refusal_position = context->position;
    page->refusal_reason = complaint->reason;
    page->refusal_value = complaint->value;
    page->refusal_expected = complaint->expected;
    console_log(fw, "context %u: entry %u refused, reason %u, found %u, expected %u", context->id,
                context->position, complaint->reason, (uint32_t)complaint->value,
                (uint32_t)complaint->expected);
    if (context->tries >= TSEMU_ENTRY_TRIES) {
        context->errored = 1;
        tsemu_store_release(&page->state, TSEMU_CONTEXT_STATE_ERROR);
        console_log(fw, "context %u: in error", context->id);
        control_cancel_all(fw, context, TSEMU_STATUS_INVALID_ENTRY);
    } else {
        tsemu_store_release(&page->state, TSEMU_CONTEXT_STATE_REFUSED);
    }
    tsemu_store_release(&page->refusal_sequence, context->refusal);
    complete_publish(fw, context);
    complete_interrupt(fw, context);
}

/* Offset of a device address in the context's memory; false when [address, +length) is not in one
 * of its heaps. Free of overflow: compares lengths with what is left. */
static bool translate(const struct context *context, uint64_t address, uint64_t length,
                      uint64_t *offset)
{
    uint64_t in_host = address - context->host_base;
    uint64_t in_device = address - context->device_base;
    if (address >= context->host_base && in_host < context->host_heap_size) {
        *offset = context->host_heap_offset + in_host;
        return length <= context->host_heap_size - in_host;
    }
    if (address >= context->device_base && in_device < context->device_heap_size) {
        *offset = context->device_heap_offset + in_device;
        return length <= context->device_heap_size - in_device;
    }
    return false;
}

static bool check_address(const struct fw *fw, const struct context *context, uint64_t *address,
                          uint64_t length, struct complaint *complaint)
{
    if (*address & (fw->config.alignment - 1u))
        return complain(complaint, TSEMU_REFUSAL_ALIGNMENT, *address, fw->config.alignment);
    if (!translate(context, *address, length, address))
        return complain(complaint, TSEMU_REFUSAL_ADDRESS, *address, length);
    return true;
}

static bool check_event(const struct fw *fw, struct context *context,
                        struct complaint *complaint)
{
    struct tsemu_sqe_event *sqe = &context->head.entry.event;
    bool poisoned = sqe->flags & TSEMU_SQE_FLAG_POISONED;
    if (sqe->event_context != context->id)
        return complain(complaint, TSEMU_REFUSAL_EVENT, sqe->event_context, context->id);
    if (sqe->event >= fw->config.max_events || !context_event(context, sqe->event)->used)
        return complain(complaint, TSEMU_REFUSAL_EVENT, sqe->event, fw->config.max_events);
    if ((!poisoned && sqe->reserved0) || sqe->reserved1 || sqe->reserved2)
        return complain(complaint, TSEMU_REFUSAL_RESERVED_BITS, sqe->reserved0, 0);
    uint32_t admitted = context_event(context, sqe->event)->admitted;
    if (sqe->opcode == TSEMU_OPCODE_EVENT_RECORD && sqe->event_value != admitted + 1u)
        return complain(complaint, TSEMU_REFUSAL_EVENT, sqe->event_value, admitted + 1u);
    if (sqe->event_value == 0) /* a wait for the last value admitted, or else the first */
        sqe->event_value = admitted ? admitted : 1u;
    return true;
}

static bool check_poisoned(const struct context *context, struct complaint *complaint)
{
    const struct tsemu_sqe_poisoned *sqe = &context->head.entry.poisoned;
    if (sqe->reserved0 || sqe->reserved1 || sqe->reserved2)
        return complain(complaint, TSEMU_REFUSAL_RESERVED_BITS, sqe->reserved0, 0);
    if (sqe->ancestor == 0)
        return complain(complaint, TSEMU_REFUSAL_TICKET, 0, 1);
    return true;
}

static bool check_class(const struct fw *fw, const struct tsemu_sqe *sqe, uint32_t moves_bytes,
                        struct complaint *complaint)
{
    if (sqe->engine_class >= fw->config.class_count ||
        fw->classes[sqe->engine_class].moves_bytes != moves_bytes)
        return complain(complaint, TSEMU_REFUSAL_ENGINE_CLASS, sqe->engine_class,
                        fw->config.class_count);
    return true;
}

/* Operands by opcode; copies have their addresses turned into offsets. */
static bool check_operands(const struct fw *fw, struct context *context,
                           struct complaint *complaint)
{
    struct tsemu_sqe *sqe = &context->head.entry.sqe;
    struct tsemu_sqe_copy *copy = &context->head.entry.copy;
    bool poisoned = sqe->flags & TSEMU_SQE_FLAG_POISONED;
    if (poisoned && !check_poisoned(context, complaint))
        return false;
    if (sqe->flags & TSEMU_SQE_FLAG_GANG && sqe->opcode != TSEMU_OPCODE_KERNEL)
        return complain(complaint, TSEMU_REFUSAL_UNSUPPORTED, sqe->flags, 0);
    switch (sqe->opcode) {
    case TSEMU_OPCODE_NOP:
        return true;
    case TSEMU_OPCODE_KERNEL: {
        uint64_t offset;
        if (!check_class(fw, sqe, 0, complaint))
            return false;
        if (poisoned)
            return true;
        if (sqe->blocks == 0)
            return complain(complaint, TSEMU_REFUSAL_BLOCKS, 0, 1);
        if (sqe->flags & TSEMU_SQE_FLAG_GANG && sqe->blocks > fw->classes[sqe->engine_class].cores)
            return complain(complaint, TSEMU_REFUSAL_BLOCKS, sqe->blocks,
                            fw->classes[sqe->engine_class].cores);
        if (sqe->argument && !translate(context, sqe->argument, 1, &offset))
            return complain(complaint, TSEMU_REFUSAL_ADDRESS, sqe->argument, 1);
        return true;
    }
    case TSEMU_OPCODE_MEMCPY:
    case TSEMU_OPCODE_MEMSET:
        if (!check_class(fw, sqe, 1, complaint))
            return false;
        if (poisoned || copy->length == 0)
            return true;
        if (!check_address(fw, context, &copy->destination, copy->length, complaint))
            return false;
        return sqe->opcode == TSEMU_OPCODE_MEMSET ||
               check_address(fw, context, &copy->source, copy->length, complaint);
    case TSEMU_OPCODE_EVENT_RECORD:
    case TSEMU_OPCODE_EVENT_WAIT:
    case TSEMU_OPCODE_EVENT_RESET:
        return check_event(fw, context, complaint);
    default:
        return complain(complaint,
                        sqe->opcode > TSEMU_OPCODE_PROFILING ? TSEMU_REFUSAL_OPCODE
                                                             : TSEMU_REFUSAL_UNSUPPORTED,
                        sqe->opcode, TSEMU_OPCODE_EVENT_RESET);
    }
}

static bool check_header(const struct fw *fw, const struct context *context,
                         struct complaint *complaint)
{
    const struct tsemu_sqe *sqe = &context->head.entry.sqe;
    uint32_t crc = hal_crc32c_entry(sqe, SQE_CRC_OFFSET);
    if (crc != sqe->crc)
        return complain(complaint, TSEMU_REFUSAL_CRC, sqe->crc, crc);
    if (sqe->version != TSEMU_SQE_VERSION)
        return complain(complaint, TSEMU_REFUSAL_VERSION, sqe->version, TSEMU_SQE_VERSION);
    uint32_t phase = tsemu_ring_phase(context->position, context->sq_entries);
    if (!(sqe->flags & TSEMU_SQE_FLAG_PHASE) == (phase != 0))
        return complain(complaint, TSEMU_REFUSAL_STALE, !phase, phase);
    if (sqe->ticket != context->admitted + 1u)
        return complain(complaint, TSEMU_REFUSAL_TICKET, sqe->ticket, context->admitted + 1u);
    if (sqe->flags & TSEMU_SQE_FLAG_RESERVED)
        return complain(complaint, TSEMU_REFUSAL_RESERVED_BITS, sqe->flags, 0);
    if (sqe->flags & UNSUPPORTED_FLAGS)
        return complain(complaint, TSEMU_REFUSAL_UNSUPPORTED, sqe->flags, 0);
    if (sqe->priority >= TSEMU_PRIORITY_LEVELS)
        return complain(complaint, TSEMU_REFUSAL_PRIORITY, sqe->priority,
                        TSEMU_PRIORITY_LEVELS - 1u);
    if (sqe->stream >= fw->config.max_streams || !context_stream(context, sqe->stream)->used)
        return complain(complaint, TSEMU_REFUSAL_STREAM, sqe->stream, fw->config.max_streams);
    if (sqe->slot >= context->slots)
        return complain(complaint, TSEMU_REFUSAL_SLOT, sqe->slot, context->slots);
    return true;
}

static bool take_predecessor(struct context *context, uint16_t slot, struct complaint *complaint)
{
    struct head *head = &context->head;
    struct task *task = context_task(context, slot);
    if (slot >= context->slots || task->state == TASK_EMPTY)
        return complain(complaint, TSEMU_REFUSAL_EMPTY_SLOT, slot, context->slots);
    if (task->mark == head->entry.sqe.ticket)
        return true; /* duplicates count once */
    if (head->predecessor_count >= TSEMU_MAX_PREDECESSORS)
        return complain(complaint, TSEMU_REFUSAL_PREDECESSORS, head->predecessor_count + 1u,
                        TSEMU_MAX_PREDECESSORS);
    task->mark = head->entry.sqe.ticket;
    head->predecessors[head->predecessor_count++] = slot;
    return true;
}

static bool take_extension(struct fw *fw, struct context *context, uint32_t position,
                           struct complaint *complaint)
{
    uint8_t *window = fw->hal->window[context->id];
    _Alignas(8) struct tsemu_extension extension; /* the CRC is taken by words of 8 bytes */
    tsemu_entry_copy(&extension, (struct tsemu_extension *)(window + context->sq_offset) +
                                     tsemu_ring_index(position, context->sq_entries));
    uint32_t crc = hal_crc32c_entry(&extension, EXTENSION_CRC_OFFSET);
    if (crc != extension.crc)
        return complain(complaint, TSEMU_REFUSAL_CRC, extension.crc, crc);
    uint32_t phase = tsemu_ring_phase(position, context->sq_entries);
    if (extension.phase != phase)
        return complain(complaint, TSEMU_REFUSAL_STALE, extension.phase, phase);
    if (extension.kind != TSEMU_EXTENSION_KIND_PREDECESSORS)
        return complain(complaint, TSEMU_REFUSAL_EXTENSION, extension.kind,
                        TSEMU_EXTENSION_KIND_PREDECESSORS);
    if (extension.ticket != context->head.entry.sqe.ticket)
        return complain(complaint, TSEMU_REFUSAL_TICKET, extension.ticket,
                        context->head.entry.sqe.ticket);
    if (extension.count == 0 || extension.count > TSEMU_EXTENSION_SLOTS)
        return complain(complaint, TSEMU_REFUSAL_EXTENSION, extension.count,
                        TSEMU_EXTENSION_SLOTS);
    for (uint32_t i = 0; i < TSEMU_EXTENSION_SLOTS; i++) {
        if (i >= extension.count && extension.predecessors[i])
            return complain(complaint, TSEMU_REFUSAL_RESERVED_BITS, extension.predecessors[i], 0);
        if (i < extension.count &&
            !take_predecessor(context, extension.predecessors[i], complaint))
            return false;
    }
    return true;
}

static bool take_predecessors(struct fw *fw, struct context *context, struct complaint *complaint)
{
    struct head *head = &context->head;
    const struct tsemu_sqe *sqe = &head->entry.sqe;
    for (uint32_t i = 0; i < TSEMU_INLINE_PREDECESSORS; i++)
        if (sqe->predecessors[i] != NO_SLOT &&
            !take_predecessor(context, sqe->predecessors[i], complaint))
            return false;
    uint32_t extensions = sqe->flags & TSEMU_SQE_FLAG_EXTENSIONS;
    head->entries = (uint8_t)(1u + extensions);
    if (head->entries > context->tail - context->position)
        return complain(complaint, TSEMU_REFUSAL_EXTENSION, extensions,
                        context->tail - context->position - 1u);
    for (uint32_t i = 1; i <= extensions; i++)
        if (!take_extension(fw, context, context->position + i, complaint))
            return false;
    return true;
}

static bool fetch(struct fw *fw, struct context *context)
{
    struct head *head = &context->head;
    struct complaint complaint = {0};
    const uint8_t *ring = fw->hal->window[context->id] + context->sq_offset;
    head->predecessor_count = 0;
    tsemu_entry_copy(&head->entry,
                     ring + (size_t)TSEMU_ENTRY_BYTES *
                                tsemu_ring_index(context->position, context->sq_entries));
    if (!check_header(fw, context, &complaint) || !check_operands(fw, context, &complaint) ||
        !take_predecessors(fw, context, &complaint)) {
        refuse(fw, context, &complaint);
        return false;
    }
    head->valid = true;
    head->cost_known = false;
    const struct task *task = context_task(context, head->entry.sqe.slot);
    __builtin_prefetch(task, 1); /* mostly it is admitted at the next instant */
    __builtin_prefetch(&task->start, 1);
    return true;
}

/* Host cost: the entry cannot have been written before the host had time for it. */
static bool host_had_time(struct fw *fw, struct context *context)
{
    struct head *head = &context->head;
    uint64_t now = fw->hal->now;
    if (fw->config.host_task == 0 && fw->config.host_call == 0)
        return true;
    if (!head->cost_known) {
        uint64_t from = context->host_ready;
        if (context->last_answer > from)
            from = context->last_answer;
        if (context->last_admission > from)
            from = context->last_admission;
        head->ready_at = from + fw->config.host_task;
        if (head->entry.sqe.flags & TSEMU_SQE_FLAG_NEW_CALL)
            head->ready_at += fw->config.host_call;
        head->cost_known = true;
        context->host_ready = head->ready_at;
        if (head->ready_at > now)
            hal_wake(fw->hal, head->ready_at);
    }
    return now >= head->ready_at;
}

static bool has_place(const struct context *context)
{
    if (context->admitted - context->completed >= context->window)
        return false;
    return context->head.predecessor_count == 0 ||
           scoreboard_nodes_needed(context) <= context->edge_free_count;
}

static bool slot_is_free(struct fw *fw, struct context *context)
{
    const struct tsemu_sqe *sqe = &context->head.entry.sqe;
    const struct task *task = context_task(context, sqe->slot);
    if (task->state == TASK_EMPTY || task->state == TASK_ENDED)
        return true;
    struct complaint complaint = {TSEMU_REFUSAL_SLOT, sqe->slot, task->ticket};
    refuse(fw, context, &complaint);
    return false;
}

static bool read_tail(struct fw *fw, struct context *context)
{
    uint32_t tail = tsemu_load_acquire(&context_page(fw, context)->sq_tail);
    uint32_t ahead = tail - context->position;
    if (ahead > context->sq_entries) {
        struct complaint complaint = {TSEMU_REFUSAL_DOORBELL, tail,
                                      context->position + context->sq_entries};
        refuse(fw, context, &complaint);
        return false;
    }
    context->tail = tail;
    return ahead != 0;
}

static bool mended(struct fw *fw, struct context *context)
{
    struct tsemu_control_page *page = context_page(fw, context);
    if (context->errored || tsemu_load_acquire(&page->refusal_seen) != context->refusal)
        return false;
    context->refused = false;
    context->tail = context->position;
    tsemu_store_release(&page->state, TSEMU_CONTEXT_STATE_ACTIVE);
    return true;
}

/* Admit what can be admitted now. Afterwards `blocked` says that the next entry is there and has
 * to wait. True when anything was admitted. */
bool submit_take(struct fw *fw, struct context *context)
{
    uint32_t before = context->position;
    context->blocked = 0;
    if (context->closing || (context->refused && !mended(fw, context)))
        return false;
    for (;;) {
        if (context->position == context->tail && !read_tail(fw, context))
            break;
        context->blocked = 1;
        if (!hal_clock_started(fw->hal) || fw_is_busy(fw))
            break;
        if (!context->head.valid && !fetch(fw, context))
            break;
        if (!host_had_time(fw, context) || !has_place(context) ||
            !slot_is_free(fw, context))
            break;
        scoreboard_place(fw, context);
        context->position += context->head.entries;
        context->head.valid = false;
        context->last_admission = fw->hal->now;
        context->tries = 0;
        context->blocked = 0;
        fw_charge(fw, fw->config.fetch);
    }
    if (context->position == before)
        return false;
    tsemu_store_release(&context_page(fw, context)->sq_head, context->position);
    if (tsemu_load_relaxed(&context_page(fw, context)->pipe_kind) == TSEMU_PIPE_KIND_ENTRIES)
        complete_interrupt(fw, context);
    return true;
}
