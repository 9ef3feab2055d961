/* The oracle: rules that every completion and answer obeys. */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

#include <tsemu/ring.h>

static bool on_core(const struct record *task)
{
    return task->opcode == TSEMU_OPCODE_KERNEL || task->opcode == TSEMU_OPCODE_MEMCPY ||
           task->opcode == TSEMU_OPCODE_MEMSET;
}

/* The stream was recovered between the two. Whether a task that was about to fail at that instant
 * counts cannot be told from outside. */
static bool recovered_from(const struct record *task, const struct record *previous)
{
    return task->recovered && previous->status != TSEMU_STATUS_OK;
}

/* First failure in completion order among what the task depends on; NULL: none. */
static const struct record *first_failure(const struct client *client, const struct record *task)
{
    const struct record *first = NULL;
    for (uint32_t i = 0; i <= task->edge_count; i++) {
        uint32_t ticket = i < task->edge_count ? task->edges[i] : task->previous;
        const struct record *other = &client->tasks[ticket];
        if (!ticket || !other->done || other->status == TSEMU_STATUS_OK)
            continue;
        if (i == task->edge_count && recovered_from(task, other))
            continue;
        if (!first || other->order < first->order)
            first = other;
    }
    return first;
}

static void check_predecessors(const struct client *client, const struct record *task)
{
    for (uint32_t i = 0; i <= task->edge_count; i++) {
        uint32_t ticket = i < task->edge_count ? task->edges[i] : task->previous;
        const struct record *other = &client->tasks[ticket];
        if (!ticket || (i == task->edge_count && recovered_from(task, other)))
            continue;
        if (!other->done)
            fail(client, "%u succeeded although its predecessor %u has not ended", task->ticket,
                 ticket);
        if (other->end > task->start || other->order > task->order)
            fail(client, "%u started before its predecessor %u ended", task->ticket, ticket);
    }
}

/* The record that a wait waited for, NULL: none submitted. */
static const struct record *record_of(const struct client *client, const struct record *task)
{
    const struct event_state *event = &client->events[task->event];
    if (!task->event_value || task->event_value > event->recorded)
        return NULL;
    return &client->tasks[event->record[task->event_value - 1u]];
}

static bool record_failed(const struct client *client, const struct record *task)
{
    const struct record *record = record_of(client, task);
    return task->opcode == TSEMU_OPCODE_EVENT_WAIT && record && record->done &&
           record->status != TSEMU_STATUS_OK;
}

static void check_event(const struct client *client, const struct record *task)
{
    if (task->opcode == TSEMU_OPCODE_EVENT_RECORD && task->event_value > 1u) {
        const struct record *before =
            &client->tasks[client->events[task->event].record[task->event_value - 2u]];
        if (!before->done || before->order > task->order || before->end > task->end)
            fail(client, "record %u of an event ended before record %u", task->ticket,
                 before->ticket);
    }
    if (task->opcode != TSEMU_OPCODE_EVENT_WAIT || task->status != TSEMU_STATUS_OK ||
        !task->event_value)
        return;
    const struct record *record = record_of(client, task);
    if (!record || !record->done || record->order > task->order || record->end > task->end)
        fail(client, "wait %u ended before its value was recorded", task->ticket);
    if (record->status != TSEMU_STATUS_OK && !record->slot_reused)
        fail(client, "wait %u succeeded although record %u failed", task->ticket, record->ticket);
}

static void check_aborted(const struct client *client, const struct record *task)
{
    const struct record *cause = first_failure(client, task);
    const struct record *previous = &client->tasks[task->previous];
    uint32_t ancestor;
    if (task->previous && recovered_from(task, previous) &&
        task->found_ancestor == previous->found_ancestor)
        return;
    if (task->poisoned) {
        ancestor = task->ancestor;
    } else if (task->opcode == TSEMU_OPCODE_EVENT_WAIT && !task->event_value) {
        return; /* its value was chosen by the device */
    } else if (record_failed(client, task)) {
        /* Whether the record counts from the start depends on when the wait was admitted. */
        ancestor = record_of(client, task)->found_ancestor;
        if (cause && cause->found_ancestor == task->found_ancestor)
            return;
    } else if (cause) {
        ancestor = cause->found_ancestor;
    } else {
        fail(client, "%u aborted although nothing that it depends on failed", task->ticket);
    }
    if (task->found_ancestor != ancestor)
        fail(client, "%u names ancestor %u, not %u", task->ticket, task->found_ancestor, ancestor);
}

