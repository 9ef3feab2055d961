/* Buffers: first fit in the heaps of the context, free neighbours joined. The list of blocks is the
 * driver's; the device sees only addresses. */
#include "internal.h"

#include <stdlib.h>

bool heap_open(struct heap *heap)
{
    if (!heap->size)
        return true;
    heap->first = malloc(sizeof *heap->first);
    if (!heap->first)
        return false;
    *heap->first = (struct heap_block){.size = heap->size};
    return true;
}

void heap_close(struct heap *heap)
{
    while (heap->first) {
        struct heap_block *block = heap->first;
        heap->first = block->next;
        free(block);
    }
}

static uint64_t heap_free_bytes(const struct heap *heap)
{
    uint64_t free_bytes = 0;
    for (const struct heap_block *block = heap->first; block; block = block->next)
        free_bytes += block->used ? 0 : block->size;
    return free_bytes;
}

static struct heap_block *first_fit(struct heap *heap, uint64_t size)
{
    for (struct heap_block *block = heap->first; block; block = block->next)
        if (!block->used && block->size >= size)
            return block;
    return NULL;
}

int tsemu_buffer_alloc(tsemu_context *c, int on_device, uint64_t size, uint64_t *address)
{
    struct heap *heap = on_device ? &c->device_heap : &c->host_heap;
    const char *limit = on_device ? "device_heap_mib" : "host_heap_mib";
    context_lock(c);
    int code = context_check(c);
    if (!code && !size)
        code = driver_fail(TSEMU_E_INVALID, "size", 0, heap->size, "ask for at least one byte",
                           "a buffer of 0 bytes");
    uint64_t rounded = (size + c->alignment - 1u) & ~(uint64_t)(c->alignment - 1u);
    struct heap_block *block = NULL, *rest = NULL;
    if (!code) {
        block = rounded >= size ? first_fit(heap, rounded) : NULL;
        if (!block)
            code = driver_fail(TSEMU_E_NO_RESOURCE, limit, heap_free_bytes(heap), heap->size,
                               "free buffers, or open the context with a larger heap",
                               "no %llu bytes in one piece: %llu of %llu bytes are free",
                               (unsigned long long)size,
                               (unsigned long long)heap_free_bytes(heap),
                               (unsigned long long)heap->size);
    }
    if (!code && block->size > rounded && !(rest = malloc(sizeof *rest)))
        code = driver_fail(TSEMU_E_NO_RESOURCE, "memory", 0, 0, "free memory", "no memory");
    if (!code) {
        if (rest) {
            *rest = (struct heap_block){block->offset + rounded, block->size - rounded,
                                        block->next, false};
            block->next = rest;
            block->size = rounded;
        }
        block->used = true;
        *address = heap->base + block->offset;
    }
    context_unlock(c);
    return code;
}

static void join_next(struct heap_block *block)
{
    struct heap_block *next = block->next;
    if (block->used || !next || next->used)
        return;
    block->size += next->size;
    block->next = next->next;
    free(next);
}

static bool heap_release(struct heap *heap, uint64_t address)
{
    struct heap_block *before = NULL;
    for (struct heap_block *block = heap->first; block; before = block, block = block->next) {
        if (!block->used || heap->base + block->offset != address)
            continue;
        block->used = false;
        join_next(block);
        if (before)
            join_next(before);
        return true;
    }
    return false;
}

int tsemu_buffer_free(tsemu_context *c, uint64_t address)
{
    context_lock(c);
    int code = c->closed ? context_check(c) : TSEMU_OK;
    if (!code && !heap_release(&c->host_heap, address) && !heap_release(&c->device_heap, address))
        code = driver_fail(TSEMU_E_INVALID, "address", address, 0,
                           "free each buffer once, by the address that was returned",
                           "no buffer begins at %#llx", (unsigned long long)address);
    context_unlock(c);
    return code;
}

void *tsemu_buffer_pointer(tsemu_context *c, uint64_t address, uint64_t size)
{
    const struct heap *heaps[2] = {&c->host_heap, &c->device_heap};
    if (c->closed) {
        context_refuses(c);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        uint64_t at = address - heaps[i]->base;
        if (address >= heaps[i]->base && at < heaps[i]->size && size <= heaps[i]->size - at)
            return c->memory + heaps[i]->offset + at;
    }
    driver_fail(TSEMU_E_INVALID, "address", address, size, "use an address inside a buffer",
                "%#llx to %#llx is not inside a heap of this context",
                (unsigned long long)address, (unsigned long long)(address + size));
    return NULL;
}
