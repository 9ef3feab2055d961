/* The device as a whole: created, contexts opened and closed, what it shows. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE, madvise */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tsemu/crc32c.h>
#include <tsemu/ring.h>

uint32_t hal_crc32c_entry(const void *entry, uint32_t offset)
{
    return tsemu_crc32c_entry(entry, offset);
}

void hal_interrupt(struct hal *hal, uint32_t context)
{
    const struct device *dev = (const struct device *)hal;
    const uint64_t one = 1;
    int fd = dev->contexts[context].interrupt_fd;
    if (fd >= 0 && write(fd, &one, sizeof one) < 0)
        return; /* the counter is at its maximum: the peer has not read it, so it will wake */
}

/* Nobody reading never stalls the firmware: the oldest text is overwritten. */
void hal_uart_write(struct hal *hal, const char *text, uint32_t length)
{
    struct device *dev = (struct device *)hal;
    for (uint32_t i = 0; i < length; i++)
        dev->console[dev->console_written++ % CONSOLE_BYTES] = text[i];
    if (dev->console_written - dev->console_read > CONSOLE_BYTES)
        dev->console_read = dev->console_written - CONSOLE_BYTES;
}

void hal_panic(struct hal *hal, const char *reason)
{
    struct device *dev = (struct device *)hal;
    snprintf(dev->panic, sizeof dev->panic, "%s", reason);
}

