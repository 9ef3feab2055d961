/* Room for a launch, by the rules of the clock: slots, the stream's limit, the submission ring.
 *
 * A launch without a slot or ring room only says which position it needs and waits for bytes to move
 * (a pipe wait): that takes no virtual time. A launch at its stream's limit posts a wait. */
#include "internal.h"

/* What a launch's posted wait is for (driver_operation.value). */
enum purpose { FOR_WINDOW = 1, FOR_STREAM = 2, FOR_RING = 3 };

/* True when a launch of `count` tasks into the stream has to wait. More tasks than the limit in one
 * batch go into an empty stream. */
static inline bool stream_full(const struct stream *stream, uint32_t count)
{
    return stream->outstanding + count > stream->limit && stream->outstanding != 0;
}

/* First stream of the launch that is full, or -1; how many tasks of the launch go there. */
static int32_t full_stream(struct tsemu_context *c, const struct room *room, uint32_t *count)
{
    if (!room->tasks) {
        *count = 1;
        return stream_full(&c->stream[room->stream], 1) ? (int32_t)room->stream : -1;
    }
    int32_t found = -1;
    for (uint32_t i = 0; i < room->count; i++)
        c->stream[room->tasks[i].stream].wanted++;
    for (uint32_t i = 0; i < room->count; i++) {
        struct stream *stream = &c->stream[room->tasks[i].stream];
        if (stream->wanted && found < 0 && stream_full(stream, stream->wanted)) {
            found = room->tasks[i].stream;
            *count = stream->wanted;
        }
        stream->wanted = 0;
    }
    return found;
}

/* The event wait that has been pending for longest: a likely reason why nothing moves. */
static const struct slot *oldest_event_wait(const struct tsemu_context *c)
{
    const struct slot *oldest = NULL;
    for (uint32_t i = 0; i < c->slots; i++) {
        const struct slot *slot = &c->slot[i];
        if (slot->kind != OWNER_FREE && slot->flags & SLOT_EVENT_WAIT &&
            (!oldest || tsemu_after(oldest->ticket, slot->ticket)))
            oldest = slot;
    }
    return oldest;
}

static int no_resource(struct tsemu_context *c, uint32_t purpose, uint32_t stream)
{
    const struct slot *wait = oldest_event_wait(c);
    uint32_t in_flight = c->submitted - c->consumed;
    if (purpose == FOR_STREAM)
        driver_fail(TSEMU_E_NO_RESOURCE, "stream_limit", c->stream[stream].outstanding,
                    c->stream[stream].limit,
                    "launch what its tasks wait for, or raise the stream's limit",
                    "the launch can never go on: stream %u holds %u tasks%s", stream,
                    c->stream[stream].outstanding,
                    wait ? ", and a task waits for an event" : "");
    else if (wait)
        driver_fail(TSEMU_E_NO_RESOURCE, "window", in_flight, c->window,
                    "record the event before so many tasks that wait behind it, or raise `window`",
                    "the launch can never go on: task %u waits for value %u of event %u, and the "
                    "window of %u tasks is full behind it",
                    wait->ticket, wait->value, wait->event, c->window);
    else
        driver_fail(TSEMU_E_NO_RESOURCE, purpose == FOR_RING ? "sq_entries" : "window", in_flight,
                    purpose == FOR_RING ? c->sq_entries : c->window, "raise `window`",
                    "the launch can never go on: %u tasks are in flight and none can end",
                    in_flight);
    driver_fail_about(wait ? wait->ticket : 0, stream);
    return TSEMU_E_NO_RESOURCE;
}

static int queue_full(struct tsemu_context *c, uint32_t purpose, uint32_t stream)
{
    if (purpose == FOR_STREAM)
        driver_fail(TSEMU_E_QUEUE_FULL, "stream_limit", c->stream[stream].outstanding,
                    c->stream[stream].limit, "wait for tasks of the stream, or launch blocking",
                    "stream %u holds %u tasks, its limit is %u", stream,
                    c->stream[stream].outstanding, c->stream[stream].limit);
    else if (purpose == FOR_RING)
        driver_fail(TSEMU_E_QUEUE_FULL, "sq_entries", c->tail - c->answered_head, c->sq_entries,
                    "launch again after a wait", "the submission ring is full");
    else
        driver_fail(TSEMU_E_QUEUE_FULL, "window", c->submitted - c->answered, c->window,
                    "wait for tasks, or launch blocking", "the window of %u tasks is full",
                    c->window);
    driver_fail_about(0, stream);
    return TSEMU_E_QUEUE_FULL;
}

static int post(struct tsemu_context *c, const struct room *room, driver_operation *operation,
                struct driver_wait wait, uint32_t purpose, uint64_t until)
{
    if (!operation)
        return TSEMU_AGAIN;
    wait.timeout_ps = room->block ? TSEMU_NO_LIMIT : c->page->poll_cost_ps;
    operation->value = purpose;
    operation->stream = wait.kind == TSEMU_WAIT_KIND_STREAM_LIMIT ? wait.a : room->stream;
    return wait_post(c, &wait, room->block ? TSEMU_WAIT_FLAG_LAUNCH : 0u, operation, until);
}

