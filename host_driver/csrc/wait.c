/* Posted waits: a record in the control page with a condition; its answer is the only thing from
 * which the driver learns how far the device is. */
#include "internal.h"

#include <unistd.h>

#define NO_DEADLINE UINT64_MAX

static uint32_t stage_of(const driver_operation *operation)
{
    return operation->stage & 0xFFu;
}

/* Waits until a record may have become free: an abandoned one is answered, or a thread is done. */
int wait_for_record(struct tsemu_context *c, uint64_t until)
{
    if (wall_ns() >= until)
        return TSEMU_AGAIN;
    int code = TSEMU_OK;
    if (c->wait_abandoned) {
        uint32_t index = (uint32_t)__builtin_ctz(c->wait_abandoned);
        struct condition condition = {.kind = FOR_ANSWER, .index = index,
                                      .sequence = c->page->waits[index].sequence};
        code = block_until(c, &condition, until);
    } else {
        block_for_threads(c, until);
        code = attend(c);
    }
    if (!code)
        wait_reap(c);
    return code;
}

int wait_post(struct tsemu_context *c, const struct driver_wait *wait, uint32_t flags,
              driver_operation *operation, uint64_t until)
{
    wait_reap(c);
    while (c->wait_busy == (1u << TSEMU_MAX_WAITS) - 1u) {
        int code = wait_for_record(c, until);
        if (code)
            return code;
    }
    struct thread_record *me = thread_record(c);
    thread_waits(c, me);
    publish_tail(c);
    uint32_t index = (uint32_t)__builtin_ctz(~c->wait_busy);
    struct tsemu_wait_request *request = &c->page->waits[index];
    request->submitted = c->submitted;
    request->kind = wait->kind;
    request->a = wait->a;
    request->b = wait->b;
    request->c = wait->c;
    request->deadline_ps = wait->timeout_ps;
    if (operation->deadline_ps) {
        request->deadline_ps = operation->deadline_ps;
        flags |= TSEMU_WAIT_FLAG_ABSOLUTE;
    }
    if (c->pending && !me->in_callback) {
        request->next_completed = c->answered;
        flags |= TSEMU_WAIT_FLAG_NEXT;
    }
    request->flags = flags;
    c->wait_busy |= 1u << index;
    operation->wait = (int32_t)index + 1;
    operation->sequence = request->sequence + 1;
    operation->stage = STAGE_POSTED;
    tsemu_store_release(&request->sequence, operation->sequence);
    tsemu_store_release(&c->page->wait_posts, ++c->counters.waits_posted);
    publish_fence(c);
    return TSEMU_OK;
}

static void release_record(struct tsemu_context *c, uint32_t index)
{
    c->wait_busy &= ~(1u << index);
    c->wait_abandoned &= ~(1u << index);
    if (c->control_wait == index + 1) {
        c->control_wait = 0;
        c->control_busy = false;
    }
    wake_threads(c);
}

/* The answer of a record, which is then free. */
static int take_answer(struct tsemu_context *c, uint32_t index, struct tsemu_wait_answer *answer)
{
    *answer = c->page->answers[index];
    release_record(c, index);
    if (tsemu_after(answer->completed, c->submitted) ||
        answer->reason < TSEMU_ANSWER_MET || answer->reason > TSEMU_ANSWER_CONTEXT_ERROR) {
        bool reason = !tsemu_after(answer->completed, c->submitted);
        driver_fail(TSEMU_E_PROTOCOL, reason ? "answer" : "completed",
                    reason ? answer->reason : answer->completed, c->submitted,
                    "the device's memory is damaged or its firmware is faulty: open a new context",
                    "wait record %u: the answer has reason %u and says that %u of %u tasks have "
                    "ended", index, answer->reason, answer->completed, c->submitted);
        context_break(c, TSEMU_E_PROTOCOL, TSEMU_STATUS_RESET);
        return c->broken;
    }
    if (tsemu_after(answer->completed, c->answered))
        c->answered = answer->completed;
    if (tsemu_after(answer->sq_head, c->answered_head))
        c->answered_head = answer->sq_head;
    c->now_ps = answer->now_ps;
    return TSEMU_OK;
}

static bool answered(const struct tsemu_context *c, uint32_t index)
{
    struct condition condition = {.kind = FOR_ANSWER, .index = index,
                                  .sequence = c->page->waits[index].sequence};
    return condition_holds(c, &condition);
}

void wait_reap(struct tsemu_context *c)
{
    for (uint32_t i = 0; c->wait_abandoned >> i; i++) {
        struct tsemu_wait_answer answer;
        if (c->wait_abandoned >> i & 1u && answered(c, i) && take_answer(c, i, &answer))
            return;
    }
}

