/* Events as timelines: records of one event end in order, each raises the value reached; a wait
 * pends until its value is reached. A failed record poisons its value: waits that are in the
 * scoreboard are told when it ends, later ones find it as long as its slot is not used again (after
 * that the driver knows, and submits them poisoned). */
#include "state.h"

void event_admit_record(struct context *context, uint32_t slot)
{
    struct task *task = context_task(context, slot);
    struct event *event = context_event(context, task->u.event.event);
    event->admitted = task->u.event.value;
    task->event_previous = NO_SLOT;
    struct task *last =
        event->last_slot == NO_SLOT ? NULL : context_task(context, event->last_slot);
    if (last && last->ticket == event->last_ticket && task_incomplete(last)) {
        last->event_next = (uint16_t)slot;
        last->u.event.next_ticket = task->ticket;
        task->event_previous = event->last_slot;
        task->u.event.previous_ticket = last->ticket;
        task->open_edges++;
    }
    event->last_ticket = task->ticket;
    event->last_slot = (uint16_t)slot;
}

/* Values are reached in order: even a record that cannot succeed ends after the one before it. */
bool event_record_must_wait(const struct context *context, uint32_t slot)
{
    const struct task *task = context_task(context, slot);
    if (task->opcode != TSEMU_OPCODE_EVENT_RECORD || task->event_previous == NO_SLOT)
        return false;
    const struct task *previous = context_task(context, task->event_previous);
    return previous->ticket == task->u.event.previous_ticket && task_incomplete(previous);
}

/* The record before `slot` has ended. */
static void record_follows(struct fw *fw, struct context *context, uint32_t slot, uint32_t ticket)
{
    struct task *task = context_task(context, slot);
    if (task->ticket != ticket || task->state != TASK_WAITING)
        return;
    if (task->status == NO_STATUS) {
        scoreboard_satisfied(fw, context, slot);
        return;
    }
    task->state = TASK_RETIRING;
    fw->retire = heap_push(fw, fw->retire, task_ref(context, slot), HEAP_BY_TICKET);
}

/* The record that has failed to bring the event to `value`, or NULL. */
const struct task *event_failed_record(const struct context *context, uint32_t event,
                                       uint32_t value)
{
    uint32_t slot = context_event(context, event)->poisoned;
    while (slot != NO_SLOT) {
        const struct task *record = context_task(context, slot);
        if (record->u.event.value == value)
            return record;
        slot = record->event_next;
    }
    return NULL;
}

/* True when the wait can end now: its value is reached (`status` and ancestor are set). */
bool event_try_wait(struct fw *fw, struct context *context, uint32_t slot)
{
    struct task *task = context_task(context, slot);
    struct event *event = context_event(context, task->u.event.event);
    if (!tsemu_reached(event->reached, task->u.event.value)) {
        task->state = TASK_PENDING;
        task->start = fw->hal->now;
        task->event_next = event->waiters;
        event->waiters = (uint16_t)slot;
        uint64_t limit = task->limit == FW_NEVER ? fw->config.wait_limit : task->limit;
        timer_insert(fw, TIMER_EVENTS, task_ref(context, slot), fw->hal->now + limit);
        return false;
    }
    if (task->u.event.failed_ticket) {
        task->status = TSEMU_STATUS_DEP_ABORTED;
        task->ancestor = task->u.event.failed_ticket;
        task->ancestor_context = (uint16_t)task->u.event.failed_context;
    }
    return true;
}

void event_forget_waiter(struct fw *fw, struct context *context, uint32_t slot)
{
    const struct task *task = context_task(context, slot);
    uint16_t *link = &context_event(context, task->u.event.event)->waiters;
    while (*link != slot)
        link = &context_task(context, *link)->event_next;
    *link = task->event_next;
    timer_remove(fw, TIMER_EVENTS, task_ref(context, slot));
}

/* Waits for its value that cannot end yet: they abort when their edges are closed, and the slot of the
 * record may have been used again. */
static void tell_waits(struct context *context, const struct task *record)
{
    for (uint32_t slot = 0; slot < context->slots; slot++) {
        struct task *task = context_task(context, slot);
        if ((task->state != TASK_WAITING && task->state != TASK_RETIRING) ||
            task->opcode != TSEMU_OPCODE_EVENT_WAIT || task->u.event.event != record->u.event.event ||
            task->u.event.value != record->u.event.value)
            continue;
        task->u.event.failed_ticket = record->ancestor;
        task->u.event.failed_context = record->ancestor_context;
    }
}

