/* Checks of what a caller passes: everything that would be refused by firmware is INVALID here,
 * before a ticket is used or anything is written. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

#define IMPLEMENTED                                                                              \
    "NOP 0, KERNEL 1, MEMCPY 2, MEMSET 3, EVENT_RECORD 6, EVENT_WAIT 7, EVENT_RESET 8"

struct fault {
    const char *field;
    uint64_t value, limit;
    const char *hint;
};

static bool wrong(struct fault *fault, const char *field, uint64_t value, uint64_t limit,
                  const char *hint)
{
    *fault = (struct fault){field, value, limit, hint};
    return false;
}

/* [address, address + length) lies in one heap; nothing overflows. */
static bool in_heap(const struct heap *heap, uint64_t address, uint64_t length)
{
    uint64_t at = address - heap->base;
    return address >= heap->base && at < heap->size && length <= heap->size - at;
}

static bool in_memory(const struct tsemu_context *c, uint64_t address, uint64_t length)
{
    return in_heap(&c->host_heap, address, length) || in_heap(&c->device_heap, address, length);
}

static bool check_address(const struct tsemu_context *c, const char *field, uint64_t address,
                          uint64_t length, struct fault *fault)
{
    if (address & (c->alignment - 1u))
        return wrong(fault, field, address, c->alignment,
                     "align the address as the device says (`limit` bytes)");
    if (!in_memory(c, address, length))
        return wrong(fault, field, address, length,
                     "use addresses inside one heap of this context (tsemu_buffer_alloc)");
    return true;
}

static bool check_class(const struct tsemu_context *c, const tsemu_launch_desc *d, bool moves,
                        struct fault *fault)
{
    if (d->engine_class >= c->class_count)
        return wrong(fault, "engine_class", d->engine_class, c->class_count - 1u,
                     "use an index of the device's class table (tsemu_engine_class)");
    if ((c->mover_classes >> d->engine_class & 1u) != moves)
        return wrong(fault, "engine_class", d->engine_class, c->class_count - 1u,
                     moves ? "MEMCPY and MEMSET run on a class that moves bytes, such as DMA"
                           : "this class moves bytes: use one that runs kernels");
    return true;
}

static bool check_copy(const struct tsemu_context *c, const tsemu_launch_desc *d,
                       struct fault *fault)
{
    if (!check_class(c, d, true, fault))
        return false;
    if (!d->length)
        return true;
    if (!check_address(c, "destination", d->destination, d->length, fault))
        return false;
    return d->opcode == TSEMU_OPCODE_MEMSET ||
           check_address(c, "argument", d->argument, d->length, fault);
}

static bool check_kernel(const struct tsemu_context *c, const tsemu_launch_desc *d,
                         struct fault *fault)
{
    if (!check_class(c, d, false, fault))
        return false;
    if (!d->blocks)
        return wrong(fault, "blocks", 0, 65535, "use 1 to 65535 blocks");
    if (d->flags & TSEMU_SQE_FLAG_GANG && d->blocks > c->page->classes[d->engine_class].cores)
        return wrong(fault, "blocks", d->blocks, c->page->classes[d->engine_class].cores,
                     "a gang starts all blocks together: use at most one per core of its class");
    if (d->argument && !in_memory(c, d->argument, 1))
        return wrong(fault, "argument", d->argument, 0,
                     "pass an address inside a heap of this context, or 0");
    return true;
}

/* The one list of conditions. */
static bool check_fields(const struct tsemu_context *c, const tsemu_launch_desc *d,
                         struct fault *fault)
{
    if (d->flags && (d->flags != TSEMU_SQE_FLAG_GANG || d->opcode != TSEMU_OPCODE_KERNEL))
        return wrong(fault, "flags", d->flags, TSEMU_SQE_FLAG_GANG,
                     "use 0, or TSEMU_SQE_FLAG_GANG for a kernel");
    if (d->priority >= TSEMU_PRIORITY_LEVELS)
        return wrong(fault, "priority", d->priority, TSEMU_PRIORITY_LEVELS - 1u,
                     "use 0 (highest) to 7");
    if (d->stream >= c->stream_count || !c->stream[d->stream].exists)
        return wrong(fault, "stream", d->stream, c->stream_count - 1u,
                     "create the stream first, or use stream 0");
    switch (d->opcode) {
    case TSEMU_OPCODE_KERNEL:
        return check_kernel(c, d, fault);
    case TSEMU_OPCODE_NOP:
        if (d->engine_class >= c->class_count)
            return wrong(fault, "engine_class", d->engine_class, c->class_count - 1u,
                         "use an index of the device's class table (tsemu_engine_class)");
        return true;
    case TSEMU_OPCODE_MEMCPY:
    case TSEMU_OPCODE_MEMSET:
        return check_copy(c, d, fault);
    case TSEMU_OPCODE_EVENT_RECORD:
    case TSEMU_OPCODE_EVENT_WAIT:
    case TSEMU_OPCODE_EVENT_RESET:
        if (d->event >= c->event_count || !c->event[d->event].exists)
            return wrong(fault, "event", d->event, c->event_count - 1u,
                         "create the event first");
        return true;
    default:
        return wrong(fault, "opcode", d->opcode, TSEMU_OPCODE_EVENT_RESET,
                     "this firmware implements " IMPLEMENTED);
    }
}

