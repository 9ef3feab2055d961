/* A scripted device in the process of the test: the control page, the rings and just enough of a
 * scheduler. It checks every entry as firmware would and fails the test when one is wrong. */
#ifndef TEST_FAKE_H
#define TEST_FAKE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <tsemu/crc32c.h>
#include <tsemu/ring.h>

#include "driver.h"

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n  last error: %s: %s\n", __FILE__, __LINE__, #condition,   \
                    tsemu_last_error()->field, tsemu_last_error()->message);                      \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define RUN(test)                                                                                \
    do {                                                                                         \
        test();                                                                                  \
        printf("ok %s\n", #test);                                                                \
    } while (0)

#define FAKE_TICKETS 131072u

struct fake_task {
    bool live; /* holds the slot; may have ended */
    bool ended;
    uint32_t ticket;
    struct tsemu_sqe sqe;
    uint32_t edge_count;
    uint16_t edges[TSEMU_MAX_PREDECESSORS];
};

struct fake_options {
    uint32_t slots, window, sq_entries, cq_entries, batch, stream_limit;
    uint32_t first; /* positions and tickets start here: to test that they wrap */
};

struct fake {
    struct tsemu_control_page *page;
    uint8_t *memory;
    uint64_t size;
    struct tsemu_sqe *sq;
    struct tsemu_cqe *cq;
    uint32_t position, admitted, completed, published;
    struct fake_task *task; /* by slot */
    uint16_t *place;         /* by ticket modulo FAKE_TICKETS: its slot */
    uint32_t oldest;         /* every ticket before it has ended, if only fake_run ends tasks */
    struct tsemu_cqe *ended; /* not yet in the ring, by completion number modulo slots */
    void (*script)(struct fake *); /* what a pump does; default: fake_run */
    uint32_t pumps;
    uint64_t now_ps;
    uint32_t next_stream, next_event;
    uint32_t control_status, control_value;
    tsemu_context *context;
    int refuse; /* entries still to be refused as damaged */
};

static inline uint64_t fake_page_up(uint64_t bytes)
{
    return (bytes + 4095u) & ~(uint64_t)4095u;
}

static inline struct tsemu_control_page *fake_fill_page(struct fake *f, struct fake_options o)
{
    struct tsemu_control_page *page = f->page;
    page->magic = TSEMU_PAGE_MAGIC;
    page->major = TSEMU_ABI_MAJOR;
    page->context = 3;
    page->clock_mode = TSEMU_CLOCK_MODE_LOCKSTEP;
    page->slots = o.slots;
    page->window = o.window;
    page->sq_entries = o.sq_entries;
    page->cq_entries = o.cq_entries;
    page->batch = o.batch;
    page->stream_limit = o.stream_limit;
    page->max_streams = 16;
    page->max_events = 16;
    page->alignment = 64;
    page->class_count = 2;
    page->poll_cost_ps = 1000000;
    page->wait_limit_ps = 1000000000000000ull;
    memcpy(page->classes[0].name, "AICORE", 6);
    memcpy(page->classes[1].name, "DMA", 3);
    page->classes[1].flags = 1;
    page->wait_slots = TSEMU_MAX_WAITS;
    page->host_base = 0x100000;
    page->device_base = 0x40000000;
    page->sq_tail = page->sq_head = page->cq_head = page->cq_tail = o.first;
    page->state = TSEMU_CONTEXT_STATE_ACTIVE;
    return page;
}

static inline void fake_run(struct fake *f);

static inline int fake_pump(void *itself, uint64_t slice_ns)
{
    struct fake *f = itself;
    (void)slice_ns;
    f->pumps++;
    f->script(f);
    return 2; /* idle until the client acts */
}

