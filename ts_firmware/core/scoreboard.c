/* Scoreboard: a task enters its slot, its edges open and close, it becomes ready or aborts. */
#include "state.h"

static void set_operands(const struct context *context, struct task *task)
{
    const struct tsemu_sqe *sqe = &context->head.entry.sqe;
    task->argument = sqe->argument;
    task->blocks = 1;
    switch (sqe->opcode) {
    case TSEMU_OPCODE_KERNEL:
        task->gang = (sqe->flags & TSEMU_SQE_FLAG_GANG) != 0;
        task->blocks = sqe->blocks;
        task->u.kernel.cycles = sqe->cycles;
        task->u.kernel.bytes_read = sqe->bytes_read;
        task->u.kernel.bytes_written = sqe->bytes_written;
        break;
    case TSEMU_OPCODE_MEMCPY:
    case TSEMU_OPCODE_MEMSET:
        task->gang = 0;
        task->u.copy.destination = context->head.entry.copy.destination;
        task->u.copy.length = context->head.entry.copy.length;
        break;
    case TSEMU_OPCODE_EVENT_RECORD:
    case TSEMU_OPCODE_EVENT_WAIT:
    case TSEMU_OPCODE_EVENT_RESET:
        task->u.event.event = context->head.entry.event.event;
        task->u.event.value = context->head.entry.event.event_value;
        task->u.event.failed_ticket = 0;
        break;
    default:
        break;
    }
}

static void fill(struct context *context, struct task *task)
{
    const struct tsemu_sqe *sqe = &context->head.entry.sqe;
    task->ticket = sqe->ticket;
    task->state = TASK_WAITING;
    task->opcode = sqe->opcode;
    task->engine_class = sqe->engine_class;
    task->priority = sqe->priority;
    task->stream = sqe->stream;
    task->open_edges = 0;
    task->successors = NIL;
    task->stream_next = NO_SLOT;
    task->event_next = NO_SLOT;
    task->event_previous = NO_SLOT;
    task->next = NIL;
    task->status = NO_STATUS;
    task->started = 0;
    task->running = 0;
    task->ended = 0;
    task->value = sqe->value;
    task->mark = sqe->ticket;
    task->user_tag = sqe->user_tag;
    task->start = FW_NEVER;
    task->end = 0;
    task->limit = sqe->timeout_us ? (uint64_t)sqe->timeout_us * 1000000u : FW_NEVER;
    task->core = HAL_NO_CORE;
    set_operands(context, task);
}

static void open_edge(struct context *context, struct task *predecessor, struct task *task,
                      uint32_t slot)
{
    uint32_t index = context->edge_free;
    struct edge_node *node = context_node(context, index);
    context->edge_free = node->next;
    context->edge_free_count--;
    node->slot = (uint16_t)slot;
    node->ticket = task->ticket;
    node->next = predecessor->successors;
    predecessor->successors = index;
    task->open_edges++;
}

/* First failure among what the new task depends on, in completion order. */
struct failure {
    bool found;
    uint32_t order, ancestor;
    uint16_t ancestor_context;
};

static void note_failure(struct failure *failure, uint32_t order, uint32_t ancestor,
                         uint16_t ancestor_context)
{
    if (failure->found && !tsemu_after(failure->order, order))
        return;
    failure->found = true;
    failure->order = order;
    failure->ancestor = ancestor;
    failure->ancestor_context = ancestor_context;
}

/* What is known to have failed by now. The driver may know it already and has submitted the task
 * POISONED, or it may not: both have to come to the same. */
static void find_failure(const struct context *context, const struct stream *stream,
                         struct failure *failure)
{
    const struct head *head = &context->head;
    if (head->entry.sqe.flags & TSEMU_SQE_FLAG_POISONED) {
        note_failure(failure, 0, head->entry.poisoned.ancestor,
                     head->entry.poisoned.ancestor_context);
        return;
    }
    for (uint32_t i = 0; i < head->predecessor_count; i++) {
        const struct task *task = context_task(context, head->predecessors[i]);
        if (task_has_ended(task) && task->status != TSEMU_STATUS_OK)
            note_failure(failure, task->order, task->ancestor, task->ancestor_context);
    }
    if (stream->in_order && stream->last_slot != NO_SLOT && stream->last_status != NO_STATUS &&
        stream->last_status != TSEMU_STATUS_OK)
        note_failure(failure, stream->last_order, stream->last_ancestor,
                     stream->last_ancestor_context);
    if (head->entry.sqe.opcode == TSEMU_OPCODE_EVENT_WAIT) {
        const struct task *record = event_failed_record(context, head->entry.event.event,
                                                        head->entry.event.event_value);
        if (record)
            note_failure(failure, record->order, record->ancestor, record->ancestor_context);
    }
}

/* Edge nodes that the entry at the head needs now: one per distinct incomplete predecessor, none
 * when it aborts at once. */
uint32_t scoreboard_nodes_needed(const struct context *context)
{
    const struct head *head = &context->head;
    struct failure failure = {0};
    uint32_t needed = 0;
    for (uint32_t i = 0; i < head->predecessor_count; i++)
        needed += task_incomplete(context_task(context, head->predecessors[i]));
    if (needed)
        find_failure(context, context_stream(context, head->entry.sqe.stream), &failure);
    return failure.found ? 0 : needed;
}

