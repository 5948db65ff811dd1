/* The jobs in a registry, mirrored by a watch: waiting, taken under a lease, done. Any number of
 * servers share them. */
#ifndef EXAMPLE_JOB_STORE_H
#define EXAMPLE_JOB_STORE_H

#include <muster/muster.h>

enum job_state { JOB_WAITING, JOB_TAKEN, JOB_DONE };

struct job {
    struct muster_list node;
    enum job_state state;
    bool is_claiming;            /* this server is asking for it, or has it for a worker */
    bool is_removed;             /* not in the registry any more; goes once nobody claims it */
    int64_t lease;               /* TAKEN: whose */
    struct muster_bytes content; /* the payload; DONE: the result */
    char id[];
};

struct job_store;
struct job_op;
/** is_applied: the registry did it. False with OK: somebody was faster. */
typedef void job_op_fn(struct job_op *op, enum muster_rc rc, bool is_applied);
struct job_op {
    void *data;
    job_op_fn *done;
    struct muster_registry_op op;
    char keys[3][200];
    /* of job_store_give_back */
    struct job_store *store;
    struct muster_timer again;
    struct muster_list node;
};

struct job_store {
    struct muster_env *env;
    struct muster_registry *registry;
    struct muster_session session;
    bool has_session, is_closing;
    bool is_ranging, is_session_busy; /* opening or closing */
    struct muster_list jobs;          /* the oldest first */
    struct muster_registry_op range;
    struct muster_registry_watch watch;
    struct muster_timer again;     /* after a failure */
    struct muster_list give_backs; /* that failed and are repeated soon */
    /* the owner's */
    void *data;
    void (*on_change)(struct job_store *store); /* there may be work */
    void (*on_done)(struct job_store *store, const struct job *job);
    void (*on_session_lost)(struct job_store *store); /* what was taken belongs to others now */
    void (*on_closed)(struct job_store *store);
};

/** Caller sets data and callbacks. False: said on stderr. */
bool job_store_open(struct job_store *store, struct muster_env *env, const char *endpoints);
void job_store_close(struct job_store *store);
struct job *job_store_find(struct job_store *store, const char *id);
/** The oldest that waits and nobody here asks for; NULL: none, or no session. */
struct job *job_store_next(struct job_store *store);
/** It is no longer asked for, or held, here. */
void job_store_unclaim(struct job_store *store, const char *id);
size_t job_store_count(const struct job_store *store, enum job_state state);

/* Caller's memory; done runs exactly once, later. */
enum muster_rc job_store_submit(struct job_store *store, struct job_op *op, const char *id,
                                struct muster_bytes payload, job_op_fn *done);
enum muster_rc job_store_take(struct job_store *store, struct job_op *op, struct job *job,
                              job_op_fn *done);
enum muster_rc job_store_finish(struct job_store *store, struct job_op *op, const char *id,
                                struct muster_bytes result, job_op_fn *done);
/** Repeated until the registry has heard it, or the store is closed, which gives all back. */
void job_store_give_back(struct job_store *store, struct job_op *op, const char *id,
                         job_op_fn *done);
enum muster_rc job_store_forget(struct job_store *store, struct job_op *op, const char *id,
                                job_op_fn *done);

#endif
