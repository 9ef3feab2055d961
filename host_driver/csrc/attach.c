/* A context comes to life and ends: attach to a control page, which is not trusted, and close. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CLOSE_NS 12000000000ull /* longer than the device lets another client hold the clock */
#define GUARD_DEFAULT_S 600u

static uint64_t serials; /* atomic */

static int bad_page(const char *field, uint64_t value, uint64_t expected)
{
    return driver_fail(TSEMU_E_PROTOCOL, field, value, expected,
                       "device and driver have to be of the same version",
                       "control page: %s is %#llx, expected %#llx", field,
                       (unsigned long long)value, (unsigned long long)expected);
}

static bool power_of_two(uint32_t value)
{
    return value >= 2 && !(value & (value - 1u));
}

static int check_part(const char *field, uint64_t offset, uint64_t length, uint64_t size)
{
    if (offset % TSEMU_CONTROL_PAGE_BYTES || offset < TSEMU_CONTROL_PAGE_BYTES || offset > size ||
        length > size - offset)
        return bad_page(field, offset, size);
    return TSEMU_OK;
}

static int check_geometry(const struct tsemu_control_page *page, uint64_t size)
{
    if (page->slots < 2 || page->slots > 65535)
        return bad_page("slots", page->slots, 65535);
    if (page->batch < 1 || page->batch >= page->slots)
        return bad_page("batch", page->batch, page->slots - 1);
    if (page->window < 1 || page->window > page->slots - page->batch)
        return bad_page("window", page->window, page->slots - page->batch);
    if (!power_of_two(page->sq_entries) || page->sq_entries > 1u << 24)
        return bad_page("sq_entries", page->sq_entries, 1u << 24);
    if (!power_of_two(page->cq_entries) || page->cq_entries > 1u << 24)
        return bad_page("cq_entries", page->cq_entries, 1u << 24);
    if (page->stream_limit < 1)
        return bad_page("stream_limit", page->stream_limit, 1);
    if (page->max_streams < 1 || page->max_streams > 65536)
        return bad_page("max_streams", page->max_streams, 65536);
    if (page->max_events > 1u << 24)
        return bad_page("max_events", page->max_events, 1u << 24);
    if (page->class_count < 1 || page->class_count > TSEMU_MAX_CLASSES)
        return bad_page("class_count", page->class_count, TSEMU_MAX_CLASSES);
    if (page->alignment & (page->alignment - 1u) || !page->alignment || page->alignment > 1u << 20)
        return bad_page("alignment", page->alignment, 64);
    if (page->wait_slots != TSEMU_MAX_WAITS)
        return bad_page("wait_slots", page->wait_slots, TSEMU_MAX_WAITS);
    if (page->memory_size > size)
        return bad_page("memory_size", page->memory_size, size);
    int code = check_part("sq_offset", page->sq_offset, page->sq_entries * 64ull, size);
    if (!code)
        code = check_part("cq_offset", page->cq_offset, page->cq_entries * 64ull, size);
    if (!code)
        code = check_part("status_offset", page->status_offset, page->slots * 4ull, size);
    if (!code)
        code = check_part("host_heap_offset", page->host_heap_offset, page->host_heap_size, size);
    if (!code)
        code = check_part("device_heap_offset", page->device_heap_offset, page->device_heap_size,
                          size);
    return code;
}

static int check_page(const struct tsemu_control_page *page, uint64_t size)
{
    if (size < TSEMU_CONTROL_PAGE_BYTES)
        return bad_page("size", size, TSEMU_CONTROL_PAGE_BYTES);
    if (page->magic != TSEMU_PAGE_MAGIC)
        return bad_page("magic", page->magic, TSEMU_PAGE_MAGIC);
    if (page->major != TSEMU_ABI_MAJOR)
        return bad_page("major", page->major, TSEMU_ABI_MAJOR);
    return check_geometry(page, size);
}

static bool allocate(struct tsemu_context *c)
{
    size_t ring = (size_t)c->sq_entries * sizeof *c->shadow;
    c->shadow = aligned_alloc(CACHE_LINE, ring);
    c->slot = calloc(c->slots, sizeof *c->slot);
    c->free_slot = malloc(c->slots * sizeof *c->free_slot);
    c->edge_slot = malloc(2 * TSEMU_MAX_PREDECESSORS * sizeof *c->edge_slot);
    c->stream = calloc(c->stream_count, sizeof *c->stream);
    c->first_failure = calloc(c->stream_count, sizeof *c->first_failure);
    c->event = calloc(c->event_count + 1u, sizeof *c->event);
    if (!c->shadow || !c->slot || !c->free_slot || !c->edge_slot || !c->stream ||
        !c->first_failure || !c->event)
        return false;
    memset(c->shadow, 0, ring);
    for (uint32_t i = 0; i < c->slots; i++)
        c->free_slot[i] = (uint16_t)i;
    return heap_open(&c->host_heap) && heap_open(&c->device_heap);
}

static uint64_t guard_time(void)
{
    const char *text = getenv("TSEMU_GUARD_SECONDS");
    char *end;
    if (!text)
        return GUARD_DEFAULT_S * 1000000000ull;
    errno = 0;
    unsigned long long seconds = strtoull(text, &end, 10);
    if (errno || end == text || *end || seconds > 1000000)
        return GUARD_DEFAULT_S * 1000000000ull;
    return seconds * 1000000000ull;
}

static bool start_locks(struct tsemu_context *c)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic))
        return false;
    bool ok = !pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) &&
              !pthread_cond_init(&c->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return ok && !pthread_mutex_init(&c->lock, NULL);
}

