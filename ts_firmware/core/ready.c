/* Ready queues per engine class, and the policies that pick from them.
 *
 * fifo      order of becoming ready (level 0, one list)
 * rank      largest scheduling value first (heap)
 * edf       smallest scheduling value first, the deadline; 0: none, after all others (heap)
 * fair      contexts share by weight (fair.c)
 * priority  eight levels; streams of one level take turns; within a stream in order of becoming
 *           ready. A stream's ready tasks of one class and level form a group; the group's first
 *           task carries the group's links, and the groups of a level form the round.
 * What becomes ready at one instant enters in order of tickets. */
#include "state.h"

static enum heap_order heap_order_of(const struct fw *fw)
{
    return fw->config.policy == FW_RANK ? HEAP_BY_VALUE : HEAP_BY_DEADLINE;
}

static bool has_heap(const struct fw *fw)
{
    return fw->config.policy == FW_RANK || fw->config.policy == FW_EDF;
}

void ready_push(struct fw *fw, uint32_t ref)
{
    struct task *task = fw_task(fw, ref);
    task->state = TASK_READY;
    task->end = fw->hal->now;
    task->next = NIL;
    if (fw->newly_first == NIL) {
        fw->newly_first = ref;
        fw->newly_sorted = true;
    } else {
        const struct task *last = fw_task(fw, fw->newly_last);
        if (fw->newly_last >> 16 != ref >> 16 || !tsemu_after(task->ticket, last->ticket))
            fw->newly_sorted = false;
        fw_task(fw, fw->newly_last)->next = ref;
    }
    fw->newly_last = ref;
}

static void round_append(struct fw *fw, struct level *level, uint32_t ref, struct task *task)
{
    task->group_next = NIL;
    if (level->first == NIL)
        level->first = ref;
    else
        fw_task(fw, level->last)->group_next = ref;
    level->last = ref;
}

static void round_remove(struct fw *fw, struct level *level, uint32_t ref, const struct task *task)
{
    uint32_t previous = NIL;
    uint32_t next = task->group_next;
    for (uint32_t at = level->first; at != ref; at = fw_task(fw, at)->group_next)
        previous = at;
    if (previous == NIL)
        level->first = next;
    else
        fw_task(fw, previous)->group_next = next;
    if (level->last == ref)
        level->last = previous;
}

/* Head of the group that a task of this stream, class and level belongs to, or NO_SLOT. */
static uint32_t group_of(const struct context *context, const struct task *task)
{
    uint32_t slot = context_stream(context, task->stream)->groups;
    while (slot != NO_SLOT) {
        const struct task *head = context_task(context, slot);
        if (head->engine_class == task->engine_class && head->priority == task->priority)
            break;
        slot = head->group_sibling;
    }
    return slot;
}

/* Put `replacement` (or nothing: NO_SLOT) where `slot` stands in the stream's list of groups. */
static void group_replace(struct context *context, uint32_t slot, uint32_t replacement)
{
    const struct task *task = context_task(context, slot);
    uint16_t *link = &context_stream(context, task->stream)->groups;
    while (*link != slot)
        link = &context_task(context, *link)->group_sibling;
    *link = (uint16_t)(replacement == NO_SLOT ? task->group_sibling : replacement);
    if (replacement != NO_SLOT)
        context_task(context, replacement)->group_sibling = task->group_sibling;
}

static void enter_priority(struct fw *fw, struct ready_class *ready, uint32_t ref,
                           struct task *task)
{
    struct context *context = fw_context(fw, ref >> 16);
    uint32_t slot = group_of(context, task);
    task->next = NIL;
    if (slot != NO_SLOT) {
        struct task *head = context_task(context, slot);
        fw_task(fw, head->child)->next = ref;
        head->child = ref;
        return;
    }
    struct stream *stream = context_stream(context, task->stream);
    task->child = ref;
    task->group_sibling = stream->groups;
    stream->groups = (uint16_t)(ref & 0xFFFFu);
    round_append(fw, &ready->level[task->priority], ref, task);
    ready->levels |= 1u << task->priority;
}

