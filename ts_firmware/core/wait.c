/* Posted waits: taken from the control page, judged, answered. */
#include "state.h"

static bool copy_request(struct fw *fw, struct context *context, uint32_t index)
{
    struct tsemu_wait_request *request = &context_page(fw, context)->waits[index];
    struct wait *wait = &context->waits[index];
    uint32_t sequence = tsemu_load_acquire(&request->sequence);
    if (context->posted >> index & 1u || sequence == wait->sequence)
        return false;
    wait->sequence = sequence;
    wait->submitted = request->submitted;
    wait->kind = request->kind;
    wait->flags = request->flags;
    wait->a = request->a;
    wait->b = request->b;
    wait->c = request->c;
    wait->next_completed = request->next_completed;
    wait->deadline = request->deadline_ps;
    wait->blocker = NIL;
    wait->started = false;
    context->posted |= (uint16_t)(1u << index);
    fw->posted_waits++;
    return true;
}

/* Take new posts. True when there were any. */
bool wait_gather(struct fw *fw, struct context *context)
{
    uint32_t posts = tsemu_load_acquire(&context_page(fw, context)->wait_posts);
    bool any = false;
    if (posts == context->posts)
        return false;
    context->posts = posts;
    for (uint32_t index = 0; index < TSEMU_MAX_WAITS; index++)
        any |= copy_request(fw, context, index);
    return any;
}

static bool concerns(const struct task *task, uint32_t ticket, uint32_t stream)
{
    return task_incomplete(task) && tsemu_reached(ticket, task->ticket) &&
           (stream == NIL || task->stream == stream);
}

/* True when no task up to `ticket` (of `stream`, or NIL: of any) is incomplete. Only asked when
 * younger tasks are in flight, that is, when several threads launch: remembers the blocker. */
static bool none_up_to(const struct context *context, struct wait *wait, uint32_t ticket,
                       uint32_t stream)
{
    if (wait->blocker != NIL && concerns(context_task(context, wait->blocker), ticket, stream))
        return false;
    wait->blocker = NIL;
    for (uint32_t slot = 0; slot < context->slots; slot++) {
        const struct task *task = context_task(context, slot);
        if (!concerns(task, ticket, stream))
            continue;
        if (wait->blocker == NIL ||
            tsemu_after(task->ticket, context_task(context, wait->blocker)->ticket))
            wait->blocker = slot;
    }
    return wait->blocker == NIL;
}

static bool event_reached(const struct fw *fw, const struct context *context, struct wait *wait)
{
    if (wait->a >= fw->config.max_events || !context_event(context, wait->a)->used)
        return true;
    const struct event *event = context_event(context, wait->a);
    if (wait->b == 0)
        wait->b = event->admitted ? event->admitted : 1;
    return tsemu_reached(event->reached, wait->b);
}

static bool holds_true(struct fw *fw, struct context *context, struct wait *wait)
{
    switch (wait->kind) {
    case TSEMU_WAIT_KIND_TASK: {
        if (wait->b >= context->slots)
            return true;
        const struct task *task = context_task(context, wait->b);
        return task->ticket != wait->a || !task_incomplete(task);
    }
    case TSEMU_WAIT_KIND_ALL:
        if (context->admitted == context->completed)
            return true;
        return context->admitted != wait->a && none_up_to(context, wait, wait->a, NIL);
    case TSEMU_WAIT_KIND_STREAM:
        if (wait->a >= fw->config.max_streams)
            return true;
        if (context_stream(context, wait->a)->incomplete == 0)
            return true;
        return context->admitted != wait->b && none_up_to(context, wait, wait->b, wait->a);
    case TSEMU_WAIT_KIND_STREAM_LIMIT: {
        /* At the first look there need only be room; a launch that really waits waits for more. */
        uint32_t most = !wait->started && wait->c > wait->b ? wait->c : wait->b;
        return wait->a >= fw->config.max_streams ||
               context_stream(context, wait->a)->incomplete <= most;
    }
    case TSEMU_WAIT_KIND_ROOM:
        return tsemu_reached(context->completed, wait->a);
    case TSEMU_WAIT_KIND_NEXT:
        return tsemu_after(context->completed, wait->a);
    case TSEMU_WAIT_KIND_EVENT:
        return event_reached(fw, context, wait);
    case TSEMU_WAIT_KIND_CONTROL:
        control_request(fw, context);
        return true;
    default:
        return true;
    }
}

void wait_answer(struct fw *fw, struct context *context, uint32_t index, uint32_t reason)
{
    struct tsemu_wait_answer *answer = &context_page(fw, context)->answers[index];
    struct wait *wait = &context->waits[index];
    complete_unpark(fw, context);
    complete_publish(fw, context);
    answer->reason = reason;
    answer->completed = context->completed;
    answer->sq_head = context->position;
    answer->now_ps = fw->hal->now;
    answer->deadline_ps = wait->started ? wait->deadline : FW_NEVER;
    answer->argument = 0;
    answer->value = wait->b;
    context->posted &= (uint16_t)~(1u << index);
    fw->posted_waits--;
    context->last_answer = fw->hal->now;
    tsemu_store_release(&answer->sequence, wait->sequence);
    complete_interrupt(fw, context);
}

