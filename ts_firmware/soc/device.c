/* The device as a whole: configuration checked, contexts opened and closed, what it shows. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE, madvise */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tsemu/crc32c.h>
#include <tsemu/ring.h>

#define PAGE 4096u
#define MAX_SLOTS 65535u
#define HOST_BASE (1ull << 40)
#define DEVICE_BASE (2ull << 40)
#define MAX_HEAP (1ull << 36)

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

__attribute__((format(printf, 3, 4))) static uint64_t wrong(char *detail, size_t size,
                                                            const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, size, format, arguments);
    va_end(arguments);
    return 0;
}

static uint64_t pages(uint64_t bytes)
{
    return (bytes + PAGE - 1u) & ~(uint64_t)(PAGE - 1u);
}

static bool power_of_two(uint32_t n)
{
    return n && (n & (n - 1u)) == 0;
}

static uint32_t edge_nodes(const struct device_config *config,
                           const struct device_context_options *options)
{
    return config->edge_nodes ? config->edge_nodes : 4u * options->window;
}

static void lay_out(const struct device_config *config,
                    const struct device_context_options *options,
                    struct fw_context_config *context)
{
    memcpy(context->name, options->name, sizeof context->name);
    context->slots = options->slots;
    context->window = options->window;
    context->sq_entries = options->sq_entries;
    context->cq_entries = options->cq_entries;
    context->batch = options->batch;
    context->stream_limit = options->stream_limit;
    context->edge_nodes = edge_nodes(config, options);
    context->sq_offset = TSEMU_CONTROL_PAGE_BYTES;
    context->cq_offset =
        context->sq_offset + pages((uint64_t)options->sq_entries * TSEMU_ENTRY_BYTES);
    context->status_offset =
        context->cq_offset + pages((uint64_t)options->cq_entries * TSEMU_ENTRY_BYTES);
    context->host_heap_offset =
        context->status_offset + pages((uint64_t)options->slots * sizeof(uint32_t));
    context->host_heap_size = pages(options->host_heap_size);
    context->host_base = HOST_BASE;
    context->device_heap_offset = context->host_heap_offset + context->host_heap_size;
    context->device_heap_size = pages(options->device_heap_size);
    context->device_base = DEVICE_BASE;
    context->memory_size = context->device_heap_offset + context->device_heap_size;
}

uint64_t device_memory_size(const struct device_config *config,
                            const struct device_context_options *options, char *detail,
                            size_t size)
{
    if (options->slots < 2 || options->slots > MAX_SLOTS)
        return wrong(detail, size, "slots|%u|slots is %u, possible are 2 to %u|choose fewer slots",
                     options->slots, options->slots, MAX_SLOTS);
    if (options->batch < 1 || options->batch >= options->slots)
        return wrong(detail, size, "batch|%u|batch is %u, possible are 1 to slots - 1 = %u|",
                     options->batch, options->batch, options->slots - 1u);
    if (options->window < 1 || options->window > options->slots - options->batch)
        return wrong(detail, size,
                     "window|%u|window is %u, possible are 1 to slots - batch = %u|choose a "
                     "smaller window or batch, or more slots",
                     options->window, options->window, options->slots - options->batch);
    if (!power_of_two(options->sq_entries) || options->sq_entries < 2 ||
        options->sq_entries > 1u << 20)
        return wrong(detail, size, "sq_entries|%u|sq_entries is %u, possible are powers of two from "
                     "2 to 1048576|", options->sq_entries, options->sq_entries);
    if (!power_of_two(options->cq_entries) || options->cq_entries < 2 ||
        options->cq_entries > 1u << 20)
        return wrong(detail, size, "cq_entries|%u|cq_entries is %u, possible are powers of two from "
                     "2 to 1048576|", options->cq_entries, options->cq_entries);
    if (options->stream_limit < 1)
        return wrong(detail, size, "stream_limit|0|stream_limit is 0, at least 1 is needed|");
    if (options->host_heap_size > MAX_HEAP || options->device_heap_size > MAX_HEAP)
        return wrong(detail, size, "heap|%llu|a heap is larger than %llu bytes|",
                     (unsigned long long)(options->host_heap_size > MAX_HEAP
                                              ? options->host_heap_size
                                              : options->device_heap_size),
                     (unsigned long long)MAX_HEAP);
    struct fw_context_config context = {0};
    lay_out(config, options, &context);
    return context.memory_size;
}