static void open_edges(struct fw *fw, struct context *context, struct task *task, uint32_t slot)
{
    const struct head *head = &context->head;
    for (uint32_t i = 0; i < head->predecessor_count; i++) {
        struct task *predecessor = context_task(context, head->predecessors[i]);
        /* In its own slot the entry named the task that was there before, which has ended. */
        if (predecessor == task || !task_incomplete(predecessor))
            continue;
        open_edge(context, predecessor, task, slot);
        fw_charge(fw, fw->config.edge);
    }
}

static void link_stream(struct context *context, struct stream *stream, struct task *task,
                        uint32_t slot)
{
    if (stream->last_slot != NO_SLOT && stream->last_status == NO_STATUS) {
        struct task *last = context_task(context, stream->last_slot);
        last->stream_next = (uint16_t)slot;
        last->stream_next_ticket = task->ticket;
        task->open_edges++;
    }
}

/* Move the checked entry at the head into its slot. The slot is free, and there are nodes. */
void scoreboard_place(struct fw *fw, struct context *context)
{
    const struct tsemu_sqe *sqe = &context->head.entry.sqe;
    uint32_t slot = sqe->slot;
    struct task *task = context_task(context, slot);
    struct stream *stream = context_stream(context, sqe->stream);
    struct failure failure = {0};
    find_failure(context, stream, &failure);
    event_slot_reused(context, slot);
    fill(context, task);
    context->admitted++;
    stream->incomplete++;
    if (task->opcode == TSEMU_OPCODE_EVENT_RECORD)
        event_admit_record(context, slot);
    if (!failure.found) {
        open_edges(fw, context, task, slot);
        if (stream->in_order)
            link_stream(context, stream, task, slot);
    }
    stream->last_ticket = task->ticket;
    stream->last_slot = (uint16_t)slot;
    stream->last_status = NO_STATUS;
    if (failure.found)
        scoreboard_abort(fw, context, slot, TSEMU_STATUS_DEP_ABORTED, failure.ancestor,
                         failure.ancestor_context);
    else if (task->open_edges == 0) {
        task->open_edges = 1;
        scoreboard_satisfied(fw, context, slot);
    }
}

/* One of its edges has closed well. After the last one the task may go on. */
void scoreboard_satisfied(struct fw *fw, struct context *context, uint32_t slot)
{
    struct task *task = context_task(context, slot);
    if (--task->open_edges || task->status != NO_STATUS)
        return;
    uint32_t ref = task_ref(context, slot);
    if (task->opcode == TSEMU_OPCODE_KERNEL || task->opcode == TSEMU_OPCODE_MEMCPY ||
        task->opcode == TSEMU_OPCODE_MEMSET) {
        ready_push(fw, ref);
        return;
    }
    task->state = TASK_RETIRING;
    fw->retire = heap_push(fw, fw->retire, ref, HEAP_BY_TICKET);
}

/* The task will not run. No effect on one that runs, has ended or is going to fail already. */
void scoreboard_abort(struct fw *fw, struct context *context, uint32_t slot, uint16_t status,
                      uint32_t ancestor, uint16_t ancestor_context)
{
    struct task *task = context_task(context, slot);
    if (task->state == TASK_READY)
        ready_remove(fw, task_ref(context, slot));
    else if (task->state == TASK_PENDING)
        event_forget_waiter(fw, context, slot);
    else if ((task->state != TASK_WAITING && task->state != TASK_RETIRING) ||
             task->status != NO_STATUS)
        return;
    task->status = status;
    task->ancestor = ancestor;
    task->ancestor_context = ancestor_context;
    if (task->state == TASK_RETIRING || /* it is in the heap already */
        (task->state == TASK_WAITING && event_record_must_wait(context, slot)))
        return;
    task->state = TASK_RETIRING;
    fw->retire = heap_push(fw, fw->retire, task_ref(context, slot), HEAP_BY_TICKET);
}

static void release_successor(struct fw *fw, struct context *context, const struct task *task,
                              uint32_t slot, uint32_t ticket)
{
    const struct task *successor = context_task(context, slot);
    if (successor->ticket != ticket || successor->state != TASK_WAITING)
        return;
    if (task->status == TSEMU_STATUS_OK)
        scoreboard_satisfied(fw, context, slot);
    else
        scoreboard_abort(fw, context, slot, TSEMU_STATUS_DEP_ABORTED, task->ancestor,
                         task->ancestor_context);
}

/* A task has ended: close its edges. */
void scoreboard_release(struct fw *fw, struct context *context, struct task *task)
{
    uint32_t index = task->successors;
    task->successors = NIL;
    while (index != NIL) {
        struct edge_node *node = context_node(context, index);
        uint32_t next = node->next;
        release_successor(fw, context, task, node->slot, node->ticket);
        node->next = context->edge_free;
        context->edge_free = index;
        context->edge_free_count++;
        index = next;
    }
    if (task->stream_next != NO_SLOT)
        release_successor(fw, context, task, task->stream_next, task->stream_next_ticket);
}