static void check_run(const struct client *client, const struct record *task)
{
    const struct device_config *config = client->config;
    uint64_t limit = task->timeout_us * 1000000ull;
    bool ran = on_core(task) && (task->status == TSEMU_STATUS_OK ||
                                 task->status == TSEMU_STATUS_TIMEOUT);
    if (!ran)
        return;
    uint32_t first = 0;
    for (uint32_t c = 0; c < task->engine_class; c++)
        first += config->classes[c].cores;
    if (task->core < first || task->core >= first + config->classes[task->engine_class].cores)
        fail(client, "%u ran on core %u, which is not of its class", task->ticket, task->core);
    uint64_t time = task->end - task->start;
    if (task->status == TSEMU_STATUS_TIMEOUT) {
        if (!limit || time < limit)
            fail(client, "%u ended by its timeout before it", task->ticket);
        if (task->blocks == 1 && task->duration + config->interrupt_ps < limit)
            fail(client, "%u timed out although it is short enough", task->ticket);
        return;
    }
    if (task->blocks == 1 ? time != task->duration : time < task->duration)
        fail(client, "%u took %llu ps, a block takes %llu", task->ticket, (unsigned long long)time,
             (unsigned long long)task->duration);
    if (task->blocks == 1 && limit && task->duration > limit + config->dispatch_ps +
                                                           config->retire_ps + config->fetch_ps &&
        !config->dispatch_ps && !config->retire_ps && !config->edge_ps && !config->fetch_ps)
        fail(client, "%u ran for longer than its timeout", task->ticket);
}

static void check_task(const struct client *client, const struct record *task)
{
    bool own = task->found_ancestor == task->ticket;
    if (task->start > task->end)
        fail(client, "%u ended before it started", task->ticket);
    switch (task->status) {
    case TSEMU_STATUS_OK:
        if (task->poisoned || first_failure(client, task))
            fail(client, "%u succeeded although a predecessor failed", task->ticket);
        if (task->found_ancestor)
            fail(client, "%u succeeded and names an ancestor", task->ticket);
        check_predecessors(client, task);
        break;
    case TSEMU_STATUS_DEP_ABORTED:
        check_aborted(client, task);
        break;
    case TSEMU_STATUS_CANCELLED:
        if (!own || !(task->cancel || client->closed ||
                      task->opcode == TSEMU_OPCODE_EVENT_WAIT))
            fail(client, "%u was cancelled although nobody asked for it", task->ticket);
        break;
    case TSEMU_STATUS_TIMEOUT:
        if (!own || first_failure(client, task))
            fail(client, "%u timed out although it could not run", task->ticket);
        break;
    case TSEMU_STATUS_EVENT_TIMEOUT:
        if (!own || task->opcode != TSEMU_OPCODE_EVENT_WAIT)
            fail(client, "%u is no event wait and ended EVENT_TIMEOUT", task->ticket);
        break;
    case TSEMU_STATUS_INVALID_ENTRY:
        if (!own || !client->errored)
            fail(client, "%u ended INVALID_ENTRY, but the context is not in error", task->ticket);
        break;
    default:
        fail(client, "%u has status %u", task->ticket, task->status);
    }
    check_event(client, task);
    check_run(client, task);
}

/* Tasks up to `ticket` (of `stream`, or ~0: of any) that had not ended after `completed`. */
static uint32_t open_tasks(const struct client *client, uint32_t ticket, uint32_t stream,
                           uint32_t completed)
{
    uint32_t count = 0;
    for (uint32_t t = 1; t <= ticket && t <= client->submitted; t++) {
        const struct record *task = &client->tasks[t];
        if (stream == ~0u || task->stream == stream)
            count += !task->done || task->order >= completed;
    }
    return count;
}

static bool condition(const struct client *client, const struct answer *answer)
{
    uint32_t completed = answer->completed;
    switch (answer->kind) {
    case TSEMU_WAIT_KIND_TASK:
        return client->tasks[answer->a].done && client->tasks[answer->a].order < completed;
    case TSEMU_WAIT_KIND_ALL:
        return !open_tasks(client, answer->a, ~0u, completed);
    case TSEMU_WAIT_KIND_STREAM:
        return !open_tasks(client, answer->b, answer->a, completed);
    case TSEMU_WAIT_KIND_STREAM_LIMIT:
        return open_tasks(client, answer->submitted, answer->a, completed) <= answer->b;
    case TSEMU_WAIT_KIND_ROOM:
        return completed >= answer->a;
    case TSEMU_WAIT_KIND_NEXT:
        return completed > answer->a;
    case TSEMU_WAIT_KIND_EVENT: {
        const struct event_state *event = &client->events[answer->a];
        if (!answer->b || answer->b > event->recorded)
            return !answer->b;
        const struct record *record = &client->tasks[event->record[answer->b - 1u]];
        return record->done && record->order < completed;
    }
    default:
        return true;
    }
}

