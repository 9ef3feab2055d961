/* Handles of tasks as Python holds them: launches that take plain integers instead of structures
 * (no allocation per call), slabs of records, and memory that outlives its context. Compiled into
 * `_driver` only. */
#ifndef TSEMU_HANDLES_H
#define TSEMU_HANDLES_H

#include <sys/mman.h>
#include <gate.h>

struct handle_stream {
    struct handle_gate *gate;
    uint16_t stream;
    uint8_t priority; /* of launches that name none */
};

static int handle_try(const struct handle_stream *record, const tsemu_launch_desc *desc,
                      uintptr_t task, uintptr_t after0, uintptr_t after1, uintptr_t after2)
{
    tsemu_context *context = handle_enter(record->gate);
    if (context == NULL)
        return TSEMU_E_CLOSED;
    tsemu_task *after[3] = {(tsemu_task *)after0, (tsemu_task *)after1, (tsemu_task *)after2};
    uint32_t count = after2 != 0 ? 3u : after1 != 0 ? 2u : after0 != 0 ? 1u : 0u;
    int code = driver_launch_try(context, desc, after, count, (tsemu_task *)task);
    handle_leave(record->gate);
    return code;
}

/* Launch a kernel with up to three predecessors, without blocking: the code of driver_launch_try.
 * Addresses of records are integers; 0 is no predecessor. */
static int handle_launch(uintptr_t stream_record, uintptr_t task, uintptr_t after0,
                         uintptr_t after1, uintptr_t after2, uint32_t cycles, uint16_t kernel,
                         uint8_t engine_class, uint16_t blocks, uint32_t bytes_read,
                         uint32_t bytes_written, uint8_t priority, uint64_t argument,
                         uint32_t timeout_us, uint32_t value, uint64_t user_tag)
{
    const struct handle_stream *record = (const struct handle_stream *)stream_record;
    tsemu_launch_desc desc = {
        .opcode = TSEMU_OPCODE_KERNEL,
        .stream = record->stream,
        .engine_class = engine_class,
        .priority = priority,
        .blocks = blocks,
        .cycles = cycles,
        .bytes_read = bytes_read,
        .bytes_written = bytes_written,
        .kernel = kernel,
        .timeout_us = timeout_us,
        .value = value,
        .argument = argument,
        .user_tag = user_tag,
    };
    return handle_try(record, &desc, task, after0, after1, after2);
}

/* The same with one block, the stream's priority and nothing else: half of the arguments are half
 * of the time that Python needs for the call. */
static int handle_launch_plain(uintptr_t stream_record, uintptr_t task, uintptr_t after0,
                               uintptr_t after1, uintptr_t after2, uint32_t cycles,
                               uint16_t kernel, uint8_t engine_class)
{
    const struct handle_stream *record = (const struct handle_stream *)stream_record;
    tsemu_launch_desc desc = {
        .opcode = TSEMU_OPCODE_KERNEL,
        .stream = record->stream,
        .engine_class = engine_class,
        .priority = record->priority,
        .blocks = 1,
        .cycles = cycles,
        .kernel = kernel,
    };
    return handle_try(record, &desc, task, after0, after1, after2);
}

/* The records of a new slab: not launched, so not ended. */
static void handle_prepare(uintptr_t tasks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ((tsemu_task *)tasks)[i].status = TSEMU_PENDING;
}

/* A record whose launch was refused: nobody will ever write it. */
static void handle_unused(uintptr_t task)
{
    ((tsemu_task *)task)->status = TSEMU_STATUS_OK;
}

/* Status word of a handle; TSEMU_PENDING until the driver has consumed the completion. */
static uint16_t handle_status(uintptr_t task)
{
    return atomic_load_explicit((_Atomic uint16_t *)&((tsemu_task *)task)->status,
                                memory_order_acquire);
}

/* Position of the first record that is pending, from `from` on; `count` when there is none. */
static uint32_t handle_first_pending(uintptr_t tasks, uint32_t from, uint32_t count)
{
    for (uint32_t i = from; i < count; i++) {
        if (handle_status((uintptr_t)((tsemu_task *)tasks + i)) == TSEMU_PENDING)
            return i;
    }
    return count;
}

/* Their context is gone: an edge to one of them is refused, whatever takes that memory next. */
static void handle_orphan(uintptr_t tasks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ((tsemu_task *)tasks)[i].context = NULL;
}

/* Address of a heap's first byte, for handle_map_again. */
static uintptr_t handle_heap(struct handle_gate *gate, int on_device)
{
    tsemu_context *context = handle_enter(gate);
    if (context == NULL)
        return 0;
    const struct tsemu_control_page *page = tsemu_page(context);
    uintptr_t heap = (uintptr_t)page + (uintptr_t)(on_device ? page->device_heap_offset
                                                             : page->host_heap_offset);
    handle_leave(gate);
    return heap;
}

/* A second mapping of part of the context's memory object, so that arrays of the caller's stay
 * readable after the context is closed; NULL when the system refuses. */
static void *handle_map_again(uintptr_t address, uint64_t size)
{
    void *mapped = mremap((void *)address, 0, size, MREMAP_MAYMOVE);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static int handle_unmap(void *address, uint64_t size)
{
    return munmap(address, size);
}

#endif
