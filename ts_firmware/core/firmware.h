/* The firmware as its boot code and the SoC model see it. */
#ifndef FW_FIRMWARE_H
#define FW_FIRMWARE_H

#include "hal.h"
#include <tsemu/abi.h>

struct fw;

enum fw_policy { FW_PRIORITY = 0, FW_FIFO = 1, FW_RANK = 2, FW_EDF = 3, FW_FAIR = 4 };

struct fw_class {
    char name[16];
    uint32_t cores;
    uint32_t frequency_mhz;
    uint32_t moves_bytes;
};

struct fw_config {
    uint32_t class_count;
    struct fw_class classes[TSEMU_MAX_CLASSES];
    uint32_t policy;
    uint32_t clock_mode;
    uint32_t max_streams, max_events;
    uint32_t alignment;
    uint64_t poll_cost, wait_limit, ageing;             /* picoseconds */
    uint64_t host_task, host_call;                      /* picoseconds */
    uint64_t fetch, edge, dispatch, retire;             /* cost of the firmware's own work, ps */
};

struct fw_context_config {
    char name[64];
    uint32_t slots, window, sq_entries, cq_entries, batch, stream_limit, edge_nodes;
    uint32_t fair_scale;      /* policy fair: what a unit of work costs this context */
    uint64_t memory_size, sq_offset, cq_offset, status_offset;
    uint64_t host_heap_offset, host_heap_size, host_base;
    uint64_t device_heap_offset, device_heap_size, device_base;
};

enum fw_result { FW_IDLE = 0, FW_UNSETTLED = 1, FW_BUSY = 2, FW_PANIC = 3 };

#define FW_NEVER UINT64_MAX

/* SRAM that the firmware itself and one context need, in bytes. */
uint64_t fw_size(void);
uint64_t fw_context_size(const struct fw_config *config, const struct fw_context_config *context);
/* `arena` is zeroed and 64-byte aligned; contexts are placed behind it at `offset`. */
struct fw *fw_init(void *arena, struct hal *hal, const struct fw_config *config);
/* `offset`: place of the context's part in the arena (zeroed). The memory object is hal->window. */
void fw_context_open(struct fw *fw, uint32_t context, uint64_t offset,
                     const struct fw_context_config *config);
/* Its client is gone: cancel what has not started. */
void fw_context_close(struct fw *fw, uint32_t context);
/* Closed and nothing of it left. Then fw_context_free forgets it. */
bool fw_context_gone(const struct fw *fw, uint32_t context);
void fw_context_free(struct fw *fw, uint32_t context);

/* Run every RTOS task that has something to do at this instant. */
enum fw_result fw_run(struct fw *fw);
/* Earliest deadline of waits and limits that run; FW_NEVER: none. */
uint64_t fw_next_deadline(const struct fw *fw);
/* Publish all completions that are written. */
void fw_publish(struct fw *fw);

/* Only an idle gap is left: start deadlines, carry out control requests that wait behind a stuck
 * entry, end launches that can never go on. */
struct fw_gap {
    bool changed;    /* something was done: run again */
    bool waiting;    /* somebody waits */
};
struct fw_gap fw_idle_gap(struct fw *fw);
/* True when a context's tail, posts or refusal acknowledgement differ from what was last read. */
bool fw_input_changed(const struct fw *fw, uint32_t context);
/* The same for any context. */
bool fw_any_input(const struct fw *fw);
void fw_client(const struct fw *fw, uint32_t context, struct hal_client *client);
/* A blocked launch or a posted wait: the client does not hold the clock. */
bool fw_client_waits(const struct fw *fw, uint32_t context);

struct fw_context_view {
    uint32_t admitted, completed, incomplete, state, waits, published;
};
void fw_context_view(const struct fw *fw, uint32_t context, struct fw_context_view *view);
uint64_t fw_dispatched(const struct fw *fw);

#endif