static inline struct fake *fake_memory(struct fake_options o)
{
    struct fake *f = calloc(1, sizeof *f);
    uint64_t sq = fake_page_up(o.sq_entries * 64ull), cq = fake_page_up(o.cq_entries * 64ull);
    uint64_t status = fake_page_up(o.slots * 4ull);
    f->size = 4096 + sq + cq + status + 2 * 65536;
    f->memory = mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(f->memory != MAP_FAILED);
    f->page = (struct tsemu_control_page *)f->memory;
    fake_fill_page(f, o);
    f->page->memory_size = f->size;
    f->page->sq_offset = 4096;
    f->page->cq_offset = 4096 + sq;
    f->page->status_offset = 4096 + sq + cq;
    f->page->host_heap_offset = 4096 + sq + cq + status;
    f->page->host_heap_size = 65536;
    f->page->device_heap_offset = f->page->host_heap_offset + 65536;
    f->page->device_heap_size = 65536;
    f->sq = (struct tsemu_sqe *)(f->memory + f->page->sq_offset);
    f->cq = (struct tsemu_cqe *)(f->memory + f->page->cq_offset);
    f->position = f->admitted = f->completed = f->published = o.first;
    f->task = calloc(o.slots, sizeof *f->task);
    f->ended = calloc(o.slots, sizeof *f->ended);
    f->place = calloc(FAKE_TICKETS, sizeof *f->place);
    f->oldest = o.first + 1;
    f->script = fake_run;
    f->next_stream = 1;
    return f;
}

static inline struct fake *fake_open(struct fake_options o)
{
    struct fake *f = fake_memory(o);
    CHECK(driver_attach(f->memory, f->size, fake_pump, f, -1, -1, -1, &f->context) == TSEMU_OK);
    return f;
}

static inline void fake_close(struct fake *f)
{
    tsemu_close(f->context);
    munmap(f->memory, f->size);
    free(f->task);
    free(f->place);
    free(f->ended);
    free(f);
}

static inline void fake_refuse(struct fake *f, uint32_t reason)
{
    f->page->refusal_position = f->position;
    f->page->refusal_reason = reason;
    f->page->refusal_value = 1;
    f->page->refusal_expected = 2;
    f->page->state = TSEMU_CONTEXT_STATE_REFUSED;
    tsemu_store_release(&f->page->refusal_sequence, f->page->refusal_sequence + 1);
}

static inline uint32_t fake_crc(const void *entry, unsigned offset)
{
    uint64_t words[8];
    memcpy(words, entry, sizeof words);
    return tsemu_crc32c_entry(words, offset);
}

static inline void fake_edge(struct fake *f, struct fake_task *task, uint16_t slot)
{
    CHECK(slot < f->page->slots && f->task[slot].live);
    for (uint32_t i = 0; i < task->edge_count; i++)
        CHECK(task->edges[i] != slot); /* duplicates count once */
    task->edges[task->edge_count++] = slot;
}

