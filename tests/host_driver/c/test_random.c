/* The driver on the real device, embedded: random programs over small windows and rings. Results may
 * depend on nothing but the program: not on the slack W - V, not on the size of the rings. */
#include <inttypes.h>

#include "device.h"
#include "fake.h"

struct shape {
    uint32_t slots, window, sq_entries, cq_entries, batch, stream_limit;
};

struct session {
    device *dev;
    tsemu_context *context;
    void *memory;
    uint64_t size;
    int number;
    uint16_t streams[4];
    uint32_t events[3];
};

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % below;
}

static struct session open_session(const struct shape *shape)
{
    struct session s = {0};
    char detail[256];
    struct device_config config = {.class_count = 2,
                                   .clock_mode = TSEMU_CLOCK_MODE_LOCKSTEP,
                                   .max_contexts = 2,
                                   .max_streams = 8,
                                   .max_events = 8,
                                   .edge_nodes = 64, /* else by the number of slots */
                                   .alignment = 64,
                                   .poll_cost_ps = 1000000,
                                   .wait_limit_ps = 1000000000000000ull,
                                   .hold_limit_ns = 10000000000ull};
    config.classes[0] = (struct device_class){"AICORE", 3, 1000, 0, 0, DEVICE_COST_FIXED, 0};
    config.classes[1] = (struct device_class){"DMA", 1, 1000, 1000, 1, DEVICE_COST_FIXED, 0};
    s.dev = device_create(&config, detail, sizeof detail);
    CHECK(s.dev);
    struct device_context_options options = {.name = "random",
                                             .slots = shape->slots,
                                             .window = shape->window,
                                             .sq_entries = shape->sq_entries,
                                             .cq_entries = shape->cq_entries,
                                             .batch = shape->batch,
                                             .stream_limit = shape->stream_limit,
                                             .host_heap_size = 1 << 20,
                                             .device_heap_size = 1 << 20,
                                             .interrupt_fd = -1};
    s.size = device_memory_size(&config, &options, detail, sizeof detail);
    CHECK(s.size);
    s.memory = mmap(NULL, s.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    s.number = device_context_open(s.dev, &options, s.memory, s.size);
    CHECK(s.number >= 0);
    CHECK(driver_attach(s.memory, s.size, device_pump, s.dev, -1, -1, -1, &s.context) == TSEMU_OK);
    for (int i = 1; i < 4; i++)
        CHECK(tsemu_stream_create(s.context, i != 3, i == 1 ? 2 : 0, &s.streams[i]) == TSEMU_OK);
    for (int i = 0; i < 3; i++)
        CHECK(tsemu_event_create(s.context, &s.events[i]) == TSEMU_OK);
    return s;
}

static void close_session(struct session *s)
{
    tsemu_close(s->context);
    device_context_close(s->dev, s->number);
    device_destroy(s->dev);
    munmap(s->memory, s->size);
}

static tsemu_launch_desc random_task(const struct session *s)
{
    uint32_t kind = draw(20);
    tsemu_launch_desc desc = {.opcode = TSEMU_OPCODE_KERNEL,
                              .stream = s->streams[draw(4)],
                              .priority = (uint8_t)draw(3),
                              .blocks = (uint16_t)(1 + draw(3)),
                              .cycles = draw(3) ? draw(5000) : 0};
    if (kind == 0)
        desc.timeout_us = 1; /* some take longer: they fail */
    if (kind == 1)
        desc.opcode = TSEMU_OPCODE_NOP;
    if (kind == 2 || kind == 3)
        desc.opcode = TSEMU_OPCODE_EVENT_RECORD;
    if (kind == 4) {
        desc.opcode = TSEMU_OPCODE_EVENT_WAIT;
        desc.stream = 0;
    }
    if (kind == 5) {
        desc.opcode = TSEMU_OPCODE_MEMSET;
        desc.engine_class = 1;
        desc.destination = tsemu_page(s->context)->host_base + 64 * draw(100);
        desc.length = draw(4096);
    }
    desc.event = s->events[draw(3)];
    return desc;
}

#define TASKS 600

/* Outcomes of the program with this seed, by ticket. */
static void run_program(const struct shape *shape, uint64_t seed, tsemu_task *tasks)
{
    struct session s = open_session(shape);
    tsemu_launch_desc record = {.opcode = TSEMU_OPCODE_EVENT_RECORD};
    tsemu_task *after[8];
    memset(tasks, 0, TASKS * sizeof *tasks);
    state = seed;
    for (int i = 0; i < 3; i++) { /* a first value, so that no wait is without end */
        record.event = s.events[i];
        CHECK(tsemu_launch(s.context, &record, NULL, 0, NULL) == TSEMU_OK);
    }
    for (uint32_t i = 0; i < TASKS; i++) {
        tsemu_launch_desc desc = random_task(&s);
        uint32_t count = draw(2) ? draw(7) : 0;
        for (uint32_t e = 0; e < count; e++)
            after[e] = &tasks[i ? i - 1 - draw(i < 50 ? i : 50) : 0];
        CHECK(tsemu_launch(s.context, &desc, after, i ? count : 0, &tasks[i]) == TSEMU_OK);
        uint32_t action = draw(30), which = draw(i + 1);
        int code = TSEMU_OK;
        if (action == 0)
            code = tsemu_wait(s.context, &tasks[which], TSEMU_NO_LIMIT);
        if (action == 1)
            code = tsemu_synchronize(s.context, s.streams[draw(4)], TSEMU_NO_LIMIT);
        if (action == 2)
            code = tsemu_wait(s.context, &tasks[i], draw(1000000));
        CHECK(code == TSEMU_OK || code == TSEMU_E_FAILED || code == TSEMU_E_TIMEOUT);
    }
    CHECK(tsemu_synchronize(s.context, TSEMU_ALL_STREAMS, TSEMU_NO_LIMIT) == TSEMU_OK);
    struct driver_status status;
    driver_status(s.context, &status);
    CHECK(status.submitted == TASKS + 3 && status.consumed == TASKS + 3 && !status.rewrites);
    close_session(&s);
}

static void same_outcome(const tsemu_task *a, const tsemu_task *b)
{
    CHECK(a->status != TSEMU_PENDING && a->status == b->status);
    CHECK(a->start_ps == b->start_ps && a->end_ps == b->end_ps);
    CHECK(a->order == b->order && a->core == b->core && a->ancestor == b->ancestor);
}

static void results_depend_on_the_program_only(void)
{
    static const struct shape shapes[] = {
        {16, 8, 16, 16, 8, 8},  {9, 8, 4, 16, 1, 8},      {64, 8, 64, 64, 56, 8},
        {64, 8, 8, 2, 8, 8},    {4096, 8, 4096, 8, 8, 8}, {11, 8, 8, 4, 3, 8},
    };
    tsemu_task *first = calloc(TASKS, sizeof *first), *other = calloc(TASKS, sizeof *other);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        run_program(&shapes[0], seed, first);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            run_program(&shapes[i], seed, other);
            for (uint32_t t = 0; t < TASKS; t++)
                same_outcome(&first[t], &other[t]);
        }
    }
    free(first);
    free(other);
}