static void enter(struct fw *fw, uint32_t ref, struct task *task)
{
    struct ready_class *ready = &fw->ready[task->engine_class];
    ready->count++;
    if (fw->config.policy == FW_PRIORITY)
        enter_priority(fw, ready, ref, task);
    else if (fw->config.policy == FW_FIFO)
        round_append(fw, &ready->level[0], ref, task);
    else if (fw->config.policy == FW_FAIR)
        fair_enter(fw, task->engine_class, ref);
    else
        ready->heap = heap_push(fw, ready->heap, ref, heap_order_of(fw));
}

void ready_sort_in(struct fw *fw)
{
    uint32_t ref = fw->newly_first;
    fw->newly_first = NIL;
    if (fw->newly_sorted) {
        while (ref != NIL) {
            struct task *task = fw_task(fw, ref);
            uint32_t next = task->next;
            enter(fw, ref, task);
            ref = next;
        }
        return;
    }
    uint32_t heap = NIL;
    while (ref != NIL) {
        uint32_t next = fw_task(fw, ref)->next;
        heap = heap_push(fw, heap, ref, HEAP_BY_TICKET);
        ref = next;
    }
    while (heap != NIL) {
        uint32_t rest = heap_pop(fw, heap, HEAP_BY_TICKET);
        enter(fw, heap, fw_task(fw, heap));
        heap = rest;
    }
}

/* Level of a waiting group after ageing: it rises by one per `ageing`, to level 1 at most. */
static uint32_t aged_level(const struct fw *fw, const struct task *task)
{
    uint32_t level = task->priority;
    uint64_t waited = fw->hal->now - task->end;
    for (uint64_t step = fw->config.ageing; level > 1 && waited >= step; waited -= step)
        level--;
    return level;
}

static uint32_t pick_priority(const struct fw *fw, const struct ready_class *ready)
{
    uint32_t best = (uint32_t)__builtin_ctz(ready->levels);
    uint32_t rest = ready->levels & (ready->levels - 1u);
    if (best == 0 || rest == 0 || fw->config.ageing == 0)
        return ready->level[best].first;
    const struct task *first = fw_task(fw, ready->level[best].first);
    uint32_t best_level = aged_level(fw, first);
    for (; rest; rest &= rest - 1u) {
        uint32_t level = (uint32_t)__builtin_ctz(rest);
        const struct task *task = fw_task(fw, ready->level[level].first);
        uint32_t aged = aged_level(fw, task);
        /* Of one level, whoever is ready for longer: else level 1 would starve all that aged. */
        if (aged < best_level || (aged == best_level && task->end < first->end)) {
            best = level;
            best_level = aged;
            first = task;
        }
    }
    return ready->level[best].first;
}

uint32_t ready_pick(struct fw *fw, uint32_t engine_class)
{
    const struct ready_class *ready = &fw->ready[engine_class];
    if (ready->count == 0)
        return NIL;
    if (has_heap(fw))
        return ready->heap;
    if (fw->config.policy == FW_FIFO)
        return ready->level[0].first;
    if (fw->config.policy == FW_FAIR)
        return fair_pick(fw, engine_class);
    return pick_priority(fw, ready);
}

/* The head of a group leaves; the next task of the group goes to the end of the round. */
static void leave_group(struct fw *fw, struct ready_class *ready, uint32_t ref, struct task *task)
{
    struct context *context = fw_context(fw, ref >> 16);
    struct level *level = &ready->level[task->priority];
    uint32_t next = task->next;
    if (next != NIL && level->first == level->last) { /* the only group stays where it is */
        struct task *head = fw_task(fw, next);
        group_replace(context, ref & 0xFFFFu, next & 0xFFFFu);
        head->child = task->child;
        head->group_next = NIL;
        level->first = level->last = next;
        return;
    }
    round_remove(fw, level, ref, task);
    group_replace(context, ref & 0xFFFFu, next == NIL ? NO_SLOT : next & 0xFFFFu);
    if (next != NIL) {
        struct task *head = fw_task(fw, next);
        head->child = task->child;
        round_append(fw, level, next, head);
    }
    if (level->first == NIL)
        ready->levels &= ~(1u << task->priority);
}

