/* The place of this launcher in its job. */
#ifndef MUSTER_RUN_CLAIM_H
#define MUSTER_RUN_CLAIM_H

#include <stdbool.h>

struct run;

/** Nothing with an embedded registry. Turns the loop until the place is taken; tells what it waits
 * for. False: another launcher has it, or another idea of the job (record.h), and lives:
 * told, *ret_exit. */
bool run_claim_take(struct run *run, int *ret_exit);
/** The place is this launcher's now; not while the registry is away. */
bool run_claim_is_held(const struct run *run);
/** Give it back; turns the loop for a moment. */
void run_claim_close(struct run *run);

/** The launcher that has the place now says that the members which a former one had started there
 * are dead, where they are: they end with their launcher. With --force-new: all members of the last
 * view that are not registered; false where some are, told, *ret_exit. Looks again until none is
 * left. */
bool run_former_confirm(struct run *run, int *ret_exit);
void run_former_close(struct run *run);

#endif
