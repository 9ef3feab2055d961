/* Cores: which are idle, which block each one runs, what happens when one ends. */
#include "state.h"

static void set_idle(struct fw *fw, uint32_t core)
{
    fw->cores[core].task = NIL;
    fw->idle[core / 32u] |= 1u << core % 32u;
    fw->classes[fw->cores[core].engine_class].idle++;
}

/* Lowest-numbered idle core of a class that has one. */
static uint32_t take_idle(struct fw *fw, struct engine_class *class)
{
    uint32_t word = class->first_core / 32u;
    uint32_t bits = fw->idle[word] & (0xFFFFFFFFu << class->first_core % 32u);
    while (bits == 0)
        bits = fw->idle[++word];
    uint32_t core = word * 32u + (uint32_t)__builtin_ctz(bits);
    fw->idle[word] &= ~(1u << core % 32u);
    class->idle--;
    return core;
}

static uint64_t charge_dispatch(struct fw *fw)
{
    fw_charge(fw, fw->config.dispatch);
    return fw_is_busy(fw) ? fw->busy_until : fw->hal->now;
}

static void start_block(struct fw *fw, struct context *context, struct task *task, uint32_t ref,
                        uint32_t core, uint64_t start)
{
    if (__builtin_expect(fw->config.policy == FW_FAIR, 0))
        fair_charge(fw, task->engine_class, ref);
    struct hal_block *block = hal_core_command(fw->hal, core);
    block->opcode = task->opcode;
    block->context = (uint16_t)context->id;
    block->block = task->started;
    if (task->opcode == TSEMU_OPCODE_KERNEL) {
        block->cycles = task->u.kernel.cycles;
        block->bytes_read = task->u.kernel.bytes_read;
        block->bytes_written = task->u.kernel.bytes_written;
    } else {
        block->source = task->argument;
        block->destination = task->u.copy.destination;
        block->length = task->u.copy.length;
    }
    fw->cores[core].task = ref;
    fw->cores[core].block = task->started;
    if (task->started == 0) {
        task->state = TASK_RUNNING;
        task->start = start;
        task->core = (uint16_t)core;
    }
    if (task->running == 0 && task->limit != FW_NEVER)
        timer_insert(fw, TIMER_BLOCKS, ref, start + task->limit);
    task->started++;
    task->running++;
    fw->dispatched++;
    hal_core_start(fw->hal, core, start);
}

/* The task that comes next in a class with an idle core, or NIL: the class is reserved for a gang
 * that needs more cores than are idle. Once at the head, a gang keeps its reservation, so that no
 * small task starves it; only level 0 goes before it. */
static uint32_t next_task(struct fw *fw, uint32_t c)
{
    struct engine_class *class = &fw->classes[c];
    uint32_t ref = ready_pick(fw, c);
    if (__builtin_expect(class->gang != NIL, 0)) {
        bool urgent = fw->config.policy == FW_PRIORITY && fw_task(fw, ref)->priority == 0 &&
                      fw_task(fw, class->gang)->priority != 0;
        if (!urgent)
            ref = class->gang;
    }
    const struct task *task = fw_task(fw, ref);
    if (__builtin_expect(task->gang != 0, 0) && class->idle < task->blocks) {
        class->gang = ref;
        return NIL;
    }
    return ref;
}

/* All blocks at one instant: the firmware's work for all of them comes first. */
static void start_gang(struct fw *fw, struct context *context, struct task *task, uint32_t ref)
{
    struct engine_class *class = &fw->classes[task->engine_class];
    uint64_t start = 0;
    if (class->gang == ref)
        class->gang = NIL;
    for (uint32_t block = 0; block < task->blocks; block++)
        start = charge_dispatch(fw);
    while (task->started < task->blocks)
        start_block(fw, context, task, ref, take_idle(fw, class), start);
    if (ready_pick(fw, task->engine_class) == ref)
        ready_pop(fw, task->engine_class, ref);
    else
        ready_remove(fw, ref);
}

