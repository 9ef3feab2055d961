/* Control requests: a message in the control page, carried out when the wait posted with it is
 * judged. One at a time per context. What a reply changes in the driver is changed here. */
#include "internal.h"

static void release_control(struct tsemu_context *c, driver_operation *operation)
{
    operation->control = 0;
    c->control_busy = false;
    wake_threads(c);
}

static void write_request(struct tsemu_context *c, uint16_t kind, const uint32_t argument[10])
{
    struct tsemu_control_message request = {.magic = TSEMU_CONTROL_MAGIC,
                                            .major = TSEMU_ABI_MAJOR,
                                            .minor = TSEMU_ABI_MINOR,
                                            .kind = kind,
                                            .token = ++c->token};
    memcpy(request.argument, argument, sizeof request.argument);
    struct entry words;
    memcpy(&words, &request, sizeof words);
    request.crc = tsemu_crc32c_entry(&words, MESSAGE_CRC);
    c->page->request = request;
}

static int check_request(const struct tsemu_context *c, uint16_t kind, const uint32_t *argument)
{
    switch (kind) {
    case TSEMU_CONTROL_KIND_STREAM_CREATE:
        if (argument[1] > c->slots)
            return driver_fail(TSEMU_E_INVALID, "limit", argument[1], c->slots,
                               "use 1 to the number of slots, or 0 for the default",
                               "a stream limit of %u tasks, the context has %u slots", argument[1],
                               c->slots);
        return TSEMU_OK;
    case TSEMU_CONTROL_KIND_STREAM_DESTROY:
    case TSEMU_CONTROL_KIND_STREAM_RECOVER:
        if (argument[0] >= c->stream_count || !c->stream[argument[0]].exists ||
            (kind == TSEMU_CONTROL_KIND_STREAM_DESTROY && argument[0] == 0))
            return driver_fail(TSEMU_E_INVALID, "stream", argument[0], c->stream_count - 1,
                               "use a stream that was created and not destroyed",
                               "there is no stream %u that this could be done to", argument[0]);
        return TSEMU_OK;
    case TSEMU_CONTROL_KIND_EVENT_DESTROY:
        if (argument[0] >= c->event_count || !c->event[argument[0]].exists)
            return driver_fail(TSEMU_E_INVALID, "event", argument[0], c->event_count - 1,
                               "use an event that was created and not destroyed",
                               "there is no event %u", argument[0]);
        return TSEMU_OK;
    case TSEMU_CONTROL_KIND_CANCEL:
        if (argument[1] >= c->slots)
            return driver_fail(TSEMU_E_INVALID, "slot", argument[1], c->slots - 1,
                               "pass ticket and slot of a task handle", "there is no slot %u",
                               argument[1]);
        return TSEMU_OK;
    case TSEMU_CONTROL_KIND_EVENT_CREATE:
    case TSEMU_CONTROL_KIND_CLOSE:
    case TSEMU_CONTROL_KIND_STATISTICS:
        return TSEMU_OK;
    default:
        return driver_fail(TSEMU_E_INVALID, "kind", kind, TSEMU_CONTROL_KIND_STATISTICS,
                           "use a kind from STREAM_CREATE to STATISTICS",
                           "%u is no request of an open context", kind);
    }
}

static const char *subject(uint16_t kind)
{
    switch (kind) {
    case TSEMU_CONTROL_KIND_STREAM_CREATE:
    case TSEMU_CONTROL_KIND_STREAM_DESTROY:
    case TSEMU_CONTROL_KIND_STREAM_RECOVER:
        return "stream";
    case TSEMU_CONTROL_KIND_EVENT_CREATE:
    case TSEMU_CONTROL_KIND_EVENT_DESTROY:
        return "event";
    default:
        return "task";
    }
}

static int refused(uint16_t kind, const uint32_t *argument,
                   const struct tsemu_control_message *reply)
{
    uint32_t a = reply->argument[0], value = reply->argument[1];
    const char *field = subject(kind);
    switch (reply->status) {
    case TSEMU_CONTROL_STATUS_BAD_VALUE:
        return driver_fail(TSEMU_E_INVALID, field, value, 0, "use one that exists",
                           "the device does not accept argument %u: %u", a, value);
    case TSEMU_CONTROL_STATUS_NO_RESOURCE:
        return driver_fail(TSEMU_E_NO_RESOURCE, field, value, a,
                           "destroy some, or configure the device with more of them",
                           "all %u are in use", a);
    case TSEMU_CONTROL_STATUS_BUSY:
        driver_fail(TSEMU_E_BUSY, field, argument[0], 0,
                    "wait for the task, then try again", "%s %u: task %u still uses it", field,
                    argument[0], value);
        driver_fail_about(value, TSEMU_ALL_STREAMS);
        return TSEMU_E_BUSY;
    default:
        return driver_fail(TSEMU_E_PROTOCOL, "status", reply->status, 0,
                           "driver and firmware disagree: use matching versions",
                           "the device refused request %u with status %u", kind, reply->status);
    }
}

