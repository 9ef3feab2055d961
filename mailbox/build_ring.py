"""Builder of `tsemu.mailbox._ring`: the ring header and the CRC for Python (tools and tests).

The C code here only forwards to `ring.h` and `crc32c.h`, so a test drives the same stores and
loads as driver and firmware do.
"""

from cffi import FFI

CDEF = """
uint32_t ring_push(void *ring, uint32_t entries, uint32_t *tail, const uint32_t *head,
                   const void *bodies, uint32_t count);
uint32_t ring_pop(const void *ring, uint32_t entries, const uint32_t *tail, uint32_t *head,
                  void *bodies, uint32_t count);
uint32_t ring_load(const uint32_t *word);
void ring_store(uint32_t *word, uint32_t value);
void ring_fence(void);
uint32_t ring_phase(uint32_t position, uint32_t entries);
uint32_t ring_crc(uint32_t crc, const void *data, size_t length);
uint32_t ring_entry_crc(const void *entry, unsigned offset);
"""

SOURCE = """
#include <tsemu/crc32c.h>
#include <tsemu/ring.h>

/* Copies at most as many entries as there is room for, then publishes them with one store. */
static uint32_t ring_push(void *ring, uint32_t entries, uint32_t *tail, const uint32_t *head,
                          const void *bodies, uint32_t count)
{
    uint32_t position = tsemu_load_relaxed(tail);
    uint32_t room = tsemu_ring_room(tsemu_load_acquire(head), position, entries);
    if (count > room)
        count = room;
    for (uint32_t i = 0; i < count; i++)
        tsemu_entry_copy((char *)ring + 64u * tsemu_ring_index(position + i, entries),
                         (const char *)bodies + 64u * i);
    tsemu_store_release(tail, position + count);
    return count;
}

static uint32_t ring_pop(const void *ring, uint32_t entries, const uint32_t *tail, uint32_t *head,
                         void *bodies, uint32_t count)
{
    uint32_t position = tsemu_load_relaxed(head);
    uint32_t held = tsemu_load_acquire(tail) - position;
    if (count > held)
        count = held;
    for (uint32_t i = 0; i < count; i++)
        tsemu_entry_copy((char *)bodies + 64u * i,
                         (const char *)ring + 64u * tsemu_ring_index(position + i, entries));
    tsemu_store_release(head, position + count);
    return count;
}

static uint32_t ring_load(const uint32_t *word)
{
    return tsemu_load_acquire(word);
}

static void ring_store(uint32_t *word, uint32_t value)
{
    tsemu_store_release(word, value);
}

static void ring_fence(void)
{
    tsemu_ring_fence();
}

static uint32_t ring_phase(uint32_t position, uint32_t entries)
{
    return tsemu_ring_phase(position, entries);
}

static uint32_t ring_crc(uint32_t crc, const void *data, size_t length)
{
    return tsemu_crc32c(crc, data, length);
}

static uint32_t ring_entry_crc(const void *entry, unsigned offset)
{
    return tsemu_crc32c_entry(entry, offset);
}
"""

SOURCES = ["mailbox/csrc/crc32c.c"]
"""C files that are compiled into the module, relative to the repository's root."""
INCLUDE = ["mailbox/include"]

ffibuilder = FFI()
ffibuilder.cdef(CDEF)
ffibuilder.set_source("tsemu.mailbox._ring", SOURCE)
