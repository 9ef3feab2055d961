/* Answers to posted waits, callbacks, launches that wait, callbacks that launch. */
#include "fake.h"

static const struct fake_options usual = {16, 8, 16, 16, 8, 4, 0};

static uint32_t reasons[8], reason_count, reason_at;
static uint32_t seen_kind, seen_flags, seen_b, seen_next;
static uint64_t seen_deadline;

/* Answers each posted wait with the next reason of the list. */
static void answer_script(struct fake *f)
{
    fake_stand(f);
    for (uint32_t i = 0; i < TSEMU_MAX_WAITS; i++) {
        if (!fake_posted(f, i) || reason_at >= reason_count)
            continue;
        const struct tsemu_wait_request *wait = &f->page->waits[i];
        seen_kind = wait->kind;
        seen_flags = wait->flags;
        seen_b = wait->b;
        seen_next = wait->next_completed;
        seen_deadline = wait->deadline_ps;
        CHECK(tsemu_reached(f->admitted, wait->submitted));
        fake_answer(f, i, reasons[reason_at++]);
    }
}

static struct fake *scripted(struct fake_options o, uint32_t count, const uint32_t *list)
{
    struct fake *f = fake_open(o);
    memcpy(reasons, list, count * sizeof *list);
    reason_count = count;
    reason_at = 0;
    f->script = answer_script;
    return f;
}

static void timeout_is_an_error_and_the_task_goes_on(void)
{
    struct fake *f = scripted(usual, 1, (uint32_t[]){TSEMU_ANSWER_TIMEOUT});
    tsemu_task task = {0};
    fake_launch(f, &task, NULL, 0);
    CHECK(tsemu_wait(f->context, &task, 1234) == TSEMU_E_TIMEOUT);
    CHECK(seen_kind == TSEMU_WAIT_KIND_TASK && seen_deadline == 1234 && seen_flags == 0);
    CHECK(task.status == TSEMU_PENDING);
    f->script = fake_run;
    CHECK(tsemu_wait(f->context, &task, TSEMU_NO_LIMIT) == TSEMU_OK);
    fake_close(f);
}

static void next_runs_callbacks_and_posts_again_with_the_same_deadline(void)
{
    struct fake *f = scripted(usual, 2, (uint32_t[]){TSEMU_ANSWER_NEXT, TSEMU_ANSWER_MET});
    tsemu_task first = {.flags = 1}, second = {0};
    CHECK(driver_launch_try(f->context, &fake_kernel, NULL, 0, &first) == TSEMU_OK);
    CHECK(driver_launch_try(f->context, &fake_kernel, NULL, 0, &second) == TSEMU_OK);
    fake_fetch(f);
    fake_end(f, 1, 0);
    driver_wait wait = {.kind = TSEMU_WAIT_KIND_TASK, .a = second.ticket, .b = second.slot,
                        .timeout_ps = 7000};
    driver_operation operation = {0};
    CHECK(driver_wait_step(f->context, &wait, &operation) == TSEMU_CALLBACKS);
    CHECK(seen_flags == TSEMU_WAIT_FLAG_NEXT && seen_next == 0 && seen_deadline == 7000);
    CHECK(driver_take_callback(f->context) == &first && first.status == TSEMU_STATUS_OK);
    CHECK(driver_take_callback(f->context) == NULL);

    /* In the callback: launching works, waiting does not. */
    tsemu_task inner = {0};
    driver_operation other = {0};
    driver_in_callback(f->context, 1);
    fake_launch(f, &inner, NULL, 0);
    CHECK(driver_wait_step(f->context, &wait, &other) == TSEMU_E_IN_CALLBACK);
    driver_in_callback(f->context, 0);

    fake_end(f, 2, 0);
    CHECK(driver_wait_step(f->context, &wait, &operation) == TSEMU_OK);
    CHECK(seen_flags == TSEMU_WAIT_FLAG_ABSOLUTE && seen_deadline == 10 + 5000);
    f->script = fake_run;
    fake_close(f);
}

static void callbacks_launch_until_the_slots_are_used_up(void)
{
    struct fake *f = fake_open(usual);
    tsemu_task tasks[32];
    memset(tasks, 0, sizeof tasks);
    f->script = fake_stand;
    driver_in_callback(f->context, 1);
    for (int i = 0; i < 16; i++) /* the stream's limit does not count */
        fake_launch(f, &tasks[i], NULL, 0);
    CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, &tasks[16]) == TSEMU_E_QUEUE_FULL);
    driver_in_callback(f->context, 0);
    f->script = fake_run;
    fake_close(f);
}

