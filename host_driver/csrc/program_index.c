/* The rare part of a program's index: tasks that have been outstanding for long, and failures. */
#include "program.h"

#include <stdlib.h>

static void sweep_old(driver_program *p)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->old_count; i++)
        if (p->old[i].slot != TSEMU_NO_SLOT)
            p->old[kept++] = p->old[i];
    p->old_count = kept;
}

void program_add_old(driver_program *p, uint32_t index, uint16_t slot)
{
    if (p->old_count == p->old_capacity)
        sweep_old(p); /* never full of live ones: the capacity is twice the number of slots */
    p->old[p->old_count++] = (struct old_task){index, slot};
    p->old_live++;
}

struct old_task *program_find_old(driver_program *p, uint32_t index)
{
    uint32_t age = (uint32_t)p->next - index, low = 0, high = p->old_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint32_t its_age = (uint32_t)p->next - p->old[middle].index;
        if (its_age == age)
            return &p->old[middle];
        if (its_age > age)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static uint32_t hash(uint64_t key, uint32_t capacity)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15ull) >> 32) & (capacity - 1u);
}

static bool grow_failed(driver_program *p)
{
    uint32_t capacity = p->failed_capacity ? 2 * p->failed_capacity : 64;
    struct failed_task *table = calloc(capacity, sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 0; i < p->failed_capacity; i++) {
        if (!p->failed[i].key)
            continue;
        uint32_t at = hash(p->failed[i].key, capacity);
        while (table[at].key)
            at = (at + 1) & (capacity - 1u);
        table[at] = p->failed[i];
    }
    free(p->failed);
    p->failed = table;
    p->failed_capacity = capacity;
    return true;
}

const struct failed_task *program_find_failed(const driver_program *p, uint64_t index)
{
    if (!p->failed_count)
        return NULL;
    uint32_t at = hash(index + 1, p->failed_capacity);
    for (; p->failed[at].key; at = (at + 1) & (p->failed_capacity - 1u))
        if (p->failed[at].key == index + 1)
            return &p->failed[at];
    return NULL;
}

void program_add_failed(driver_program *p, uint32_t index, const struct tsemu_cqe *cqe)
{
    uint64_t key = p->next - (uint64_t)((uint32_t)p->next - index) + 1;
    if (2 * p->failed_count >= p->failed_capacity && !grow_failed(p)) {
        p->short_of_memory = true; /* the next feed or finish says so */
        return;
    }
    uint32_t at = hash(key, p->failed_capacity);
    while (p->failed[at].key)
        at = (at + 1) & (p->failed_capacity - 1u);
    p->failed[at] = (struct failed_task){
        key, {p->c->consumed, cqe->ancestor, cqe->ancestor_context}};
    p->failed_count++;
    p->counts.failed++;
}
