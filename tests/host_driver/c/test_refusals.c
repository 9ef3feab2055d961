/* What goes wrong on the way: refused entries, contexts in error, damaged completions, bad pages. */
#include "fake.h"

static const struct fake_options usual = {16, 8, 16, 16, 8, 16, 0};

static int damages;

/* Damages the next entry to be fetched, a number of times, then runs on. */
static void damage_script(struct fake *f)
{
    uint32_t at = f->position & (f->page->sq_entries - 1u);
    if (damages && f->position != f->page->sq_tail) {
        damages--;
        f->sq[at].user_tag ^= 1;
        fake_mended(f);
        fake_fetch(f);
        CHECK(f->page->state == TSEMU_CONTEXT_STATE_REFUSED);
        return;
    }
    fake_run(f);
}

static void refused_entries_are_written_again(void)
{
    struct fake *f = fake_open(usual);
    tsemu_task tasks[40];
    tsemu_task *after[40];
    struct driver_status status;
    memset(tasks, 0, sizeof tasks);
    f->script = damage_script;
    for (int i = 0; i < 40; i++) {
        damages = i % 3;
        after[i] = &tasks[i];
        fake_launch(f, &tasks[i], after + (i > 8 ? i - 8 : 0), i > 8 ? 8u : (uint32_t)i);
        if (i % 4 == 3)
            CHECK(tsemu_wait(f->context, &tasks[i], TSEMU_NO_LIMIT) == TSEMU_OK);
    }
    CHECK(tsemu_synchronize(f->context, TSEMU_ALL_STREAMS, TSEMU_NO_LIMIT) == TSEMU_OK);
    driver_status(f->context, &status);
    CHECK(status.rewrites == 9);
    for (int i = 0; i < 40; i++)
        CHECK(tasks[i].status == TSEMU_STATUS_OK);
    fake_close(f);
}

static void error_script(struct fake *f)
{
    uint32_t at = f->position & (f->page->sq_entries - 1u);
    if (f->admitted < 2) {
        while (f->admitted < 2 && f->position != f->page->sq_tail)
            fake_admit(f);
        return;
    }
    if (f->page->state == TSEMU_CONTEXT_STATE_ERROR || f->position == f->page->sq_tail)
        return;
    f->sq[at].user_tag ^= 1; /* damaged again at each try */
    fake_mended(f);
    fake_fetch(f);
    if (f->page->refusal_sequence >= TSEMU_ENTRY_TRIES) {
        f->page->state = TSEMU_CONTEXT_STATE_ERROR;
        for (uint32_t ticket = 1; ticket <= 2; ticket++)
            fake_end(f, ticket, TSEMU_STATUS_INVALID_ENTRY);
        fake_publish(f);
        fake_answer_all(f, TSEMU_ANSWER_CONTEXT_ERROR);
    }
}

static void a_context_in_error_ends_everything_once(void)
{
    struct fake *f = fake_open(usual);
    tsemu_task tasks[6];
    memset(tasks, 0, sizeof tasks);
    f->script = error_script;
    for (int i = 0; i < 6; i++)
        fake_launch(f, &tasks[i], NULL, 0);
    CHECK(tsemu_wait(f->context, &tasks[5], TSEMU_NO_LIMIT) == TSEMU_E_CONTEXT);
    CHECK(!strcmp(tsemu_last_error()->field, "crc") && tsemu_last_error()->ticket == 3);
    for (uint32_t i = 0; i < 6; i++)
        CHECK(tasks[i].status == TSEMU_STATUS_INVALID_ENTRY && tasks[i].order == i);
    CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_E_CONTEXT);
    CHECK(tsemu_synchronize(f->context, TSEMU_ALL_STREAMS, 0) == TSEMU_E_CONTEXT);
    fake_close(f);
}

enum damage { CRC, PHASE, SLOT_RANGE, SLOT_FREE, TICKET, STREAM, STATUS, TAIL, DAMAGES };

static enum damage damage;

static void damaged_completion_script(struct fake *f)
{
    fake_fetch(f);
    if (f->admitted < 2 || f->completed)
        return;
    fake_end(f, 2, 0);
    fake_publish(f);
    struct tsemu_cqe *cqe = &f->cq[0];
    switch (damage) {
    case CRC:
        cqe->crc ^= 4;
        break;
    case PHASE:
        cqe->phase = 0;
        break;
    case SLOT_RANGE:
        cqe->slot = 4000;
        break;
    case SLOT_FREE:
        cqe->slot = 9;
        break;
    case TICKET:
        cqe->ticket = 77;
        break;
    case STREAM:
        cqe->stream = 5;
        break;
    case STATUS:
        cqe->status = 1000;
        break;
    default:
        tsemu_store_release(&f->page->cq_tail, 1000);
        break;
    }
    if (damage != CRC)
        cqe->crc = fake_crc(cqe, 40);
    fake_answer_all(f, TSEMU_ANSWER_MET);
    if (damage == TAIL)
        tsemu_store_release(&f->page->cq_tail, 1000);
}

static void damaged_completions_are_never_ignored(void)
{
    static const char *const fields[] = {"crc", "phase", "slot", "slot", "ticket", "stream",
                                         "status", "cq_tail"};
    for (damage = 0; damage < DAMAGES; damage++) {
        struct fake *f = fake_open(usual);
        tsemu_task tasks[3];
        memset(tasks, 0, sizeof tasks);
        f->script = damaged_completion_script;
        for (int i = 0; i < 3; i++)
            fake_launch(f, &tasks[i], NULL, 0);
        CHECK(tsemu_wait(f->context, &tasks[1], TSEMU_NO_LIMIT) == TSEMU_E_PROTOCOL);
        CHECK(!strcmp(tsemu_last_error()->field, fields[damage]));
        for (int i = 0; i < 3; i++)
            CHECK(tasks[i].status == TSEMU_STATUS_RESET);
        CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_E_PROTOCOL);
        fake_close(f);
    }
}

