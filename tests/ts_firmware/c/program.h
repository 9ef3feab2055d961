/* Random work for a client: tasks, waits and control requests. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "client.h"

/* Write up to `most` tasks and publish them. */
void program_submit(struct client *client, uint32_t most);
void program_wait(struct client *client);
void program_control(struct client *client);
/* Say which position a launch that finds no room is blocked on. */
void program_pipe(struct client *client);

#endif
