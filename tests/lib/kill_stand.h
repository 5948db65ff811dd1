/* A process is killed after each single instruction of its work on a region, and the next one goes
 * on in the same memory. The instructions are those of the compiled code: a child works, and is
 * traced step by step. */
#ifndef MUSTER_TEST_KILL_STAND_H
#define MUSTER_TEST_KILL_STAND_H

#include "region_stand.h"

/** Does its work from the memory alone; done again, it changes nothing that was done. */
typedef void kill_work_fn(struct region_stand *stand);

struct kill_counts {
    uint32_t states;          /* different contents that the work has left */
    uint32_t recoveries;      /* of these, recovery had something to mend and was killed, too */
    uint32_t recovery_states; /* different contents that the recoveries have left */
};

/** Wherever the work is killed, and wherever some of the recoveries of its successors are: every row is found,
 * all counts are right, no segment is lost, and after the work is done again the tables are what an
 * undisturbed process makes. Skips the case where processes cannot be traced. */
struct kill_counts kill_everywhere(struct region_stand *stand, kill_work_fn *work);

#endif