/* Admit the entry at the head; false: refused. */
static inline bool fake_admit(struct fake *f)
{
    uint32_t mask = f->page->sq_entries - 1u;
    struct tsemu_sqe sqe = f->sq[f->position & mask];
    if (sqe.crc != fake_crc(&sqe, 12)) {
        fake_refuse(f, TSEMU_REFUSAL_CRC);
        return false;
    }
    CHECK(sqe.version == TSEMU_SQE_VERSION);
    CHECK(((sqe.flags & TSEMU_SQE_FLAG_PHASE) != 0) ==
          (tsemu_ring_phase(f->position, f->page->sq_entries) != 0));
    CHECK(sqe.ticket == f->admitted + 1u);
    CHECK(sqe.slot < f->page->slots);
    struct fake_task *task = &f->task[sqe.slot];
    CHECK(!task->live || task->ended);
    task->edge_count = 0;
    for (int i = 0; i < 3; i++)
        if (sqe.predecessors[i] != TSEMU_NO_SLOT)
            fake_edge(f, task, sqe.predecessors[i]);
    uint32_t extensions = sqe.flags & TSEMU_SQE_FLAG_EXTENSIONS;
    CHECK(f->page->sq_tail - f->position > extensions);
    for (uint32_t e = 1; e <= extensions; e++) {
        struct tsemu_extension extension;
        memcpy(&extension, &f->sq[(f->position + e) & mask], sizeof extension);
        if (extension.crc != fake_crc(&extension, 8)) {
            fake_refuse(f, TSEMU_REFUSAL_CRC);
            return false;
        }
        CHECK(extension.kind == TSEMU_EXTENSION_KIND_PREDECESSORS);
        CHECK(extension.phase == tsemu_ring_phase(f->position + e, f->page->sq_entries));
        CHECK(extension.ticket == sqe.ticket);
        CHECK(extension.count >= 1 && extension.count <= TSEMU_EXTENSION_SLOTS);
        CHECK(e == extensions || extension.count == TSEMU_EXTENSION_SLOTS);
        for (uint32_t i = 0; i < TSEMU_EXTENSION_SLOTS; i++) {
            if (i < extension.count)
                fake_edge(f, task, extension.predecessors[i]);
            else
                CHECK(extension.predecessors[i] == 0);
        }
    }
    task->live = true;
    task->ended = false;
    task->ticket = sqe.ticket;
    task->sqe = sqe;
    f->place[sqe.ticket % FAKE_TICKETS] = sqe.slot;
    f->position += 1 + extensions;
    f->admitted++;
    f->page->admitted = f->admitted;
    tsemu_store_release(&f->page->sq_head, f->position);
    return true;
}

static inline bool fake_mended(struct fake *f)
{
    if (f->page->state == TSEMU_CONTEXT_STATE_ACTIVE)
        return true;
    if (f->page->state != TSEMU_CONTEXT_STATE_REFUSED ||
        f->page->refusal_seen != f->page->refusal_sequence)
        return false;
    f->page->state = TSEMU_CONTEXT_STATE_ACTIVE;
    return true;
}

/* Take entries while the window has room. */
static inline void fake_fetch(struct fake *f)
{
    while (fake_mended(f) && f->position != tsemu_load_acquire(&f->page->sq_tail) &&
           f->admitted - f->completed < f->page->window)
        if (!fake_admit(f))
            return;
}

/* Completions go to the ring as far as it has room. */
static inline void fake_publish(struct fake *f)
{
    while (f->published != f->completed &&
           f->published - tsemu_load_acquire(&f->page->cq_head) < f->page->cq_entries) {
        struct tsemu_cqe cqe = f->ended[f->published % f->page->slots];
        cqe.phase = (uint8_t)tsemu_ring_phase(f->published, f->page->cq_entries);
        cqe.crc = fake_crc(&cqe, 40);
        f->cq[f->published & (f->page->cq_entries - 1u)] = cqe;
        f->published++;
    }
    tsemu_store_release(&f->page->cq_tail, f->published);
}

static inline struct fake_task *fake_find(struct fake *f, uint32_t ticket)
{
    for (uint32_t i = 0; i < f->page->slots; i++)
        if (f->task[i].live && !f->task[i].ended && f->task[i].ticket == ticket)
            return &f->task[i];
    CHECK(!"the task is in flight");
    return NULL;
}

static inline void fake_end_task(struct fake *f, struct fake_task *task, uint16_t status)
{
    struct tsemu_sqe_poisoned poisoned;
    memcpy(&poisoned, &task->sqe, sizeof poisoned);
    struct tsemu_cqe cqe = {.user_tag = task->sqe.user_tag, .ticket = task->ticket,
                            .stream = task->sqe.stream, .slot = task->sqe.slot, .status = status,
                            .start_ps = f->now_ps, .end_ps = f->now_ps + 10};
    if (status) {
        cqe.ancestor = task->ticket;
        cqe.ancestor_context = TSEMU_OWN_CONTEXT;
    }
    if (task->sqe.flags & TSEMU_SQE_FLAG_POISONED) {
        cqe.status = TSEMU_STATUS_DEP_ABORTED;
        cqe.ancestor = poisoned.ancestor;
        cqe.ancestor_context = poisoned.ancestor_context;
    }
    task->ended = true;
    f->now_ps += 10;
    f->ended[f->completed % f->page->slots] = cqe;
    f->completed++;
    f->page->completed = f->completed;
}

