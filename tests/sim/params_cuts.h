/* Cuts of a play: a client asks for them amid pushes, and each that ends well must have of every source all
 * pushes up to one of them. */
#ifndef MUSTER_SIM_PARAMS_CUTS_H
#define MUSTER_SIM_PARAMS_CUTS_H

#include "tests/sim/params_cast.h"
#include "tests/sim/params_stage.h"

#define PARAMS_CUTS_MAX    16u
#define PARAMS_CUTS_FOLDER "/cuts"

/* A push of a source, in the order of its starts. */
struct params_push {
    uint8_t rows[PARAMS_ROWS]; /* how often it has each */
    bool is_answered;
    uint64_t clock; /* the step of its source */
};

struct params_push_log {
    struct params_push *pushes;
    size_t count, room;
};

/* A cut, as its files say. */
struct params_cut {
    uint64_t clock; /* it has the steps before this one; 0: not between steps */
    uint64_t rows[PARAMS_ROWS][PARAMS_SOURCES_MAX];
};

struct params_cuts {
    struct params_cast *cast;
    struct params_push_log logs[PARAMS_SOURCES_MAX];
    struct params_cut cuts[PARAMS_CUTS_MAX];
    uint32_t count;     /* that have ended well */
    uint32_t try_count; /* that have begun */
    /* The one that is under way. */
    struct muster_params_op op;
    struct muster_params_cut cut;
    const struct params_life *life;
    bool is_busy;
    uint64_t clock;
    uint64_t least[PARAMS_ROWS][PARAMS_SOURCES_MAX]; /* answered before it began */
};

/** The client asks for a cut, unless one is under way. In its turn. */
void params_cuts_begin(struct params_cuts *cuts, struct params_client *client);
/** A push has been started; returns its number. */
size_t params_cuts_push(struct params_cuts *cuts, const struct params_slot *slot);
void params_cuts_pushed(struct params_cuts *cuts, const struct params_slot *slot);
/** At rest: each cut has of every source all pushes up to one of them. */
void params_cuts_check(struct params_cuts *cuts);
/** The rows of the servers are those of the cut in the folder, which is a cut of the play. */
void params_cuts_compare(struct params_cuts *cuts, struct params_stage *stage);
void params_cuts_close(struct params_cuts *cuts);

#endif
