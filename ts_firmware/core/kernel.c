/* RTOS: run-to-completion tasks of fixed priority, and the firmware's start.
 *
 * The order of the tasks is the order of phases in an instant: core interrupts, input, edges and
 * limits, again until nothing changes; then one dispatch. */
#include "state.h"

static void task_cores(struct fw *fw)
{
    if (!fw_is_busy(fw))
        dispatch_collect(fw);
}

static void describe(const struct context *context, struct hal_client *client)
{
    client->context = context->id;
    client->submitted = context->position;
    client->tail = context->tail;
    client->posts = context->posts;
    client->admitted = context->admitted;
    client->completed = context->completed;
    client->blocked = context->blocked;
    client->mends = context->refused && !context->errored && !context->closing;
    /* A context in error submits nothing more: its last blocks must not wait for the client. */
    client->waits = context->errored || (context->posted && !client->mends);
    client->waits_for_result = context->errored;
    for (uint32_t bits = context->posted; bits; bits &= bits - 1u)
        if (!(context->waits[__builtin_ctz(bits)].flags & TSEMU_WAIT_FLAG_LAUNCH))
            client->waits_for_result = true;
}

/* Take what is there. True when a wait was answered, so that there may be more at once. */
static bool take_input(struct fw *fw, struct context *context)
{
    context->pipe = tsemu_load_acquire(&context_page(fw, context)->pipe_sequence);
    wait_gather(fw, context);
    if (context->parked)
        complete_unpark(fw, context);
    submit_take(fw, context);
    return context->posted && wait_answer_met(fw, context);
}

void firmware_panic(struct fw *fw, const char *reason)
{
    fw->panicked = true;
    console_log(fw, "PANIC: %s", reason);
    hal_panic(fw->hal, reason);
}

/* Input of the clients in order of name, each until it is settled. False: it stands still at the
 * first that is not. */
static bool task_input(struct fw *fw)
{
    for (; fw->input_cursor < fw->context_count; fw->input_cursor++) {
        struct context *context = fw_context(fw, fw->by_name[fw->input_cursor]);
        if (context->closing)
            continue;
        enum hal_settled state;
        do {
            while (take_input(fw, context))
                continue;
            if (context->blocked && !context->refused)
                break; /* settled: its next entry is there and cannot be admitted now */
            struct hal_client client;
            describe(context, &client);
            state = hal_client_settled(fw->hal, &client);
            if (state == HAL_UNSETTLED)
                return false;
        } while (state == HAL_INPUT_AGAIN);
    }
    fw->input_cursor = 0;
    return true;
}

/* Limits of tasks first: a wait that a task's end satisfies has not come too late. */
static bool task_limits(struct fw *fw)
{
    if (timer_expire(fw))
        return true;
    bool changed = false;
    for (uint32_t i = 0; fw->posted_waits && i < fw->context_count; i++) {
        struct context *context = fw_context(fw, fw->by_name[i]);
        if (context->posted && !context->closing)
            changed |= wait_expire(fw, context);
    }
    return changed;
}

enum fw_result fw_run(struct fw *fw)
{
    for (;;) {
        if (fw->panicked)
            return FW_PANIC;
        task_cores(fw);
        if (!task_input(fw))
            return FW_UNSETTLED;
        if (complete_retire(fw))
            continue;
        if (!fw_is_busy(fw)) {
            if (task_limits(fw))
                continue;
            dispatch_run(fw);
        }
        if (!fw_is_busy(fw))
            return FW_IDLE;
        hal_wake(fw->hal, fw->busy_until);
        return FW_BUSY;
    }
}

uint64_t fw_next_deadline(const struct fw *fw)
{
    uint64_t next = wait_next_deadline(fw);
    if (fw->timer_events != NIL && fw_task(fw, fw->timer_events)->limit < next)
        next = fw_task(fw, fw->timer_events)->limit;
    if (fw->timer_blocks != NIL && fw_task(fw, fw->timer_blocks)->limit < next)
        next = fw_task(fw, fw->timer_blocks)->limit;
    return next;
}

void fw_publish(struct fw *fw)
{
    for (uint32_t i = 0; i < fw->context_count; i++)
        complete_publish(fw, fw_context(fw, fw->by_name[i]));
}

bool fw_input_changed(const struct fw *fw, uint32_t id)
{
    const struct context *context = fw_context(fw, id);
    const struct tsemu_control_page *page = context_page(fw, context);
    if (context->closing)
        return false;
    if (tsemu_load_acquire(&page->wait_posts) != context->posts)
        return true;
    if (context->refused)
        return !context->errored && tsemu_load_acquire(&page->refusal_seen) == context->refusal;
    if (context->parked && complete_room_came(fw, context))
        return true;
    /* Behind an entry that cannot be admitted now, nothing is read: a new tail is no news. */
    return (!context->blocked && tsemu_load_acquire(&page->sq_tail) != context->tail) ||
           tsemu_load_acquire(&page->pipe_sequence) != context->pipe;
}

bool fw_any_input(const struct fw *fw)
{
    for (uint32_t i = 0; i < fw->context_count; i++)
        if (fw_input_changed(fw, fw->by_name[i]))
            return true;
    return false;
}

void fw_client(const struct fw *fw, uint32_t id, struct hal_client *client)
{
    describe(fw_context(fw, id), client);
}

uint64_t fw_size(void)
{
    return (sizeof(struct fw) + 63u) & ~(uint64_t)63u;
}

struct fw *fw_init(void *arena, struct hal *hal, const struct fw_config *config)
{
    struct fw *fw = arena;
    fw->hal = hal;
    fw->config = *config;
    fw->newly_first = NIL;
    fw->retire = NIL;
    fw->timer_events = fw->timer_events_last = NIL;
    fw->timer_blocks = fw->timer_blocks_last = NIL;
    for (uint32_t c = 0; c < config->class_count; c++) {
        struct engine_class *class = &fw->classes[c];
        class->first_core = fw->core_count;
        class->cores = class->idle = config->classes[c].cores;
        class->moves_bytes = config->classes[c].moves_bytes;
        class->gang = NIL;
        fw->core_count += class->cores;
        fw->ready[c].heap = NIL;
        for (uint32_t l = 0; l < TSEMU_PRIORITY_LEVELS; l++)
            fw->ready[c].level[l].first = fw->ready[c].level[l].last = NIL;
        for (uint32_t i = class->first_core; i < fw->core_count; i++) {
            fw->cores[i].task = NIL;
            fw->cores[i].engine_class = (uint16_t)c;
            fw->idle[i / 32u] |= 1u << i % 32u;
        }
    }
    console_log(fw, "task scheduler firmware, ABI %u.%u: %u cores in %u classes", TSEMU_ABI_MAJOR,
                TSEMU_ABI_MINOR, fw->core_count, config->class_count);
    return fw;
}

uint64_t fw_dispatched(const struct fw *fw)
{
    return fw->dispatched;
}