bool task_valid(const struct tsemu_context *c, const tsemu_launch_desc *d)
{
    struct fault fault;
    return check_fields(c, d, &fault);
}

int check_task(const struct tsemu_context *c, const tsemu_launch_desc *d, const char *prefix)
{
    struct fault fault;
    if (__builtin_expect(check_fields(c, d, &fault), 1))
        return TSEMU_OK;
    char field[32];
    snprintf(field, sizeof field, "%s%s", prefix, fault.field);
    driver_fail(TSEMU_E_INVALID, field, fault.value, fault.limit, fault.hint,
                "%s is %llu (%#llx), which cannot be (limit %llu)", field,
                (unsigned long long)fault.value, (unsigned long long)fault.value,
                (unsigned long long)fault.limit);
    driver_fail_about(0, d->stream);
    return TSEMU_E_INVALID;
}

static int compare_pointers(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)*(tsemu_task *const *)a, y = (uintptr_t)*(tsemu_task *const *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* Number of different handles: duplicates count once. */
static int count_distinct(tsemu_task *const *after, uint32_t count, uint32_t *distinct)
{
    tsemu_task **sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return driver_fail(TSEMU_E_NO_RESOURCE, "after", count, TSEMU_MAX_PREDECESSORS,
                           "use fewer predecessors", "no memory for %u predecessors", count);
    memcpy(sorted, after, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_pointers);
    *distinct = 0;
    for (uint32_t i = 0; i < count; i++)
        *distinct += i == 0 || sorted[i] != sorted[i - 1];
    free(sorted);
    return TSEMU_OK;
}

int check_entries(const struct tsemu_context *c, uint32_t predecessors, uint32_t *entries)
{
    if (predecessors > TSEMU_MAX_PREDECESSORS)
        return driver_fail(TSEMU_E_INVALID, "after", predecessors, TSEMU_MAX_PREDECESSORS,
                           "put a NOP in between that joins some of them",
                           "%u predecessors, a task can have at most %u", predecessors,
                           TSEMU_MAX_PREDECESSORS);
    *entries = entries_for(predecessors);
    if (*entries > c->sq_entries)
        return driver_fail(TSEMU_E_INVALID, "sq_entries", *entries, c->sq_entries,
                           "open the context with a larger `sq_entries`, or use fewer predecessors",
                           "%u predecessors need %u ring entries, the ring has %u", predecessors,
                           *entries, c->sq_entries);
    return TSEMU_OK;
}

int check_after(const struct tsemu_context *c, tsemu_task *const *after, uint32_t count,
                uint32_t extra, uint32_t *entries)
{
    if (__builtin_expect(count && !after, 0))
        return driver_fail(TSEMU_E_INVALID, "after", count, 0, "pass the handles, or count 0",
                           "%u predecessors, but no handles", count);
    for (uint32_t i = 0; i < count; i++) {
        const tsemu_task *task = after[i];
        if (__builtin_expect(!task || task->context != c, 0))
            return driver_fail(TSEMU_E_INVALID, "after", i, count,
                               "use handles that were launched in this context; order tasks of "
                               "different contexts on the host",
                               "after[%u] is no task of this context", i);
        if (__builtin_expect(task->status == TSEMU_PENDING &&
                                 (task->slot >= c->slots ||
                                  c->slot[task->slot].kind == OWNER_FREE ||
                                  c->slot[task->slot].ticket != task->ticket),
                             0))
            return driver_fail(TSEMU_E_INVALID, "after", i, count,
                               "do not copy, reuse or free a handle before it has been consumed",
                               "after[%u] says that task %u is pending in slot %u, which is not so",
                               i, task->ticket, task->slot);
    }
    uint32_t predecessors = count + extra;
    if (__builtin_expect(predecessors <= TSEMU_INLINE_PREDECESSORS, 1)) {
        *entries = 1;
        return TSEMU_OK;
    }
    if (count && (predecessors > TSEMU_MAX_PREDECESSORS ||
                  entries_for(predecessors) > c->sq_entries)) {
        int code = count_distinct(after, count, &count);
        if (code)
            return code;
        predecessors = count + extra;
    }
    return check_entries(c, predecessors, entries);
}