/* Copies what it needs of the page: nothing of the geometry is read a second time. */
static void take_geometry(struct tsemu_context *c, uint8_t *memory)
{
    const struct tsemu_control_page *page = c->page;
    c->sq = (struct entry *)(memory + page->sq_offset);
    c->cq = (struct tsemu_cqe *)(memory + page->cq_offset);
    c->status_table = (const uint32_t *)(memory + page->status_offset);
    c->slots = page->slots;
    c->window = page->window;
    c->sq_entries = page->sq_entries;
    c->cq_entries = page->cq_entries;
    c->batch = page->batch;
    c->stream_count = page->max_streams;
    c->event_count = page->max_events;
    c->class_count = page->class_count;
    c->alignment = page->alignment;
    c->number = (uint16_t)page->context;
    for (uint32_t i = 0; i < c->class_count; i++)
        c->mover_classes |= (page->classes[i].flags & 1u) << i;
    c->host_heap = (struct heap){
        .base = page->host_base, .size = page->host_heap_size, .offset = page->host_heap_offset};
    c->device_heap = (struct heap){.base = page->device_base,
                                   .size = page->device_heap_size,
                                   .offset = page->device_heap_offset};
}

int driver_attach(void *memory, uint64_t size, driver_pump pump, void *pump_argument,
                  int doorbell_fd, int interrupt_fd, int link_fd, tsemu_context **context)
{
    struct tsemu_control_page *page = memory;
    if ((uintptr_t)memory % TSEMU_CONTROL_PAGE_BYTES)
        return driver_fail(TSEMU_E_INVALID, "memory", (uintptr_t)memory, TSEMU_CONTROL_PAGE_BYTES,
                           "map the memory object", "the memory is not page aligned");
    if (!pump && (doorbell_fd < 0 || interrupt_fd < 0))
        return driver_fail(TSEMU_E_INVALID, "doorbell_fd", 0, 0,
                           "pass both eventfds, or a pump function",
                           "neither eventfds nor a pump function");
    int code = check_page(page, size);
    if (code)
        return code;
    struct tsemu_context *c = aligned_alloc(CACHE_LINE, (sizeof *c + CACHE_LINE - 1) /
                                                            CACHE_LINE * CACHE_LINE);
    if (c) {
        memset(c, 0, sizeof *c);
        c->page = page;
        c->memory = memory;
        c->memory_size = size;
        take_geometry(c, memory);
    }
    if (!c || !allocate(c) || !start_locks(c)) {
        if (c)
            context_free(c);
        return driver_fail(TSEMU_E_NO_RESOURCE, "memory", 0, 0, "free memory", "no memory");
    }
    c->embedded = pump != NULL;
    c->pump = pump;
    c->pump_argument = pump_argument;
    c->doorbell_fd = doorbell_fd;
    c->interrupt_fd = interrupt_fd;
    c->link_fd = link_fd;
    c->guard_ns = guard_time();
    c->spin_ns = 50000;
    c->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    c->stream[0] = (struct stream){.exists = true, .limit = page->stream_limit};
    c->submitted = c->consumed = c->answered = c->tail_seen = page->cq_tail;
    c->tail = c->published = c->head_seen = c->answered_head = page->sq_tail;
    *context = c;
    return TSEMU_OK;
}

/* Ask the device to end everything and wait for what runs, for a bounded time. */
static void close_politely(struct tsemu_context *c)
{
    static const uint32_t nothing[10];
    uint64_t end = wall_ns() + CLOSE_NS;
    struct tsemu_control_message reply;
    driver_operation operation = {0};
    int code;
    tsemu_store_release(&c->page->closing, 1);
    do {
        c->callbacks.count = 0; /* nobody runs them any more */
        uint64_t slice = wall_ns() + SLICE_NS;
        code = control_locked(c, TSEMU_CONTROL_KIND_CLOSE, nothing, &reply, &operation,
                              slice < end ? slice : end);
    } while ((code == TSEMU_AGAIN || code == TSEMU_CALLBACKS) && wall_ns() < end);
    driver_wait all = {.kind = TSEMU_WAIT_KIND_ALL, .c = 1, .timeout_ps = TSEMU_NO_LIMIT};
    if (!code) {
        do {
            c->callbacks.count = 0;
            code = wait_locked(c, &all, &operation, false);
        } while ((code == TSEMU_AGAIN || code == TSEMU_CALLBACKS) && wall_ns() < end);
    }
    c->callbacks.count = 0;
}

void driver_close(tsemu_context *c)
{
    tsemu_error kept = *driver_error();
    context_lock(c);
    if (!c->closing && !c->closed) {
        c->closing = true;
        if (!c->broken)
            close_politely(c);
        c->closed = true;
        end_outstanding(c, TSEMU_STATUS_CANCELLED);
        wake_threads(c);
    }
    /* Threads that wait in a call see within a slice that the context is closed. */
    uint64_t end = wall_ns() + 10 * SLICE_NS;
    while (c->users && wall_ns() < end)
        block_for_threads(c, wall_ns() + SLICE_NS / 10);
    context_unlock(c);
    *driver_error() = kept;
}

void context_free(struct tsemu_context *c)
{
    heap_close(&c->host_heap);
    heap_close(&c->device_heap);
    free(c->kept.cqes);
    free(c->callbacks.tasks);
    free(c->shadow);
    free(c->slot);
    free(c->free_slot);
    free(c->edge_slot);
    free(c->stream);
    free(c->first_failure);
    free(c->event);
    free(c);
}

void driver_forget(tsemu_context *c)
{
    if (c->owns_link) {
        munmap(c->memory, c->memory_size);
        close(c->doorbell_fd);
        close(c->interrupt_fd);
        close(c->link_fd);
    }
    context_free(c);
}

void tsemu_close(tsemu_context *c)
{
    if (!c)
        return;
    driver_close(c);
    driver_forget(c);
}
