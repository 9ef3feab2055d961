/* Slots, rings that wrap, the window, completions used exactly as the rules say. */
#include "fake.h"

static void many_tasks(struct fake_options o, uint32_t count)
{
    struct fake *f = fake_open(o);
    tsemu_task *tasks = calloc(count, sizeof *tasks);
    for (uint32_t i = 0; i < count; i++) {
        tsemu_task *after[2] = {&tasks[i ? i - 1 : 0], &tasks[i > 4 ? i - 4 : 0]};
        fake_launch(f, &tasks[i], after, i ? 2 : 0);
        CHECK(tasks[i].ticket == o.first + i + 1u);
    }
    CHECK(tsemu_synchronize(f->context, TSEMU_ALL_STREAMS, TSEMU_NO_LIMIT) == TSEMU_OK);
    for (uint32_t i = 0; i < count; i++)
        CHECK(tasks[i].status == TSEMU_STATUS_OK && tasks[i].order == o.first + i);
    fake_close(f);
    free(tasks);
}

static void smallest_window(void)
{
    many_tasks((struct fake_options){2, 1, 2, 2, 1, 1, 0}, 1000);
}

static void tickets_and_positions_wrap(void)
{
    many_tasks((struct fake_options){2, 1, 2, 2, 1, 1, 0xFFFFFF00u}, 1000);
    many_tasks((struct fake_options){64, 32, 64, 64, 32, 32, 0xFFFFFF80u}, 1000);
}

static void slots_that_are_no_power_of_two(void)
{
    many_tasks((struct fake_options){37, 20, 16, 64, 17, 20, 0xFFFFFFF0u}, 2000);
}

static void largest_window(void)
{
    many_tasks((struct fake_options){65535, 32768, 65536, 65536, 32767, 65535, 0}, 200000);
}

static void completion_ring_smaller_than_the_window(void)
{
    many_tasks((struct fake_options){64, 32, 64, 2, 32, 64, 0xFFFFFFD0u}, 2000);
}

/* Slot of ticket n is the one that completion number n - W has freed. */
static void slots_are_used_again_in_order_of_completion(void)
{
    struct fake *f = fake_open((struct fake_options){8, 4, 8, 8, 4, 8, 0});
    tsemu_task tasks[16];
    memset(tasks, 0, sizeof tasks);
    f->script = fake_stand;
    for (int i = 0; i < 4; i++)
        fake_launch(f, &tasks[i], NULL, 0);
    for (int i = 0; i < 4; i++)
        CHECK(tasks[i].slot == i);
    fake_stand(f);
    fake_end(f, 3, 0);
    fake_end(f, 1, 0);
    fake_end(f, 4, 0);
    fake_end(f, 2, 0);
    fake_publish(f);
    for (int i = 4; i < 12; i++)
        fake_launch(f, &tasks[i], NULL, 0);
    static const uint16_t slots[] = {4, 5, 6, 7, 2, 0, 3, 1};
    for (int i = 0; i < 8; i++)
        CHECK(tasks[4 + i].slot == slots[i]);
    f->script = fake_run;
    fake_close(f);
}

/* What has merely arrived is not used: only the first max(n - W, C of the last answer). */
static void completions_are_used_exactly(void)
{
    struct fake *f = fake_open((struct fake_options){8, 4, 8, 8, 4, 8, 0});
    tsemu_task tasks[16];
    struct driver_status status;
    memset(tasks, 0, sizeof tasks);
    f->script = fake_stand;
    for (int i = 0; i < 4; i++)
        fake_launch(f, &tasks[i], NULL, 0);
    fake_stand(f);
    for (uint32_t i = 1; i <= 4; i++)
        fake_end(f, i, 0);
    fake_publish(f);
    for (int i = 4; i < 8; i++)
        fake_launch(f, &tasks[i], NULL, 0);
    driver_status(f->context, &status);
    CHECK(status.consumed == 0 && tasks[0].status == TSEMU_PENDING);
    fake_launch(f, &tasks[8], NULL, 0);
    driver_status(f->context, &status);
    CHECK(status.consumed == 1 && tasks[0].status == 0 && tasks[1].status == TSEMU_PENDING);
    f->script = fake_run;
    CHECK(tsemu_wait(f->context, &tasks[8], TSEMU_NO_LIMIT) == TSEMU_OK);
    driver_status(f->context, &status);
    CHECK(status.consumed == 9 && status.answered == 9);
    fake_close(f);
}

int main(void)
{
    RUN(smallest_window);
    RUN(tickets_and_positions_wrap);
    RUN(slots_that_are_no_power_of_two);
    RUN(largest_window);
    RUN(completion_ring_smaller_than_the_window);
    RUN(slots_are_used_again_in_order_of_completion);
    RUN(completions_are_used_exactly);
    return 0;
}