static void nonsense_answer_script(struct fake *f)
{
    fake_fetch(f);
    for (uint32_t i = 0; i < TSEMU_MAX_WAITS; i++) {
        if (!fake_posted(f, i))
            continue;
        fake_answer(f, i, damages ? 77 : TSEMU_ANSWER_MET);
        f->page->answers[i].completed = damages ? 0 : 5000;
    }
}

static void nonsense_answers_are_protocol_errors(void)
{
    for (damages = 0; damages < 2; damages++) {
        struct fake *f = fake_open(usual);
        f->script = nonsense_answer_script;
        CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_OK);
        CHECK(tsemu_synchronize(f->context, TSEMU_ALL_STREAMS, 0) == TSEMU_E_PROTOCOL);
        CHECK(!strcmp(tsemu_last_error()->field, damages ? "answer" : "completed"));
        fake_close(f);
    }
}

static void pages_are_not_trusted(void)
{
    struct fake *f = fake_memory(usual);
    struct tsemu_control_page good = *f->page;
    tsemu_context *context;
#define REFUSED(change)                                                                          \
    do {                                                                                         \
        *f->page = good;                                                                         \
        change;                                                                                  \
        CHECK(driver_attach(f->memory, f->size, fake_pump, f, -1, -1, -1, &context) ==            \
              TSEMU_E_PROTOCOL);                                                                 \
    } while (0)
    REFUSED(f->page->magic++);
    REFUSED(f->page->major++);
    REFUSED(f->page->slots = 1);
    REFUSED(f->page->slots = 65536);
    REFUSED(f->page->window = 0);
    REFUSED(f->page->window = 9);
    REFUSED(f->page->batch = 0);
    REFUSED(f->page->sq_entries = 12);
    REFUSED(f->page->cq_entries = 1);
    REFUSED(f->page->sq_offset = 0);
    REFUSED(f->page->cq_offset = f->size - 64);
    REFUSED(f->page->status_offset += 4);
    REFUSED(f->page->host_heap_size = UINT64_MAX);
    REFUSED(f->page->device_heap_offset = UINT64_MAX - 4095);
    REFUSED(f->page->class_count = 9);
    REFUSED(f->page->alignment = 48);
    REFUSED(f->page->memory_size = f->size + 1);
    REFUSED(f->page->wait_slots = 4);
#undef REFUSED
    CHECK(driver_attach(f->memory, 64, fake_pump, f, -1, -1, -1, &context) == TSEMU_E_PROTOCOL);
    CHECK(driver_attach(f->memory + 8, f->size, fake_pump, f, -1, -1, -1, &context) ==
          TSEMU_E_INVALID);
    *f->page = good;
    CHECK(driver_attach(f->memory, f->size, fake_pump, f, -1, -1, -1, &f->context) == TSEMU_OK);
    fake_close(f);
}

static void closing_ends_what_is_pending(void)
{
    struct fake *f = fake_open(usual);
    tsemu_task tasks[3];
    memset(tasks, 0, sizeof tasks);
    f->script = fake_stand;
    for (int i = 0; i < 3; i++)
        fake_launch(f, &tasks[i], NULL, 0);
    fake_fetch(f);
    fake_end(f, 2, TSEMU_STATUS_CANCELLED);
    f->script = fake_run;
    driver_close(f->context);
    CHECK(f->page->closing == 1 && f->page->request.kind == TSEMU_CONTROL_KIND_CLOSE);
    CHECK(tasks[0].status == TSEMU_STATUS_OK && tasks[2].status == TSEMU_STATUS_OK);
    CHECK(tasks[1].status == TSEMU_STATUS_CANCELLED);
    CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_E_CLOSED);
    CHECK(tsemu_synchronize(f->context, TSEMU_ALL_STREAMS, 0) == TSEMU_E_CLOSED);
    driver_close(f->context);
    fake_close(f);
}

static int panic_pump(void *device, uint64_t slice_ns)
{
    (void)slice_ns;
    fake_fetch(device);
    return 5;
}

static void a_panic_is_a_lost_device(void)
{
    struct fake *f = fake_memory(usual);
    tsemu_task tasks[3];
    memset(tasks, 0, sizeof tasks);
    CHECK(driver_attach(f->memory, f->size, panic_pump, f, -1, -1, -1, &f->context) == TSEMU_OK);
    for (int i = 0; i < 3; i++)
        fake_launch(f, &tasks[i], NULL, 0);
    fake_fetch(f);
    fake_end(f, 2, TSEMU_STATUS_OK);
    fake_publish(f); /* in the ring */
    ((uint32_t *)(f->memory + f->page->status_offset))[tasks[0].slot] = 1u << 16; /* only there */
    CHECK(tsemu_wait(f->context, &tasks[2], TSEMU_NO_LIMIT) == TSEMU_E_DEVICE_LOST);
    CHECK(tasks[0].status == TSEMU_STATUS_OK && tasks[1].status == TSEMU_STATUS_OK);
    CHECK(tasks[2].status == TSEMU_STATUS_RESET);
    CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 0, NULL) == TSEMU_E_DEVICE_LOST);
    fake_close(f);
}

int main(void)
{
    RUN(refused_entries_are_written_again);
    RUN(a_context_in_error_ends_everything_once);
    RUN(damaged_completions_are_never_ignored);
    RUN(nonsense_answers_are_protocol_errors);
    RUN(pages_are_not_trusted);
    RUN(closing_ends_what_is_pending);
    RUN(a_panic_is_a_lost_device);
    return 0;
}
