/* The functions of tsemu.h that wait: each repeats a step of the driver until it is over. */
#include <tsemu/link.h>

#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HANDSHAKE_MS 15000

/* C programs have no callbacks: those of handles that say otherwise are passed over. */
static int again(tsemu_context *c, int code)
{
    if (code == TSEMU_CALLBACKS)
        while (driver_take_callback(c)) {
        }
    return code > 0;
}

static int link_code(const struct tsemu_link *link, enum tsemu_link_problem problem)
{
    if (problem == TSEMU_LINK_PATH)
        return TSEMU_E_ADDRESS;
    if (problem == TSEMU_LINK_NO_ANSWER)
        return TSEMU_E_DEVICE_LOST;
    if (problem != TSEMU_LINK_REFUSED)
        return TSEMU_E_PROTOCOL;
    switch (link->status) {
    case TSEMU_CONTROL_STATUS_BAD_VALUE:
    case TSEMU_CONTROL_STATUS_BAD_LENGTH:
        return TSEMU_E_INVALID;
    case TSEMU_CONTROL_STATUS_NO_RESOURCE:
        return TSEMU_E_NO_RESOURCE;
    case TSEMU_CONTROL_STATUS_NAME_IN_USE:
        return TSEMU_E_NAME_IN_USE;
    case TSEMU_CONTROL_STATUS_BUSY:
        return TSEMU_E_BUSY;
    case TSEMU_CONTROL_STATUS_DENIED:
        return TSEMU_E_ADDRESS;
    default:
        return TSEMU_E_PROTOCOL;
    }
}

int tsemu_open(const char *address, const char *name, const tsemu_options *options,
               tsemu_context **context)
{
    static const char prefix[] = "unix:";
    if (!context || !address || strncmp(address, prefix, sizeof prefix - 1) != 0)
        return driver_fail(TSEMU_E_ADDRESS, "address", 0, 0,
                           "use unix:PATH as tsemu run prints it; emu: addresses are for Python",
                           "not an address of a device process: %s", address ? address : "(none)");
    uint32_t wanted[TSEMU_LINK_OPTIONS] = {0};
    if (options) {
        wanted[0] = options->slots;
        wanted[1] = options->window;
        wanted[2] = options->sq_entries;
        wanted[3] = options->cq_entries;
        wanted[4] = options->batch;
        wanted[5] = options->stream_limit;
        wanted[6] = options->host_heap_mib;
        wanted[7] = options->device_heap_mib;
    }
    struct tsemu_link link;
    enum tsemu_link_problem problem = tsemu_link_open(address + sizeof prefix - 1, name ? name : "",
                                                      wanted, HANDSHAKE_MS, &link);
    if (problem)
        return driver_fail(link_code(&link, problem), link.field, strtoull(link.value, NULL, 0), 0,
                           link.hint, "%s", link.message);
    void *memory = mmap(NULL, link.size, PROT_READ | PROT_WRITE, MAP_SHARED, link.memory, 0);
    int code;
    if (memory == MAP_FAILED)
        code = driver_fail(TSEMU_E_NO_RESOURCE, "memory", link.size, 0, "ask for smaller heaps",
                           "cannot map %llu bytes: %s", (unsigned long long)link.size,
                           strerror(errno));
    else
        code = driver_attach(memory, link.size, NULL, NULL, link.doorbell, link.interrupt,
                             link.socket, context);
    if (code) {
        if (memory != MAP_FAILED)
            munmap(memory, link.size);
        tsemu_link_close(&link);
        return code;
    }
    (*context)->owns_link = true;
    link.socket = link.doorbell = link.interrupt = -1;
    tsemu_link_close(&link); /* the mapping stays without its descriptor */
    return TSEMU_OK;
}

const struct tsemu_control_page *tsemu_page(const tsemu_context *c)
{
    return c->page;
}

int tsemu_engine_class(const tsemu_context *c, const char *name)
{
    for (uint32_t i = 0; i < c->class_count; i++) {
        const char *have = (const char *)c->page->classes[i].name;
        if (name && strlen(name) <= 16 && strncmp(name, have, 16) == 0)
            return (int)i;
    }
    return driver_fail(TSEMU_E_INVALID, "engine_class", 0, c->class_count,
                       "use a name of the control page's class table",
                       "the device has no engine class %s", name ? name : "(none)");
}

static int control(tsemu_context *c, uint16_t kind, uint32_t first, uint32_t second,
                   struct tsemu_control_message *reply)
{
    const uint32_t argument[10] = {first, second};
    driver_operation operation = {0};
    int code;
    do
        code = driver_control_step(c, kind, argument, reply, &operation);
    while (again(c, code));
    return code;
}

int tsemu_stream_create(tsemu_context *c, int in_order, uint32_t limit, uint16_t *stream)
{
    struct tsemu_control_message reply;
    int code = control(c, TSEMU_CONTROL_KIND_STREAM_CREATE,
                       in_order ? TSEMU_STREAM_FLAG_IN_ORDER : 0u, limit, &reply);
    if (!code)
        *stream = (uint16_t)reply.argument[0];
    return code;
}

int tsemu_stream_destroy(tsemu_context *c, uint16_t stream)
{
    struct tsemu_control_message reply;
    return control(c, TSEMU_CONTROL_KIND_STREAM_DESTROY, stream, 0, &reply);
}

int tsemu_event_create(tsemu_context *c, uint32_t *event)
{
    struct tsemu_control_message reply;
    int code = control(c, TSEMU_CONTROL_KIND_EVENT_CREATE, 0, 0, &reply);
    if (!code)
        *event = reply.argument[0];
    return code;
}

