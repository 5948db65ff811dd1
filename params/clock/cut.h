/* Cuts: markers of sources, and what is held back until all of them have marked. Pure. */
#ifndef MUSTER_PARAMS_CUT_H
#define MUSTER_PARAMS_CUT_H

#include <muster/incarnation.h>
#include <muster/list.h>
#include <muster/mem.h>
#include <muster/status.h>

enum muster_params_cut_state {
    MUSTER_PARAMS_CUT_NONE,
    MUSTER_PARAMS_CUT_MARKING,  /* sources are waited for */
    MUSTER_PARAMS_CUT_COMPLETE, /* the state is the cut: save it, then release */
    MUSTER_PARAMS_CUT_ENDED,    /* there is no cut: release */
    MUSTER_PARAMS_CUT_RELEASING,
};

/** A message that is held back. Caller's memory. */
struct muster_params_cut_held {
    struct muster_list node;
};

/** The cuts of one server. */
struct muster_params_cut {
    struct muster_mem *mem;
    enum muster_params_cut_state state;
    uint64_t number; /* of the cut that is made, or was last; they rise */
    uint64_t began_ns, deadline_ns;
    struct muster_list sources;
    struct muster_list held; /* in the order in which they came */
    uint32_t unmarked;       /* sources that are waited for */
};

void muster_params_cut_init(struct muster_params_cut *cut, struct muster_mem *mem);
/** Nothing is held back any more. */
void muster_params_cut_fini(struct muster_params_cut *cut);

/** A source is there. While a cut is made all that it sends is behind the cut.
 * Errors: ALREADY_EXISTS, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_cut_join(struct muster_params_cut *cut,
                                                        const struct muster_incarnation *id);
/** It has closed, or its death is confirmed: nobody waits for its mark. Messages of it that are held stay
 * so: they came behind its mark. */
void muster_params_cut_leave(struct muster_params_cut *cut, const struct muster_incarnation *id);

/** Errors: FAILED_PRECONDITION (another cut is made), INVALID_ARGUMENT (the number is not a new one). */
MUSTER_MUST_CHECK enum muster_rc muster_params_cut_begin(struct muster_params_cut *cut,
                                                         uint64_t number, uint64_t now_ns,
                                                         uint64_t deadline_ns,
                                                         struct muster_error *ret_error);
/** A source has marked. Marks of other cuts, and second ones, are left out. */
void muster_params_cut_mark(struct muster_params_cut *cut, const struct muster_incarnation *id,
                            uint64_t number);
/** Whether messages of this source are held back: it has marked, and the cut is not released yet. */
bool muster_params_cut_must_hold(const struct muster_params_cut *cut,
                                 const struct muster_incarnation *id);
/** Borrows held until muster_params_cut_release gives it. */
void muster_params_cut_hold(struct muster_params_cut *cut, const struct muster_incarnation *id,
                            struct muster_params_cut_held *held);

/** The time has come to this: OK, or DEADLINE_EXCEEDED, naming a source that has not marked: the cut has
 * ended. */
MUSTER_MUST_CHECK enum muster_rc muster_params_cut_expire(struct muster_params_cut *cut,
                                                          uint64_t now_ns,
                                                          struct muster_error *ret_error);
/** End it from outside: another server has ended it, or its files cannot be written. */
void muster_params_cut_abandon(struct muster_params_cut *cut);
/** COMPLETE and saved, or ENDED: the next message that was held back; NULL: that was all, and the next cut
 * may begin. Messages that come meanwhile are held behind the others. */
struct muster_params_cut_held *muster_params_cut_release(struct muster_params_cut *cut);

#endif
