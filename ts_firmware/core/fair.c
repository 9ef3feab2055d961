/* Policy fair: contexts with ready work share the cores of a class by weight.
 *
 * Each context has, for each class, its ready tasks (by level, then in order of becoming ready) and
 * the service that it has had: the work of every block started for it, times a scale that is the
 * smaller the larger its weight. The context with the least service is next. One that was idle
 * begins where the class stands (start-time fair queueing), so that nobody saves up credit. Service
 * wraps: only differences count. */
#include "state.h"

#define COPY_UNIT_SHIFT 10u /* copies are counted in KiB */

void fair_enter(struct fw *fw, uint32_t engine_class, uint32_t ref)
{
    struct context *context = fw_context(fw, ref >> 16);
    struct fair_queue *queue = &context->fair[engine_class];
    struct task *task = fw_task(fw, ref);
    struct level *level = &queue->level[task->priority];
    uint64_t stands_at = fw->ready[engine_class].fair_time;
    if (queue->levels == 0 && (int64_t)(queue->service - stands_at) < 0)
        queue->service = stands_at;
    task->next = NIL;
    if (level->first == NIL)
        level->first = ref;
    else
        fw_task(fw, level->last)->next = ref;
    level->last = ref;
    queue->levels |= 1u << task->priority;
}

/* Ties go by the clients' names. */
uint32_t fair_pick(const struct fw *fw, uint32_t engine_class)
{
    const struct fair_queue *least = NULL;
    for (uint32_t i = 0; i < fw->context_count; i++) {
        const struct fair_queue *queue = &fw_context(fw, fw->by_name[i])->fair[engine_class];
        if (queue->levels && (!least || (int64_t)(queue->service - least->service) < 0))
            least = queue;
    }
    return least ? least->level[__builtin_ctz(least->levels)].first : NIL;
}

void fair_remove(struct fw *fw, uint32_t engine_class, uint32_t ref)
{
    struct fair_queue *queue = &fw_context(fw, ref >> 16)->fair[engine_class];
    const struct task *task = fw_task(fw, ref);
    struct level *level = &queue->level[task->priority];
    uint32_t previous = NIL;
    for (uint32_t at = level->first; at != ref; at = fw_task(fw, at)->next)
        previous = at;
    if (previous == NIL)
        level->first = task->next;
    else
        fw_task(fw, previous)->next = task->next;
    if (level->last == ref)
        level->last = previous;
    if (level->first == NIL)
        queue->levels &= ~(1u << task->priority);
}

/* A block of the task starts. */
void fair_charge(struct fw *fw, uint32_t engine_class, uint32_t ref)
{
    struct context *context = fw_context(fw, ref >> 16);
    struct fair_queue *queue = &context->fair[engine_class];
    const struct task *task = fw_task(fw, ref);
    uint64_t work = task->opcode == TSEMU_OPCODE_KERNEL
                        ? task->u.kernel.cycles
                        : task->u.copy.length >> COPY_UNIT_SHIFT;
    fw->ready[engine_class].fair_time = queue->service;
    queue->service += (work + 1u) * context->fair_scale;
}
