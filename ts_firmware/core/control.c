/* Control requests of a context: streams, events, cancel, close. A request is a message in the
 * control page, carried out when the wait that was posted with it is judged. */
#include "state.h"

#define MESSAGE_CRC_OFFSET 20u

static void reply_status(struct tsemu_control_message *reply, uint32_t status, uint32_t argument,
                         uint32_t value)
{
    reply->status = (uint16_t)status;
    reply->argument[0] = argument;
    reply->argument[1] = value;
}

static void stream_create(struct fw *fw, struct context *context, const uint32_t *argument,
                          struct tsemu_control_message *reply)
{
    if (argument[0] & ~(uint32_t)TSEMU_STREAM_FLAG_IN_ORDER) {
        reply_status(reply, TSEMU_CONTROL_STATUS_BAD_VALUE, 0, argument[0]);
        return;
    }
    for (uint32_t id = 0; id < fw->config.max_streams; id++) {
        struct stream *stream = context_stream(context, id);
        if (stream->used)
            continue;
        *stream = (struct stream){
            .used = 1,
            .in_order = (argument[0] & TSEMU_STREAM_FLAG_IN_ORDER) != 0,
            .groups = NO_SLOT,
            .last_slot = NO_SLOT,
        };
        reply_status(reply, TSEMU_CONTROL_STATUS_OK, id, 0);
        return;
    }
    reply_status(reply, TSEMU_CONTROL_STATUS_NO_RESOURCE, fw->config.max_streams,
                 fw->config.max_streams);
}

static struct stream *stream_named(const struct fw *fw, struct context *context, uint32_t id)
{
    if (id >= fw->config.max_streams || !context_stream(context, id)->used)
        return NULL;
    return context_stream(context, id);
}

static void stream_destroy(struct fw *fw, struct context *context, const uint32_t *argument,
                           struct tsemu_control_message *reply)
{
    struct stream *stream = stream_named(fw, context, argument[0]);
    if (!stream || argument[0] == 0)
        reply_status(reply, TSEMU_CONTROL_STATUS_BAD_VALUE, 0, argument[0]);
    else if (stream->incomplete)
        reply_status(reply, TSEMU_CONTROL_STATUS_BUSY, argument[0], stream->last_ticket);
    else
        stream->used = 0;
}

/* True when `task` is followed in its stream by the task `ticket`, without a recover in between. */
static bool leads_to(const struct context *context, const struct task *task, uint32_t ticket)
{
    while (task->ticket != ticket && task->stream_next != NO_SLOT) {
        const struct task *next = context_task(context, task->stream_next);
        if (next->ticket != task->stream_next_ticket)
            return false;
        task = next;
    }
    return task->ticket == ticket;
}

/* True when its last task has failed, or will certainly end without success: then one of those in
 * front of it is known to end so. */
static bool stream_failed(const struct context *context, uint32_t id)
{
    const struct stream *stream = context_stream(context, id);
    if (stream->last_status != NO_STATUS)
        return stream->last_status != TSEMU_STATUS_OK;
    for (uint32_t slot = 0; slot < context->slots; slot++) {
        const struct task *task = context_task(context, slot);
        if (task_incomplete(task) && task->stream == id && task->status != NO_STATUS &&
            task->status != TSEMU_STATUS_OK && leads_to(context, task, stream->last_ticket))
            return true;
    }
    return false;
}

static void stream_recover(struct fw *fw, struct context *context, const uint32_t *argument,
                           struct tsemu_control_message *reply)
{
    struct stream *stream = stream_named(fw, context, argument[0]);
    if (!stream)
        reply_status(reply, TSEMU_CONTROL_STATUS_BAD_VALUE, 0, argument[0]);
    else if (stream->last_slot != NO_SLOT && stream_failed(context, argument[0])) {
        reply->argument[1] = stream->last_ticket; /* the driver forgets this one, no other */
        /* The failure counts no more; what still runs keeps its order. */
        stream->last_slot = NO_SLOT;
    }
}

static void event_create(struct fw *fw, struct context *context,
                         struct tsemu_control_message *reply)
{
    for (uint32_t id = 0; id < fw->config.max_events; id++) {
        struct event *event = context_event(context, id);
        if (event->used)
            continue;
        *event = (struct event){
            .used = 1, .last_slot = NO_SLOT, .waiters = NO_SLOT, .poisoned = NO_SLOT};
        reply_status(reply, TSEMU_CONTROL_STATUS_OK, id, 0);
        return;
    }
    reply_status(reply, TSEMU_CONTROL_STATUS_NO_RESOURCE, fw->config.max_events,
                 fw->config.max_events);
}

static void event_destroy_request(struct fw *fw, struct context *context,
                                  const uint32_t *argument, struct tsemu_control_message *reply)
{
    uint32_t user = 0;
    if (argument[0] >= fw->config.max_events || !context_event(context, argument[0])->used)
        reply_status(reply, TSEMU_CONTROL_STATUS_BAD_VALUE, 0, argument[0]);
    else if (!event_destroy(context, argument[0], &user))
        reply_status(reply, TSEMU_CONTROL_STATUS_BUSY, argument[0], user);
}

void control_cancel(struct fw *fw, struct context *context, uint32_t slot, uint16_t status)
{
    const struct task *task = context_task(context, slot);
    scoreboard_abort(fw, context, slot, status, task->ticket, TSEMU_OWN_CONTEXT);
}

