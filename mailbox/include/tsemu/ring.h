/* Rings in shared memory: order of loads and stores, positions, phase bits.
 *
 * The one implementation of the ring for host and device. Positions are free-running 32-bit
 * counters, so all entries of a ring are usable; a ring has a power of two of entries. To publish:
 * write the bodies, then store the tail with release order, then look at the peer's sleep flag
 * (`tsemu_ring_fence` in between) and ring its doorbell if it is set. */
#ifndef TSEMU_RING_H
#define TSEMU_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static inline uint32_t tsemu_load_acquire(const uint32_t *word)
{
    return atomic_load_explicit((const _Atomic uint32_t *)word, memory_order_acquire);
}

static inline uint32_t tsemu_load_relaxed(const uint32_t *word)
{
    return atomic_load_explicit((const _Atomic uint32_t *)word, memory_order_relaxed);
}

static inline void tsemu_store_release(uint32_t *word, uint32_t value)
{
    atomic_store_explicit((_Atomic uint32_t *)word, value, memory_order_release);
}

static inline void tsemu_store_relaxed(uint32_t *word, uint32_t value)
{
    atomic_store_explicit((_Atomic uint32_t *)word, value, memory_order_relaxed);
}

/* Full fence between a store that the peer must see and the load of the peer's sleep flag. */
static inline void tsemu_ring_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* True when position a is after position b; both free-running, less than 2^31 apart. */
static inline bool tsemu_after(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

/* True when position a is at or after position b. */
static inline bool tsemu_reached(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) >= 0;
}

/* Phase bit that an entry written at `position` carries: 1 in the first lap, then alternating,
 * so that neither zeroed memory nor an entry of the lap before looks current. */
static inline uint32_t tsemu_ring_phase(uint32_t position, uint32_t entries)
{
    return (position & entries) == 0u;
}

static inline uint32_t tsemu_ring_index(uint32_t position, uint32_t entries)
{
    return position & (entries - 1u);
}

/* Entries that may still be written: `head` is the consumer's position, `tail` the producer's. */
static inline uint32_t tsemu_ring_room(uint32_t head, uint32_t tail, uint32_t entries)
{
    return entries - (tail - head);
}

/* Copy one 64-byte entry, whatever its type. */
static inline void tsemu_entry_copy(void *to, const void *from)
{
    __builtin_memcpy(to, from, 64);
}

#endif
