/* A job of real processes on this host: a registry, other members that follow a script of the case,
 * and the member that the case plays itself. */
#ifndef MUSTER_TEST_JOB_STAGE_H
#define MUSTER_TEST_JOB_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <muster/strategy.h>

#define JOB_MEMBERS_MAX 8
#define JOB_WAIT_NS     (60 * MUSTER_NS_PER_S) /* of members for each other */

/** The work of one of the other members, in its own process. It returns, or ends the process. */
typedef void job_member_fn(unsigned rank, void *data);

struct job_stage {
    unsigned size;
    pid_t registry;
    int registry_pipe; /* closed: the registry ends */
    char endpoint[64];
    pid_t others[JOB_MEMBERS_MAX]; /* 0: none */
    int reports[2];                /* of the case's own member */
    char told[131072];             /* … as far as they were read */
};

/** A registry, and an environment in which this process is rank `rank` of `size`. No strategy may
 * be open. */
void job_stage_open(struct job_stage *stage, unsigned rank, unsigned size);
/** Starts another member; before the case has a strategy of its own. One more than there are ranks
 * may set RANK itself, and come in the place of one that has died. */
void job_stage_start(struct job_stage *stage, unsigned rank, job_member_fn *body, void *data);
/** The same, and what its launcher is told is what job_stage_told says. */
void job_stage_start_told(struct job_stage *stage, unsigned rank, job_member_fn *body, void *data);
/** Waits for the others: each has returned from its script. */
void job_stage_join(struct job_stage *stage);
/** Waits for one that may be killed: whether it was. */
bool job_stage_join_killed(struct job_stage *stage, unsigned rank);
void job_stage_close(struct job_stage *stage);

/** The lines that the launcher of the case's own member has received; grows. */
const char *job_stage_told(struct job_stage *stage);

/** Fails the case, or ends a member's process: cmocka's own checks work in the case's process only.
 * */
#define JOB_CHECK(condition) job_check((condition), #condition, __FILE__, __LINE__)
void job_check(bool is_true, const char *text, const char *file, int line);

/** A call of the strategy has ended so: with this code, and unless that is OK with an error that has this text. */
#define JOB_RC(strategy, call, rc, text)                                                           \
    job_check_rc((strategy), (call), (rc), (text), __FILE__, __LINE__)
void job_check_rc(const struct muster_strategy *strategy, enum muster_rc rc,
                  enum muster_rc expected, const char *text, const char *file, int line);

/** A strategy with short waits. */
struct muster_strategy *job_strategy_open(void);
/** The same, which must be OK. */
uint64_t job_begin(struct muster_strategy *strategy);
void job_commit(struct muster_strategy *strategy);
/** In place, OK. */
void job_sum(struct muster_strategy *strategy, int64_t *value);

#endif