/* Whatever has not started ends with `status`; running tasks start no further block. */
void control_cancel_all(struct fw *fw, struct context *context, uint16_t status)
{
    for (uint32_t slot = 0; slot < context->slots; slot++) {
        struct task *task = context_task(context, slot);
        if (!task_incomplete(task))
            continue;
        if (task->state == TASK_RUNNING) {
            if (task->started < task->blocks)
                ready_remove(fw, task_ref(context, slot));
            if (status == TSEMU_STATUS_INVALID_ENTRY || task->started < task->blocks) {
                task->status = status;
                task->ancestor = task->ticket;
                task->ancestor_context = TSEMU_OWN_CONTEXT;
            }
            task->blocks = task->started;
            if (task->running == 0) { /* between two blocks: no core will end it */
                task->state = TASK_RETIRING;
                fw->retire = heap_push(fw, fw->retire, task_ref(context, slot), HEAP_BY_TICKET);
            }
        } else {
            control_cancel(fw, context, slot, status);
        }
    }
}

static void cancel_request(struct fw *fw, struct context *context, const uint32_t *argument,
                           struct tsemu_control_message *reply)
{
    if (argument[1] >= context->slots) {
        reply_status(reply, TSEMU_CONTROL_STATUS_BAD_VALUE, 1, argument[1]);
        return;
    }
    const struct task *task = context_task(context, argument[1]);
    if (task->ticket == argument[0])
        control_cancel(fw, context, argument[1], TSEMU_STATUS_CANCELLED);
    if (task->ticket != argument[0] || !task_incomplete(task) ||
        task->status != TSEMU_STATUS_CANCELLED)
        reply_status(reply, TSEMU_CONTROL_STATUS_BUSY, argument[0], argument[0]);
}

static void statistics(struct fw *fw, struct context *context,
                       struct tsemu_control_message *reply)
{
    reply->argument[0] = context->admitted;
    reply->argument[1] = context->completed;
    reply->argument[2] = context->edge_free_count;
    reply->argument[3] = context->parked;
    reply->argument[4] = (uint32_t)fw->hal->now;
    reply->argument[5] = (uint32_t)(fw->hal->now >> 32);
}

static uint32_t fault_of(const struct tsemu_control_message *request)
{
    if (request->magic != TSEMU_CONTROL_MAGIC)
        return TSEMU_CONTROL_STATUS_BAD_MAGIC;
    if (request->crc != hal_crc32c_entry(request, MESSAGE_CRC_OFFSET))
        return TSEMU_CONTROL_STATUS_BAD_CRC;
    if (request->major != TSEMU_ABI_MAJOR)
        return TSEMU_CONTROL_STATUS_BAD_VERSION;
    if (request->length)
        return TSEMU_CONTROL_STATUS_BAD_LENGTH;
    return TSEMU_CONTROL_STATUS_OK;
}

static void carry_out(struct fw *fw, struct context *context,
                      const struct tsemu_control_message *request,
                      struct tsemu_control_message *reply)
{
    const uint32_t *argument = request->argument;
    switch (request->kind) {
    case TSEMU_CONTROL_KIND_STREAM_CREATE:
        stream_create(fw, context, argument, reply);
        break;
    case TSEMU_CONTROL_KIND_STREAM_DESTROY:
        stream_destroy(fw, context, argument, reply);
        break;
    case TSEMU_CONTROL_KIND_STREAM_RECOVER:
        stream_recover(fw, context, argument, reply);
        break;
    case TSEMU_CONTROL_KIND_EVENT_CREATE:
        event_create(fw, context, reply);
        break;
    case TSEMU_CONTROL_KIND_EVENT_DESTROY:
        event_destroy_request(fw, context, argument, reply);
        break;
    case TSEMU_CONTROL_KIND_CANCEL:
        cancel_request(fw, context, argument, reply);
        break;
    case TSEMU_CONTROL_KIND_CLOSE:
        control_cancel_all(fw, context, TSEMU_STATUS_CANCELLED);
        break;
    case TSEMU_CONTROL_KIND_STATISTICS:
        statistics(fw, context, reply);
        break;
    default:
        reply_status(reply, TSEMU_CONTROL_STATUS_BAD_KIND, 0, request->kind);
        break;
    }
}

/* Answer the request in the page. A repeated token gets the reply of the first time. */
void control_request(struct fw *fw, struct context *context)
{
    struct tsemu_control_page *page = context_page(fw, context);
    _Alignas(8) struct tsemu_control_message request; /* the CRC is taken by words of 8 bytes */
    tsemu_entry_copy(&request, &page->request);
    uint32_t fault = fault_of(&request);
    if (fault == TSEMU_CONTROL_STATUS_OK && context->control_done &&
        context->control_token == request.token) {
        tsemu_entry_copy(&page->reply, &context->reply);
        return;
    }
    _Alignas(8) struct tsemu_control_message reply = {
        .magic = TSEMU_CONTROL_MAGIC,
        .major = TSEMU_ABI_MAJOR,
        .minor = TSEMU_ABI_MINOR,
        .kind = request.kind,
        .token = request.token,
    };
    if (fault == TSEMU_CONTROL_STATUS_OK) {
        carry_out(fw, context, &request, &reply);
        context->control_done = true;
        context->control_token = request.token;
    } else {
        reply.status = (uint16_t)fault;
    }
    reply.crc = hal_crc32c_entry(&reply, MESSAGE_CRC_OFFSET);
    if (fault == TSEMU_CONTROL_STATUS_OK) /* a damaged request has no token to answer by again */
        context->reply = reply;
    tsemu_entry_copy(&page->reply, &reply);
}