static int post_room(struct tsemu_context *c, const struct room *room, driver_operation *operation,
                     uint32_t target, uint64_t until)
{
    bool more = tsemu_after(target, c->answered);
    struct driver_wait wait = {.kind = TSEMU_WAIT_KIND_ROOM, .a = more ? target : c->answered};
    return post(c, room, operation, wait, more ? FOR_WINDOW : FOR_RING, until);
}

/* A launch that really waits goes on when the stream holds at most half its limit (operand b), so
 * that a long stream does not cost a round trip per launch. Whether it has to wait is for the device
 * to say (operand c, at the first look): the driver may know of fewer completions, the fewer the
 * more slots there are, and results must not depend on that. */
static int post_stream(struct tsemu_context *c, const struct room *room,
                       driver_operation *operation, uint32_t stream, uint32_t count,
                       uint64_t until)
{
    uint32_t limit = c->stream[stream].limit;
    uint32_t now = limit > count ? limit - count : 0;
    uint32_t later = room->block && now > limit / 2 ? limit / 2 : now;
    struct driver_wait wait = {
        .kind = TSEMU_WAIT_KIND_STREAM_LIMIT, .a = stream, .b = later, .c = now};
    return post(c, room, operation, wait, FOR_STREAM, until);
}

static int launch_answer(struct tsemu_context *c, const struct room *room,
                         driver_operation *operation, uint32_t reason)
{
    if (!room->block)
        return reason == TSEMU_ANSWER_TIMEOUT || reason == TSEMU_ANSWER_STALLED
                   ? queue_full(c, operation->value, operation->stream)
                   : TSEMU_OK;
    operation->deadline_ps = 0;
    if (reason == TSEMU_ANSWER_STALLED)
        return no_resource(c, operation->value, operation->stream);
    return TSEMU_OK; /* TIMEOUT as well: slow is not hopeless, the launch looks again */
}

static void pipe_start(struct tsemu_context *c, const struct room *room,
                       driver_operation *operation, uint32_t kind, uint32_t need)
{
    c->launcher = true;
    operation->stage = STAGE_PIPE;
    operation->value = kind;
    operation->need = need;
    operation->sequence = 0;
    operation->stream = room->stream;
    if (kind == TSEMU_PIPE_KIND_COMPLETIONS)
        c->counters.slot_blocks++;
    else
        c->counters.ring_blocks++;
}

void pipe_end(struct tsemu_context *c, driver_operation *operation)
{
    if (operation->sequence)
        tsemu_store_release(&c->page->pipe_kind, TSEMU_PIPE_KIND_NONE);
    c->launcher = false;
    operation->stage = STAGE_START;
    operation->sequence = 0;
    wake_threads(c);
}

static int pipe_wait(struct tsemu_context *c, driver_operation *operation, uint64_t until)
{
    struct condition condition = {
        .kind = operation->value == TSEMU_PIPE_KIND_COMPLETIONS ? FOR_COMPLETIONS : FOR_ENTRIES,
        .need = (uint32_t)operation->need};
    if (!operation->sequence) {
        if (spin_for(c, &condition)) {
            pipe_end(c, operation);
            return TSEMU_OK;
        }
        if (!++c->pipe_sequence)
            ++c->pipe_sequence;
        operation->sequence = c->pipe_sequence;
        tsemu_store_relaxed(&c->page->pipe_need, condition.need);
        tsemu_store_relaxed(&c->page->pipe_kind, operation->value);
        tsemu_store_release(&c->page->pipe_sequence, operation->sequence);
        publish_fence(c);
    }
    condition.sequence = operation->sequence;
    int code = block_until(c, &condition, until);
    if (code == TSEMU_AGAIN)
        return code;
    uint32_t purpose = condition.kind == FOR_ENTRIES ? FOR_RING : FOR_WINDOW;
    uint32_t stream = operation->stream;
    condition.sequence = 0;
    bool moved = condition_holds(c, &condition);
    pipe_end(c, operation);
    if (code)
        return code;
    return moved ? TSEMU_OK : no_resource(c, purpose, stream);
}

/* Slots: the completion number `need` has to be published. TSEMU_OK and stage PIPE: wait. */
static int take_slots(struct tsemu_context *c, const struct room *room,
                      driver_operation *operation, uint32_t need)
{
    int code;
    if (!tsemu_reached(c->tail_seen, need) && (code = load_cq_tail(c)))
        return code;
    while (!tsemu_reached(c->tail_seen, need)) {
        if (!operation)
            return TSEMU_AGAIN;
        uint32_t full = c->consumed + c->cq_entries;
        if (tsemu_after(need, full) && tsemu_after(c->tail_seen, c->consumed)) {
            /* A ring smaller than the window: it has to be emptied to move on. */
            if ((code = consume_published(c, c->tail_seen)) || (code = load_cq_tail(c)))
                return code;
            continue;
        }
        pipe_start(c, room, operation, TSEMU_PIPE_KIND_COMPLETIONS,
                   tsemu_after(need, full) ? full : need);
        return TSEMU_OK;
    }
    return tsemu_after(need, c->consumed) ? consume_published(c, need) : TSEMU_OK;
}

