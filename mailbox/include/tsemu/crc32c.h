/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, as iSCSI and SCTP use it: RFC 3720).
 *
 * The instruction of the CPU where there is one (SSE4.2, checked at run time; Armv8 CRC), else
 * slicing by eight. Entries are 64 bytes with the CRC in a 32-bit field at a known offset. */
#ifndef TSEMU_CRC32C_H
#define TSEMU_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC of `length` bytes, continuing from `crc` (0 to start). */
uint32_t tsemu_crc32c(uint32_t crc, const void *data, size_t length);

/* CRC of a 64-byte entry whose 32-bit CRC field at `offset` (a multiple of 4) counts as zero.
 * `entry` is 8-byte aligned. Ready after the library is loaded (constructor). */
extern uint32_t (*tsemu_crc32c_entry)(const void *entry, unsigned offset);

#endif
