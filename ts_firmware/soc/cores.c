/* Cores and DMA channels: how long a block takes, what it does at its end, interrupts. */
#include "model.h"

#include <string.h>

#define PS_PER_US 1000000u

/* Rounded up, once per block. */
static uint64_t cycles_to_ps(uint64_t cycles, uint32_t mhz)
{
    return (cycles * PS_PER_US + mhz - 1u) / mhz;
}

static uint64_t bytes_to_ps(uint64_t bytes, uint32_t mbps)
{
    return mbps ? (bytes * PS_PER_US + mbps - 1u) / mbps : 0;
}

/* What does not change is worked out once. */
void cores_prepare(struct device *dev)
{
    for (uint32_t c = 0; c < dev->config.class_count; c++) {
        const struct device_class *class = &dev->config.classes[c];
        dev->setup_ps[c] = cycles_to_ps(class->setup_cycles, class->frequency_mhz);
        dev->cycle_ps[c] = PS_PER_US % class->frequency_mhz ? 0 : PS_PER_US / class->frequency_mhz;
    }
}

static uint64_t duration(const struct device *dev, uint32_t c, const struct hal_block *block)
{
    const struct device_class *class = &dev->config.classes[c];
    if (block->opcode != TSEMU_OPCODE_KERNEL)
        return dev->setup_ps[c] + bytes_to_ps(block->length, class->bandwidth_mbps);
    uint64_t compute = dev->cycle_ps[c] ? (uint64_t)block->cycles * dev->cycle_ps[c]
                                        : cycles_to_ps(block->cycles, class->frequency_mhz);
    if (class->cost == DEVICE_COST_ROOFLINE) {
        uint64_t bytes = (uint64_t)block->bytes_read + block->bytes_written;
        uint64_t memory = bytes_to_ps(bytes, class->bandwidth_mbps);
        if (memory > compute)
            compute = memory;
    }
    return dev->setup_ps[c] + compute;
}

struct hal_block *hal_core_command(struct hal *hal, uint32_t index)
{
    struct device *dev = (struct device *)hal;
    return &dev->cores[index].block;
}

void hal_core_start(struct hal *hal, uint32_t index, uint64_t start)
{
    struct device *dev = (struct device *)hal;
    struct soc_core *core = &dev->cores[index];
    core->busy = true;
    core->started = start;
    core->ended = start + duration(dev, core->engine_class, &core->block);
    uint64_t interrupt = core->ended + dev->config.interrupt_ps;
    if (!queue_push(&dev->queue, interrupt, index))
        hal_panic(hal, "no memory for the event queue");
}

void hal_core_reset(struct hal *hal, uint32_t index)
{
    struct device *dev = (struct device *)hal;
    struct soc_core *core = &dev->cores[index];
    queue_remove_core(&dev->queue, index);
    if (hal->now > core->started)
        core->busy_ps += hal->now - core->started;
    core->busy = false;
    for (uint32_t i = 0, kept = 0, count = dev->done_count; i < count; i++) {
        uint32_t done = dev->done[(dev->done_head + i) % HAL_CORES];
        if (done == index) {
            dev->done_count--;
            continue;
        }
        dev->done[(dev->done_head + kept++) % HAL_CORES] = done;
    }
}

/* The bytes of a copy appear at its end, in one step. */
static void move_bytes(struct device *dev, const struct hal_block *block)
{
    uint8_t *window = dev->hal.window[block->context];
    uint8_t *to = window + block->destination;
    if (block->opcode == TSEMU_OPCODE_MEMCPY) {
        memmove(to, window + block->source, block->length);
        return;
    }
    uint64_t whole = block->length & ~(uint64_t)7u;
    for (uint64_t at = 0; at < whole; at += 8)
        memcpy(to + at, &block->source, 8);
    memcpy(to + whole, &block->source, block->length - whole);
}

/* The block on this core has ended and the interrupt arrives. */
void cores_end(struct device *dev, uint32_t index)
{
    struct soc_core *core = &dev->cores[index];
    core->busy = false;
    core->blocks++;
    core->busy_ps += core->ended - core->started;
    if (core->block.opcode != TSEMU_OPCODE_KERNEL && core->block.length)
        move_bytes(dev, &core->block);
    dev->done[(dev->done_head + dev->done_count++) % HAL_CORES] = index;
}

uint32_t hal_core_next_done(struct hal *hal, uint64_t *ended)
{
    struct device *dev = (struct device *)hal;
    if (dev->done_count == 0)
        return HAL_NO_CORE;
    uint32_t core = dev->done[dev->done_head];
    dev->done_head = (dev->done_head + 1u) % HAL_CORES;
    dev->done_count--;
    *ended = dev->cores[core].ended;
    return core;
}
