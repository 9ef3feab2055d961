/* CRC-32C: the CPU's instruction where it has one, slicing by eight elsewhere. */
#include "tsemu/crc32c.h"

#include <string.h>

#define ENTRY_WORDS 8

/* An entry of any type, read by words. */
typedef uint64_t __attribute__((may_alias)) entry_word_t;

static uint32_t table[8][256];

static uint64_t load_word(const unsigned char *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static void make_tables(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
        table[0][n] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t n = 0; n < 256; n++)
            table[k][n] = (table[k - 1][n] >> 8) ^ table[0][table[k - 1][n] & 0xFF];
}

static uint32_t word_by_table(uint32_t crc, uint64_t word)
{
    word ^= crc;
    return table[7][word & 0xFF] ^ table[6][(word >> 8) & 0xFF] ^ table[5][(word >> 16) & 0xFF] ^
           table[4][(word >> 24) & 0xFF] ^ table[3][(word >> 32) & 0xFF] ^
           table[2][(word >> 40) & 0xFF] ^ table[1][(word >> 48) & 0xFF] ^ table[0][word >> 56];
}

/* Word `i` of an entry, with the CRC field cleared: it stands in word `at`, of which the bits
 * `keep` stay. */
static inline uint64_t entry_word(const entry_word_t *entry, unsigned i, unsigned at, uint64_t keep)
{
    return i == at ? entry[i] & keep : entry[i];
}

static inline uint64_t kept_bits(unsigned offset)
{
    return offset % 8 ? 0x00000000FFFFFFFFull : 0xFFFFFFFF00000000ull;
}

static uint32_t entry_by_table(const void *entry, unsigned offset)
{
    const uint64_t keep = kept_bits(offset);
    uint32_t crc = 0xFFFFFFFFu;
    for (unsigned i = 0; i < ENTRY_WORDS; i++)
        crc = word_by_table(crc, entry_word(entry, i, offset / 8, keep));
    return ~crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"), always_inline)) static inline uint32_t
entry_unrolled(const entry_word_t *entry, unsigned at, uint64_t keep)
{
    uint64_t crc = 0xFFFFFFFFu;
#pragma GCC unroll 8
    for (unsigned i = 0; i < ENTRY_WORDS; i++)
        crc = _mm_crc32_u64(crc, entry_word(entry, i, at, keep));
    return ~(uint32_t)crc;
}

/* The words of the CRC fields of SQE and extension, of control message and of CQE each have their
 * straight code. */
__attribute__((target("sse4.2"))) static uint32_t entry_by_instruction(const void *entry,
                                                                       unsigned offset)
{
    const uint64_t keep = kept_bits(offset);
    switch (offset / 8) {
    case 1:
        return entry_unrolled(entry, 1, keep);
    case 2:
        return entry_unrolled(entry, 2, keep);
    case 5:
        return entry_unrolled(entry, 5, keep);
    default:
        return entry_unrolled(entry, offset / 8, keep);
    }
}

__attribute__((target("sse4.2"))) static uint32_t bytes_by_instruction(uint32_t crc,
                                                                       const unsigned char *data,
                                                                       size_t length)
{
    uint64_t wide = crc;
    for (; length >= 8; data += 8, length -= 8)
        wide = _mm_crc32_u64(wide, load_word(data));
    crc = (uint32_t)wide;
    for (; length; data++, length--)
        crc = _mm_crc32_u8(crc, *data);
    return crc;
}

static int has_instruction(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

static uint32_t entry_by_instruction(const void *entry, unsigned offset)
{
    const uint64_t keep = kept_bits(offset);
    uint32_t crc = 0xFFFFFFFFu;
    for (unsigned i = 0; i < ENTRY_WORDS; i++)
        crc = __crc32cd(crc, entry_word(entry, i, offset / 8, keep));
    return ~crc;
}

static uint32_t bytes_by_instruction(uint32_t crc, const unsigned char *data, size_t length)
{
    for (; length >= 8; data += 8, length -= 8)
        crc = __crc32cd(crc, load_word(data));
    for (; length; data++, length--)
        crc = __crc32cb(crc, *data);
    return crc;
}

static int has_instruction(void)
{
    return 1;
}
#else
#define entry_by_instruction entry_by_table
#define bytes_by_instruction bytes_by_table

static int has_instruction(void)
{
    return 0;
}
#endif

static uint32_t bytes_by_table(uint32_t crc, const unsigned char *data, size_t length)
{
    for (; length >= 8; data += 8, length -= 8)
        crc = word_by_table(crc, load_word(data));
    for (; length; data++, length--)
        crc = (crc >> 8) ^ table[0][(crc ^ *data) & 0xFF];
    return crc;
}

static uint32_t (*bytes)(uint32_t, const unsigned char *, size_t) = bytes_by_table;
uint32_t (*tsemu_crc32c_entry)(const void *entry, unsigned offset) = entry_by_table;

__attribute__((constructor)) static void choose(void)
{
    make_tables();
    if (has_instruction()) {
        bytes = bytes_by_instruction;
        tsemu_crc32c_entry = entry_by_instruction;
    }
}

uint32_t tsemu_crc32c(uint32_t crc, const void *data, size_t length)
{
    return ~bytes(~crc, data, length);
}