/* The task ends; nothing is published yet. */
static inline void fake_end(struct fake *f, uint32_t ticket, uint16_t status)
{
    fake_end_task(f, fake_find(f, ticket), status);
}

static inline void fake_control(struct fake *f)
{
    struct tsemu_control_message request = f->page->request, reply = request;
    CHECK(request.magic == TSEMU_CONTROL_MAGIC && request.crc == fake_crc(&request, 20));
    reply.status = (uint16_t)f->control_status;
    if (reply.status) {
        reply.argument[0] = 7;
        reply.argument[1] = f->control_value;
    } else if (request.kind == TSEMU_CONTROL_KIND_STREAM_CREATE) {
        reply.argument[0] = f->next_stream++;
    } else if (request.kind == TSEMU_CONTROL_KIND_EVENT_CREATE) {
        reply.argument[0] = f->next_event++;
    } else if (request.kind == TSEMU_CONTROL_KIND_STREAM_RECOVER) {
        reply.argument[1] = f->control_value; /* the task that it forgets */
    }
    reply.crc = fake_crc(&reply, 20);
    f->page->reply = reply;
}

static inline bool fake_posted(const struct fake *f, uint32_t i)
{
    return tsemu_load_acquire(&f->page->waits[i].sequence) != f->page->answers[i].sequence;
}

static inline void fake_answer(struct fake *f, uint32_t i, uint32_t reason)
{
    struct tsemu_wait_answer *answer = &f->page->answers[i];
    if (f->page->waits[i].kind == TSEMU_WAIT_KIND_CONTROL && reason == TSEMU_ANSWER_MET)
        fake_control(f);
    fake_publish(f);
    answer->reason = reason;
    answer->completed = f->completed;
    answer->sq_head = f->position;
    answer->now_ps = f->now_ps;
    answer->deadline_ps = f->now_ps + 5000;
    answer->value = f->page->waits[i].b;
    tsemu_store_release(&answer->sequence, f->page->waits[i].sequence);
}

static inline void fake_answer_all(struct fake *f, uint32_t reason)
{
    for (uint32_t i = 0; i < TSEMU_MAX_WAITS; i++)
        if (fake_posted(f, i))
            fake_answer(f, i, reason);
}

/* A whole device: everything ends at once, oldest first; waits are met. */
static inline void fake_run(struct fake *f)
{
    for (;;) {
        uint32_t before = f->position;
        fake_fetch(f);
        for (; f->completed != f->admitted; f->oldest++) {
            struct fake_task *task = &f->task[f->place[f->oldest % FAKE_TICKETS]];
            if (task->live && !task->ended && task->ticket == f->oldest)
                fake_end_task(f, task, TSEMU_STATUS_OK);
        }
        fake_publish(f);
        if (f->position == before)
            break;
    }
    if (f->position == tsemu_load_acquire(&f->page->sq_tail))
        fake_answer_all(f, TSEMU_ANSWER_MET);
}

/* Only takes entries and moves bytes; nothing ends and no wait is answered. */
static inline void fake_stand(struct fake *f)
{
    fake_fetch(f);
    fake_publish(f);
}

static const tsemu_launch_desc fake_kernel = {
    .opcode = TSEMU_OPCODE_KERNEL, .blocks = 1, .cycles = 100};

static inline void fake_launch(struct fake *f, tsemu_task *task, tsemu_task *const *after,
                               uint32_t count)
{
    CHECK(tsemu_launch(f->context, &fake_kernel, after, count, task) == TSEMU_OK);
}

#endif