int wait_collect(struct tsemu_context *c, driver_operation *operation, uint64_t until, bool poll,
                 uint32_t *reason)
{
    int code;
    if (stage_of(operation) == STAGE_POSTED) {
        uint32_t index = (uint32_t)operation->wait - 1u;
        if (index >= TSEMU_MAX_WAITS)
            return driver_fail(TSEMU_E_INVALID, "operation", index, TSEMU_MAX_WAITS,
                               "zero an operation before its first step",
                               "the operation is damaged");
        struct condition condition = {.kind = FOR_ANSWER, .index = index,
                                      .sequence = operation->sequence};
        if (!condition_holds(c, &condition)) {
            if (poll)
                code = attend(c);
            else
                code = block_until(c, &condition, until);
            if (!code && !condition_holds(c, &condition))
                code = TSEMU_AGAIN;
            if (code)
                return code;
        }
        struct tsemu_wait_answer answer;
        bool event = c->page->waits[index].kind == TSEMU_WAIT_KIND_EVENT;
        code = take_answer(c, index, &answer);
        if (code)
            return code;
        operation->wait = 0;
        operation->need = answer.completed;
        if (event)
            operation->value = answer.value; /* posted again, it waits for the same value */
        bool early = answer.reason == TSEMU_ANSWER_NEXT || answer.reason == TSEMU_ANSWER_CALL;
        /* Not started: answered at the first look; a deadline from an earlier record stays. */
        if ((early || operation->keep_deadline) && answer.deadline_ps != NO_DEADLINE)
            operation->deadline_ps = answer.deadline_ps;
        operation->stage = STAGE_ANSWERED | answer.reason << 8;
    }
    if (stage_of(operation) == STAGE_ANSWERED) {
        code = consume_to(c, (uint32_t)operation->need, until);
        if (code)
            return code;
        operation->stage = STAGE_COLLECTED | (operation->stage & ~0xFFu);
    }
    *reason = operation->stage >> 8;
    if (*reason == TSEMU_ANSWER_CONTEXT_ERROR)
        return context_in_error(c);
    if (c->callbacks.count && !thread_record(c)->in_callback)
        return TSEMU_CALLBACKS;
    operation->stage = STAGE_START;
    return TSEMU_OK;
}

static bool task_pending(const struct tsemu_context *c, uint32_t ticket, uint32_t slot)
{
    return c->slot[slot].kind != OWNER_FREE && c->slot[slot].ticket == ticket;
}

static int check_wait(const struct tsemu_context *c, const struct driver_wait *wait)
{
    switch (wait->kind) {
    case TSEMU_WAIT_KIND_TASK:
        if (wait->b >= c->slots)
            return driver_fail(TSEMU_E_INVALID, "slot", wait->b, c->slots - 1,
                               "pass ticket and slot of a task handle",
                               "there is no slot %u: the context has %u", wait->b, c->slots);
        return TSEMU_OK;
    case TSEMU_WAIT_KIND_STREAM:
    case TSEMU_WAIT_KIND_STREAM_LIMIT:
        if (wait->a >= c->stream_count || !c->stream[wait->a].exists)
            return driver_fail(TSEMU_E_INVALID, "stream", wait->a, c->stream_count - 1,
                               "create the stream first", "there is no stream %u", wait->a);
        return TSEMU_OK;
    case TSEMU_WAIT_KIND_EVENT:
        if (wait->a >= c->event_count || !c->event[wait->a].exists)
            return driver_fail(TSEMU_E_INVALID, "event", wait->a, c->event_count - 1,
                               "create the event first", "there is no event %u", wait->a);
        return TSEMU_OK;
    case TSEMU_WAIT_KIND_ALL:
    case TSEMU_WAIT_KIND_ROOM:
    case TSEMU_WAIT_KIND_NEXT:
        return TSEMU_OK;
    default:
        return driver_fail(TSEMU_E_INVALID, "kind", wait->kind, TSEMU_WAIT_KIND_EVENT,
                           "use a wait kind from TASK to EVENT",
                           "%u is no kind of wait that can be posted here", wait->kind);
    }
}

/* The wait with the operands that the driver fills in; they stay when it is posted again. */
static struct driver_wait filled(const struct tsemu_context *c, const struct driver_wait *wait,
                                 driver_operation *operation)
{
    struct driver_wait full = *wait;
    bool fill = wait->c == 1u;
    if (wait->kind == TSEMU_WAIT_KIND_EVENT) {
        if (!full.b)
            full.b = operation->value;
        return full;
    }
    if (!fill || (wait->kind != TSEMU_WAIT_KIND_ALL && wait->kind != TSEMU_WAIT_KIND_STREAM &&
                  wait->kind != TSEMU_WAIT_KIND_NEXT))
        return full;
    if (!operation->filled) {
        operation->filled = 1;
        operation->value = wait->kind == TSEMU_WAIT_KIND_NEXT ? c->consumed : c->submitted;
    }
    if (wait->kind == TSEMU_WAIT_KIND_STREAM)
        full.b = operation->value;
    else
        full.a = operation->value;
    full.c = 0;
    return full;
}

