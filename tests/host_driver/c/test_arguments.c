/* Bad arguments are INVALID at the call and change nothing; buffers. */
#include "fake.h"

static const struct fake_options usual = {16, 8, 16, 16, 8, 16, 0};

static struct fake *f;

static void refused(const char *field, uint64_t value, tsemu_launch_desc desc)
{
    struct driver_status before, after;
    tsemu_task task = {.ticket = 99};
    uint32_t tail = f->page->sq_tail;
    uint16_t status = 77;
    tsemu_launch_desc two[2] = {fake_kernel, desc};
    tsemu_batch batch = {.tasks = two, .count = 2, .status = &status};
    driver_operation operation = {0};
    driver_status(f->context, &before);
    CHECK(tsemu_launch(f->context, &desc, NULL, 0, &task) == TSEMU_E_INVALID);
    CHECK(!strcmp(tsemu_last_error()->field, field) && tsemu_last_error()->value == value);
    CHECK(tsemu_last_error()->hint[0]);
    CHECK(driver_batch_step(f->context, &batch, &operation) == TSEMU_E_INVALID);
    CHECK(strstr(tsemu_last_error()->field, "tasks[1].") == tsemu_last_error()->field);
    driver_status(f->context, &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0 && task.ticket == 99 && status == 77);
    CHECK(f->page->sq_tail == tail);
}

#define KERNEL .opcode = TSEMU_OPCODE_KERNEL, .blocks = 1
#define COPY .opcode = TSEMU_OPCODE_MEMCPY, .engine_class = 1
#define SET .opcode = TSEMU_OPCODE_MEMSET, .engine_class = 1

static void fields_of_a_task(void)
{
    uint64_t host = f->page->host_base, on_device = f->page->device_base;
    refused("opcode", 4, (tsemu_launch_desc){.opcode = TSEMU_OPCODE_AICPU});
    refused("opcode", 16, (tsemu_launch_desc){.opcode = 16});
    refused("opcode", 257, (tsemu_launch_desc){.opcode = 257});
    refused("flags", 0x200, (tsemu_launch_desc){KERNEL, .flags = 0x200});
    refused("priority", 8, (tsemu_launch_desc){KERNEL, .priority = 8});
    refused("stream", 1, (tsemu_launch_desc){KERNEL, .stream = 1});
    refused("stream", 65535, (tsemu_launch_desc){KERNEL, .stream = 65535});
    refused("engine_class", 2, (tsemu_launch_desc){KERNEL, .engine_class = 2});
    refused("engine_class", 1, (tsemu_launch_desc){KERNEL, .engine_class = 1});
    refused("engine_class", 0, (tsemu_launch_desc){.opcode = TSEMU_OPCODE_MEMCPY});
    refused("engine_class", 3, (tsemu_launch_desc){.opcode = TSEMU_OPCODE_NOP, .engine_class = 3});
    refused("blocks", 0, (tsemu_launch_desc){.opcode = TSEMU_OPCODE_KERNEL});
    refused("argument", 64, (tsemu_launch_desc){KERNEL, .argument = 64});
    refused("event", 0, (tsemu_launch_desc){.opcode = TSEMU_OPCODE_EVENT_RECORD});
    refused("event", 1u << 31, (tsemu_launch_desc){.opcode = TSEMU_OPCODE_EVENT_WAIT,
                                                   .event = 1u << 31});
    refused("destination", host + 1,
            (tsemu_launch_desc){SET, .destination = host + 1, .length = 1});
    refused("destination", host, (tsemu_launch_desc){SET, .destination = host, .length = 65537});
    refused("destination", host + 64,
            (tsemu_launch_desc){SET, .destination = host + 64, .length = UINT64_MAX - 32});
    refused("destination", host - 64,
            (tsemu_launch_desc){SET, .destination = host - 64, .length = 64});
    refused("argument", host + 65536,
            (tsemu_launch_desc){COPY, .destination = on_device, .argument = host + 65536,
                                .length = 64});
    refused("argument", on_device + 32,
            (tsemu_launch_desc){COPY, .destination = host, .argument = on_device + 32,
                                .length = 64});
}

