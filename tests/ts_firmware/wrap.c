/* An in-order stream across the wrap of the tickets at 2^32: `wrap` exits 0 when its tasks have run
 * one after the other. Reaches into the firmware's state to begin near it. */
#include "model.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tsemu/crc32c.h>

#define COUNT 6u
#define FIRST (0u - 3u)

static void run(struct tsemu_cqe *cqes)
{
    char detail[256];
    static struct device_config config = {
        .class_count = 1,
        .classes = {{.name = "A", .cores = 4, .frequency_mhz = 1000}},
        .max_contexts = 1, .max_streams = 2, .alignment = 64,
        .wait_limit_ps = 1000000000000ull, .hold_limit_ns = 1000000000};
    struct device_context_options options = {
        .name = "wrap", .slots = 16, .window = 8, .sq_entries = 16, .cq_entries = 16, .batch = 8,
        .stream_limit = 8, .interrupt_fd = -1};
    uint64_t size = device_memory_size(&config, &options, detail, sizeof detail);
    device *dev = device_create(&config, detail, sizeof detail);
    uint8_t *memory = size && dev ? aligned_alloc(4096, size) : NULL;
    if (!memory)
        exit(2);
    memset(memory, 0, size);
    if (device_context_open(dev, &options, memory, size) != 0)
        exit(2);
    struct context *context = fw_context(dev->fw, 0);
    context->admitted = context->completed = FIRST - 1u;
    *context_stream(context, 1) =
        (struct stream){.used = 1, .in_order = 1, .groups = NO_SLOT, .last_slot = NO_SLOT};
    struct tsemu_control_page *page = (struct tsemu_control_page *)memory;
    struct tsemu_sqe *ring = (struct tsemu_sqe *)(memory + page->sq_offset);
    for (uint32_t i = 0; i < COUNT; i++) {
        _Alignas(8) struct tsemu_sqe sqe = {
            .version = TSEMU_SQE_VERSION, .opcode = TSEMU_OPCODE_KERNEL,
            .flags = TSEMU_SQE_FLAG_PHASE, .stream = 1, .ticket = FIRST + i, .slot = (uint16_t)i,
            .cycles = 1000 - 100 * i, .blocks = 1,
            .predecessors = {TSEMU_NO_SLOT, TSEMU_NO_SLOT, TSEMU_NO_SLOT}};
        sqe.crc = tsemu_crc32c_entry(&sqe, 12);
        ring[i] = sqe;
    }
    tsemu_store_release(&page->sq_tail, COUNT);
    device_run(dev, 1000000000, 0);
    tsemu_store_release(&page->waits[0].submitted, FIRST + COUNT - 1u);
    page->waits[0].kind = TSEMU_WAIT_KIND_ALL;
    page->waits[0].a = FIRST + COUNT - 1u;
    tsemu_store_release(&page->waits[0].sequence, 1);
    tsemu_store_release(&page->wait_posts, 1);
    device_run(dev, 1000000000, 0);
    memcpy(cqes, memory + page->cq_offset, COUNT * sizeof *cqes);
    if (page->cq_tail != COUNT || page->answers[0].sequence != 1) {
        fprintf(stderr, "%u completions, refusal %u\n", page->cq_tail, page->refusal_reason);
        exit(1);
    }
    device_destroy(dev);
    free(memory);
}

int main(void)
{
    struct tsemu_cqe cqes[COUNT];
    run(cqes);
    for (uint32_t i = 0; i < COUNT; i++)
        if (cqes[i].ticket != FIRST + i || cqes[i].status != TSEMU_STATUS_OK ||
            (i && cqes[i].start_ps < cqes[i - 1].end_ps)) {
            fprintf(stderr, "task %u is number %u and starts at %llu\n", cqes[i].ticket, i,
                    (unsigned long long)cqes[i].start_ps);
            return 1;
        }
    return 0;
}