static void every_window(void)
{
    tsemu_task *tasks = calloc(TASKS, sizeof *tasks);
    for (uint32_t window = 1; window <= 6; window++)
        for (uint32_t slack = 1; slack <= 3; slack++)
            run_program(&(struct shape){window + slack, window, 2u << slack, 2, slack, 1 + window},
                        7 * window + slack, tasks);
    free(tasks);
}

/* A random program as the program file has it: tables, edges by index. */
struct listing {
    driver_program_task tasks[TASKS];
    uint32_t edges[TASKS * 7];
    uint32_t edge_count;
};

static void draw_listing(struct listing *listing, uint64_t seed)
{
    listing->edge_count = 0;
    memset(listing->tasks, 0, sizeof listing->tasks);
    state = seed;
    for (uint32_t i = 0; i < TASKS; i++) {
        driver_program_task *task = &listing->tasks[i];
        uint32_t kind = draw(16), count = draw(2) ? draw(7) : 0;
        *task = (driver_program_task){.opcode = TSEMU_OPCODE_KERNEL,
                                      .stream = (uint16_t)draw(4),
                                      .blocks = (uint16_t)(1 + draw(3)),
                                      .cycles = draw(5000),
                                      .user_tag = i,
                                      .timeout_us = kind == 0 ? 1 : 0,
                                      .edge_start = listing->edge_count,
                                      .edge_count = (uint16_t)(i ? count : 0),
                                      .event = i < 3 ? i : draw(3)};
        if (kind == 1)
            task->opcode = TSEMU_OPCODE_NOP;
        if (kind == 2 || i < 3)
            task->opcode = TSEMU_OPCODE_EVENT_RECORD;
        if (kind == 3 && i >= 3)
            task->opcode = TSEMU_OPCODE_EVENT_WAIT;
        for (uint32_t e = 0; e < task->edge_count; e++) /* some reach far back */
            listing->edges[listing->edge_count++] = i - 1 - draw(draw(9) && i > 40 ? 40 : i);
    }
}