/* Address space for the firmware and all contexts; pages come when they are touched. */
static bool reserve_arena(struct device *dev, const struct fw_config *config)
{
    dev->context_offset = geometry_pages(fw_size());
    dev->context_stride = geometry_pages(geometry_largest_context(&dev->config, config));
    dev->arena_size = dev->context_offset + dev->context_stride * dev->config.max_contexts;
    void *arena = mmap(NULL, dev->arena_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    dev->arena = arena == MAP_FAILED ? NULL : arena;
    return dev->arena != NULL;
}

device *device_create(const struct device_config *config, char *detail, size_t detail_size)
{
    struct fw_config fw = {0};
    if (!geometry_check(config, detail, detail_size))
        return NULL;
    struct device *dev = calloc(1, sizeof *dev);
    if (!dev)
        return NULL;
    dev->config = *config;
    for (uint32_t c = 0; c < config->class_count; c++)
        dev->core_count += config->classes[c].cores;
    dev->cores = calloc(dev->core_count, sizeof *dev->cores);
    geometry_firmware(config, &fw);
    if (!dev->cores || !reserve_arena(dev, &fw)) {
        snprintf(detail, detail_size, "memory|0|no memory for the model|");
        free(dev->cores);
        free(dev);
        return NULL;
    }
    for (uint32_t c = 0, core = 0; c < config->class_count; c++)
        for (uint32_t i = 0; i < config->classes[c].cores; i++)
            dev->cores[core++].engine_class = c;
    cores_prepare(dev);
    pthread_mutex_init(&dev->lock, NULL);
    dev->last_wake = NEVER;
    dev->pace_wall_ns = clock_wall_ns();
    dev->fw = fw_init(dev->arena, &dev->hal, &fw);
    return dev;
}

void device_destroy(device *dev)
{
    if (!dev)
        return;
    munmap(dev->arena, dev->arena_size);
    pthread_mutex_destroy(&dev->lock);
    free(dev->queue.heap);
    free(dev->cores);
    free(dev);
}

static bool name_in_use(const struct device *dev, const char *name)
{
    for (uint32_t id = 0; id < DEVICE_MAX_CONTEXTS; id++)
        if (dev->contexts[id].open &&
            strncmp(dev->contexts[id].name, name, DEVICE_NAME_BYTES) == 0)
            return true;
    return false;
}

static int open_locked(struct device *dev, const struct device_context_options *options,
                       void *memory, uint64_t size)
{
    struct fw_context_config context = {0};
    char detail[160];
    if (device_memory_size(&dev->config, options, detail, sizeof detail) != size)
        return DEVICE_E_OPTIONS;
    if (name_in_use(dev, options->name))
        return DEVICE_E_NAME;
    uint32_t id = 0;
    while (id < dev->config.max_contexts && dev->contexts[id].open)
        id++;
    if (id == dev->config.max_contexts)
        return DEVICE_E_CONTEXTS;
    struct soc_context *slot = &dev->contexts[id];
    memset(slot, 0, sizeof *slot);
    slot->open = true;
    slot->process = options->process;
    slot->interrupt_fd = options->interrupt_fd;
    memcpy(slot->name, options->name, sizeof slot->name);
    dev->hal.window[id] = memory;
    geometry_lay_out(&dev->config, options, &context);
    fw_context_open(dev->fw, id, dev->context_offset + id * dev->context_stride, &context);
    return (int)id;
}

int device_context_open(device *dev, const struct device_context_options *options, void *memory,
                        uint64_t size)
{
    pthread_mutex_lock(&dev->lock);
    int id = open_locked(dev, options, memory, size);
    pthread_mutex_unlock(&dev->lock);
    return id;
}

void device_context_close(device *dev, int context)
{
    pthread_mutex_lock(&dev->lock);
    if (context >= 0 && context < DEVICE_MAX_CONTEXTS && dev->contexts[context].open) {
        dev->contexts[context].left = true;
        fw_context_close(dev->fw, (uint32_t)context);
    }
    pthread_mutex_unlock(&dev->lock);
}

int device_context_gone(device *dev, int context)
{
    pthread_mutex_lock(&dev->lock);
    bool gone = context < 0 || context >= DEVICE_MAX_CONTEXTS || !dev->contexts[context].open;
    if (!gone && fw_context_gone(dev->fw, (uint32_t)context)) {
        uint64_t offset = dev->context_offset + (uint32_t)context * dev->context_stride;
        fw_context_free(dev->fw, (uint32_t)context);
        madvise(dev->arena + offset, dev->context_stride, MADV_DONTNEED); /* zeroed again */
        dev->hal.window[context] = NULL;
        dev->contexts[context].open = false;
        gone = true;
    }
    pthread_mutex_unlock(&dev->lock);
    return gone;
}

void device_status(device *dev, struct device_status *status)
{
    pthread_mutex_lock(&dev->lock);
    memset(status, 0, sizeof *status);
    status->now_ps = dev->hal.now;
    status->instants = dev->instants;
    status->hold_limits = dev->hold_limits;
    status->dispatched = fw_dispatched(dev->fw);
    status->cores = dev->core_count;
    for (uint32_t id = 0; id < DEVICE_MAX_CONTEXTS; id++) {
        struct fw_context_view view;
        if (!dev->contexts[id].open)
            continue;
        fw_context_view(dev->fw, id, &view);
        status->contexts++;
        status->admitted += view.admitted;
        status->completed += view.completed;
    }
    pthread_mutex_unlock(&dev->lock);
}

uint32_t device_cores(device *dev, struct device_core_status *cores, uint32_t count)
{
    pthread_mutex_lock(&dev->lock);
    for (uint32_t i = 0; i < count && i < dev->core_count; i++) {
        const struct soc_core *core = &dev->cores[i];
        cores[i].engine_class = core->engine_class;
        cores[i].busy = core->busy;
        cores[i].blocks = core->blocks;
        cores[i].busy_ps = core->busy_ps;
        if (core->busy && dev->hal.now > core->started)
            cores[i].busy_ps += dev->hal.now - core->started;
    }
    pthread_mutex_unlock(&dev->lock);
    return dev->core_count;
}

int device_context_status(device *dev, int context, struct device_context_status *status)
{
    int known = 0;
    pthread_mutex_lock(&dev->lock);
    memset(status, 0, sizeof *status);
    if (context >= 0 && context < DEVICE_MAX_CONTEXTS && dev->contexts[context].open) {
        struct fw_context_view view;
        fw_context_view(dev->fw, (uint32_t)context, &view);
        memcpy(status->name, dev->contexts[context].name, sizeof status->name);
        status->context = (uint32_t)context;
        status->admitted = view.admitted;
        status->completed = view.completed;
        status->incomplete = view.incomplete;
        status->state = view.state;
        status->waits = view.waits;
        status->published = view.published;
        status->holds = dev->hold_since_ns && dev->holder == (uint32_t)context;
        known = 1;
    }
    pthread_mutex_unlock(&dev->lock);
    return known;
}

size_t device_console(device *dev, char *text, size_t size)
{
    size_t taken = 0;
    pthread_mutex_lock(&dev->lock);
    while (taken < size && dev->console_read < dev->console_written)
        text[taken++] = dev->console[dev->console_read++ % CONSOLE_BYTES];
    pthread_mutex_unlock(&dev->lock);
    return taken;
}

const char *device_panic_text(device *dev)
{
    return dev->panic;
}
