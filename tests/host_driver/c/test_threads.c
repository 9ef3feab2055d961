/* Several threads of one context, and a device in a thread of its own that really sleeps: doorbells,
 * interrupts, a device that dies. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake.h"

static const struct fake_options usual = {64, 32, 64, 64, 32, 16, 0};

struct remote {
    struct fake *f;
    pthread_t thread;
    int doorbell, interrupt, link[2];
    bool stop; /* atomic */
    uint32_t sleeps;
};

/* As the device does: answer, fence, look at the host's flag, ring. */
static void interrupt(struct remote *remote)
{
    static const uint64_t one = 1;
    struct tsemu_control_page *page = remote->f->page;
    tsemu_ring_fence();
    if (!tsemu_load_relaxed(&page->host_sleeps))
        return;
    tsemu_store_relaxed(&page->host_sleeps, 0);
    CHECK(write(remote->interrupt, &one, sizeof one) == sizeof one);
}

static bool idle(const struct fake *f)
{
    for (uint32_t i = 0; i < TSEMU_MAX_WAITS; i++)
        if (fake_posted(f, i))
            return false;
    return f->position == tsemu_load_acquire(&f->page->sq_tail);
}

static void *device_thread(void *argument)
{
    struct remote *remote = argument;
    struct fake *f = remote->f;
    while (!__atomic_load_n(&remote->stop, __ATOMIC_ACQUIRE)) {
        f->script(f);
        interrupt(remote);
        tsemu_store_relaxed(&f->page->device_sleeps, 1);
        tsemu_ring_fence();
        if (idle(f)) {
            uint64_t count;
            struct pollfd bell = {.fd = remote->doorbell, .events = POLLIN};
            remote->sleeps++;
            if (poll(&bell, 1, 1000) > 0)
                CHECK(read(remote->doorbell, &count, sizeof count) == sizeof count);
        }
        tsemu_store_relaxed(&f->page->device_sleeps, 0);
    }
    return NULL;
}

static struct remote *remote_open(struct fake_options o)
{
    struct remote *remote = calloc(1, sizeof *remote);
    remote->f = fake_memory(o);
    remote->doorbell = eventfd(0, EFD_NONBLOCK);
    remote->interrupt = eventfd(0, EFD_NONBLOCK);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, remote->link) == 0);
    CHECK(driver_attach(remote->f->memory, remote->f->size, NULL, NULL, remote->doorbell,
                        remote->interrupt, remote->link[0], &remote->f->context) == TSEMU_OK);
    CHECK(pthread_create(&remote->thread, NULL, device_thread, remote) == 0);
    return remote;
}

static void remote_stop(struct remote *remote)
{
    static const uint64_t one = 1;
    __atomic_store_n(&remote->stop, true, __ATOMIC_RELEASE);
    CHECK(write(remote->doorbell, &one, sizeof one) == sizeof one);
    pthread_join(remote->thread, NULL);
}

static void remote_free(struct remote *remote)
{
    close(remote->doorbell);
    close(remote->interrupt);
    close(remote->link[0]);
    close(remote->link[1]);
    free(remote);
}

static void remote_close(struct remote *remote)
{
    driver_close(remote->f->context);
    remote_stop(remote);
    fake_close(remote->f);
    remote_free(remote);
}

static void a_device_that_sleeps_is_woken(void)
{
    struct remote *remote = remote_open(usual);
    for (int i = 0; i < 300; i++) {
        tsemu_task task = {0};
        while (i % 10 == 5 && !tsemu_load_relaxed(&remote->f->page->device_sleeps))
            sched_yield(); /* it falls asleep */
        fake_launch(remote->f, &task, NULL, 0);
        CHECK(tsemu_wait(remote->f->context, &task, TSEMU_NO_LIMIT) == TSEMU_OK);
    }
    remote_close(remote);
}

