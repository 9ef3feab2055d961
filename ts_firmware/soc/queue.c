/* The event queue: a binary heap by (time, sequence number). After a pop the root is a hole until the
 * next push or pop. */
#include "model.h"

#include <stdlib.h>

static bool earlier(const struct soc_event *a, const struct soc_event *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

static void sift_up(struct event_queue *queue, uint32_t at, struct soc_event event)
{
    while (at) {
        uint32_t parent = (at - 1u) / 2u;
        if (!earlier(&event, &queue->heap[parent]))
            break;
        queue->heap[at] = queue->heap[parent];
        at = parent;
    }
    queue->heap[at] = event;
}

static void sift_down(struct event_queue *queue, uint32_t at, struct soc_event event)
{
    for (;;) {
        uint32_t child = 2u * at + 1u;
        if (child >= queue->count)
            break;
        if (child + 1u < queue->count && earlier(&queue->heap[child + 1u], &queue->heap[child]))
            child++;
        if (!earlier(&queue->heap[child], &event))
            break;
        queue->heap[at] = queue->heap[child];
        at = child;
    }
    queue->heap[at] = event;
}

/* Close the hole that the last pop left at the root. */
static void close_hole(struct event_queue *queue)
{
    queue->hole = false;
    struct soc_event last = queue->heap[--queue->count];
    if (queue->count)
        sift_down(queue, 0, last);
}

/* False when there is no memory. Mostly a block starts where one has just ended: its event goes
 * straight into the hole. */
bool queue_push(struct event_queue *queue, uint64_t time, uint32_t core)
{
    struct soc_event event = {time, queue->sequence++ << SOC_CORE_BITS | core};
    if (queue->hole) {
        queue->hole = false;
        sift_down(queue, 0, event);
        return true;
    }
    if (queue->count == queue->capacity) {
        uint32_t capacity = queue->capacity ? 2u * queue->capacity : 64u;
        struct soc_event *heap = realloc(queue->heap, capacity * sizeof *heap);
        if (!heap)
            return false;
        queue->heap = heap;
        queue->capacity = capacity;
    }
    sift_up(queue, queue->count++, event);
    return true;
}

/* Take the earliest event; the queue is not empty. */
struct soc_event queue_pop(struct event_queue *queue)
{
    if (queue->hole)
        close_hole(queue);
    queue->hole = true;
    return queue->heap[0];
}

/* Rare (a core is reset): drop the end of its block. */
void queue_remove_core(struct event_queue *queue, uint32_t core)
{
    if (queue->hole)
        close_hole(queue);
    for (uint32_t i = 0; i < queue->count; i++) {
        if (soc_event_core(&queue->heap[i]) != core)
            continue;
        struct soc_event last = queue->heap[--queue->count];
        if (i == queue->count)
            return;
        sift_down(queue, i, last);
        sift_up(queue, i, queue->heap[i]);
        return;
    }
}
