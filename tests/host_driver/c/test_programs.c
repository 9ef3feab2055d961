/* Programs: index to slot, tasks that stay outstanding for long, failures, the sink, bad input. */
#include "fake.h"

static const uint16_t streams[2] = {0, 0};
static const uint8_t classes[2] = {0, 1};

static driver_program_task task_with(uint32_t edge_start, uint16_t edge_count)
{
    return (driver_program_task){.opcode = TSEMU_OPCODE_KERNEL, .blocks = 1, .cycles = 5,
                                 .edge_start = edge_start, .edge_count = edge_count};
}

struct run {
    struct fake *f;
    driver_program *program;
    struct tsemu_cqe *sink;
    uint32_t sink_count;
    uint64_t drained;
    uint32_t last_ticket;
};

static struct run start(struct fake_options o, uint32_t sink_count)
{
    struct run run = {.f = fake_open(o), .sink_count = sink_count};
    run.sink = calloc(sink_count, sizeof *run.sink);
    run.program = driver_program_new(run.f->context, streams, 2, NULL, 0, classes, 2, run.sink,
                                     sink_count);
    CHECK(run.program);
    return run;
}

static void drain(struct run *run)
{
    uint32_t first, count;
    while ((count = driver_program_drain(run->program, &first))) {
        CHECK(first + count <= run->sink_count);
        run->drained += count;
    }
}

static void feed(struct run *run, const driver_program_task *tasks, uint32_t count,
                 const uint32_t *edges, uint64_t edge_count)
{
    uint32_t position = 0;
    driver_operation operation = {0};
    int code;
    while ((code = driver_program_feed(run->program, tasks, count, edges, edge_count, &position,
                                       &operation))) {
        CHECK(code == TSEMU_AGAIN);
        drain(run);
    }
    CHECK(position == count);
}

static struct driver_program_counts finish(struct run *run)
{
    driver_operation operation = {0};
    struct driver_program_counts counts;
    int code;
    while ((code = driver_program_finish(run->program, TSEMU_NO_LIMIT, &operation)))
        CHECK(code == TSEMU_AGAIN);
    drain(run);
    driver_program_counts(run->program, &counts);
    CHECK(counts.submitted == counts.consumed && counts.consumed == run->drained);
    driver_program_free(run->program);
    fake_close(run->f);
    free(run->sink);
    return counts;
}

/* Each task depends on some of the 150 before it; at every ring and window size. */
static void sizes(struct fake_options o, uint32_t count, uint32_t sink_count)
{
    struct run run = start(o, sink_count);
    driver_program_task tasks[100];
    uint32_t edges[400];
    for (uint32_t done = 0; done < count; done += 100) {
        uint32_t edge_count = 0;
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t index = done + i, wanted = index % 5 < index ? index % 5 : index;
            if (wanted == 4 && o.sq_entries < 2)
                wanted = 3;
            tasks[i] = task_with(edge_count, (uint16_t)wanted);
            tasks[i].stream = (uint16_t)(i % 2);
            for (uint32_t e = 0; e < wanted; e++)
                edges[edge_count++] = index - 1 - (index * 7 + e * 31) % (index < 150 ? index : 150);
        }
        CHECK(driver_program_check(run.program, tasks, 100, edges, edge_count, done) == TSEMU_OK);
        feed(&run, tasks, 100, edges, edge_count);
    }
    struct driver_program_counts counts = finish(&run);
    CHECK(counts.consumed == count && counts.failed == 0);
}

static void every_size_of_window_and_ring(void)
{
    sizes((struct fake_options){2, 1, 2, 2, 1, 1, 0}, 3000, 2);
    sizes((struct fake_options){5, 2, 4, 2, 3, 2, 0xFFFFFF00u}, 3000, 5);
    sizes((struct fake_options){64, 32, 2, 64, 32, 64, 0}, 3000, 64);
    sizes((struct fake_options){100, 50, 64, 4, 50, 7, 0}, 10000, 128);
    sizes((struct fake_options){4096, 2048, 4096, 4096, 2048, 4096, 0xFFFFF000u}, 100000, 8192);
    sizes((struct fake_options){65535, 32768, 65536, 65536, 32767, 65535, 0}, 300000, 65535);
}

static uint32_t slow_ticket; /* ends last */
static uint16_t expected_slot;
static bool seen_edge;

/* Everything but the slow task ends at once. */
static void slow_script(struct fake *f)
{
    fake_fetch(f);
    for (uint32_t i = 0; i < f->page->slots; i++) {
        struct fake_task *task = &f->task[i];
        if (!task->live || task->ended || task->ticket == slow_ticket)
            continue;
        if (task->edge_count && task->edges[0] == expected_slot)
            seen_edge = true;
        fake_end_task(f, task, TSEMU_STATUS_OK);
    }
    fake_publish(f);
}

