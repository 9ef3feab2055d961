/* Drive a device hard: `stress FIRST COUNT` runs that many seeds, each twice. */
#define _GNU_SOURCE
#include "oracle.h"
#include "program.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tsemu/ring.h>

#define MAX_CLIENTS 3u
#define SLICE_NS 100000000u
#define MANY_SLICES 300u
#define SEED_SECONDS 5u
#define MANY_TURNS 500u

struct run {
    struct seeded random;
    struct device_config config;
    device *dev;
    struct client *clients[MAX_CLIENTS];
    uint32_t client_count;
    struct busy busy[MAX_CLIENTS * 8u * MAX_TASKS];
    uint32_t busy_count;
    uint64_t hash;
    bool free, own_loop;
    bool exact;              /* every block that started has ended */
    uint64_t busy_ps;        /* what the cores should have worked, when exact */
    uint64_t completed, refused, errors, vanished;
};

static uint64_t current_seed;
static bool chatty;

void fail(const struct client *client, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "seed %llu", (unsigned long long)current_seed);
    if (client)
        fprintf(stderr, ", client %d", client->id);
    fprintf(stderr, ": ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    if (client && chatty) {
        static char text[65536];
        size_t size = device_console(client->dev, text, sizeof text);
        fwrite(text, 1, size, stderr);
        for (uint32_t t = 1; t <= client->submitted; t++) {
            const struct record *task = &client->tasks[t];
            fprintf(stderr, "%u op %u stream %u%s class %u slot %u blocks %u limit %u event %u.%u "
                            "at %u+%u done %d order %u status %u core %u %llu-%llu ancestor %u <-",
                    t, task->opcode, task->stream, task->poisoned ? " poisoned" : "",
                    task->engine_class, task->slot, task->blocks, task->timeout_us, task->event,
                    task->event_value, task->position, task->entries, task->done, task->order,
                    task->status, task->core, (unsigned long long)task->start,
                    (unsigned long long)task->end, task->found_ancestor);
            for (uint32_t i = 0; i < task->edge_count; i++)
                fprintf(stderr, " %u", task->edges[i]);
            fprintf(stderr, " (%u)\n", task->previous);
        }
    }
    exit(1);
}

/* An endless loop in the device: a seed takes milliseconds. */
static void too_long(int number)
{
    static const char text[] = ": takes too long\n";
    char digits[24];
    int at = sizeof digits;
    for (uint64_t seed = current_seed; seed; seed /= 10u)
        digits[--at] = (char)('0' + seed % 10u);
    if (write(2, digits + at, sizeof digits - (size_t)at) < 0 || write(2, text, sizeof text) < 0)
        _exit(3);
    _exit(number ? 2 : 3);
}

static void choose_config(struct run *run)
{
    struct seeded *random = &run->random;
    struct device_config *config = &run->config;
    static const uint32_t clocks[] = {500, 700, 1000, 1333};
    config->class_count = seeded_between(random, 2, 4);
    for (uint32_t c = 0; c < config->class_count; c++) {
        struct device_class *class = &config->classes[c];
        bool last = c + 1u == config->class_count;
        snprintf(class->name, sizeof class->name, "C%u", c);
        class->cores = seeded_between(random, 1, seeded_chance(random, 10) ? 40 : 4);
        class->frequency_mhz = clocks[seeded_below(random, 4)];
        class->bandwidth_mbps = seeded_chance(random, 30) ? 0 : seeded_between(random, 100, 9000);
        class->cost = seeded_chance(random, 50) ? DEVICE_COST_FIXED : DEVICE_COST_ROOFLINE;
        class->setup_cycles = seeded_chance(random, 50) ? 0 : seeded_below(random, 100);
        class->moves_bytes = last;
    }
    config->policy = seeded_below(random, 5);
    run->free = seeded_chance(random, 10);
    run->own_loop = !run->free && seeded_chance(random, 20);
    config->clock_mode = run->free ? TSEMU_CLOCK_MODE_FREE : TSEMU_CLOCK_MODE_LOCKSTEP;
    config->paced_num = 1000;
    config->paced_den = 1;
    config->max_contexts = MAX_CLIENTS;
    config->max_streams = MAX_STREAMS;
    config->max_events = MAX_EVENTS;
    config->edge_nodes = seeded_chance(random, 30) ? seeded_between(random, 60, 80) : 0;
    config->alignment = 64;
    config->poll_cost_ps = 1000000;
    config->wait_limit_ps = seeded_between(random, 20, 400) * 1000000ull;
    config->ageing_ps = seeded_chance(random, 50) ? 0 : seeded_between(random, 1, 20) * 100000ull;
    config->hold_limit_ns = 10000000000u;
    if (seeded_chance(random, 20)) {
        config->host_task_ps = seeded_below(random, 300000);
        config->host_call_ps = seeded_below(random, 2000000);
    }
    if (seeded_chance(random, 40)) {
        config->fetch_ps = seeded_below(random, 50000);
        config->edge_ps = seeded_below(random, 20000);
        config->dispatch_ps = seeded_below(random, 100000);
        config->retire_ps = seeded_below(random, 100000);
        config->interrupt_ps = seeded_below(random, 400000);
    }
}