static void launch_listing(const struct shape *shape, const struct listing *listing,
                           tsemu_task *tasks)
{
    struct session s = open_session(shape);
    memset(tasks, 0, TASKS * sizeof *tasks);
    for (uint32_t i = 0; i < TASKS; i++) {
        const driver_program_task *task = &listing->tasks[i];
        tsemu_task *after[7];
        tsemu_launch_desc desc = {.opcode = task->opcode, .stream = s.streams[task->stream],
                                  .blocks = task->blocks, .cycles = task->cycles,
                                  .timeout_us = task->timeout_us,
                                  .event = s.events[task->event], .user_tag = i};
        for (uint32_t e = 0; e < task->edge_count; e++)
            after[e] = &tasks[listing->edges[task->edge_start + e]];
        CHECK(tsemu_launch(s.context, &desc, after, task->edge_count, &tasks[i]) == TSEMU_OK);
    }
    CHECK(tsemu_synchronize(s.context, TSEMU_ALL_STREAMS, TSEMU_NO_LIMIT) == TSEMU_OK);
    close_session(&s);
}

static void compare_sink(driver_program *program, const struct tsemu_cqe *sink,
                         const tsemu_task *tasks, uint32_t *order)
{
    uint32_t first, count;
    while ((count = driver_program_drain(program, &first)))
        for (const struct tsemu_cqe *cqe = sink + first; count; cqe++, count--) {
            const tsemu_task *task = &tasks[cqe->user_tag];
            CHECK(task->order == (*order)++ && task->status == cqe->status);
            CHECK(task->start_ps == cqe->start_ps && task->end_ps == cqe->end_ps);
            CHECK(task->ancestor == cqe->ancestor && task->core == cqe->core);
        }
}

static void feed_listing(const struct shape *shape, const struct listing *listing,
                         const tsemu_task *tasks)
{
    static const uint8_t classes[] = {0};
    struct session s = open_session(shape);
    struct tsemu_cqe *sink = calloc(shape->slots, sizeof *sink);
    driver_program *program = driver_program_new(s.context, s.streams, 4, s.events, 3, classes, 1,
                                                 sink, shape->slots);
    driver_operation operation = {0};
    uint32_t order = 0;
    int code;
    CHECK(program);
    CHECK(driver_program_check(program, listing->tasks, TASKS, listing->edges,
                               listing->edge_count, 0) == TSEMU_OK);
    for (uint32_t from = 0; from < TASKS; from += 100) {
        uint32_t position = 0;
        while ((code = driver_program_feed(program, listing->tasks + from, 100, listing->edges,
                                           listing->edge_count, &position, &operation))) {
            CHECK(code == TSEMU_AGAIN);
            compare_sink(program, sink, tasks, &order);
        }
    }
    while ((code = driver_program_finish(program, TSEMU_NO_LIMIT, &operation)))
        CHECK(code == TSEMU_AGAIN);
    compare_sink(program, sink, tasks, &order);
    CHECK(order == TASKS);
    driver_program_free(program);
    close_session(&s);
    free(sink);
}

static void programs_end_as_single_launches_do(void)
{
    static const struct shape shapes[] = {
        {16, 8, 16, 16, 8, 8}, {9, 8, 8, 16, 1, 8}, {200, 8, 64, 4, 100, 8}, {40, 8, 8, 64, 32, 8}};
    struct listing *listing = calloc(1, sizeof *listing);
    tsemu_task *tasks = calloc(TASKS, sizeof *tasks);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        draw_listing(listing, seed);
        launch_listing(&shapes[0], listing, tasks);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            feed_listing(&shapes[i], listing, tasks);
    }
    free(listing);
    free(tasks);
}

int main(void)
{
    RUN(results_depend_on_the_program_only);
    RUN(every_window);
    RUN(programs_end_as_single_launches_do);
    return 0;
}