static void check_answer(const struct client *client, const struct answer *answer)
{
    bool met = answer->garbage || condition(client, answer);
    switch (answer->reason) {
    case TSEMU_ANSWER_MET:
        if (!met)
            fail(client, "wait of kind %u (%u, %u) is answered MET at %u", answer->kind, answer->a,
                 answer->b, answer->completed);
        break;
    case TSEMU_ANSWER_NEXT:
        if (!(answer->flags & TSEMU_WAIT_FLAG_NEXT) || answer->completed <= answer->next_completed)
            fail(client, "wait is answered NEXT without a next completion");
        break;
    case TSEMU_ANSWER_TIMEOUT:
        if (answer->deadline == FOREVER || answer->now < answer->deadline)
            fail(client, "wait is answered TIMEOUT before its deadline");
        if (met && !answer->garbage && answer->kind == TSEMU_WAIT_KIND_ALL &&
            answer->a == answer->submitted)
            fail(client, "wait for all up to %u is answered TIMEOUT (%llu) at %llu although %u ended",
                 answer->a, (unsigned long long)answer->deadline,
                 (unsigned long long)answer->now, answer->completed);
        break;
    case TSEMU_ANSWER_STALLED:
        if (!(answer->flags & TSEMU_WAIT_FLAG_LAUNCH))
            fail(client, "a wait that is no launch is answered STALLED");
        break;
    default:
        fail(client, "wait is answered with reason %u", answer->reason);
    }
}

static void check_bytes(const struct client *client)
{
    for (uint32_t cell = 0; cell < CELLS; cell++) {
        bool host = cell < CELLS / 2u;
        uint64_t offset = host ? client->page->host_heap_offset : client->page->device_heap_offset;
        if (memcmp(client->memory + offset + (cell % (CELLS / 2u)) * CELL_BYTES,
                   client->bytes + cell * CELL_BYTES, CELL_BYTES) != 0)
            fail(client, "memory cell %u does not hold what the copies left", cell);
    }
}

void oracle_client(const struct client *client, struct busy *busy, uint32_t *count)
{
    for (uint32_t ticket = 1; ticket <= client->submitted; ticket++) {
        const struct record *task = &client->tasks[ticket];
        if (!task->done)
            continue;
        if (!client->errored)
            check_task(client, task);
        if (!on_core(task) || task->start == task->end || task->core == 0xFFFFu)
            continue;
        uint64_t end = task->start + task->duration;
        busy[(*count)++] = (struct busy){task->core, ticket, task->start,
                                         end < task->end ? end : task->end};
    }
    if (client->errored || client->vanished)
        return;
    for (uint32_t i = 0; i < client->answer_count; i++)
        check_answer(client, &client->answers[i]);
    check_bytes(client);
}

static int by_core_and_start(const void *left, const void *right)
{
    const struct busy *a = left;
    const struct busy *b = right;
    if (a->core != b->core)
        return a->core < b->core ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

void oracle_cores(struct busy *busy, uint32_t count)
{
    qsort(busy, count, sizeof *busy, by_core_and_start);
    for (uint32_t i = 1; i < count; i++)
        if (busy[i].core == busy[i - 1].core && busy[i].start < busy[i - 1].end)
            fail(NULL, "core %u runs blocks of %u and %u at once", busy[i].core,
                 busy[i - 1].ticket, busy[i].ticket);
}

void oracle_baseline(const struct client *client)
{
    const uint32_t *argument = client->reply.argument;
    if (argument[0] != argument[1])
        fail(client, "%u tasks admitted, %u completed", argument[0], argument[1]);
    if (!client->errored && argument[0] != client->submitted)
        fail(client, "%u tasks submitted, %u admitted", client->submitted, argument[0]);
    if (argument[1] != client->consumed)
        fail(client, "%u tasks completed, %u completions found", argument[1], client->consumed);
    if (argument[2] != client->edge_nodes)
        fail(client, "%u of %u edge nodes are free at the end", argument[2], client->edge_nodes);
    if (argument[3])
        fail(client, "%u completions are parked at the end", argument[3]);
}
