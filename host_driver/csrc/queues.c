/* Two queues of things that the caller has to take: handles with a callback, and completions kept
 * for next_completion. */
#include "internal.h"

#include <stdlib.h>

/* Place for one more callback than are pending and waiting: asked for at the launch, so that
 * consumption cannot run short of memory. */
int callback_reserve(struct tsemu_context *c)
{
    struct callback_queue *queue = &c->callbacks;
    if (queue->count + c->pending < queue->capacity)
        return TSEMU_OK;
    uint32_t capacity = 2 * (queue->count + c->pending) + 64;
    tsemu_task **tasks = malloc(capacity * sizeof *tasks);
    if (!tasks)
        return driver_fail(TSEMU_E_NO_RESOURCE, "callbacks", queue->count, 0,
                           "free memory, or use fewer callbacks", "no memory for a callback");
    for (uint32_t i = 0; i < queue->count; i++)
        tasks[i] = queue->tasks[(queue->head + i) % queue->capacity];
    free(queue->tasks);
    *queue = (struct callback_queue){tasks, 0, queue->count, capacity};
    return TSEMU_OK;
}

void callback_push(struct tsemu_context *c, tsemu_task *task)
{
    struct callback_queue *queue = &c->callbacks;
    queue->tasks[(queue->head + queue->count++) % queue->capacity] = task;
}

int callbacks_first(struct tsemu_context *c, int code)
{
    if (__builtin_expect(code >= 0 || !c->broken, 1))
        return code;
    return c->callbacks.count && !thread_record(c)->in_callback ? TSEMU_CALLBACKS : code;
}

tsemu_task *driver_take_callback(tsemu_context *c)
{
    struct callback_queue *queue = &c->callbacks;
    tsemu_task *task = NULL;
    context_lock(c);
    if (queue->count) {
        task = queue->tasks[queue->head];
        queue->head = (queue->head + 1) % queue->capacity;
        queue->count--;
    }
    context_unlock(c);
    return task;
}

int driver_watch(tsemu_context *c, tsemu_task *task)
{
    context_lock(c);
    struct slot *slot = &c->slot[task->slot < c->slots ? task->slot : 0];
    int watched = task->status == TSEMU_PENDING && slot->kind == OWNER_HANDLE &&
                  slot->owner == task;
    if (watched && !(slot->flags & SLOT_CALLBACK)) {
        watched = callback_reserve(c) == TSEMU_OK;
        if (watched) {
            slot->flags |= SLOT_CALLBACK;
            c->pending++;
        }
    }
    if (watched)
        task->flags |= 1u;
    context_unlock(c);
    return watched;
}

void kept_push(struct tsemu_context *c, const struct tsemu_cqe *cqe)
{
    struct kept_queue *kept = &c->kept;
    if (kept->reserved)
        kept->reserved--;
    if (kept->count == kept->capacity)
        return; /* launched before keeping was turned on: it had no place */
    kept->cqes[(kept->head + kept->count++) % kept->capacity] = *cqe;
}

int kept_reserve(struct tsemu_context *c, uint32_t count)
{
    struct kept_queue *kept = &c->kept;
    if (!kept->capacity)
        return TSEMU_OK;
    if (kept->count + kept->reserved + count > kept->capacity)
        return driver_fail(TSEMU_E_NO_RESOURCE, "completions", kept->count, kept->capacity,
                           "take completions, or keep more of them",
                           "%u completions are kept and %u are to come: at most %u fit",
                           kept->count, kept->reserved, kept->capacity);
    kept->reserved += count;
    return TSEMU_OK;
}

int driver_keep_completions(tsemu_context *c, uint32_t capacity)
{
    if (capacity && capacity < c->slots)
        return driver_fail(TSEMU_E_INVALID, "capacity", capacity, c->slots,
                           "use at least the number of slots, or 0 for none",
                           "room for %u completions is less than the %u slots", capacity,
                           c->slots);
    struct tsemu_cqe *cqes = capacity ? malloc((size_t)capacity * sizeof *cqes) : NULL;
    if (capacity && !cqes)
        return driver_fail(TSEMU_E_NO_RESOURCE, "capacity", capacity, 0, "ask for less",
                           "no memory for %u completions", capacity);
    context_lock(c);
    struct kept_queue *kept = &c->kept;
    uint32_t outstanding = 0;
    for (uint32_t i = 0; i < c->slots; i++)
        outstanding += c->slot[i].kind != OWNER_FREE && c->slot[i].kind != OWNER_PROGRAM;
    if (capacity && kept->count + outstanding > capacity) {
        uint32_t count = kept->count;
        context_unlock(c);
        free(cqes);
        return driver_fail(TSEMU_E_INVALID, "capacity", capacity, (uint64_t)count + outstanding,
                           "take completions first", "%u completions are kept already", count);
    }
    struct kept_queue new = {.cqes = cqes, .capacity = capacity, .reserved = outstanding};
    for (uint32_t i = 0; capacity && i < kept->count; i++)
        cqes[new.count++] = kept->cqes[(kept->head + i) % kept->capacity];
    free(kept->cqes);
    *kept = new;
    context_unlock(c);
    return TSEMU_OK;
}

uint32_t driver_take_completions(tsemu_context *c, struct tsemu_cqe *cqes, uint32_t count)
{
    context_lock(c);
    struct kept_queue *kept = &c->kept;
    uint32_t taken = kept->count < count ? kept->count : count;
    for (uint32_t i = 0; i < taken; i++)
        cqes[i] = kept->cqes[(kept->head + i) % kept->capacity];
    if (taken) {
        kept->head = (kept->head + taken) % kept->capacity;
        kept->count -= taken;
    }
    context_unlock(c);
    return taken;
}
