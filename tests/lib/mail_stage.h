/* Members of a ring that send each other messages: for tests. */
#ifndef MUSTER_TEST_MAIL_STAGE_H
#define MUSTER_TEST_MAIL_STAGE_H

#include "group_ring.h"

#include <muster/collective.h>

#define MAIL_ELEMENTS  1000u
#define MAIL_MAX       600u
#define MAIL_TURNS_MAX 6000u

/** One send or receive. */
struct mail {
    struct muster_op op;
    int32_t *values; /* MAIL_ELEMENTS, of the ring; mapped by the others when it has boards */
    unsigned done_count;
    enum muster_rc rc;
};

extern struct group_ring mail_ring;
extern struct mail mails[MAIL_MAX];

/** With boards: the members have agreed on them when it returns. */
void mail_open(uint32_t n);
void mail_open_plan(uint32_t n, const struct muster_plan_parameters *plan);
void mail_close(void);
/** The same, if it is open still. */
#define MAIL_CASE(name) GROUP_RING_CASE(name)

/** The callback of all: op->data is a mail. */
muster_op_fn mail_done;
/** The member's memory for it: first, first + 1, …, or zeroes (first 0). */
struct muster_tensor mail_prepare(struct mail *mail, uint32_t member, uint64_t count, int32_t first,
                                  uint32_t lane);
void mail_send(struct mail *mail, uint32_t from, uint32_t to, uint64_t count, int32_t first,
               uint32_t lane);
void mail_receive(struct mail *mail, uint32_t to, uint32_t from, uint64_t count, uint32_t lane);

/** Until it has ended; with OK; with rc and a text. */
void mail_run(struct mail *mail);
void mail_run_ok(struct mail *mail);
void mail_assert_ended(struct mail *mail, enum muster_rc rc, const char *text);
void mail_check_values(const struct mail *mail, uint64_t count, int32_t first);
/** Both ways between members 0 and 1, in lane 9: nothing of what was is in the way. */
void mail_check_next(uint32_t rank_of_1);

#endif
