/* Random numbers that depend on the seed only (splitmix64). */
#ifndef SEEDED_H
#define SEEDED_H

#include <stdbool.h>
#include <stdint.h>

struct seeded {
    uint64_t state;
};

static inline uint64_t seeded_next(struct seeded *random)
{
    uint64_t z = random->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* 0 to n - 1. */
static inline uint32_t seeded_below(struct seeded *random, uint32_t n)
{
    return (uint32_t)(seeded_next(random) % n);
}

static inline uint32_t seeded_between(struct seeded *random, uint32_t low, uint32_t high)
{
    return low + seeded_below(random, high - low + 1u);
}

/* True in `percent` of a hundred cases. */
static inline bool seeded_chance(struct seeded *random, uint32_t percent)
{
    return seeded_below(random, 100) < percent;
}

#endif
