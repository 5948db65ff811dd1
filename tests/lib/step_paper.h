/* Plans of steps on paper: n members that send and add sets of contributors, in several orders of
 * events, without sockets or tensors. */
#ifndef MUSTER_TEST_STEP_PAPER_H
#define MUSTER_TEST_STEP_PAPER_H

#include "collective/plan/steps.h"

#define PAPER_MEMBERS_MAX  17
#define PAPER_LINE         16u /* elements of a cache line; they have 4 bytes here */
#define PAPER_MESSAGES_MAX 8u

/* A message on its way, or arrived and not used yet. */
struct paper_message {
    uint32_t *sets; /* by element: bit per contributor; NULL: not sent, or used */
    uint64_t first, count;
};

struct paper_member {
    struct muster_plan plan;
    struct muster_step *steps; /* of all chunks */
    uint32_t *begin;           /* by chunk, and one more: its steps */
    uint32_t *cursor;          /* by chunk: the step that is next */
    bool *has_run;             /* by step */
    uint32_t *work;            /* by element */
    uint64_t sent, staged, staged_max;
    uint64_t messages_sent;
};

struct paper {
    uint32_t n;
    uint64_t count;
    struct muster_topology topology;
    struct paper_member members[PAPER_MEMBERS_MAX];
    struct paper_message *messages; /* by (from, to, chunk, number) */
    uint32_t chunk_count;
    unsigned random;
};

/** per_host members on each host, but for the last; 1: every member alone. Fails the case when a
 * plan breaks a rule. */
void paper_open(struct paper *paper, struct muster_mem *mem, const struct muster_plan_input *input,
                uint32_t per_host);
void paper_close(struct paper *paper, struct muster_mem *mem);

/** Members take turns until none can move; `lazy` (if it is a member) moves only when nobody else
 * can. */
void paper_run(struct paper *paper, unsigned seed, uint32_t lazy);

/** First chunk that this member has not finished. */
uint32_t paper_unfinished(const struct paper_member *member, uint32_t chunk_count);

/** Element i before anything has happened. */
uint32_t paper_input_at(const struct paper *paper, const struct paper_member *member, uint64_t i);

#endif
