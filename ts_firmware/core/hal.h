/* All that the firmware may ask of hardware.
 *
 * The SoC model implements it (`ts_firmware/soc`); a board port would do the same. `struct hal` is
 * the part that is mapped like registers: it is read in place, everything else is a call. */
#ifndef FW_HAL_H
#define FW_HAL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAL_CONTEXTS 64u
#define HAL_CORES 1024u
#define HAL_NO_CORE 0xFFFFu

struct hal {
    uint64_t now;                 /* system timer: virtual time in picoseconds */
    uint8_t *window[HAL_CONTEXTS]; /* memory object of each context: control page first */
};

/* What a core is told to do. Times come from the hardware, not from the firmware. */
struct hal_block {
    uint16_t opcode;              /* enum tsemu_opcode */
    uint16_t context;
    uint32_t block;
    uint32_t cycles, bytes_read, bytes_written;
    uint64_t source;              /* MEMCPY: offset in the context's memory; MEMSET: pattern */
    uint64_t destination;         /* MEMCPY and MEMSET: offset in the context's memory */
    uint64_t length;
};

/* Command registers of an idle core, to be filled before it is started. */
struct hal_block *hal_core_command(struct hal *hal, uint32_t core);
/* Start the commanded block at `start` (not before now); the core raises its interrupt when the
 * block has ended. */
void hal_core_start(struct hal *hal, uint32_t core, uint64_t start);
/* Reset one core: its block ends without effect and without an interrupt. */
void hal_core_reset(struct hal *hal, uint32_t core);
/* Next core whose block has ended, and when it ended; HAL_NO_CORE: none left. */
uint32_t hal_core_next_done(struct hal *hal, uint64_t *ended);
/* Interrupt towards the host of a context. */
void hal_interrupt(struct hal *hal, uint32_t context);
/* Make sure that the firmware runs again at `time`, because work is pending then. */
void hal_wake(struct hal *hal, uint64_t time);
/* False while the client of this context must act before the device may go on (virtual clock in
 * lockstep); always true on silicon. `taken` is what the firmware has taken of its input. */
struct hal_client {
    uint32_t context;
    uint32_t submitted;           /* position behind the last entry taken */
    uint32_t tail;                /* tail as last read */
    uint32_t posts;               /* wait posts as last read */
    uint32_t admitted, completed;
    bool blocked;                 /* the next entry is there and cannot be admitted now */
    bool waits;                   /* a wait is posted and its condition is false */
    bool waits_for_result;        /* one of them is not that of a blocked launch */
    bool mends;                   /* it has to write a refused entry anew, whatever it waits for */
};
enum hal_settled { HAL_UNSETTLED = 0, HAL_SETTLED = 1, HAL_INPUT_AGAIN = 2 };
enum hal_settled hal_client_settled(struct hal *hal, const struct hal_client *client);
/* True once the clock may start: input other than control requests is taken from then on. */
bool hal_clock_started(struct hal *hal);
uint32_t hal_crc32c_entry(const void *entry, uint32_t offset);
void hal_uart_write(struct hal *hal, const char *text, uint32_t length);
/* Firmware found its own state damaged. Does not return to the caller's work: the firmware stops
 * at its next step. */
void hal_panic(struct hal *hal, const char *reason);

#endif
