/* Contexts: laying one out in the arena, filling its control page, taking it away. */
#include "state.h"

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 63u) & ~(uint64_t)63u;
}

uint64_t fw_context_size(const struct fw_config *config, const struct fw_context_config *context)
{
    return rounded(sizeof(struct context)) + (uint64_t)context->slots * sizeof(struct task) +
           rounded((uint64_t)context->edge_nodes * sizeof(struct edge_node)) +
           rounded((uint64_t)config->max_streams * sizeof(struct stream)) +
           rounded((uint64_t)config->max_events * sizeof(struct event));
}

static void lay_out(const struct fw *fw, struct context *context,
                    const struct fw_context_config *config)
{
    context->tasks = rounded(sizeof(struct context));
    context->nodes = context->tasks + (uint64_t)config->slots * sizeof(struct task);
    context->streams =
        context->nodes + rounded((uint64_t)config->edge_nodes * sizeof(struct edge_node));
    context->events =
        context->streams + rounded((uint64_t)fw->config.max_streams * sizeof(struct stream));
    for (uint32_t i = 0; i < sizeof context->name; i++)
        context->name[i] = (uint8_t)config->name[i];
    context->slots = config->slots;
    context->fair_scale = config->fair_scale;
    for (uint32_t c = 0; c < TSEMU_MAX_CLASSES; c++)
        for (uint32_t l = 0; l < TSEMU_PRIORITY_LEVELS; l++)
            context->fair[c].level[l].first = context->fair[c].level[l].last = NIL;
    context->window = config->window;
    context->sq_entries = config->sq_entries;
    context->cq_entries = config->cq_entries;
    context->sq_offset = config->sq_offset;
    context->cq_offset = config->cq_offset;
    context->status_offset = config->status_offset;
    context->host_heap_offset = config->host_heap_offset;
    context->host_heap_size = config->host_heap_size;
    context->host_base = config->host_base;
    context->device_heap_offset = config->device_heap_offset;
    context->device_heap_size = config->device_heap_size;
    context->device_base = config->device_base;
    for (uint32_t i = 0; i < config->edge_nodes; i++)
        context_node(context, i)->next = i + 1u < config->edge_nodes ? i + 1u : NIL;
    context->edge_free = config->edge_nodes ? 0 : NIL;
    context->edge_free_count = config->edge_nodes;
    *context_stream(context, 0) =
        (struct stream){.used = 1, .groups = NO_SLOT, .last_slot = NO_SLOT};
}

static void fill_page(const struct fw *fw, const struct context *context,
                      const struct fw_context_config *config)
{
    struct tsemu_control_page *page = context_page(fw, context);
    page->major = TSEMU_ABI_MAJOR;
    page->minor = TSEMU_ABI_MINOR;
    page->context = context->id;
    page->clock_mode = fw->config.clock_mode;
    page->slots = config->slots;
    page->window = config->window;
    page->sq_entries = config->sq_entries;
    page->cq_entries = config->cq_entries;
    page->batch = config->batch;
    page->stream_limit = config->stream_limit;
    page->max_streams = fw->config.max_streams;
    page->max_events = fw->config.max_events;
    page->alignment = fw->config.alignment;
    page->class_count = fw->config.class_count;
    page->poll_cost_ps = fw->config.poll_cost;
    page->wait_limit_ps = fw->config.wait_limit;
    page->memory_size = config->memory_size;
    page->sq_offset = config->sq_offset;
    page->cq_offset = config->cq_offset;
    page->status_offset = config->status_offset;
    page->host_heap_offset = config->host_heap_offset;
    page->host_heap_size = config->host_heap_size;
    page->host_base = config->host_base;
    page->device_heap_offset = config->device_heap_offset;
    page->device_heap_size = config->device_heap_size;
    page->device_base = config->device_base;
    page->edge_nodes = config->edge_nodes;
    page->wait_slots = TSEMU_MAX_WAITS;
    for (uint32_t i = 0; i < sizeof page->name; i++)
        page->name[i] = context->name[i];
    for (uint32_t c = 0; c < fw->config.class_count; c++) {
        const struct fw_class *class = &fw->config.classes[c];
        for (uint32_t i = 0; i < sizeof class->name; i++)
            page->classes[c].name[i] = (uint8_t)class->name[i];
        page->classes[c].cores = class->cores;
        page->classes[c].flags = class->moves_bytes;
        page->classes[c].frequency_mhz = class->frequency_mhz;
    }
    tsemu_store_relaxed(&page->state, TSEMU_CONTEXT_STATE_ACTIVE);
    tsemu_store_release(&page->magic, TSEMU_PAGE_MAGIC);
}

static int compare_names(const struct fw *fw, uint32_t a, uint32_t b)
{
    const struct context *context = fw_context(fw, a);
    const uint8_t *left = context->name;
    const uint8_t *right = fw_context(fw, b)->name;
    for (uint32_t i = 0; i < sizeof context->name; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

static void rank_names(struct fw *fw)
{
    for (uint32_t i = 0; i < fw->context_count; i++)
        fw->name_rank[fw->by_name[i]] = (uint8_t)i;
    fw->input_cursor = 0;
}

void fw_context_open(struct fw *fw, uint32_t id, uint64_t offset,
                     const struct fw_context_config *config)
{
    fw->context_offset[id] = offset;
    struct context *context = fw_context(fw, id);
    context->id = id;
    context->parked_first = context->parked_last = NIL;
    lay_out(fw, context, config);
    fill_page(fw, context, config);
    uint32_t at = fw->context_count++;
    for (; at && compare_names(fw, id, fw->by_name[at - 1]) < 0; at--)
        fw->by_name[at] = fw->by_name[at - 1];
    fw->by_name[at] = (uint8_t)id;
    rank_names(fw);
    console_log(fw, "context %u opened: %s, window %u of %u slots", id, config->name,
                config->window, config->slots);
}

void fw_context_close(struct fw *fw, uint32_t id)
{
    struct context *context = fw_context(fw, id);
    if (context->closing)
        return;
    context->closing = 1;
    for (uint32_t bits = context->posted; bits; bits &= bits - 1u)
        fw->posted_waits--;
    context->posted = 0;
    context->blocked = 0;
    control_cancel_all(fw, context, TSEMU_STATUS_CANCELLED);
    console_log(fw, "context %u: client is gone, %u tasks in flight", id,
                context->admitted - context->completed);
}

bool fw_context_gone(const struct fw *fw, uint32_t id)
{
    const struct context *context = fw_context(fw, id);
    return context->closing && context->admitted == context->completed;
}

void fw_context_free(struct fw *fw, uint32_t id)
{
    uint32_t at = 0;
    while (fw->by_name[at] != id)
        at++;
    fw->context_count--;
    for (; at < fw->context_count; at++)
        fw->by_name[at] = fw->by_name[at + 1u];
    fw->context_offset[id] = 0;
    rank_names(fw);
}

void fw_context_view(const struct fw *fw, uint32_t id, struct fw_context_view *view)
{
    const struct context *context = fw_context(fw, id);
    view->admitted = context->admitted;
    view->completed = context->completed;
    view->incomplete = context->admitted - context->completed;
    view->state = context->closing   ? TSEMU_CONTEXT_STATE_CLOSED
                  : context->errored ? TSEMU_CONTEXT_STATE_ERROR
                  : context->refused ? TSEMU_CONTEXT_STATE_REFUSED
                                     : TSEMU_CONTEXT_STATE_ACTIVE;
    view->waits = 0;
    for (uint32_t bits = context->posted; bits; bits &= bits - 1u)
        view->waits++;
    view->published = context->cq_published;
}
