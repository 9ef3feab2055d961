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

int main(void)
{
    RUN(results_depend_on_the_program_only);
    RUN(every_window);
    return 0;
}
