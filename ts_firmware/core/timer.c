/* Limits of tasks: lists in order of deadline, one for pending event waits, one for tasks whose
 * blocks run under a timeout; ties go by ticket. Most deadlines come in rising order, so insertion starts at the end. */
#include "state.h"

static uint32_t *list_first(struct fw *fw, enum timer_list list)
{
    return list == TIMER_EVENTS ? &fw->timer_events : &fw->timer_blocks;
}

static uint32_t *list_last(struct fw *fw, enum timer_list list)
{
    return list == TIMER_EVENTS ? &fw->timer_events_last : &fw->timer_blocks_last;
}

/* True when the limit of `ref` comes after `deadline` of `other`; ties go by ticket. */
static bool comes_after(const struct fw *fw, uint32_t ref, uint64_t deadline, uint32_t other)
{
    const struct task *task = fw_task(fw, ref);
    const struct task *against = fw_task(fw, other);
    if (task->limit != deadline)
        return task->limit > deadline;
    if (task->ticket != against->ticket)
        return tsemu_after(task->ticket, against->ticket);
    return fw->name_rank[ref >> 16] > fw->name_rank[other >> 16];
}

void timer_insert(struct fw *fw, enum timer_list list, uint32_t ref, uint64_t deadline)
{
    struct task *task = fw_task(fw, ref);
    uint32_t previous = *list_last(fw, list);
    while (previous != NIL && comes_after(fw, previous, deadline, ref))
        previous = fw_task(fw, previous)->timer_previous;
    uint32_t next = previous == NIL ? *list_first(fw, list) : fw_task(fw, previous)->timer_next;
    task->limit = deadline;
    task->timer_previous = previous;
    task->timer_next = next;
    if (previous == NIL)
        *list_first(fw, list) = ref;
    else
        fw_task(fw, previous)->timer_next = ref;
    if (next == NIL)
        *list_last(fw, list) = ref;
    else
        fw_task(fw, next)->timer_previous = ref;
}

void timer_remove(struct fw *fw, enum timer_list list, uint32_t ref)
{
    const struct task *task = fw_task(fw, ref);
    if (task->timer_previous == NIL)
        *list_first(fw, list) = task->timer_next;
    else
        fw_task(fw, task->timer_previous)->timer_next = task->timer_next;
    if (task->timer_next == NIL)
        *list_last(fw, list) = task->timer_previous;
    else
        fw_task(fw, task->timer_next)->timer_previous = task->timer_previous;
}

static bool expired(const struct fw *fw, uint32_t ref)
{
    return ref != NIL && fw_task(fw, ref)->limit <= fw->hal->now;
}

bool timer_expire(struct fw *fw)
{
    bool changed = false;
    while (expired(fw, fw->timer_events)) {
        struct context *context = fw_context(fw, fw->timer_events >> 16);
        uint32_t slot = fw->timer_events & 0xFFFFu;
        const struct task *task = context_task(context, slot);
        scoreboard_abort(fw, context, slot, TSEMU_STATUS_EVENT_TIMEOUT, task->ticket,
                         TSEMU_OWN_CONTEXT);
        changed = true;
    }
    while (expired(fw, fw->timer_blocks)) {
        struct context *context = fw_context(fw, fw->timer_blocks >> 16);
        uint32_t slot = fw->timer_blocks & 0xFFFFu;
        struct task *task = context_task(context, slot);
        dispatch_stop(fw, context, slot);
        task->status = TSEMU_STATUS_TIMEOUT;
        task->ancestor = task->ticket;
        task->ancestor_context = TSEMU_OWN_CONTEXT;
        task->end = fw->hal->now;
        complete_task(fw, context, slot);
        changed = true;
    }
    return changed;
}