static void open_client(struct run *run, uint32_t index)
{
    struct seeded *random = &run->random;
    struct device_context_options options = {
        .process = seeded_chance(random, 30) ? 1u : 10u + index,
        .slots = seeded_chance(random, 25) ? seeded_between(random, 2, 4)
                                           : seeded_between(random, 4, MAX_SLOTS),
        .sq_entries = 2u << seeded_below(random, 6),
        .cq_entries = 2u << seeded_below(random, 6),
        .batch = 1,
        .stream_limit = 4,
        .weight = seeded_between(random, 1, 9),
        .host_heap_size = 4096,
        .device_heap_size = 4096,
        .interrupt_fd = -1,
    };
    options.window = seeded_between(random, 1, options.slots - 1u);
    snprintf(options.name, sizeof options.name, "%c%u", 'z' - (char)index,
             seeded_below(random, 1000));
    client_open(run->clients[index], run->dev, &run->config, &options, random);
    run->clients[index]->gives_up = seeded_chance(random, 10);
}

/* Before the emulator's loop sleeps, doorbells must be armed; the pump never sleeps. */
static void check_sleeps(const struct run *run, bool own)
{
    for (uint32_t i = 0; i < run->client_count; i++)
        if (run->clients[i]->memory && !run->clients[i]->vanished &&
            (run->clients[i]->page->device_sleeps != 0) != own)
            fail(run->clients[i], "the device returned with device_sleeps %u",
                 run->clients[i]->page->device_sleeps);
}

static void pump(struct run *run)
{
    for (uint32_t slices = 0; slices < MANY_SLICES; slices++) {
        /* As an embedded host does, or as the emulator's own loop. */
        bool own = run->own_loop;
        int reason = own ? device_run(run->dev, SLICE_NS, 0) : device_pump(run->dev, SLICE_NS);
        if (reason == DEVICE_PANIC)
            fail(NULL, "panic: %s", device_panic_text(run->dev));
        if (reason == DEVICE_IDLE || reason == DEVICE_HELD) {
            check_sleeps(run, own);
            return;
        }
        if (reason != DEVICE_SLICE && !(run->free && reason == DEVICE_TIMER))
            fail(NULL, "the device returned %d", reason);
    }
    fail(NULL, "the device does not come to rest");
}

static void judge(struct run *run, const struct client *client)
{
    oracle_client(client, run->busy, &run->busy_count);
    run->hash = (run->hash ^ client->hash) * 1099511628211u;
    run->completed += client->consumed;
    run->refused += client->refusals;
    run->errors += client->errored;
    run->exact = run->exact && !client->errored && !client->closed && !client->vanished;
    for (uint32_t ticket = 1; ticket <= client->submitted; ticket++) {
        const struct record *task = &client->tasks[ticket];
        if (task->status == TSEMU_STATUS_OK && task->core != 0xFFFFu)
            run->busy_ps += task->blocks * task->duration;
        run->exact = run->exact && task->status != TSEMU_STATUS_TIMEOUT;
    }
}

/* The client dies in the middle of things, and another one takes its place. */
static void vanish(struct run *run, uint32_t index)
{
    struct client *client = run->clients[index];
    client->vanished = true;
    device_context_close(run->dev, client->id);
    run->vanished++;
}

static void bury(struct run *run, uint32_t index)
{
    struct client *client = run->clients[index];
    if (!client->vanished || !device_context_gone(run->dev, client->id))
        return;
    judge(run, client);
    client_free(client);
    open_client(run, index);
}

static void act(struct run *run, uint32_t index)
{
    struct client *client = run->clients[index];
    struct seeded *random = &run->random;
    uint32_t what = seeded_below(random, 1000);
    if (client->vanished) {
        bury(run, index);
        return;
    }
    client_tend(client);
    if (what < 400)
        program_submit(client, seeded_between(random, 1, 8));
    else if (what < 620)
        program_wait(client);
    else if (what < 800)
        client_drain(client, seeded_between(random, 1, 12));
    else if (what < 870)
        program_control(client);
    else if (what < 900)
        program_pipe(client);
    else if (what >= 940 && what < 980)
        client_arm(client);
    else if (what < 905 && client_may_damage(client))
        client_damage_tail(client);
    else if (what == 999 && run->vanished < 4)
        vanish(run, index);
}

static bool finished(struct client *client)
{
    struct device_context_status status;
    device_context_status(client->dev, client->id, &status);
    return status.incomplete == 0 && status.completed == client->consumed &&
           !client_waits(client) &&
           (client->errored || (status.admitted == client->submitted && !client->harm));
}