void ready_pop(struct fw *fw, uint32_t engine_class, uint32_t ref)
{
    struct ready_class *ready = &fw->ready[engine_class];
    struct task *task = fw_task(fw, ref);
    ready->count--;
    if (fw->config.policy == FW_PRIORITY)
        leave_group(fw, ready, ref, task);
    else if (fw->config.policy == FW_FIFO)
        round_remove(fw, &ready->level[0], ref, task);
    else if (fw->config.policy == FW_FAIR)
        fair_remove(fw, engine_class, ref);
    else
        ready->heap = heap_pop(fw, ref, heap_order_of(fw));
}

/* True when it was among what has become ready at this instant. The others stay there: more may
 * come, and all of them enter in order of tickets. */
static bool newly_remove(struct fw *fw, uint32_t ref)
{
    uint32_t previous = NIL;
    uint32_t at = fw->newly_first;
    for (; at != NIL && at != ref; at = fw_task(fw, at)->next)
        previous = at;
    if (at == NIL)
        return false;
    uint32_t next = fw_task(fw, ref)->next;
    if (previous == NIL)
        fw->newly_first = next;
    else
        fw_task(fw, previous)->next = next;
    if (fw->newly_last == ref)
        fw->newly_last = previous;
    return true;
}

/* The first of a group goes, but not by its turn: the next one takes its place in the round. */
static void replace_head(struct fw *fw, struct level *level, uint32_t ref)
{
    struct context *context = fw_context(fw, ref >> 16);
    const struct task *task = fw_task(fw, ref);
    struct task *head = fw_task(fw, task->next);
    uint32_t *link = &level->first;
    while (*link != ref)
        link = &fw_task(fw, *link)->group_next;
    *link = task->next;
    head->group_next = task->group_next;
    if (level->last == ref)
        level->last = task->next;
    head->child = task->child;
    group_replace(context, ref & 0xFFFFu, task->next & 0xFFFFu);
}

/* A ready task is cancelled: take it out wherever it stands. */
void ready_remove(struct fw *fw, uint32_t ref)
{
    struct task *task = fw_task(fw, ref);
    if (fw->classes[task->engine_class].gang == ref)
        fw->classes[task->engine_class].gang = NIL;
    if (newly_remove(fw, ref))
        return;
    struct context *context = fw_context(fw, ref >> 16);
    struct ready_class *ready = &fw->ready[task->engine_class];
    if (has_heap(fw)) {
        ready->count--;
        ready->heap = heap_without(fw, ready->heap, ref, heap_order_of(fw));
        return;
    }
    if (fw->config.policy == FW_FAIR) {
        ready_pop(fw, task->engine_class, ref);
        return;
    }
    uint32_t slot = fw->config.policy == FW_FIFO ? ref & 0xFFFFu : group_of(context, task);
    if (slot == (ref & 0xFFFFu)) {
        if (fw->config.policy == FW_FIFO || task->next == NIL) {
            ready_pop(fw, task->engine_class, ref);
            return;
        }
        ready->count--;
        replace_head(fw, &ready->level[task->priority], ref);
        return;
    }
    ready->count--;
    struct task *head = context_task(context, slot);
    uint32_t previous = task_ref(context, slot);
    while (fw_task(fw, previous)->next != ref)
        previous = fw_task(fw, previous)->next;
    fw_task(fw, previous)->next = task->next;
    if (head->child == ref)
        head->child = previous;
}