int wait_locked(struct tsemu_context *c, const struct driver_wait *wait,
                       driver_operation *operation, bool poll)
{
    uint64_t until = poll ? 0 : wall_ns() + SLICE_NS;
    for (;;) {
        int code;
        if (stage_of(operation) == STAGE_START) {
            if (thread_record(c)->in_callback)
                return driver_fail(TSEMU_E_IN_CALLBACK, "callback", 1, 0,
                                   "launch here, and wait after the callback has returned",
                                   "a callback may launch but not wait");
            if (c->callbacks.count)
                return TSEMU_CALLBACKS;
            code = check_wait(c, wait);
            if (code)
                return code;
            if (wait->kind == TSEMU_WAIT_KIND_TASK && !task_pending(c, wait->a, wait->b))
                return TSEMU_OK;
            struct driver_wait full = filled(c, wait, operation);
            code = wait_post(c, &full, 0, operation, until);
            if (code)
                return code;
        }
        uint32_t reason;
        code = wait_collect(c, operation, until, poll, &reason);
        if (code)
            return code;
        switch (reason) {
        case TSEMU_ANSWER_MET:
            return TSEMU_OK;
        case TSEMU_ANSWER_TIMEOUT:
            return driver_fail(TSEMU_E_TIMEOUT, "timeout", c->now_ps, wait->timeout_ps,
                               "wait longer, or ask the device why the task does not run",
                               "the condition did not hold in time");
        case TSEMU_ANSWER_STALLED:
            return driver_fail(TSEMU_E_NO_RESOURCE, "wait", wait->kind, 0,
                               "launch what it depends on", "the wait can never end");
        default: /* NEXT: callbacks have run, the same wait is posted again */
            break;
        }
    }
}

int driver_wait_step(tsemu_context *c, const driver_wait *wait, driver_operation *operation)
{
    context_lock(c);
    int code = context_check(c);
    if (!code) {
        c->users++;
        code = wait_locked(c, wait, operation, false);
        c->users--;
    }
    code = callbacks_first(c, code);
    context_unlock(c);
    return code;
}

/* An event loop sleeps on the eventfd: arm it, then look once more. */
static int arm(struct tsemu_context *c, const driver_wait *wait, driver_operation *operation)
{
    uint64_t count;
    if (!c->leader && read(c->interrupt_fd, &count, sizeof count) < 0)
        count = 0; /* nothing was there */
    c->poll_armed = true;
    tsemu_store_relaxed(&c->page->host_sleeps, 1);
    tsemu_ring_fence();
    return wait_locked(c, wait, operation, true);
}

int driver_wait_poll(tsemu_context *c, const driver_wait *wait, driver_operation *operation)
{
    context_lock(c);
    c->users++;
    c->poll_armed = false;
    int code = context_check(c);
    if (!code)
        code = wait_locked(c, wait, operation, true);
    if (code == TSEMU_AGAIN && c->embedded) {
        context_unlock(c);
        c->pump(c->pump_argument, SLICE_NS / 10);
        context_lock(c);
        code = context_check(c);
        if (!code)
            code = wait_locked(c, wait, operation, true);
    } else if (code == TSEMU_AGAIN) {
        code = arm(c, wait, operation);
    }
    c->users--;
    code = callbacks_first(c, code);
    context_unlock(c);
    return code;
}

void operation_drop(struct tsemu_context *c, driver_operation *operation)
{
    switch (stage_of(operation)) {
    case STAGE_POSTED:
        if (operation->wait < 1 || operation->wait > (int32_t)TSEMU_MAX_WAITS)
            break;
        c->wait_abandoned |= 1u << (operation->wait - 1);
        if (operation->control)
            c->control_wait = (uint32_t)operation->wait;
        operation->control = 0;
        wait_reap(c);
        break;
    case STAGE_PIPE:
        pipe_end(c, operation);
        break;
    default:
        break;
    }
    if (operation->control) {
        c->control_busy = false;
        wake_threads(c);
    }
    memset(operation, 0, sizeof *operation);
}

void driver_abandon(tsemu_context *c, driver_operation *operation)
{
    context_lock(c);
    operation_drop(c, operation);
    context_unlock(c);
}
