/* Edges: dropped, turned into slots, or into POISONED; more than three; batches. */
#include "fake.h"

static const struct fake_options usual = {64, 32, 64, 64, 32, 64, 0};

static struct fake *standing(struct fake_options o)
{
    struct fake *f = fake_open(o);
    f->script = fake_stand;
    return f;
}

/* Ends a task and lets the driver learn of everything that has ended. */
static void end_and_tell(struct fake *f, uint32_t ticket, uint16_t status)
{
    fake_fetch(f);
    fake_end(f, ticket, status);
    struct driver_wait wait = {.kind = TSEMU_WAIT_KIND_ROOM, .a = f->completed};
    driver_operation operation = {0};
    while (driver_wait_poll(f->context, &wait, &operation) == TSEMU_AGAIN)
        fake_answer_all(f, TSEMU_ANSWER_MET);
}

static struct tsemu_sqe_poisoned poisoned_of(struct fake *f, uint32_t ticket)
{
    struct tsemu_sqe_poisoned sqe;
    memcpy(&sqe, &fake_find(f, ticket)->sqe, sizeof sqe);
    return sqe;
}

static bool is_poisoned(struct fake *f, uint32_t ticket)
{
    return poisoned_of(f, ticket).flags & TSEMU_SQE_FLAG_POISONED;
}

static void edges_to_tasks_in_flight_name_their_slots(void)
{
    struct fake *f = standing(usual);
    tsemu_task a = {0}, b = {0}, c = {0};
    fake_launch(f, &a, NULL, 0);
    fake_launch(f, &b, NULL, 0);
    tsemu_task *after[] = {&a, &b, &a, &b, &b};
    fake_launch(f, &c, after, 5);
    fake_fetch(f);
    struct fake_task *task = fake_find(f, 3);
    CHECK(task->edge_count == 2 && task->edges[0] == a.slot && task->edges[1] == b.slot);
    f->script = fake_run;
    fake_close(f);
}

static void edges_to_consumed_tasks_are_dropped_or_poison(void)
{
    struct fake *f = standing(usual);
    tsemu_task ok = {0}, bad = {0}, worse = {0}, task = {0};
    fake_launch(f, &ok, NULL, 0);
    fake_launch(f, &bad, NULL, 0);
    fake_launch(f, &worse, NULL, 0);
    end_and_tell(f, 1, TSEMU_STATUS_OK);
    end_and_tell(f, 3, TSEMU_STATUS_FAILED);
    end_and_tell(f, 2, TSEMU_STATUS_FAILED);
    tsemu_task *after_ok[] = {&ok};
    fake_launch(f, &task, after_ok, 1);
    tsemu_task *after_all[] = {&ok, &bad, &worse};
    fake_launch(f, &task, after_all, 3);
    fake_fetch(f);
    CHECK(fake_find(f, 4)->edge_count == 0 && !is_poisoned(f, 4));
    CHECK(is_poisoned(f, 5) && fake_find(f, 5)->edge_count == 0);
    CHECK(poisoned_of(f, 5).ancestor == 3); /* first in the completion queue */
    CHECK(poisoned_of(f, 5).ancestor_context == TSEMU_OWN_CONTEXT);
    f->script = fake_run;
    CHECK(tsemu_wait(f->context, &task, TSEMU_NO_LIMIT) == TSEMU_E_FAILED);
    CHECK(task.status == TSEMU_STATUS_DEP_ABORTED && task.ancestor == 3);
    fake_close(f);
}