/* What the request has changed, in the driver's tables. */
static int take_over(struct tsemu_context *c, uint16_t kind, const uint32_t *argument,
                     const struct tsemu_control_message *reply)
{
    uint32_t id = reply->argument[0];
    switch (kind) {
    case TSEMU_CONTROL_KIND_STREAM_CREATE:
        if (id >= c->stream_count)
            break;
        c->stream[id] = (struct stream){
            .limit = argument[1] ? argument[1] : c->page->stream_limit,
            .exists = true,
            .in_order = argument[0] & TSEMU_STREAM_FLAG_IN_ORDER};
        c->first_failure[id].context = NULL;
        return TSEMU_OK;
    case TSEMU_CONTROL_KIND_STREAM_DESTROY:
        c->stream[argument[0]].exists = false;
        return TSEMU_OK;
    case TSEMU_CONTROL_KIND_STREAM_RECOVER: {
        struct stream *stream = &c->stream[argument[0]];
        c->first_failure[argument[0]].context = NULL;
        /* What the device keeps, such as a task that still runs, may fail later on. */
        if (stream->has_last && stream->last_ticket == reply->argument[1])
            stream->has_last = stream->failed = false;
        return TSEMU_OK;
    }
    case TSEMU_CONTROL_KIND_EVENT_CREATE:
        if (id >= c->event_count)
            break;
        c->event[id] = (struct event){.exists = true};
        return TSEMU_OK;
    case TSEMU_CONTROL_KIND_EVENT_DESTROY:
        c->event[argument[0]].exists = false;
        return TSEMU_OK;
    default:
        return TSEMU_OK;
    }
    return driver_fail(TSEMU_E_PROTOCOL, subject(kind), id, 0,
                       "driver and firmware disagree: use matching versions",
                       "the device created number %u, which is out of range", id);
}

static int read_reply(struct tsemu_context *c, uint16_t kind, const uint32_t *argument,
                      struct tsemu_control_message *reply)
{
    struct entry words;
    *reply = c->page->reply;
    memcpy(&words, reply, sizeof words);
    if (reply->crc != tsemu_crc32c_entry(&words, MESSAGE_CRC) ||
        reply->magic != TSEMU_CONTROL_MAGIC || reply->token != c->token)
        return driver_fail(TSEMU_E_PROTOCOL, "reply", reply->token, c->token,
                           "the device's memory is damaged: open a new context",
                           "the reply to request %u is damaged (token %u, expected %u)", kind,
                           reply->token, c->token);
    if (reply->status != TSEMU_CONTROL_STATUS_OK)
        return refused(kind, argument, reply);
    return take_over(c, kind, argument, reply);
}

static int begin(struct tsemu_context *c, uint16_t kind, const uint32_t *argument,
                 driver_operation *operation, uint64_t until)
{
    int code;
    if (thread_record(c)->in_callback)
        return driver_fail(TSEMU_E_IN_CALLBACK, "callback", 1, 0,
                           "do it after the callback has returned",
                           "a callback may launch, but not wait for a control request");
    if (c->callbacks.count)
        return TSEMU_CALLBACKS;
    code = check_request(c, kind, argument);
    if (code)
        return code;
    wait_reap(c);
    while (c->control_busy)
        if ((code = wait_for_record(c, until)))
            return code;
    c->control_busy = true;
    operation->control = 1;
    write_request(c, kind, argument);
    return TSEMU_OK;
}

int control_locked(struct tsemu_context *c, uint16_t kind, const uint32_t argument[10],
                   struct tsemu_control_message *reply, driver_operation *operation,
                   uint64_t until)
{
    for (;;) {
        int code;
        if (operation->stage == STAGE_START) {
            if (!operation->control && (code = begin(c, kind, argument, operation, until)))
                return code;
            struct driver_wait wait = {.kind = TSEMU_WAIT_KIND_CONTROL,
                                       .timeout_ps = TSEMU_NO_LIMIT};
            code = wait_post(c, &wait, 0, operation, until);
            if (code)
                return code;
        }
        uint32_t reason;
        code = wait_collect(c, operation, until, false, &reason);
        if (code)
            return code;
        if (reason == TSEMU_ANSWER_NEXT || reason == TSEMU_ANSWER_CALL)
            continue; /* callbacks have run; the token makes the repeat harmless */
        if (reason == TSEMU_ANSWER_MET)
            code = read_reply(c, kind, argument, reply);
        else
            code = driver_fail(TSEMU_E_TIMEOUT, "control", kind, 0, "try again",
                               "the device did not carry out request %u", kind);
        release_control(c, operation);
        return code;
    }
}

int driver_control_step(tsemu_context *c, uint16_t kind, const uint32_t argument[10],
                        struct tsemu_control_message *reply, driver_operation *operation)
{
    context_lock(c);
    int code = context_check(c);
    if (!code) {
        c->users++;
        code = control_locked(c, kind, argument, reply, operation, wall_ns() + SLICE_NS);
        c->users--;
    }
    if (code < 0)
        operation_drop(c, operation);
    code = callbacks_first(c, code);
    context_unlock(c);
    return code;
}