static void start_deadline(struct fw *fw, struct wait *wait)
{
    if (wait->started)
        return;
    wait->started = true;
    uint64_t now = fw->hal->now;
    uint64_t limit = fw->config.wait_limit; /* no wait is endless */
    if (wait->flags & TSEMU_WAIT_FLAG_ABSOLUTE)
        wait->deadline = wait->deadline < now + limit ? wait->deadline : now + limit;
    else
        wait->deadline = now + (wait->deadline < limit ? wait->deadline : limit);
}

static bool judge(struct fw *fw, struct context *context, uint32_t index)
{
    struct wait *wait = &context->waits[index];
    if (!tsemu_reached(context->admitted, wait->submitted) && !context->errored)
        return false;
    if (holds_true(fw, context, wait))
        wait_answer(fw, context, index, TSEMU_ANSWER_MET);
    else if (context->errored)
        wait_answer(fw, context, index, TSEMU_ANSWER_CONTEXT_ERROR);
    else if (wait->flags & TSEMU_WAIT_FLAG_NEXT &&
             tsemu_after(context->completed, wait->next_completed))
        wait_answer(fw, context, index, TSEMU_ANSWER_NEXT);
    else {
        start_deadline(fw, wait);
        return false;
    }
    return true;
}

/* Answer what has become true. Before the clock starts only control requests are carried out. */
bool wait_answer_met(struct fw *fw, struct context *context)
{
    bool changed = false;
    bool started = hal_clock_started(fw->hal);
    for (uint32_t bits = context->posted; bits; bits &= bits - 1u) {
        uint32_t index = (uint32_t)__builtin_ctz(bits);
        if (started || context->waits[index].kind == TSEMU_WAIT_KIND_CONTROL)
            changed |= judge(fw, context, index);
    }
    return changed;
}

/* Deadlines that have come. */
bool wait_expire(struct fw *fw, struct context *context)
{
    bool changed = false;
    for (uint32_t bits = context->posted; bits; bits &= bits - 1u) {
        uint32_t index = (uint32_t)__builtin_ctz(bits);
        struct wait *wait = &context->waits[index];
        if (!wait->started || wait->deadline > fw->hal->now)
            continue;
        wait_answer(fw, context, index, TSEMU_ANSWER_TIMEOUT);
        changed = true;
    }
    return changed;
}

uint64_t wait_next_deadline(const struct fw *fw)
{
    uint64_t next = FW_NEVER;
    for (uint32_t i = 0; fw->posted_waits && i < fw->context_count; i++) {
        const struct context *context = fw_context(fw, fw->by_name[i]);
        for (uint32_t bits = context->posted; bits; bits &= bits - 1u) {
            const struct wait *wait = &context->waits[__builtin_ctz(bits)];
            if (wait->started && wait->deadline < next)
                next = wait->deadline;
        }
    }
    return next;
}

/* A launch that is blocked on bytes that only completions can bring. */
static bool stuck_in_pipe(const struct fw *fw, const struct context *context)
{
    const struct tsemu_control_page *page = context_page(fw, context);
    uint32_t sequence = tsemu_load_acquire(&page->pipe_sequence);
    uint32_t kind = tsemu_load_relaxed(&page->pipe_kind);
    uint32_t need = tsemu_load_relaxed(&page->pipe_need);
    if (!context->blocked || sequence == page->pipe_stalled)
        return false;
    if (kind == TSEMU_PIPE_KIND_COMPLETIONS)
        return tsemu_after(need, context->completed);
    return kind == TSEMU_PIPE_KIND_ENTRIES && tsemu_after(need, context->position);
}

bool fw_client_waits(const struct fw *fw, uint32_t id)
{
    const struct context *context = fw_context(fw, id);
    return context->posted || stuck_in_pipe(fw, context);
}

static bool gap_of_wait(struct fw *fw, struct context *context, uint32_t index)
{
    struct wait *wait = &context->waits[index];
    if (wait->kind == TSEMU_WAIT_KIND_CONTROL) { /* waits behind an entry that is stuck */
        control_request(fw, context);
        wait_answer(fw, context, index, TSEMU_ANSWER_MET);
        return true;
    }
    if (wait->flags & TSEMU_WAIT_FLAG_LAUNCH && !(wait->flags & TSEMU_WAIT_FLAG_ABSOLUTE)) {
        wait_answer(fw, context, index, TSEMU_ANSWER_STALLED);
        return true;
    }
    bool before = wait->started;
    start_deadline(fw, wait);
    return !before;
}

struct fw_gap fw_idle_gap(struct fw *fw)
{
    struct fw_gap gap = {false, false};
    for (uint32_t i = 0; i < fw->context_count; i++) {
        struct context *context = fw_context(fw, fw->by_name[i]);
        if (context->closing)
            continue;
        for (uint32_t bits = context->posted; bits; bits &= bits - 1u) {
            gap.waiting = true;
            gap.changed |= gap_of_wait(fw, context, (uint32_t)__builtin_ctz(bits));
        }
        if (stuck_in_pipe(fw, context)) {
            struct tsemu_control_page *page = context_page(fw, context);
            gap.waiting = true;
            gap.changed = true;
            context->last_answer = fw->hal->now;
            tsemu_store_release(&page->pipe_stalled, tsemu_load_relaxed(&page->pipe_sequence));
            complete_interrupt(fw, context);
        }
    }
    return gap;
}