static void in_order_streams_are_an_implicit_predecessor(void)
{
    struct fake *f = fake_open(usual);
    uint16_t stream, free_stream;
    tsemu_launch_desc desc = fake_kernel;
    tsemu_task task = {0};
    CHECK(tsemu_stream_create(f->context, 1, 0, &stream) == TSEMU_OK);
    CHECK(tsemu_stream_create(f->context, 0, 0, &free_stream) == TSEMU_OK);
    f->script = fake_stand;
    for (int i = 0; i < 2; i++) {
        desc.stream = i ? stream : free_stream;
        CHECK(tsemu_launch(f->context, &desc, NULL, 0, &task) == TSEMU_OK);
    }
    end_and_tell(f, 1, TSEMU_STATUS_TIMEOUT);
    end_and_tell(f, 2, TSEMU_STATUS_FAILED);
    for (int i = 0; i < 2; i++) {
        desc.stream = i ? stream : free_stream;
        CHECK(tsemu_launch(f->context, &desc, NULL, 0, &task) == TSEMU_OK);
    }
    fake_fetch(f);
    CHECK(!is_poisoned(f, 3));
    CHECK(is_poisoned(f, 4) && poisoned_of(f, 4).ancestor == 2);
    /* The next follows the poisoned one, which has not been consumed: firmware knows. */
    CHECK(tsemu_launch(f->context, &desc, NULL, 0, &task) == TSEMU_OK);
    fake_fetch(f);
    CHECK(!is_poisoned(f, 5));
    tsemu_task failure;
    CHECK(driver_stream_failure(f->context, stream, &failure) == 1 && failure.ticket == 2);
    CHECK(driver_stream_failure(f->context, TSEMU_ALL_STREAMS, &failure) == 1);
    CHECK(failure.ticket == 1 && failure.status == TSEMU_STATUS_TIMEOUT);
    end_and_tell(f, 4, 0);
    end_and_tell(f, 5, TSEMU_STATUS_FAILED);
    f->script = fake_run;
    const uint32_t argument[10] = {stream};
    struct tsemu_control_message reply;
    driver_operation operation = {0};
    f->control_value = 5;
    CHECK(driver_control_step(f->context, TSEMU_CONTROL_KIND_STREAM_RECOVER, argument, &reply,
                              &operation) == TSEMU_OK);
    CHECK(driver_stream_failure(f->context, stream, &failure) == 0);
    f->script = fake_stand;
    CHECK(tsemu_launch(f->context, &desc, NULL, 0, &task) == TSEMU_OK);
    fake_fetch(f);
    CHECK(!is_poisoned(f, 6));
    f->script = fake_run;
    fake_close(f);
}

static void failed_records_poison_their_value(void)
{
    struct fake *f = fake_open(usual);
    tsemu_launch_desc record = {.opcode = TSEMU_OPCODE_EVENT_RECORD};
    tsemu_launch_desc wait = {.opcode = TSEMU_OPCODE_EVENT_WAIT};
    tsemu_task task = {0};
    CHECK(tsemu_event_create(f->context, &record.event) == TSEMU_OK);
    wait.event = record.event;
    f->script = fake_stand;
    CHECK(tsemu_launch(f->context, &wait, NULL, 0, &task) == TSEMU_OK && task.value == 1);
    CHECK(tsemu_launch(f->context, &record, NULL, 0, &task) == TSEMU_OK && task.value == 1);
    CHECK(tsemu_launch(f->context, &wait, NULL, 0, &task) == TSEMU_OK && task.value == 1);
    end_and_tell(f, 2, TSEMU_STATUS_CANCELLED);
    CHECK(tsemu_launch(f->context, &wait, NULL, 0, &task) == TSEMU_OK && task.value == 1);
    fake_fetch(f);
    CHECK(!is_poisoned(f, 3));
    CHECK(is_poisoned(f, 4) && poisoned_of(f, 4).ancestor == 2);
    CHECK(poisoned_of(f, 4).event == record.event && poisoned_of(f, 4).event_value == 1);
    CHECK(poisoned_of(f, 4).event_context == 3);
    CHECK(tsemu_launch(f->context, &record, NULL, 0, &task) == TSEMU_OK && task.value == 2);
    CHECK(tsemu_launch(f->context, &wait, NULL, 0, &task) == TSEMU_OK && task.value == 2);
    fake_fetch(f);
    CHECK(!is_poisoned(f, 5) && !is_poisoned(f, 6));
    f->script = fake_run;
    fake_close(f);
}

/* Entries with extensions at every place of the ring, so that they wrap in every way. */
static void many_predecessors(uint32_t count, struct fake_options o)
{
    struct fake *f = standing(o);
    tsemu_task *tasks = calloc(count + 1, sizeof *tasks);
    tsemu_task **after = calloc(count + 1, sizeof *after);
    for (uint32_t i = 0; i < count; i++) {
        fake_launch(f, &tasks[i], NULL, 0);
        after[i] = &tasks[i];
    }
    fake_launch(f, &tasks[count], after, count);
    fake_fetch(f);
    struct fake_task *task = fake_find(f, tasks[count].ticket);
    CHECK(task->edge_count == count);
    for (uint32_t i = 0; i < count; i++)
        CHECK(task->edges[i] == tasks[i].slot);
    f->script = fake_run;
    CHECK(tsemu_synchronize(f->context, TSEMU_ALL_STREAMS, TSEMU_NO_LIMIT) == TSEMU_OK);
    fake_close(f);
    free(tasks);
    free(after);
}

