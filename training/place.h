/* The task of this process, and the number of tasks that train together. */
#ifndef MUSTER_TRAINING_PLACE_H
#define MUSTER_TRAINING_PLACE_H

#include <muster/address.h>
#include <muster/env.h>
#include <muster/view.h>

struct muster_replica_place {
    char task_type[MUSTER_JOB_NAME_BYTES]; /* "worker" */
    uint32_t task_index;
    uint32_t expected_count; /* tasks that train together */
    const char *
        chief_job; /* the job of the one that is no worker: "chief" or "master"; NULL: all are workers */
    bool is_sparse; /* their indices have gaps */
    char address[MUSTER_HOST_TEXT_BYTES +
                 8];        /* of this task, as the resolver tells it; "": it does not */
    bool is_sole;           /* no other task has the same address */
    bool is_alone;          /* an evaluator, or nothing describes a cluster: it needs no registry */
    bool is_local;          /* nothing describes a cluster: the task is nobody's word */
    bool is_chief;          /* see muster_strategy_role_is_chief */
    uint32_t id_in_cluster; /* among those that train together */
};

/** The only task of a cluster that nobody has described: worker 0, and the chief. */
void muster_replica_place_be_alone(struct muster_replica_place *ret_place);

/**
 * Ask the resolver (URI, may be NULL), else the one that MUSTER_RESOLVER names, else TF_CONFIG, else
 * RANK and WORLD_SIZE, else auto:. Turns env's loop until the answer is there; opens an HTTP client
 * for that time where env has none. may_be_alone (no registry is named either): where nothing describes
 * a cluster, and where TF_CONFIG describes an empty one, this process is alone.
 *
 * Errors: INVALID_ARGUMENT (also a task that does not train, or a cluster against the rules of
 * muster_strategy_role), NOT_FOUND (task outside the cluster), FAILED_PRECONDITION (nothing says
 * it); the text names the culprit and the remedy.
 */
MUSTER_MUST_CHECK enum muster_rc muster_replica_place_find(struct muster_env *env,
                                                           const char *resolver, bool may_be_alone,
                                                           struct muster_replica_place *ret_place,
                                                           struct muster_error *ret_error);

struct muster_resolver;
/** The same of an open resolver, on its own loop, which is turned. */
MUSTER_MUST_CHECK enum muster_rc muster_replica_place_ask(struct muster_resolver *resolver,
                                                          bool may_be_alone,
                                                          struct muster_replica_place *ret_place,
                                                          struct muster_error *ret_error);

struct muster_cluster_spec;
/** How many tasks train together: the world size where the resolver knows it, else the chief,
 * master and worker tasks of its cluster. 0: not known. */
uint32_t muster_replica_place_count(struct muster_resolver *resolver,
                                    const struct muster_cluster_spec *spec);

#endif
