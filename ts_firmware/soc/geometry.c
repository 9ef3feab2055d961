/* What a device and a context may be: configuration and options checked, the parts of a context's
 * memory laid out, what the firmware is told, and how much SRAM the largest context takes. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PAGE 4096u
#define MAX_SLOTS 65535u
#define HOST_BASE (1ull << 40)
#define DEVICE_BASE (2ull << 40)
#define MAX_HEAP (1ull << 36)
#define FAIR_UNIT 65536u /* scale of weight 1; 65 of weight 1000 */

__attribute__((format(printf, 3, 4))) static uint64_t wrong(char *detail, size_t size,
                                                            const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, size, format, arguments);
    va_end(arguments);
    return 0;
}

uint64_t geometry_pages(uint64_t bytes)
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

void geometry_lay_out(const struct device_config *config,
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
    context->fair_scale = FAIR_UNIT / (options->weight ? options->weight : 1u);
    context->edge_nodes = edge_nodes(config, options);
    context->sq_offset = TSEMU_CONTROL_PAGE_BYTES;
    context->cq_offset =
        context->sq_offset + geometry_pages((uint64_t)options->sq_entries * TSEMU_ENTRY_BYTES);
    context->status_offset =
        context->cq_offset + geometry_pages((uint64_t)options->cq_entries * TSEMU_ENTRY_BYTES);
    context->host_heap_offset =
        context->status_offset + geometry_pages((uint64_t)options->slots * sizeof(uint32_t));
    context->host_heap_size = geometry_pages(options->host_heap_size);
    context->host_base = HOST_BASE;
    context->device_heap_offset = context->host_heap_offset + context->host_heap_size;
    context->device_heap_size = geometry_pages(options->device_heap_size);
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
        return wrong(detail, size, "batch|%u|batch is %u, possible are 1 to slots - 1 = %u|"
                     "choose a smaller batch",
                     options->batch, options->batch, options->slots - 1u);
    if (options->window < 1 || options->window > options->slots - options->batch)
        return wrong(detail, size,
                     "window|%u|window is %u, possible are 1 to slots - batch = %u|choose a "
                     "smaller window or batch, or more slots",
                     options->window, options->window, options->slots - options->batch);
    if (!power_of_two(options->sq_entries) || options->sq_entries < 2 ||
        options->sq_entries > 1u << 20)
        return wrong(detail, size, "sq_entries|%u|"
                     "sq_entries is %u, possible are powers of two from "
                     "2 to 1048576|"
                     "choose a power of two", options->sq_entries, options->sq_entries);
    if (!power_of_two(options->cq_entries) || options->cq_entries < 2 ||
        options->cq_entries > 1u << 20)
        return wrong(detail, size, "cq_entries|%u|"
                     "cq_entries is %u, possible are powers of two from "
                     "2 to 1048576|"
                     "choose a power of two", options->cq_entries, options->cq_entries);
    if (options->stream_limit < 1)
        return wrong(detail, size, "stream_limit|0|stream_limit is 0, at least 1 is needed|"
                     "leave it out for the default");
    if (options->host_heap_size > MAX_HEAP || options->device_heap_size > MAX_HEAP)
        return wrong(detail, size, "heap|%llu|a heap is larger than %llu bytes|"
                     "choose a smaller heap",
                     (unsigned long long)(options->host_heap_size > MAX_HEAP
                                              ? options->host_heap_size
                                              : options->device_heap_size),
                     (unsigned long long)MAX_HEAP);
    struct fw_context_config context = {0};
    geometry_lay_out(config, options, &context);
    return context.memory_size;
}

bool geometry_check(const struct device_config *config, char *detail, size_t size)
{
    uint32_t cores = 0;
    if (config->class_count < 1 || config->class_count > TSEMU_MAX_CLASSES)
        return wrong(detail, size, "classes|%u|%u engine classes, possible are 1 to %u|"
                     "change the SoC file",
                     config->class_count, config->class_count, TSEMU_MAX_CLASSES);
    for (uint32_t c = 0; c < config->class_count; c++) {
        const struct device_class *class = &config->classes[c];
        if (class->frequency_mhz == 0)
            return wrong(detail, size, "frequency_mhz|0|class %s has no clock|"
                         "set its frequency_mhz", class->name);
        if (class->cores > HAL_CORES)
            return wrong(detail, size, "cores|%u|class %s has %u cores, possible are up to %u|"
                         "choose fewer",
                         class->cores, class->name, class->cores, HAL_CORES);
        cores += class->cores;
    }
    if (cores < 1 || cores > HAL_CORES)
        return wrong(detail, size, "cores|%u|%u cores in all, possible are 1 to %u|"
                     "change cores of a class", cores, cores,
                     HAL_CORES);
    if (config->max_contexts < 1 || config->max_contexts > DEVICE_MAX_CONTEXTS)
        return wrong(detail, size, "contexts|%u|%u contexts, possible are 1 to %u|"
                     "set limits.contexts",
                     config->max_contexts, config->max_contexts, DEVICE_MAX_CONTEXTS);
    if (config->clients > config->max_contexts)
        return wrong(detail, size, "clients|%u|%u clients are more than the %u contexts|"
                     "raise limits.contexts",
                     config->clients, config->clients, config->max_contexts);
    if (config->max_streams < 1 || config->max_streams > 65535u)
        return wrong(detail, size, "streams|%u|%u streams, possible are 1 to 65535|"
                     "set limits.streams",
                     config->max_streams, config->max_streams);
    if (config->max_events > 65535u)
        return wrong(detail, size, "events|%u|%u events, possible are up to 65535|"
                     "set limits.events",
                     config->max_events, config->max_events);
    if (!power_of_two(config->alignment) || config->alignment > PAGE)
        return wrong(detail, size, "alignment|%u|alignment is %u, possible are powers of two up "
                     "to 4096|set memory.alignment", config->alignment, config->alignment);
    if (config->clock_mode == TSEMU_CLOCK_MODE_PACED &&
        (config->paced_num == 0 || config->paced_den == 0))
        return wrong(detail, size, "clock|0|the pace is zero or endless|give another factor");
    return true;
}

void geometry_firmware(const struct device_config *config, struct fw_config *fw)
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

/* SRAM of a context with every slot and, by default, every edge node that there can be. */
uint64_t geometry_largest_context(const struct device_config *config, const struct fw_config *fw)
{
    struct device_context_options options = {.slots = MAX_SLOTS, .window = MAX_SLOTS};
    struct fw_context_config largest = {.slots = MAX_SLOTS,
                                        .edge_nodes = edge_nodes(config, &options)};
    return fw_context_size(fw, &largest);
}
