/* Completion: outcome into the status table, CQE into the ring, edges of successors closed. */
#include "state.h"

#define CQE_CRC_OFFSET 40u
#define PUBLISH_EVERY 64u

void complete_interrupt(struct fw *fw, struct context *context)
{
    struct tsemu_control_page *page = context_page(fw, context);
    tsemu_ring_fence();
    if (tsemu_load_relaxed(&page->host_sleeps)) {
        tsemu_store_relaxed(&page->host_sleeps, 0);
        hal_interrupt(fw->hal, context->id);
    }
}

void complete_publish(struct fw *fw, struct context *context)
{
    if (context->cq_published == context->cq_tail)
        return;
    struct tsemu_control_page *page = context_page(fw, context);
    tsemu_store_relaxed(&page->admitted, context->admitted);
    tsemu_store_relaxed(&page->completed, context->completed);
    tsemu_store_release(&page->cq_tail, context->cq_tail);
    context->cq_published = context->cq_tail;
    if (tsemu_load_relaxed(&page->pipe_kind) != TSEMU_PIPE_KIND_NONE)
        complete_interrupt(fw, context);
}

/* The host's head, read once. One that cannot be (behind the last one, or ahead of the tail) counts
 * as the last one. */
static uint32_t read_head(const struct fw *fw, const struct context *context)
{
    uint32_t head = tsemu_load_acquire(&context_page(fw, context)->cq_head);
    return head - context->cq_head <= context->cq_tail - context->cq_head ? head : context->cq_head;
}

bool complete_room_came(const struct fw *fw, const struct context *context)
{
    return read_head(fw, context) != context->cq_head;
}

static bool has_room(struct fw *fw, struct context *context)
{
    if (context->cq_tail - context->cq_head < context->cq_entries)
        return true;
    context->cq_head = read_head(fw, context);
    return context->cq_tail - context->cq_head < context->cq_entries;
}

static inline uint64_t pair(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

static inline uint64_t quad(uint16_t a, uint16_t b, uint16_t c, uint16_t d)
{
    return pair(a | (uint32_t)b << 16, c | (uint32_t)d << 16);
}

/* The entry is put together as words (a test compares them with struct tsemu_cqe): the CRC reads
 * words, and reading what was just written in smaller pieces stalls most processors. */
static void write_cqe(struct fw *fw, struct context *context, const struct task *task,
                      uint32_t slot)
{
    uint8_t *window = fw->hal->window[context->id];
    uint32_t position = context->cq_tail;
    bool bad = task->status != TSEMU_STATUS_OK;
    uint32_t phase = tsemu_ring_phase(position, context->cq_entries);
    uint32_t flags = task->core == HAL_NO_CORE ? TSEMU_CQE_FLAG_NO_CORE : 0;
    uint64_t words[8] = {
        task->user_tag,
        task->start,
        task->end,
        0,                                                          /* fault address */
        pair(task->ticket, bad ? task->ancestor : 0),
        quad(0, 0, task->stream, (uint16_t)slot),                   /* CRC follows */
        quad(task->status, task->core, 0, bad ? task->ancestor_context : 0),
        pair(phase << 16 | flags << 24, 0),                         /* epoch 0 */
    };
    words[5] |= hal_crc32c_entry(words, CQE_CRC_OFFSET);
    tsemu_entry_copy(window + context->cq_offset +
                         (size_t)TSEMU_ENTRY_BYTES *
                             tsemu_ring_index(position, context->cq_entries),
                     words);
    context->cq_tail = position + 1;
    if (context->cq_tail - context->cq_published >= PUBLISH_EVERY)
        complete_publish(fw, context);
}

/* Write CQEs of ended tasks that found no room before, as far as there is room now. */
bool complete_unpark(struct fw *fw, struct context *context)
{
    bool moved = false;
    while (context->parked && has_room(fw, context)) {
        uint32_t slot = context->parked_first;
        struct task *task = context_task(context, slot);
        task->state = TASK_ENDED;
        context->parked_first = task->next;
        context->parked--;
        write_cqe(fw, context, task, slot);
        moved = true;
    }
    if (moved)
        complete_publish(fw, context);
    return moved;
}

static void report(struct fw *fw, struct context *context, struct task *task, uint32_t slot)
{
    if (!context->parked && has_room(fw, context)) {
        write_cqe(fw, context, task, slot);
        return;
    }
    task->state = TASK_PARKED;
    task->next = NIL;
    if (context->parked)
        context_task(context, context->parked_last)->next = slot;
    else
        context->parked_first = slot;
    context->parked_last = slot;
    context->parked++;
}

/* The task ends now; status and ancestor are set. */
void complete_task(struct fw *fw, struct context *context, uint32_t slot)
{
    struct task *task = context_task(context, slot);
    struct stream *stream = context_stream(context, task->stream);
    if (!task_incomplete(task) || task->status == NO_STATUS) {
        firmware_panic(fw, "a task ended twice, or without a status");
        return;
    }
    task->state = TASK_ENDED;
    task->order = context->completed++;
    stream->incomplete--;
    if (stream->last_slot == slot && stream->last_ticket == task->ticket) {
        stream->last_status = task->status;
        stream->last_order = task->order;
        stream->last_ancestor = task->ancestor; /* means something if it did not succeed */
        stream->last_ancestor_context = task->ancestor_context;
    }
    if (!context->closing) {
        uint32_t *table = (uint32_t *)(fw->hal->window[context->id] + context->status_offset);
        tsemu_store_relaxed(&table[slot], (task->ticket & 0xFFFFu) << 16 | task->status);
        report(fw, context, task, slot);
    }
    if (task->opcode == TSEMU_OPCODE_EVENT_RECORD)
        event_record_ended(fw, context, slot);
    scoreboard_release(fw, context, task);
    fw_charge(fw, fw->config.retire);
}

static void run_without_core(struct fw *fw, struct context *context, uint32_t slot)
{
    struct task *task = context_task(context, slot);
    if (task->status == NO_STATUS && task->opcode == TSEMU_OPCODE_EVENT_WAIT &&
        !event_try_wait(fw, context, slot))
        return;
    if (task->status == NO_STATUS) {
        if (task->opcode == TSEMU_OPCODE_EVENT_RESET)
            event_reset(fw, context, slot);
        task->status = TSEMU_STATUS_OK;
    }
    task->end = fw->hal->now;
    if (task->start == FW_NEVER) /* an event wait that has pended started then */
        task->start = task->end;
    complete_task(fw, context, slot);
}

/* End what needs no core, in order of tickets. */
bool complete_retire(struct fw *fw)
{
    bool changed = false;
    while (fw->retire != NIL && !fw_is_busy(fw)) {
        uint32_t ref = fw->retire;
        fw->retire = heap_pop(fw, ref, HEAP_BY_TICKET);
        run_without_core(fw, fw_context(fw, ref >> 16), ref & 0xFFFFu);
        changed = true;
    }
    return changed;
}