static void a_launch_waits_until_its_stream_is_half_empty(void)
{
    struct fake *f = scripted(usual, 1, (uint32_t[]){TSEMU_ANSWER_MET});
    tsemu_task tasks[8];
    memset(tasks, 0, sizeof tasks);
    for (int i = 0; i < 4; i++)
        fake_launch(f, &tasks[i], NULL, 0);
    CHECK(f->page->launching == 1 && reason_at == 0);
    fake_fetch(f);
    fake_end(f, 2, 0);
    fake_end(f, 1, 0);
    fake_launch(f, &tasks[4], NULL, 0);
    CHECK(reason_at == 1 && seen_kind == TSEMU_WAIT_KIND_STREAM_LIMIT && seen_b == 2);
    CHECK(seen_flags == TSEMU_WAIT_FLAG_LAUNCH && seen_deadline == TSEMU_NO_LIMIT);
    CHECK(tasks[0].status == 0 && tasks[1].status == 0 && tasks[2].status == TSEMU_PENDING);
    f->script = fake_run;
    fake_close(f);
}

static void a_launch_that_shall_not_wait_is_queue_full(void)
{
    struct fake *f = scripted(usual, 1, (uint32_t[]){TSEMU_ANSWER_TIMEOUT});
    tsemu_task tasks[8];
    driver_operation operation = {0};
    memset(tasks, 0, sizeof tasks);
    for (int i = 0; i < 4; i++)
        CHECK(driver_launch_step(f->context, &fake_kernel, NULL, 0, &tasks[i], 0, &operation) ==
              TSEMU_OK);
    CHECK(driver_launch_step(f->context, &fake_kernel, NULL, 0, &tasks[4], 0, &operation) ==
          TSEMU_E_QUEUE_FULL);
    CHECK(!strcmp(tsemu_last_error()->field, "stream_limit"));
    CHECK(tsemu_last_error()->value == 4 && tsemu_last_error()->limit == 4);
    CHECK(seen_deadline == f->page->poll_cost_ps && seen_flags == 0 && seen_b == 3);
    CHECK(tasks[4].ticket == 0);
    f->script = fake_run;
    fake_close(f);
}

/* The device's longest wait may be over while work goes on: only STALLED is hopeless. */
static void hopeless_launches_are_no_resource_slow_ones_are_not(void)
{
    struct fake *f = scripted(usual, 4,
                              (uint32_t[]){TSEMU_ANSWER_STALLED, TSEMU_ANSWER_TIMEOUT,
                                           TSEMU_ANSWER_TIMEOUT, TSEMU_ANSWER_STALLED});
    tsemu_task task = {0};
    tsemu_task tasks[8];
    memset(tasks, 0, sizeof tasks);
    for (int i = 0; i < 4; i++)
        fake_launch(f, &tasks[i], NULL, 0);
    CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, &task) == TSEMU_E_NO_RESOURCE);
    CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, &task) == TSEMU_E_NO_RESOURCE);
    CHECK(reason_at == 4);
    CHECK(!strcmp(tsemu_last_error()->field, "stream_limit"));
    f->script = fake_run;
    fake_close(f);
}

static void stall_script(struct fake *f)
{
    fake_stand(f);
    if (f->page->pipe_kind != TSEMU_PIPE_KIND_NONE)
        tsemu_store_release(&f->page->pipe_stalled, f->page->pipe_sequence);
}

static void a_stalled_pipe_names_the_event(void)
{
    struct fake *f = fake_open((struct fake_options){8, 4, 8, 8, 4, 8, 0});
    tsemu_launch_desc wait = {.opcode = TSEMU_OPCODE_EVENT_WAIT};
    tsemu_task task = {0};
    CHECK(tsemu_event_create(f->context, &wait.event) == TSEMU_OK);
    f->script = stall_script;
    CHECK(tsemu_launch(f->context, &wait, NULL, 0, NULL) == TSEMU_OK);
    for (int i = 0; i < 7; i++)
        CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_OK);
    CHECK(driver_launch_try(f->context, &fake_kernel, NULL, 0, &task) == TSEMU_AGAIN);
    driver_operation operation = {0};
    CHECK(driver_launch_step(f->context, &fake_kernel, NULL, 0, &task, 1, &operation) ==
          TSEMU_E_NO_RESOURCE);
    CHECK(!strcmp(tsemu_last_error()->field, "window") && tsemu_last_error()->limit == 4);
    CHECK(strstr(tsemu_last_error()->message, "event 0") && tsemu_last_error()->ticket == 1);
    CHECK(f->page->pipe_kind == TSEMU_PIPE_KIND_NONE);
    f->script = fake_run;
    CHECK(tsemu_synchronize(f->context, TSEMU_ALL_STREAMS, TSEMU_NO_LIMIT) == TSEMU_OK);
    fake_launch(f, &task, NULL, 0);
    CHECK(task.ticket == 9);
    fake_close(f);
}