static void predecessors_beyond_three_go_into_extensions(void)
{
    static const uint32_t counts[] = {0, 1, 2, 3, 4, 28, 29, 30, 55, 56, 1023, 1024};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (uint32_t first = 0; first < 3; first++)
            many_predecessors(counts[i], (struct fake_options){4096, 2048, 64, 4096, 2048, 4096,
                                                               0xFFFFFFC0u + first * 21});
}

static void too_many_predecessors_are_refused_at_once(void)
{
    struct fake *f = standing((struct fake_options){4096, 2048, 8, 4096, 2048, 4096, 0});
    tsemu_task *tasks = calloc(1025, sizeof *tasks), **after = calloc(3000, sizeof *after);
    tsemu_task task = {0};
    for (uint32_t i = 0; i < 1025; i++) {
        fake_launch(f, &tasks[i], NULL, 0);
        after[i] = &tasks[i];
    }
    CHECK(tsemu_launch(f->context, &fake_kernel, after, 1025, &task) == TSEMU_E_INVALID);
    CHECK(tsemu_last_error()->value == 1025 && tsemu_last_error()->limit == 1024);
    CHECK(tsemu_launch(f->context, &fake_kernel, after, 3 + 26 * 7 + 1, &task) ==
          TSEMU_E_INVALID);
    CHECK(!strcmp(tsemu_last_error()->field, "sq_entries"));
    CHECK(tsemu_last_error()->value == 9 && tsemu_last_error()->limit == 8);
    for (uint32_t i = 0; i < 3000; i++) /* duplicates count once */
        after[i] = &tasks[i % 10];
    fake_launch(f, &task, after, 3000);
    CHECK(task.ticket == 1026);
    f->script = fake_run;
    fake_close(f);
    free(tasks);
    free(after);
}

static void batches_have_edges_inside_and_outside(void)
{
    struct fake *f = standing((struct fake_options){8, 4, 8, 8, 4, 8, 0xFFFFFFFCu});
    tsemu_task first = {0};
    tsemu_task *after[] = {&first};
    tsemu_launch_desc tasks[4] = {fake_kernel, fake_kernel, fake_kernel, fake_kernel};
    const uint32_t edge_start[] = {0, 0, 1, 2, 5}, edges[] = {0, 0, 2, 1, 2};
    uint16_t status[4];
    tsemu_batch batch = {.tasks = tasks, .count = 4, .edge_start = edge_start, .edges = edges,
                         .after = after, .after_count = 1, .status = status, .block = 1};
    f->script = fake_run;
    for (int round = 0; round < 9; round++) {
        fake_launch(f, &first, NULL, 0);
        CHECK(tsemu_submit_batch(f->context, &batch) == TSEMU_OK);
        if (round % 2)
            continue;
        driver_operation operation = {0};
        CHECK(driver_batch_wait_step(f->context, &batch, TSEMU_NO_LIMIT, &operation) ==
              TSEMU_OK);
        for (int i = 0; i < 4; i++)
            CHECK(status[i] == TSEMU_STATUS_OK);
    }
    CHECK(tsemu_synchronize(f->context, TSEMU_ALL_STREAMS, TSEMU_NO_LIMIT) == TSEMU_OK);
    f->script = fake_stand;
    CHECK(tsemu_submit_batch(f->context, &batch) == TSEMU_OK);
    fake_fetch(f);
    uint32_t last = f->admitted;
    struct fake_task *join = fake_find(f, last);
    CHECK(join->edge_count == 2); /* the outside task has been consumed */
    CHECK(join->edges[0] == fake_find(f, last - 1)->sqe.slot); /* task 2 of the batch */
    CHECK(join->edges[1] == fake_find(f, last - 2)->sqe.slot);
    CHECK(fake_find(f, last - 3)->sqe.flags & TSEMU_SQE_FLAG_NEW_CALL);
    CHECK(!(join->sqe.flags & TSEMU_SQE_FLAG_NEW_CALL));
    f->script = fake_run;
    fake_close(f);
}

int main(void)
{
    RUN(edges_to_tasks_in_flight_name_their_slots);
    RUN(edges_to_consumed_tasks_are_dropped_or_poison);
    RUN(in_order_streams_are_an_implicit_predecessor);
    RUN(failed_records_poison_their_value);
    RUN(predecessors_beyond_three_go_into_extensions);
    RUN(too_many_predecessors_are_refused_at_once);
    RUN(batches_have_edges_inside_and_outside);
    return 0;
}