static void a_task_that_is_outstanding_for_long_keeps_its_edges(void)
{
    struct run run = start((struct fake_options){16, 8, 16, 16, 8, 16, 0}, 32);
    driver_program_task task = task_with(0, 0);
    const uint32_t edge[] = {0};
    slow_ticket = 1;
    seen_edge = false;
    run.f->script = slow_script;
    for (uint32_t i = 0; i < 2000; i++)
        feed(&run, &task, 1, NULL, 0);
    slow_script(run.f);
    for (uint32_t i = 0; i < run.f->page->slots; i++)
        if (run.f->task[i].live && !run.f->task[i].ended)
            expected_slot = (uint16_t)i;
    task = task_with(0, 1);
    feed(&run, &task, 1, edge, 1);
    slow_script(run.f);
    CHECK(seen_edge);
    run.f->script = fake_run;
    finish(&run);
}

static bool fails;

static void failing_script(struct fake *f)
{
    fake_fetch(f);
    while (f->completed != f->admitted) {
        uint32_t ticket = f->completed + 1;
        fake_end(f, ticket, fails && ticket == 2 ? TSEMU_STATUS_FAILED : TSEMU_STATUS_OK);
    }
    fake_publish(f);
    fake_answer_all(f, TSEMU_ANSWER_MET);
}

/* A failure of long ago still poisons; memory holds only the failures. */
static void failures_are_remembered(void)
{
    struct run run = start((struct fake_options){16, 8, 16, 16, 8, 16, 0}, 32);
    driver_program_task task = task_with(0, 0);
    const uint32_t edges[] = {0, 1};
    fails = true;
    run.f->script = failing_script;
    for (uint32_t i = 0; i < 2000; i++)
        feed(&run, &task, 1, NULL, 0);
    task = task_with(0, 2);
    for (uint32_t i = 0; i < 500; i++)
        feed(&run, &task, 1, edges, 2);
    struct driver_program_counts counts = finish(&run);
    CHECK(counts.consumed == 2500 && counts.failed == 501);
}

static void bad_tasks_are_named(void)
{
    struct run run = start((struct fake_options){16, 8, 2, 16, 8, 16, 0}, 32);
    driver_program_task tasks[3] = {task_with(0, 0), task_with(0, 0), task_with(0, 0)};
    const uint32_t edges[40] = {0, 1};
    struct driver_status status;
    uint32_t position = 0;
    driver_operation operation = {0};
#define NAMED(name, change)                                                                      \
    do {                                                                                         \
        tasks[1] = task_with(0, 0);                                                              \
        change;                                                                                  \
        CHECK(driver_program_check(run.program, tasks, 3, edges, 40, 100) == TSEMU_E_INVALID);   \
        CHECK(!strcmp(tsemu_last_error()->field, name));                                         \
    } while (0)
    NAMED("tasks[101].blocks", tasks[1].blocks = 0);
    NAMED("tasks[101].stream", tasks[1].stream = 2);
    NAMED("tasks[101].engine_class", tasks[1].engine_class = 2);
    NAMED("tasks[101].engine_class", tasks[1].engine_class = 1);
    NAMED("tasks[101].event", tasks[1].opcode = TSEMU_OPCODE_EVENT_WAIT);
    NAMED("tasks[101].opcode", tasks[1].opcode = TSEMU_OPCODE_AICPU);
    NAMED("tasks[101].reserved", tasks[1].reserved = 1);
    NAMED("tasks[101].priority", tasks[1].priority = 9);
    NAMED("tasks[101].edge_start", (tasks[1].edge_start = 39, tasks[1].edge_count = 2));
    NAMED("sq_entries", tasks[1].edge_count = 30);
    NAMED("after", tasks[1].edge_count = 1025);
#undef NAMED
    tasks[1] = task_with(1, 1);
    CHECK(driver_program_check(run.program, tasks, 3, edges, 40, 0) == TSEMU_E_INVALID);
    CHECK(!strcmp(tsemu_last_error()->field, "tasks[1].edges") && tsemu_last_error()->value == 1);
    tasks[0].blocks = 0;
    CHECK(driver_program_feed(run.program, tasks, 3, edges, 40, &position, &operation) ==
          TSEMU_E_INVALID);
    driver_status(run.f->context, &status);
    CHECK(position == 0 && status.submitted == 0);
    CHECK(!driver_program_new(run.f->context, streams, 2, NULL, 0, classes, 2, run.sink, 15));
    tasks[0] = task_with(0, 0);
    feed(&run, tasks, 1, NULL, 0);
    finish(&run);
}

static void a_program_may_be_freed_while_it_runs(void)
{
    struct run run = start((struct fake_options){16, 8, 16, 16, 8, 16, 0}, 32);
    driver_program_task task = task_with(0, 0);
    run.f->script = fake_stand;
    for (int i = 0; i < 8; i++)
        feed(&run, &task, 1, NULL, 0);
    driver_program_free(run.program);
    free(run.sink);
    run.f->script = fake_run;
    CHECK(tsemu_synchronize(run.f->context, TSEMU_ALL_STREAMS, TSEMU_NO_LIMIT) == TSEMU_OK);
    fake_close(run.f);
}

int main(void)
{
    RUN(every_size_of_window_and_ring);
    RUN(a_task_that_is_outstanding_for_long_keeps_its_edges);
    RUN(failures_are_remembered);
    RUN(bad_tasks_are_named);
    RUN(a_program_may_be_freed_while_it_runs);
    return 0;
}