static void batches_and_predecessors(void)
{
    tsemu_launch_desc tasks[9];
    uint16_t status[9];
    for (int i = 0; i < 9; i++)
        tasks[i] = fake_kernel;
    const uint32_t falling[] = {0, 1, 0}, forward[] = {0, 1, 1}, edge[] = {0};
    tsemu_batch batch = {.tasks = tasks, .count = 9, .status = status};
    CHECK(tsemu_submit_batch(f->context, &batch) == TSEMU_E_INVALID);
    CHECK(tsemu_last_error()->value == 9 && tsemu_last_error()->limit == 8);
    batch.count = 2;
    batch.edges = edge;
    batch.edge_start = falling;
    CHECK(tsemu_submit_batch(f->context, &batch) == TSEMU_E_INVALID);
    batch.edge_start = forward;
    CHECK(tsemu_submit_batch(f->context, &batch) == TSEMU_E_INVALID);
    CHECK(!strcmp(tsemu_last_error()->field, "edges"));
    batch.count = 0;
    batch.edge_start = NULL;
    CHECK(tsemu_submit_batch(f->context, &batch) == TSEMU_OK);

    struct fake *other = fake_open(usual);
    tsemu_task mine = {0}, theirs = {0}, never = {0};
    fake_launch(other, &theirs, NULL, 0);
    tsemu_task *strangers[] = {&theirs}, *unborn[] = {&never}, *nobody[] = {NULL};
    CHECK(tsemu_launch(f->context, &fake_kernel, strangers, 1, &mine) == TSEMU_E_INVALID);
    CHECK(!strcmp(tsemu_last_error()->field, "after"));
    CHECK(tsemu_launch(f->context, &fake_kernel, unborn, 1, &mine) == TSEMU_E_INVALID);
    CHECK(tsemu_launch(f->context, &fake_kernel, nobody, 1, &mine) == TSEMU_E_INVALID);
    CHECK(tsemu_launch(f->context, &fake_kernel, NULL, 1, &mine) == TSEMU_E_INVALID);
    tsemu_task forged = {.context = f->context, .ticket = 5, .slot = 60000,
                         .status = TSEMU_PENDING};
    tsemu_task *fake_handle[] = {&forged};
    CHECK(tsemu_launch(f->context, &fake_kernel, fake_handle, 1, &mine) == TSEMU_E_INVALID);
    CHECK(tsemu_wait(f->context, &theirs, 0) == TSEMU_E_INVALID);
    CHECK(tsemu_synchronize(f->context, 9, 0) == TSEMU_E_INVALID);
    fake_close(other);
}

static void control_requests(void)
{
    uint16_t stream;
    uint32_t event;
    CHECK(tsemu_stream_create(f->context, 1, 17, &stream) == TSEMU_E_INVALID);
    CHECK(tsemu_stream_destroy(f->context, 0) == TSEMU_E_INVALID);
    CHECK(tsemu_stream_destroy(f->context, 12) == TSEMU_E_INVALID);
    CHECK(tsemu_event_destroy(f->context, 12) == TSEMU_E_INVALID);
    CHECK(tsemu_stream_create(f->context, 1, 3, &stream) == TSEMU_OK && stream == 1);
    CHECK(tsemu_event_create(f->context, &event) == TSEMU_OK && event == 0);
    f->control_status = TSEMU_CONTROL_STATUS_BUSY;
    f->control_value = 41;
    CHECK(tsemu_event_destroy(f->context, event) == TSEMU_E_BUSY);
    CHECK(tsemu_last_error()->ticket == 41);
    f->control_status = TSEMU_CONTROL_STATUS_NO_RESOURCE;
    CHECK(tsemu_event_create(f->context, &event) == TSEMU_E_NO_RESOURCE);
    CHECK(tsemu_last_error()->value == 41 && tsemu_last_error()->limit == 7);
    f->control_status = 0;
    CHECK(tsemu_event_destroy(f->context, event) == TSEMU_OK);
    CHECK(tsemu_event_destroy(f->context, event) == TSEMU_E_INVALID);
    CHECK(tsemu_stream_destroy(f->context, stream) == TSEMU_OK);
}