/* Wait for everything, as often as it takes. */
static bool finish_turn(struct run *run)
{
    bool all = true;
    for (uint32_t i = 0; i < run->client_count; i++) {
        struct client *client = run->clients[i];
        if (client->vanished) {
            all = false;
            bury(run, i);
            continue;
        }
        client_tend(client);
        client_drain(client, MAX_TASKS);
        if (finished(client))
            continue;
        all = false;
        struct answer asked = {.kind = TSEMU_WAIT_KIND_ALL, .a = client->submitted,
                               .deadline = FOREVER};
        client_post(client, 3, &asked);
    }
    pump(run);
    return all;
}

static void finish(struct run *run)
{
    uint32_t turns = 0;
    while (!finish_turn(run))
        if (++turns == MANY_TURNS) {
            for (uint32_t i = 0; i < run->client_count; i++)
                if (!finished(run->clients[i]))
                    fail(run->clients[i], "work does not end: %u submitted, %u admitted, %u "
                         "completed, %u consumed, tail %u head %u",
                         run->clients[i]->submitted, run->clients[i]->page->admitted,
                         run->clients[i]->page->completed, run->clients[i]->consumed,
                         run->clients[i]->tail, run->clients[i]->page->sq_head);
        }
    for (uint32_t i = 0; i < run->client_count; i++) {
        client_post_request(run->clients[i], TSEMU_CONTROL_KIND_STATISTICS, 0, 0);
        pump(run);
        client_tend(run->clients[i]);
        judge(run, run->clients[i]);
        oracle_baseline(run->clients[i]);
    }
    oracle_cores(run->busy, run->busy_count);
    int reason = device_pump(run->dev, SLICE_NS);
    if (reason != DEVICE_IDLE)
        fail(NULL, "the device has nothing to do and returns %d", reason);
    struct device_core_status cores[DEVICE_MAX_CORES];
    uint32_t count = device_cores(run->dev, cores, DEVICE_MAX_CORES);
    uint64_t busy_ps = 0;
    for (uint32_t core = 0; core < count; core++) {
        busy_ps += cores[core].busy_ps;
        if (cores[core].busy)
            fail(NULL, "core %u is busy at the end", core);
    }
    if (run->exact && busy_ps != run->busy_ps)
        fail(NULL, "the cores worked for %llu ps, the tasks need %llu",
             (unsigned long long)busy_ps, (unsigned long long)run->busy_ps);
}

static void run_seed(uint64_t seed, struct run *run, struct client *const *clients)
{
    char detail[160] = "";
    memset(run, 0, sizeof *run);
    run->random.state = seed * 1000003u;
    run->exact = true;
    choose_config(run);
    run->dev = device_create(&run->config, detail, sizeof detail);
    if (!run->dev)
        fail(NULL, "configuration refused: %s", detail);
    run->client_count = seeded_between(&run->random, 1, MAX_CLIENTS);
    for (uint32_t i = 0; i < run->client_count; i++) {
        run->clients[i] = clients[i];
        open_client(run, i);
    }
    uint32_t steps = seeded_between(&run->random, 50, 400);
    for (uint32_t step = 0; step < steps; step++) {
        act(run, seeded_below(&run->random, run->client_count));
        if (seeded_chance(&run->random, 40))
            pump(run);
    }
    finish(run);
    for (uint32_t i = 0; i < run->client_count; i++) {
        device_context_close(run->dev, run->clients[i]->id);
        pump(run);
        if (!device_context_gone(run->dev, run->clients[i]->id))
            fail(run->clients[i], "the context stays after it was closed");
        client_free(run->clients[i]);
    }
    device_destroy(run->dev);
}

int main(int argc, char **argv)
{
    static struct run run;
    struct client *clients[MAX_CLIENTS];
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
    uint64_t completed = 0, refused = 0, errors = 0, vanished = 0;
    chatty = argc > 3;
    signal(SIGALRM, too_long);
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        clients[i] = malloc(sizeof *clients[i]);
    for (current_seed = first; current_seed < first + count; current_seed++) {
        alarm(SEED_SECONDS);
        run_seed(current_seed, &run, clients);
        uint64_t hash = run.hash;
        run_seed(current_seed, &run, clients);
        if (run.hash != hash && !run.free)
            fail(NULL, "two runs have different completions");
        completed += run.completed;
        refused += run.refused;
        errors += run.errors;
        vanished += run.vanished;
    }
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        free(clients[i]);
    printf("%llu seeds, %llu completions, %llu refusals, %llu contexts in error, %llu vanished\n",
           (unsigned long long)count, (unsigned long long)completed, (unsigned long long)refused,
           (unsigned long long)errors, (unsigned long long)vanished);
    return 0;
}
