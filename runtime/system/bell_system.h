/* Threads that wait until another one has changed what all of them see. */
#ifndef MUSTER_RUNTIME_BELL_SYSTEM_H
#define MUSTER_RUNTIME_BELL_SYSTEM_H

#include <stdbool.h>

#include <muster/mem.h>
#include <muster/status.h>

struct muster_bell;

/** Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_bell_open(struct muster_mem *mem,
                                                  struct muster_bell **ret_bell);
/** Nobody waits. NULL is accepted. */
void muster_bell_close(struct muster_bell *bell);

/** Those that wait look again. Call it after the change. In any thread. */
void muster_bell_ring(struct muster_bell *bell);
/** Blocks until is_done(data), which is called now and after each ring; by one thread at a time. */
void muster_bell_await(struct muster_bell *bell, bool (*is_done)(void *data), void *data);

#endif