static void buffers(void)
{
    uint64_t a, b, c, all;
    CHECK(tsemu_buffer_alloc(f->context, 0, 0, &a) == TSEMU_E_INVALID);
    CHECK(tsemu_buffer_alloc(f->context, 0, 65537, &a) == TSEMU_E_NO_RESOURCE);
    CHECK(tsemu_buffer_alloc(f->context, 0, UINT64_MAX, &a) == TSEMU_E_NO_RESOURCE);
    CHECK(tsemu_buffer_alloc(f->context, 0, 1, &a) == TSEMU_OK && a == f->page->host_base);
    CHECK(tsemu_buffer_alloc(f->context, 0, 65, &b) == TSEMU_OK && b == a + 64);
    CHECK(tsemu_buffer_alloc(f->context, 0, 64, &c) == TSEMU_OK && c == a + 192);
    CHECK(tsemu_buffer_alloc(f->context, 0, 65536 - 256, &all) == TSEMU_OK);
    CHECK(tsemu_buffer_alloc(f->context, 0, 1, &all) == TSEMU_E_NO_RESOURCE);
    CHECK(tsemu_buffer_free(f->context, b) == TSEMU_OK);
    CHECK(tsemu_buffer_free(f->context, b) == TSEMU_E_INVALID);
    CHECK(tsemu_buffer_free(f->context, a + 1) == TSEMU_E_INVALID);
    CHECK(tsemu_buffer_free(f->context, a) == TSEMU_OK);
    CHECK(tsemu_buffer_alloc(f->context, 0, 192, &a) == TSEMU_OK && a == f->page->host_base);
    CHECK(tsemu_buffer_alloc(f->context, 1, 65536, &b) == TSEMU_OK);
    CHECK(b == f->page->device_base);
    memset(tsemu_buffer_pointer(f->context, a, 192), 1, 192);
    memset(tsemu_buffer_pointer(f->context, b, 65536), 2, 65536);
    CHECK(f->memory[f->page->device_heap_offset + 65535] == 2);
    CHECK(!tsemu_buffer_pointer(f->context, b, 65537));
    CHECK(!tsemu_buffer_pointer(f->context, b + 1, UINT64_MAX));
    CHECK(!tsemu_buffer_pointer(f->context, 0, 1));
}

static void addresses(void)
{
    tsemu_context *context = NULL;
    CHECK(tsemu_open(NULL, NULL, NULL, &context) == TSEMU_E_ADDRESS);
    CHECK(tsemu_open("emu:edge-2", NULL, NULL, &context) == TSEMU_E_ADDRESS);
    CHECK(tsemu_open("unix:", NULL, NULL, &context) == TSEMU_E_ADDRESS);
    CHECK(tsemu_open("unix:/nowhere/at/all", "x", NULL, &context) == TSEMU_E_ADDRESS);
    CHECK(strstr(tsemu_last_error()->hint, "tsemu run"));
    char path[300];
    memset(path, 'x', sizeof path);
    memcpy(path, "unix:", 5);
    path[sizeof path - 1] = 0;
    CHECK(tsemu_open(path, "x", NULL, &context) == TSEMU_E_ADDRESS && !context);
    CHECK(tsemu_engine_class(f->context, "DMA") == 1);
    CHECK(tsemu_engine_class(f->context, "GPU") == TSEMU_E_INVALID);
    CHECK(tsemu_engine_class(f->context, "A name that is far too long") == TSEMU_E_INVALID);
    CHECK(tsemu_engine_class(f->context, NULL) == TSEMU_E_INVALID);
}

int main(void)
{
    f = fake_open(usual);
    RUN(fields_of_a_task);
    RUN(batches_and_predecessors);
    RUN(control_requests);
    RUN(buffers);
    RUN(addresses);
    fake_close(f);
    return 0;
}