int tsemu_event_destroy(tsemu_context *c, uint32_t event)
{
    struct tsemu_control_message reply;
    return control(c, TSEMU_CONTROL_KIND_EVENT_DESTROY, event, 0, &reply);
}

int tsemu_launch(tsemu_context *c, const tsemu_launch_desc *desc, tsemu_task *const *after,
                 uint32_t after_count, tsemu_task *task)
{
    driver_operation operation;
    if (task)
        task->flags = 0;
    int code = driver_launch_try(c, desc, after, after_count, task);
    if (code <= 0)
        return code;
    memset(&operation, 0, sizeof operation);
    do
        code = driver_launch_step(c, desc, after, after_count, task, 1, &operation);
    while (again(c, code));
    return code;
}

int tsemu_submit_batch(tsemu_context *c, const tsemu_batch *batch)
{
    driver_operation operation = {0};
    int code;
    do
        code = driver_batch_step(c, batch, &operation);
    while (again(c, code));
    return code;
}

static int wait_for(tsemu_context *c, const driver_wait *wait)
{
    driver_operation operation = {0};
    int code;
    do
        code = driver_wait_step(c, wait, &operation);
    while (again(c, code));
    return code;
}

static int outcome(const tsemu_task *task)
{
    static const char *const names[] = {"OK",           "FAILED",        "DEP_ABORTED", "CANCELLED",
                                        "TIMEOUT",      "EVENT_TIMEOUT", "RESET",       "DMA_FAULT",
                                        "INVALID_ENTRY", "NO_RESOURCE"};
    if (task->status == TSEMU_STATUS_OK)
        return TSEMU_OK;
    driver_fail(TSEMU_E_FAILED, "status", task->status, 0,
                "look at the first task that failed (`ancestor`)",
                "task %u ended %s, first failure: task %u", task->ticket,
                task->status < sizeof names / sizeof *names ? names[task->status] : "?",
                task->ancestor);
    driver_fail_about(task->ticket, task->stream);
    return TSEMU_E_FAILED;
}

int tsemu_wait(tsemu_context *c, tsemu_task *task, uint64_t timeout_ps)
{
    if (!task || task->context != c)
        return driver_fail(TSEMU_E_INVALID, "task", 0, 0, "use a handle launched in this context",
                           "the handle is no task of this context");
    if (__atomic_load_n(&task->status, __ATOMIC_ACQUIRE) != TSEMU_PENDING)
        return outcome(task);
    driver_wait wait = {.kind = TSEMU_WAIT_KIND_TASK,
                        .a = task->ticket,
                        .b = task->slot,
                        .timeout_ps = timeout_ps};
    int code = wait_for(c, &wait);
    return code ? code : outcome(task);
}

int tsemu_synchronize(tsemu_context *c, uint32_t stream, uint64_t timeout_ps)
{
    driver_wait wait = {.kind = TSEMU_WAIT_KIND_ALL, .c = 1, .timeout_ps = timeout_ps};
    if (stream != TSEMU_ALL_STREAMS) {
        wait.kind = TSEMU_WAIT_KIND_STREAM;
        wait.a = stream;
    }
    return wait_for(c, &wait);
}

int tsemu_next_completion(tsemu_context *c, struct tsemu_cqe *cqe, uint64_t timeout_ps)
{
    if (!c->kept.capacity) {
        uint32_t capacity = 2 * c->slots > 65536 ? 2 * c->slots : 65536;
        int code = driver_keep_completions(c, capacity);
        if (code)
            return code;
    }
    for (;;) {
        if (driver_take_completions(c, cqe, 1))
            return TSEMU_OK;
        driver_wait wait = {.kind = TSEMU_WAIT_KIND_NEXT, .c = 1, .timeout_ps = timeout_ps};
        int code = wait_for(c, &wait);
        if (code)
            return code;
    }
}

void driver_status(const tsemu_context *context, struct driver_status *status)
{
    tsemu_context *c = (tsemu_context *)(uintptr_t)context;
    context_lock(c);
    *status = c->counters;
    status->submitted = c->submitted;
    status->consumed = c->consumed;
    status->answered = c->answered;
    status->now_ps = c->now_ps;
    context_unlock(c);
}

uint32_t driver_stream_outstanding(const tsemu_context *context, uint16_t stream)
{
    tsemu_context *c = (tsemu_context *)(uintptr_t)context;
    if (stream >= c->stream_count)
        return 0;
    context_lock(c);
    uint32_t outstanding = c->stream[stream].outstanding;
    context_unlock(c);
    return outstanding;
}

int driver_stream_failure(tsemu_context *c, uint32_t stream, tsemu_task *task)
{
    const tsemu_task *first = NULL;
    context_lock(c);
    for (uint32_t i = 0; i < c->stream_count; i++) {
        const tsemu_task *failure = &c->first_failure[i];
        if ((stream == TSEMU_ALL_STREAMS || stream == i) && failure->context &&
            (!first || c->consumed - failure->order > c->consumed - first->order))
            first = failure;
    }
    if (first)
        *task = *first;
    context_unlock(c);
    return first != NULL;
}

int driver_interrupt_fd(const tsemu_context *c)
{
    return c->embedded ? -1 : c->interrupt_fd;
}

int driver_link_fd(const tsemu_context *c)
{
    return c->embedded ? -1 : c->link_fd;
}