void dispatch_run(struct fw *fw)
{
    if (fw->newly_first != NIL)
        ready_sort_in(fw);
    for (uint32_t c = 0; c < fw->config.class_count; c++) {
        struct engine_class *class = &fw->classes[c];
        while (class->idle && fw->ready[c].count && !fw_is_busy(fw)) {
            uint32_t ref = next_task(fw, c);
            if (__builtin_expect(ref == NIL, 0))
                break;
            struct context *context = fw_context(fw, ref >> 16);
            struct task *task = context_task(context, ref & 0xFFFFu);
            if (__builtin_expect(task->gang != 0, 0)) {
                start_gang(fw, context, task, ref);
                continue;
            }
            start_block(fw, context, task, ref, take_idle(fw, class), charge_dispatch(fw));
            if (task->started == task->blocks)
                ready_pop(fw, c, ref);
        }
    }
}

/* Blocks of the task that run are taken off their cores; blocks not started will not start. */
void dispatch_stop(struct fw *fw, struct context *context, uint32_t slot)
{
    struct task *task = context_task(context, slot);
    uint32_t ref = task_ref(context, slot);
    const struct engine_class *class = &fw->classes[task->engine_class];
    if (task->running && task->limit != FW_NEVER)
        timer_remove(fw, TIMER_BLOCKS, ref);
    for (uint32_t core = class->first_core; core < class->first_core + class->cores; core++) {
        if (fw->cores[core].task != ref)
            continue;
        hal_core_reset(fw->hal, core);
        set_idle(fw, core);
    }
    if (task->started < task->blocks)
        ready_remove(fw, ref);
    task->running = 0;
}

static void block_ended(struct fw *fw, uint32_t core, uint64_t time)
{
    uint32_t ref = fw->cores[core].task;
    struct context *context = fw_context(fw, ref >> 16);
    struct task *task = context_task(context, ref & 0xFFFFu);
    set_idle(fw, core);
    task->running--;
    task->ended++;
    task->end = time;
    if (task->running == 0 && task->limit != FW_NEVER) {
        timer_remove(fw, TIMER_BLOCKS, ref);
        task->limit = task->limit > time ? task->limit - time : 0;
    }
    if (task->ended < task->started || task->started < task->blocks)
        return;
    if (task->status == NO_STATUS)
        task->status = TSEMU_STATUS_OK;
    complete_task(fw, context, ref & 0xFFFFu);
}

static bool ends_before(const struct fw *fw, uint32_t a, uint32_t b)
{
    uint32_t left = fw->cores[a].task;
    uint32_t right = fw->cores[b].task;
    uint32_t left_ticket = fw_task(fw, left)->ticket;
    uint32_t right_ticket = fw_task(fw, right)->ticket;
    if (left_ticket != right_ticket)
        return tsemu_after(right_ticket, left_ticket);
    if (left >> 16 != right >> 16)
        return fw->name_rank[left >> 16] < fw->name_rank[right >> 16];
    return a < b;
}

/* Take the core interrupts of this instant, in order of tickets. Mostly there is one. */
void dispatch_collect(struct fw *fw)
{
    uint16_t done[HAL_CORES];
    uint64_t ended[HAL_CORES];
    uint32_t count = 0;
    uint64_t first_time, time;
    uint32_t first = hal_core_next_done(fw->hal, &first_time);
    if (first == HAL_NO_CORE)
        return;
    for (uint32_t core; (core = hal_core_next_done(fw->hal, &time)) != HAL_NO_CORE;) {
        if (count == 0) {
            done[count] = (uint16_t)first;
            ended[count++] = first_time;
        }
        uint32_t at = count++;
        for (; at && ends_before(fw, core, done[at - 1]); at--) {
            done[at] = done[at - 1];
            ended[at] = ended[at - 1];
        }
        done[at] = (uint16_t)core;
        ended[at] = time;
    }
    if (count == 0)
        block_ended(fw, first, first_time);
    for (uint32_t i = 0; i < count; i++)
        block_ended(fw, done[i], ended[i]);
}