/* With a callback pending a launch goes by the last answer, not by what has arrived. */
static void pending_callbacks_make_the_window_exact(void)
{
    struct fake *f = fake_open((struct fake_options){16, 4, 16, 16, 8, 16, 0});
    tsemu_task tasks[8];
    memset(tasks, 0, sizeof tasks);
    tasks[0].flags = 1;
    reason_count = 0;
    f->script = answer_script;
    for (int i = 0; i < 4; i++)
        CHECK(driver_launch_try(f->context, &fake_kernel, NULL, 0, &tasks[i]) == TSEMU_OK);
    CHECK(driver_launch_try(f->context, &fake_kernel, NULL, 0, &tasks[4]) == TSEMU_AGAIN);
    fake_fetch(f);
    fake_end(f, 2, 0);
    reasons[0] = TSEMU_ANSWER_MET;
    reason_count = 1;
    reason_at = 0;
    driver_operation operation = {0};
    CHECK(driver_launch_step(f->context, &fake_kernel, NULL, 0, &tasks[4], 1, &operation) ==
          TSEMU_OK);
    CHECK(seen_kind == TSEMU_WAIT_KIND_ROOM);
    CHECK(seen_flags == (TSEMU_WAIT_FLAG_LAUNCH | TSEMU_WAIT_FLAG_NEXT));
    f->script = fake_run;
    fake_close(f);
}

static void watched_handles(void)
{
    struct fake *f = fake_open(usual);
    tsemu_task task = {0};
    f->script = fake_stand;
    fake_launch(f, &task, NULL, 0);
    CHECK(driver_watch(f->context, &task) == 1 && driver_watch(f->context, &task) == 1);
    f->script = fake_run;
    driver_wait wait = {.kind = TSEMU_WAIT_KIND_ALL, .c = 1, .timeout_ps = TSEMU_NO_LIMIT};
    driver_operation operation = {0};
    CHECK(driver_wait_step(f->context, &wait, &operation) == TSEMU_CALLBACKS);
    CHECK(driver_take_callback(f->context) == &task);
    CHECK(driver_wait_step(f->context, &wait, &operation) == TSEMU_OK);
    CHECK(driver_watch(f->context, &task) == 0);
    fake_close(f);
}

static void completions_are_kept_on_request(void)
{
    struct fake *f = fake_open(usual);
    struct tsemu_cqe cqe;
    f->script = fake_run;
    CHECK(driver_keep_completions(f->context, 15) == TSEMU_E_INVALID);
    CHECK(driver_keep_completions(f->context, 16) == TSEMU_OK);
    for (int i = 0; i < 16; i++)
        CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_OK);
    CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_E_NO_RESOURCE);
    CHECK(!strcmp(tsemu_last_error()->field, "completions"));
    for (uint32_t i = 1; i <= 16; i++) {
        CHECK(tsemu_next_completion(f->context, &cqe, TSEMU_NO_LIMIT) == TSEMU_OK);
        CHECK(cqe.ticket == i);
    }
    CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_OK);
    fake_close(f);
}

static void an_abandoned_wait_gives_its_record_back(void)
{
    struct fake *f = fake_open(usual);
    tsemu_task task = {0};
    f->script = fake_stand;
    fake_launch(f, &task, NULL, 0);
    driver_wait wait = {.kind = TSEMU_WAIT_KIND_TASK, .a = task.ticket, .b = task.slot,
                        .timeout_ps = TSEMU_NO_LIMIT};
    for (int i = 0; i < 100; i++) {
        driver_operation operation = {0};
        CHECK(driver_wait_poll(f->context, &wait, &operation) == TSEMU_AGAIN);
        driver_abandon(f->context, &operation);
        fake_answer_all(f, TSEMU_ANSWER_TIMEOUT);
    }
    driver_operation control = {0};
    const uint32_t argument[10] = {0};
    struct tsemu_control_message reply;
    CHECK(driver_control_step(f->context, TSEMU_CONTROL_KIND_EVENT_CREATE, argument, &reply,
                              &control) == TSEMU_AGAIN);
    driver_abandon(f->context, &control);
    for (int i = 1; i < 16; i++) {
        driver_operation operation = {0};
        CHECK(driver_wait_poll(f->context, &wait, &operation) == TSEMU_AGAIN);
        CHECK(operation.wait >= 1 && operation.wait <= 16);
        if (i == 15) { /* there are no more records */
            driver_operation more = {0};
            CHECK(driver_wait_poll(f->context, &wait, &more) == TSEMU_AGAIN && more.wait == 0);
        }
        driver_abandon(f->context, &operation);
    }
    /* All records and the request are waited for by nobody: they come back as they are answered. */
    uint32_t event;
    f->script = fake_run;
    CHECK(tsemu_event_create(f->context, &event) == TSEMU_OK && event == 1);
    CHECK(tsemu_wait(f->context, &task, TSEMU_NO_LIMIT) == TSEMU_OK);
    fake_close(f);
}

int main(void)
{
    RUN(timeout_is_an_error_and_the_task_goes_on);
    RUN(next_runs_callbacks_and_posts_again_with_the_same_deadline);
    RUN(callbacks_launch_until_the_slots_are_used_up);
    RUN(a_launch_waits_until_its_stream_is_half_empty);
    RUN(a_launch_that_shall_not_wait_is_queue_full);
    RUN(hopeless_launches_are_no_resource_slow_ones_are_not);
    RUN(a_stalled_pipe_names_the_event);
    RUN(pending_callbacks_make_the_window_exact);
    RUN(watched_handles);
    RUN(completions_are_kept_on_request);
    RUN(an_abandoned_wait_gives_its_record_back);
    return 0;
}