/* A record has ended (well or not): the event has reached its value. Called before successors of
 * the record are looked at. */
void event_record_ended(struct fw *fw, struct context *context, uint32_t slot)
{
    struct task *record = context_task(context, slot);
    struct event *event = context_event(context, record->u.event.event);
    uint32_t value = record->u.event.value;
    if (record->event_next != NO_SLOT)
        record_follows(fw, context, record->event_next, record->u.event.next_ticket);
    record->event_next = NO_SLOT;
    if (tsemu_after(value, event->reached))
        event->reached = value;
    if (record->status != TSEMU_STATUS_OK) {
        record->event_next = event->poisoned;
        event->poisoned = (uint16_t)slot;
        tell_waits(context, record);
    }
    uint16_t waiting = event->waiters;
    while (waiting != NO_SLOT) {
        struct task *waiter = context_task(context, waiting);
        uint16_t next = waiter->event_next;
        if (tsemu_reached(event->reached, waiter->u.event.value)) {
            event_forget_waiter(fw, context, waiting);
            waiter->state = TASK_RETIRING;
            if (waiter->u.event.value == value && record->status != TSEMU_STATUS_OK) {
                waiter->status = TSEMU_STATUS_DEP_ABORTED;
                waiter->ancestor = record->ancestor;
                waiter->ancestor_context = record->ancestor_context;
            } else {
                waiter->status = TSEMU_STATUS_OK;
            }
            fw->retire = heap_push(fw, fw->retire, task_ref(context, waiting), HEAP_BY_TICKET);
        }
        waiting = next;
    }
}

/* The driver has consumed the slot's last task; if that was a failed record, forget it. */
void event_slot_reused(struct context *context, uint32_t slot)
{
    const struct task *task = context_task(context, slot);
    if (task->state != TASK_ENDED || task->opcode != TSEMU_OPCODE_EVENT_RECORD ||
        task->status == TSEMU_STATUS_OK)
        return;
    struct event *event = context_event(context, task->u.event.event);
    uint16_t *link = &event->poisoned;
    while (*link != NO_SLOT && *link != slot)
        link = &context_task(context, *link)->event_next;
    if (*link == slot)
        *link = task->event_next;
}

/* Waits admitted before the reset, for values that no admitted task records, end CANCELLED, whether
 * their edges are closed or not; the value stays. */
void event_reset(struct fw *fw, struct context *context, uint32_t reset_slot)
{
    const struct task *reset = context_task(context, reset_slot);
    const struct event *event = context_event(context, reset->u.event.event);
    for (uint32_t slot = 0; slot < context->slots; slot++) {
        const struct task *wait = context_task(context, slot);
        if (task_incomplete(wait) && wait->opcode == TSEMU_OPCODE_EVENT_WAIT &&
            wait->u.event.event == reset->u.event.event &&
            tsemu_after(reset->ticket, wait->ticket) &&
            tsemu_after(wait->u.event.value, event->admitted))
            scoreboard_abort(fw, context, slot, TSEMU_STATUS_CANCELLED, wait->ticket,
                             TSEMU_OWN_CONTEXT);
    }
}

/* False while somebody still uses the event; `user` is the ticket of one such task. */
bool event_destroy(struct context *context, uint32_t id, uint32_t *user)
{
    struct event *event = context_event(context, id);
    if (event->waiters != NO_SLOT) {
        *user = context_task(context, event->waiters)->ticket;
        return false;
    }
    for (uint32_t slot = 0; slot < context->slots; slot++) {
        const struct task *task = context_task(context, slot);
        bool uses = task->opcode == TSEMU_OPCODE_EVENT_RECORD ||
                    task->opcode == TSEMU_OPCODE_EVENT_WAIT ||
                    task->opcode == TSEMU_OPCODE_EVENT_RESET;
        if (uses && task->u.event.event == id && task_incomplete(task)) {
            *user = task->ticket;
            return false;
        }
    }
    event->used = 0;
    return true;
}