struct worker {
    struct fake *f;
    pthread_t thread;
    uint16_t stream;
    uint32_t count;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    tsemu_task tasks[40];
    memset(tasks, 0, sizeof tasks);
    for (uint32_t i = 0; i < worker->count; i++) {
        tsemu_launch_desc desc = fake_kernel;
        tsemu_task *task = &tasks[i % 40];
        tsemu_task *after[] = {&tasks[(i + 39) % 40]};
        desc.stream = worker->stream;
        if (i >= 40)
            CHECK(tsemu_wait(worker->f->context, task, TSEMU_NO_LIMIT) == TSEMU_OK);
        CHECK(tsemu_launch(worker->f->context, &desc, after, i ? 1 : 0, task) == TSEMU_OK);
        if (i % 97 == 0)
            CHECK(tsemu_synchronize(worker->f->context, worker->stream, TSEMU_NO_LIMIT) ==
                  TSEMU_OK);
    }
    CHECK(tsemu_synchronize(worker->f->context, TSEMU_ALL_STREAMS, TSEMU_NO_LIMIT) == TSEMU_OK);
    for (int i = 0; i < 40; i++)
        CHECK(tasks[i].status == TSEMU_STATUS_OK);
    return NULL;
}

/* More threads than wait records. */
static void work_together(struct fake *f, uint32_t threads, uint32_t count)
{
    struct worker workers[24];
    for (uint32_t i = 0; i < threads; i++) {
        workers[i] = (struct worker){.f = f, .count = count};
        CHECK(i % 8 == 0 || i > 8 ||
              tsemu_stream_create(f->context, 1, 0, &workers[i].stream) == TSEMU_OK);
    }
    for (uint32_t i = 0; i < threads; i++)
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    for (uint32_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
}

static void threads_share_a_context_across_processes(void)
{
    struct remote *remote = remote_open(usual);
    work_together(remote->f, 24, 1000);
    struct driver_status status;
    driver_status(remote->f->context, &status);
    CHECK(status.submitted == 24000 && status.consumed == 24000);
    remote_close(remote);
}

static pthread_mutex_t pump_lock = PTHREAD_MUTEX_INITIALIZER;

static void locked_script(struct fake *f)
{
    pthread_mutex_lock(&pump_lock);
    fake_run(f);
    pthread_mutex_unlock(&pump_lock);
}

static void threads_share_an_embedded_context(void)
{
    struct fake *f = fake_open(usual);
    f->script = locked_script;
    work_together(f, 8, 1000);
    fake_close(f);
}

static void hold_back(struct fake *f)
{
    fake_stand(f);
}

static void *wait_for_ever(void *argument)
{
    struct worker *worker = argument;
    tsemu_task task = {0};
    int code = tsemu_launch(worker->f->context, &fake_kernel, NULL, 0, &task);
    if (code == TSEMU_OK)
        code = tsemu_wait(worker->f->context, &task, TSEMU_NO_LIMIT);
    CHECK(code == TSEMU_E_DEVICE_LOST);
    worker->count = 1;
    return NULL;
}

static void die(uint32_t stream_limit)
{
    struct remote *remote = remote_open((struct fake_options){8, 4, 8, 8, 4, stream_limit, 0});
    remote->f->script = hold_back;
    struct worker workers[20];
    for (int i = 0; i < 20; i++) {
        workers[i] = (struct worker){.f = remote->f};
        CHECK(pthread_create(&workers[i].thread, NULL, wait_for_ever, &workers[i]) == 0);
    }
    while (!tsemu_load_relaxed(&remote->f->page->host_sleeps) ||
           (stream_limit > 8 && !tsemu_load_relaxed(&remote->f->page->pipe_kind)))
        sched_yield();
    remote_stop(remote);
    close(remote->link[1]);
    remote->link[1] = dup(0);
    for (int i = 0; i < 20; i++) {
        pthread_join(workers[i].thread, NULL);
        CHECK(workers[i].count == 1);
    }
    CHECK(tsemu_launch(remote->f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_E_DEVICE_LOST);
    CHECK(tsemu_synchronize(remote->f->context, TSEMU_ALL_STREAMS, 0) == TSEMU_E_DEVICE_LOST);
    fake_close(remote->f);
    remote_free(remote);
}

/* Threads in waits, at their stream's limit and in a pipe wait: all learn that it is gone. */
static void a_device_that_dies_hangs_nobody(void)
{
    die(3);
    die(16);
}

static uint32_t held_stream;

/* Tasks of one stream never end; the others do at once. */
static void slow_stream_script(struct fake *f)
{
    fake_fetch(f);
    for (uint32_t i = 0; i < f->page->slots; i++)
        if (f->task[i].live && !f->task[i].ended && f->task[i].sqe.stream != held_stream)
            fake_end_task(f, &f->task[i], TSEMU_STATUS_OK);
    fake_publish(f);
    for (uint32_t i = 0; i < TSEMU_MAX_WAITS; i++) {
        const struct tsemu_wait_request *wait = &f->page->waits[i];
        if (!fake_posted(f, i) || !tsemu_reached(f->admitted, wait->submitted))
            continue;
        if (wait->kind != TSEMU_WAIT_KIND_STREAM_LIMIT || wait->a != held_stream)
            fake_answer(f, i, TSEMU_ANSWER_MET);
    }
}

static void *fill_stream(void *argument)
{
    struct worker *worker = argument;
    tsemu_launch_desc desc = fake_kernel;
    desc.stream = worker->stream;
    for (uint32_t i = 0; i < worker->count; i++)
        CHECK(tsemu_launch(worker->f->context, &desc, NULL, 0, NULL) == TSEMU_OK);
    return NULL;
}

static void a_thread_at_its_stream_limit_blocks_nobody(void)
{
    struct remote *remote = remote_open(usual);
    struct worker blocked = {.f = remote->f, .count = 20};
    CHECK(tsemu_stream_create(remote->f->context, 1, 4, &blocked.stream) == TSEMU_OK);
    held_stream = blocked.stream;
    remote->f->script = slow_stream_script;
    CHECK(pthread_create(&blocked.thread, NULL, fill_stream, &blocked) == 0);
    while (driver_stream_outstanding(remote->f->context, blocked.stream) < 4)
        sched_yield();
    for (int i = 0; i < 500; i++) {
        tsemu_task task = {0};
        fake_launch(remote->f, &task, NULL, 0);
        CHECK(tsemu_wait(remote->f->context, &task, TSEMU_NO_LIMIT) == TSEMU_OK);
    }
    CHECK(driver_stream_outstanding(remote->f->context, blocked.stream) == 4);
    held_stream = 99;
    static const uint64_t one = 1;
    CHECK(write(remote->doorbell, &one, sizeof one) == sizeof one);
    pthread_join(blocked.thread, NULL);
    remote_close(remote);
}

static void event_loops_are_woken_by_the_descriptor(void)
{
    struct remote *remote = remote_open(usual);
    tsemu_context *context = remote->f->context;
    CHECK(driver_interrupt_fd(context) == remote->interrupt);
    CHECK(driver_link_fd(context) == remote->link[0]);
    for (int i = 0; i < 200; i++) {
        tsemu_task task = {0};
        driver_operation operation = {0};
        fake_launch(remote->f, &task, NULL, 0);
        driver_wait wait = {.kind = TSEMU_WAIT_KIND_TASK, .a = task.ticket, .b = task.slot,
                            .timeout_ps = TSEMU_NO_LIMIT};
        while (driver_wait_poll(context, &wait, &operation) == TSEMU_AGAIN) {
            struct pollfd bell = {.fd = remote->interrupt, .events = POLLIN};
            CHECK(poll(&bell, 1, 10000) == 1); /* a lost wake-up fails here */
        }
        CHECK(task.status == TSEMU_STATUS_OK);
    }
    remote_close(remote);
}

int main(void)
{
    RUN(a_device_that_sleeps_is_woken);
    RUN(threads_share_a_context_across_processes);
    RUN(threads_share_an_embedded_context);
    RUN(a_device_that_dies_hangs_nobody);
    RUN(a_thread_at_its_stream_limit_blocks_nobody);
    RUN(event_loops_are_woken_by_the_descriptor);
    return 0;
}
