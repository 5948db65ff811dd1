/* One membership machine that is given single events, and a log of what it asks for. Processes have
 * numbers from 1; the members of a view are in rank order. Each is on a host of its own, but 4 on that of
 * 1. */
#ifndef MUSTER_TEST_MEMBER_STAGE_H
#define MUSTER_TEST_MEMBER_STAGE_H

#include "test_env.h"

#include "cluster/membership/membership.h"

#define STAGE_EPOCH    5
#define STAGE_REVISION 50
#define STAGE_STRANGER 9 /* linked, not in the view */
#define STAGE_ABSENT   8 /* never heard of */
#define STAGE_LOG_MAX  400

struct member_stage {
    struct muster_mem_limited mem;
    struct muster_rng_seeded rng;
    struct muster_membership *machine;
    struct muster_membership_actions actions;
    uint64_t now_ns;
    uint64_t cas_id;
    unsigned heartbeats, watches;    /* actions that are not in the log */
    struct muster_view *proposed;    /* last */
    struct muster_control last_sent; /* its pointers are gone */
    /* "freeze commit>1 cas:6(12)@50 ": see member_stage.c */
    char log[STAGE_LOG_MAX];
};

/** The machine of the case that runs. */
extern struct member_stage stage;

/** Where it stands. */
enum member_standing {
    STAGE_FORMING,    /* has seen all records, 1 to 3; no view */
    STAGE_OBSERVER,   /* of view 5, which is of 1 and 3 */
    STAGE_STEADY,     /* a member of view 5, which is of 1, 2 and 3 */
    STAGE_VOTED,      /* asked by 1 (itself 1: by 2) it has frozen and voted */
    STAGE_STALLED,    /* then for too long, and leads by itself */
    STAGE_COLLECTING, /* 3 is dead: waits for the vote of 2 */
    STAGE_PROPOSING,  /* has it */
    STAGE_LEAVING,    /* its record is gone */
    STAGE_GONE,       /* has left */
};

/** options NULL: defaults. The log is empty then. */
void member_stage_open(unsigned self, enum member_standing standing,
                       const struct muster_membership_options *options);
void member_stage_close(void);
/** A case that opens the stage and leaves its closing to cmocka. */
#define STAGE_CASE(name) cmocka_unit_test_teardown(name, member_stage_tear_down)
int member_stage_tear_down(void **state);
/** Fails the case when it stands elsewhere or has asked for something else; empties the log. */
void member_stage_check(const char *name, const char *log, enum muster_membership_state state);
void member_stage_forget(void);

void member_stage_step(struct muster_membership_event event);
#define STAGE_EVENT(kind_, ...)                                                                    \
    (struct muster_membership_event)                                                               \
    {                                                                                              \
        .kind = MUSTER_EVENT_##kind_, __VA_ARGS__                                                  \
    }
/** The timer, after so long. */
void member_stage_tick(uint64_t span_ns);

struct muster_incarnation member_stage_incarnation(unsigned number);
struct muster_member member_stage_member(unsigned number);

struct stage_view {
    uint64_t epoch;
    const char *members; /* their numbers: "123" */
    bool is_other_job, is_other_content;
    bool is_done; /* and its work up to step 0 */
};
#define STAGE_VIEW(epoch_, members_, ...)                                                          \
    {                                                                                              \
        .epoch = (epoch_), .members = (members_), __VA_ARGS__                                      \
    }
/** Gives. */
struct muster_view *member_stage_view(struct stage_view fields);
void member_stage_show_view(struct stage_view fields, uint64_t revision);
/** A record of the process, whose key was made at that revision; fields NULL: as it is made here. */
void member_stage_put(unsigned number, const struct muster_member_record *fields,
                      uint64_t revision);
void member_stage_link(unsigned number);
void member_stage_die(unsigned number);
/** The group stands still; fields NULL: with nothing under way. */
void member_stage_freeze(const struct muster_progress *fields);

void member_stage_say(unsigned from, const struct muster_control *control);
void member_stage_say_freeze(unsigned from);
void member_stage_say_vote(unsigned from, uint64_t epoch);
void member_stage_say_progress(unsigned from, const struct muster_progress *fields,
                               bool is_resigning);
/** A heartbeat of who has the same view. */
void member_stage_say_alive(unsigned from);
void member_stage_answer_swap(enum muster_cas_outcome outcome, uint64_t revision);

#endif