static bool check_config(const struct device_config *config, char *detail, size_t size)
{
    uint32_t cores = 0;
    if (config->class_count < 1 || config->class_count > TSEMU_MAX_CLASSES)
        return wrong(detail, size, "classes|%u|%u engine classes, possible are 1 to %u|",
                     config->class_count, config->class_count, TSEMU_MAX_CLASSES);
    for (uint32_t c = 0; c < config->class_count; c++) {
        const struct device_class *class = &config->classes[c];
        if (class->frequency_mhz == 0)
            return wrong(detail, size, "frequency_mhz|0|class %s has no clock|", class->name);
        if (class->cores > HAL_CORES)
            return wrong(detail, size, "cores|%u|class %s has %u cores, possible are up to %u|",
                         class->cores, class->name, class->cores, HAL_CORES);
        cores += class->cores;
    }
    if (cores < 1 || cores > HAL_CORES)
        return wrong(detail, size, "cores|%u|%u cores in all, possible are 1 to %u|", cores, cores,
                     HAL_CORES);
    if (config->max_contexts < 1 || config->max_contexts > DEVICE_MAX_CONTEXTS)
        return wrong(detail, size, "contexts|%u|%u contexts, possible are 1 to %u|",
                     config->max_contexts, config->max_contexts, DEVICE_MAX_CONTEXTS);
    if (config->clients > config->max_contexts)
        return wrong(detail, size, "clients|%u|%u clients are more than the %u contexts|",
                     config->clients, config->clients, config->max_contexts);
    if (config->max_streams < 1 || config->max_streams > 65535u)
        return wrong(detail, size, "streams|%u|%u streams, possible are 1 to 65535|",
                     config->max_streams, config->max_streams);
    if (config->max_events > 65535u)
        return wrong(detail, size, "events|%u|%u events, possible are up to 65535|",
                     config->max_events, config->max_events);
    if (!power_of_two(config->alignment) || config->alignment > PAGE)
        return wrong(detail, size, "alignment|%u|alignment is %u, possible are powers of two up "
                     "to 4096|", config->alignment, config->alignment);
    if (config->clock_mode == TSEMU_CLOCK_MODE_PACED &&
        (config->paced_num == 0 || config->paced_den == 0))
        return wrong(detail, size, "clock|0|the pace is zero or endless|");
    return true;
}

static void firmware_config(const struct device_config *config, struct fw_config *fw)
{
    fw->class_count = config->class_count;
    for (uint32_t c = 0; c < config->class_count; c++) {
        memcpy(fw->classes[c].name, config->classes[c].name, sizeof fw->classes[c].name);
        fw->classes[c].cores = config->classes[c].cores;
        fw->classes[c].frequency_mhz = config->classes[c].frequency_mhz;
        fw->classes[c].moves_bytes = config->classes[c].moves_bytes;
    }
    fw->policy = config->policy;
    fw->clock_mode = config->clock_mode;
    fw->max_contexts = config->max_contexts;
    fw->max_streams = config->max_streams;
    fw->max_events = config->max_events;
    fw->alignment = config->alignment;
    fw->poll_cost = config->poll_cost_ps;
    fw->wait_limit = config->wait_limit_ps;
    fw->ageing = config->ageing_ps;
    fw->host_task = config->host_task_ps;
    fw->host_call = config->host_call_ps;
    fw->fetch = config->fetch_ps;
    fw->edge = config->edge_ps;
    fw->dispatch = config->dispatch_ps;
    fw->retire = config->retire_ps;
}

/* Address space for the firmware and all contexts; pages come when they are touched. */
static bool reserve_arena(struct device *dev, const struct fw_config *config)
{
    struct fw_context_config largest = {.slots = MAX_SLOTS};
    struct device_context_options options = {.slots = MAX_SLOTS};
    largest.edge_nodes = edge_nodes(&dev->config, &options);
    dev->context_offset = pages(fw_size());
    dev->context_stride = pages(fw_context_size(config, &largest));
    dev->arena_size = dev->context_offset + dev->context_stride * config->max_contexts;
    void *arena = mmap(NULL, dev->arena_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    dev->arena = arena == MAP_FAILED ? NULL : arena;
    return dev->arena != NULL;
}

device *device_create(const struct device_config *config, char *detail, size_t detail_size)
{
    struct fw_config fw = {0};
    if (!check_config(config, detail, detail_size))
        return NULL;
    struct device *dev = calloc(1, sizeof *dev);
    if (!dev)
        return NULL;
    dev->config = *config;
    for (uint32_t c = 0; c < config->class_count; c++)
        dev->core_count += config->classes[c].cores;
    dev->cores = calloc(dev->core_count, sizeof *dev->cores);
    firmware_config(config, &fw);
    if (!dev->cores || !reserve_arena(dev, &fw)) {
        wrong(detail, detail_size, "memory|0|no memory for the model|");
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
    slot->memory_size = size;
    slot->interrupt_fd = options->interrupt_fd;
    memcpy(slot->name, options->name, sizeof slot->name);
    dev->hal.window[id] = memory;
    dev->opened++;
    lay_out(&dev->config, options, &context);
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
    if (context >= 0 && context < DEVICE_MAX_CONTEXTS && dev->contexts[context].open)
        fw_context_close(dev->fw, (uint32_t)context);
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
    status->wall_wait_ns = dev->wall_wait_ns;
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