static int take_entries(struct tsemu_context *c, const struct room *room,
                        driver_operation *operation)
{
    if (c->tail + room->entries - c->head_seen <= c->sq_entries)
        return TSEMU_OK;
    uint32_t head = tsemu_load_acquire(&c->page->sq_head);
    if (c->tail - head > c->sq_entries) {
        driver_fail(TSEMU_E_PROTOCOL, "sq_head", head, c->tail,
                    "the device's memory is damaged or its firmware is faulty: open a new context",
                    "sq_head is %u, but the tail is %u of %u entries", head, c->tail,
                    c->sq_entries);
        context_break(c, TSEMU_E_PROTOCOL, TSEMU_STATUS_RESET);
        return c->broken;
    }
    c->head_seen = head;
    if (c->tail + room->entries - head <= c->sq_entries)
        return TSEMU_OK;
    if (!operation)
        return TSEMU_AGAIN;
    pipe_start(c, room, operation, TSEMU_PIPE_KIND_ENTRIES,
               c->tail + room->entries - c->sq_entries);
    return TSEMU_OK;
}

/* Inside a callback a launch never waits and ignores the stream's limit. */
static int callback_room(struct tsemu_context *c, const struct room *room)
{
    uint32_t need = c->submitted + room->count - c->slots;
    if (c->launcher || tsemu_after(need, c->answered))
        return queue_full(c, FOR_WINDOW, room->stream);
    if (c->tail + room->entries - c->answered_head > c->sq_entries)
        return queue_full(c, FOR_RING, room->stream);
    return tsemu_after(need, c->consumed) ? consume_published(c, need) : TSEMU_OK;
}

/* One look at everything. TSEMU_OK and stage START: there is room; another stage: wait. */
static int look(struct tsemu_context *c, const struct room *room, driver_operation *operation,
                uint64_t until)
{
    uint32_t last = c->submitted + room->count;
    uint32_t target = last - c->window, count = 0;
    if (tsemu_after(target, c->submitted))
        target = c->submitted; /* more tasks than the window: all before them have to end */
    bool room_now = !tsemu_after(target, c->answered);
    bool ring_now = c->tail + room->entries - c->answered_head <= c->sq_entries;
    int code = consume_to(c, c->answered, until); /* left over from an abandoned wait */
    if (code)
        return code;
    if (!room->block) {
        if (!room_now)
            return post_room(c, room, operation, target, until);
        int32_t stream = full_stream(c, room, &count);
        if (stream >= 0)
            return post_stream(c, room, operation, (uint32_t)stream, count, until);
        if (c->pending && !ring_now)
            return post_room(c, room, operation, target, until);
    } else if (c->pending && !(room_now && ring_now)) {
        return post_room(c, room, operation, target, until);
    }
    code = take_slots(c, room, operation, last - c->slots);
    if (code || (operation && operation->stage != STAGE_START))
        return code;
    if (room->block) {
        int32_t stream = full_stream(c, room, &count);
        if (stream >= 0)
            return post_stream(c, room, operation, (uint32_t)stream, count, until);
    }
    return take_entries(c, room, operation);
}

int room_reserve(struct tsemu_context *c, const struct room *room, driver_operation *operation,
                 uint64_t until)
{
    int code;
    for (;;) {
        switch (operation->stage & 0xFFu) {
        case STAGE_START:
            break;
        case STAGE_PIPE:
            code = pipe_wait(c, operation, until);
            if (code)
                return code;
            break;
        default: {
            uint32_t reason;
            code = wait_collect(c, operation, until, false, &reason);
            if (!code)
                code = launch_answer(c, room, operation, reason);
            if (code)
                return code;
        }
        }
        if (thread_record(c)->in_callback)
            return callback_room(c, room);
        if (c->launcher) { /* launches keep their order */
            if (wall_ns() >= until)
                return TSEMU_AGAIN;
            block_for_threads(c, until);
            code = attend(c);
        } else {
            code = look(c, room, operation, until);
            if (!code && operation->stage == STAGE_START)
                return TSEMU_OK;
        }
        if (code)
            return code;
    }
}

int room_try(struct tsemu_context *c, const struct room *room)
{
    if (thread_record(c)->in_callback)
        return callback_room(c, room);
    if (c->launcher || tsemu_after(c->answered, c->consumed))
        return TSEMU_AGAIN;
    return look(c, room, NULL, 0);
}
