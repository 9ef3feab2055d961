/* What must hold whatever the device was asked to do. */
#ifndef ORACLE_H
#define ORACLE_H

#include "client.h"

/* A stretch of time in which a core was seen to be busy. */
struct busy {
    uint32_t core, ticket;
    uint64_t start, end;
};

/* Judge all completions and answers of a client; appends to `busy`. */
void oracle_client(const struct client *client, struct busy *busy, uint32_t *count);
/* No core runs two blocks at once. */
void oracle_cores(struct busy *busy, uint32_t count);
/* The firmware has everything back. */
void oracle_baseline(const struct client *client);

#endif
