/* A resolver finds the cluster: who runs it differs by platform, what can be asked does not. */
#ifndef MUSTER_RESOLVER_H
#define MUSTER_RESOLVER_H

#include <muster/base.h>
#include <muster/cluster_spec.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_resolver;
struct muster_resolve;

typedef void muster_resolve_fn(struct muster_resolve *resolve, enum muster_rc rc);
typedef void muster_resolver_close_fn(struct muster_resolver *resolver);

#define MUSTER_ACCELERATOR_KINDS_MAX       16
#define MUSTER_ACCELERATOR_KIND_TEXT_BYTES 32

/** How many accelerators there are of each kind ("GPU": 4). */
struct muster_accelerators {
    size_t kind_count;
    struct {
        char kind[MUSTER_ACCELERATOR_KIND_TEXT_BYTES];
        int64_t count;
    } kinds[MUSTER_ACCELERATOR_KINDS_MAX];
};

/** Facts that a resolver can report; each of them has a source (muster_resolver_source). */
enum muster_fact {
    MUSTER_FACT_CLUSTER_SPEC,
    MUSTER_FACT_MASTER,
    MUSTER_FACT_TASK_TYPE,
    MUSTER_FACT_TASK_ID,
    MUSTER_FACT_RPC_LAYER,
    MUSTER_FACT_NUM_ACCELERATORS,
    MUSTER_FACT_WORLD_SIZE,
};

enum muster_resolve_what {
    MUSTER_RESOLVE_CLUSTER_SPEC,
    MUSTER_RESOLVE_MASTER,
    MUSTER_RESOLVE_NUM_ACCELERATORS,
};

/** A task that is asked for; what is not set is taken from the resolver. */
struct muster_task_query {
    const char *task_type; /* NULL: not set */
    const char *rpc_layer; /* NULL: not set */
    bool has_task_id;
    int64_t task_id;
};

/** One question to a resolver. Caller's memory, borrowed from start to done. */
struct muster_resolve {
    void *data;
    /* set before start */
    enum muster_resolve_what what;
    struct muster_task_query query; /* MASTER, NUM_ACCELERATORS; texts are borrowed until done */
    uint64_t deadline_ns;           /* absolute loop time; required */
    /* valid in done */
    struct muster_cluster_spec *cluster_spec; /* CLUSTER_SPEC: gives a reference */
    char *master;                             /* MASTER: gives, from env->mem; "" = local */
    struct muster_accelerators accelerators;  /* NUM_ACCELERATORS */
    struct muster_error error;                /* names the source and the remedy */
    /* private */
    muster_resolve_fn *done;
    struct muster_resolver *resolver;
    struct muster_list node;
    struct muster_task task;
    struct muster_timer timer;
    bool is_expired;
    bool is_finished;
    enum muster_rc rc;
    void *impl;
};

/** The names of the devices that the runtime lists ("/job:worker/replica:0/task:1/device:GPU:0");
 * the array is borrowed until the next call. */
typedef void muster_device_list_fn(void *data, const char *const **ret_names, size_t *ret_count);

/** Options that apply to any resolver. All zero: the defaults. */
struct muster_resolver_options {
    const char *task_type; /* NULL: what the platform says */
    const char *rpc_layer; /* NULL: what the platform says */
    bool has_task_id;
    int64_t task_id;
    const char *environment;             /* NULL: the resolver's default */
    muster_device_list_fn *list_devices; /* NULL: the GPUs of this machine, for its own task */
    void *list_devices_data;
};

#define MUSTER_RESOLVER_REASON_BYTES 200

/** Functions that a kind of resolver provides. The text properties give memory of env->mem, or NULL
 * for "none". */
struct muster_resolver_ops {
    const char *name; /* "tf_config" */
    /** Called by muster_resolve_start; ends in muster_resolve_finish, now or later. */
    void (*start)(struct muster_resolver *resolver, struct muster_resolve *resolve);
    /** Give up the work on resolve: its muster_resolve_finish comes soon. NULL when start finishes
     * at once. */
    void (*cancel)(struct muster_resolver *resolver, struct muster_resolve *resolve);
    enum muster_rc (*task_type)(struct muster_resolver *resolver, char **ret_text,
                                struct muster_error *ret_error);
    enum muster_rc (*task_id)(struct muster_resolver *resolver, bool *ret_is_set, int64_t *ret_id,
                              struct muster_error *ret_error);
    enum muster_rc (*rpc_layer)(struct muster_resolver *resolver, char **ret_text,
                                struct muster_error *ret_error);
    /** How many tasks there are, where that is known without their addresses. NULL: never. */
    enum muster_rc (*world_size)(struct muster_resolver *resolver, bool *ret_is_set,
                                 uint32_t *ret_size, struct muster_error *ret_error);
    /** "SLURM_STEP_NODELIST": where the last answer to this came from; borrowed until the next
     * question. NULL: the platform as a whole. */
    const char *(*source)(struct muster_resolver *resolver, enum muster_fact fact);
    /** A first watch has come, or the last one has left: who can hear of changes begins, or ends,
     * and calls muster_resolver_changed. NULL: watches ask at their interval. */
    void (*watched)(struct muster_resolver *resolver, bool is_watched);
    /** Nothing is pending: close what takes time, then call muster_resolver_stopped. NULL: nothing
     * takes time. */
    void (*stop)(struct muster_resolver *resolver);
    void (*close)(struct muster_resolver *resolver); /* nothing is pending; frees the resolver */
    uint64_t watch_interval_ns;    /* between two questions of a watch that does not say; 0: 10 s */
    const char *default_rpc_layer; /* where the platform has none to say; NULL: none */
    bool has_default_task_id;      /* the platform does not tell the task's id: 0 */
    bool is_task_type_fixed;       /* set_task_type is refused */
    bool is_empty_unset;           /* an override that is "" counts as none */
};

/** Embed as the first field of a resolver. The overrides win over what the platform says. */
struct muster_resolver {
    void *data; /* of the user */
    /* private */
    const struct muster_resolver_ops *ops;
    struct muster_env *env;
    char *task_type;   /* override, or NULL */
    char *rpc_layer;   /* override, or NULL */
    char *environment; /* or NULL */
    bool has_task_id;
    bool is_task_id_default;   /* task_id is the one of ops->has_default_task_id */
    bool is_rpc_layer_default; /* rpc_layer is ops->default_rpc_layer */
    bool is_closed;
    bool is_stopped; /* what took time is closed */
    int64_t task_id; /* override */
    muster_device_list_fn *list_devices;
    void *list_devices_data;
    struct muster_list pending; /* of muster_resolve */
    struct muster_list watches; /* of muster_resolver_watch */
    char reason[MUSTER_RESOLVER_REASON_BYTES];
    struct muster_task close_task;
    muster_resolver_close_fn *closed;
};

/* Opening. */

/**
 * A resolver by scheme, with its options after the colon: "static:worker=a:1,b:1;ps=c:1",
 * "tf_config:", "slurm:port_base=8888&gpus_per_task=1" (docs/resolvers.md lists them all); "auto:"
 * takes the first platform that left its mark in the environment.
 *
 * Owns:    gives; borrows env, and options during the call.
 * Errors:  INVALID_ARGUMENT names the scheme and those that exist; NOT_FOUND: auto found no mark.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_open(
    struct muster_env *env, const char *uri, const struct muster_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/** Whether there is a resolver of this scheme; what is after the colon is not looked at.
 * INVALID_ARGUMENT names those that exist. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_uri_check(
    const char *uri, struct muster_error *ret_error);

/**
 * How a user names the task of this process to a resolver that does not know it, for error texts: "as
 * in static:worker=a:1?task_type=worker&task_id=0"; of a long URI only what belongs after it. The
 * task named is the first of spec that trains (chief, master or worker), else the first of all.
 *
 * Units:   bytes: the size of ret_text; 220 have room for every such text but of the longest names.
 */
MUSTER_API char *muster_resolver_task_remedy(const char *uri,
                                             const struct muster_cluster_spec *spec, size_t bytes,
                                             char *ret_text);

/** A fixed cluster (TensorFlow's SimpleClusterResolver). */
struct muster_static_resolver_options {
    struct muster_resolver_options common;    /* common.environment NULL: none */
    struct muster_cluster_spec *cluster_spec; /* shares; required */
    const char *master;                       /* "" is local; required */
    struct muster_accelerators accelerators;  /* answered to every question */
};
/** Gives. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_static_resolver_open(
    struct muster_env *env, const struct muster_static_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/** The variable TF_CONFIG, read anew at each question (TensorFlow's TFConfigClusterResolver).
 * Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tf_config_resolver_open(
    struct muster_env *env, const struct muster_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/** Completes open questions with CANCELLED, then calls closed (may be NULL) last; the resolver is
 * freed after it. Watches are closed before. */
MUSTER_API void muster_resolver_close(struct muster_resolver *resolver,
                                      muster_resolver_close_fn *closed);

/* Asking. */

/**
 * Ask the platform, each time anew: clusters change.
 *
 * MASTER: the address of the task as a URL, "rpc_layer://host:port". NUM_ACCELERATORS: of the task,
 * when its type and id are known, else of all.
 *
 * Owns:    borrows resolve until done.
 * Errors:  returned FAILED_PRECONDITION (closed); by done INVALID_ARGUMENT (the platform's data
 *          are malformed), NOT_FOUND (job or task unknown), UNAVAILABLE, DEADLINE_EXCEEDED,
 *          CANCELLED.
 * Thread:  loop only; done never runs inside this call.
 * Source:  tf.distribute.cluster_resolver.ClusterResolver.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolve_start(struct muster_resolve *resolve,
                                                                 struct muster_resolver *resolver,
                                                                 muster_resolve_fn *done);
/** Idempotent; done still comes, with CANCELLED unless it had already won. */
MUSTER_API void muster_resolve_cancel(struct muster_resolve *resolve);

/** "tf_config", "static". Static text. */
MUSTER_API const char *muster_resolver_name(const struct muster_resolver *resolver);
/** Why this resolver was taken: "auto: SLURM_PROCID is set", or "named by the caller". Borrowed. */
MUSTER_API const char *muster_resolver_reason(const struct muster_resolver *resolver);
/** Where the last answer about `fact` came from: "SLURM_STEP_NODELIST", "set by the caller". For
 * people. Borrowed until the next question. */
MUSTER_API const char *muster_resolver_source(struct muster_resolver *resolver,
                                              enum muster_fact fact);
/** How many tasks there are in all, known even where their addresses are not (RANK and WORLD_SIZE
 * …); *ret_is_set false: count those of the cluster. Errors: INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_world_size(
    struct muster_resolver *resolver, bool *ret_is_set, uint32_t *ret_size,
    struct muster_error *ret_error);
/** *ret_text is NULL for "none". Gives, from env->mem. Errors: INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_task_type(
    struct muster_resolver *resolver, char **ret_text, struct muster_error *ret_error);
/** *ret_is_set is false for "none". Errors: INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_task_id(
    struct muster_resolver *resolver, bool *ret_is_set, int64_t *ret_id,
    struct muster_error *ret_error);
/** As muster_resolver_task_type. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_rpc_layer(
    struct muster_resolver *resolver, char **ret_text, struct muster_error *ret_error);
/** Borrowed; NULL for "none". */
MUSTER_API const char *muster_resolver_environment(const struct muster_resolver *resolver);

/** Override what the platform says; NULL takes the override back. Where the platform has none to
 * say, NULL is "none": the task id of GCE and TPU, the rpc_layer of Slurm, Kubernetes, GCE and TPU
 * VMs. Copies. Errors: RESOURCE_EXHAUSTED; FAILED_PRECONDITION: the task type is fixed at open
 * (GCE). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_set_task_type(
    struct muster_resolver *resolver, const char *task_type);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_set_rpc_layer(
    struct muster_resolver *resolver, const char *rpc_layer);
MUSTER_API void muster_resolver_set_task_id(struct muster_resolver *resolver, bool is_set,
                                            int64_t task_id);

/* For those who provide a resolver. */

/** Answer resolve once, from its start or later: done runs in the next turn. Results and error are
 * set before. */
MUSTER_API void muster_resolve_finish(struct muster_resolve *resolve, enum muster_rc rc);
/** Report that everything ops->stop had to close is closed. */
MUSTER_API void muster_resolver_stopped(struct muster_resolver *resolver);
/** Something has changed on the platform: every watch asks soon. */
MUSTER_API void muster_resolver_changed(struct muster_resolver *resolver);
/** Fill the common part. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_init(
    struct muster_resolver *resolver, struct muster_env *env, const struct muster_resolver_ops *ops,
    const struct muster_resolver_options *options);
/** Release the common part. */
MUSTER_API void muster_resolver_fini(struct muster_resolver *resolver);

/* Watching a resolver: ask again and again, tell what changed once it has settled. */

struct muster_resolver_watch;

/** spec and diff are borrowed during the call; the diff of the first answer adds every task. */
typedef void muster_resolver_change_fn(struct muster_resolver_watch *watch,
                                       struct muster_cluster_spec *spec,
                                       const struct muster_cluster_diff *diff);
typedef void muster_resolver_watch_close_fn(struct muster_resolver_watch *watch);

/** Caller's memory. */
struct muster_resolver_watch {
    void *data;
    muster_resolver_change_fn *on_change; /* first answer, then each different one */
    uint64_t interval_ns;                 /* between two questions (the first pause is shorter, at
                                             random); 0: what the platform says */
    uint64_t settle_ns; /* a change is told when it was seen twice, this long apart; 0: 200 ms */
    struct muster_error error; /* of the last question; all zero when it was answered */
    /* private */
    struct muster_resolver *resolver;
    struct muster_list node;
    struct muster_cluster_spec *spec;      /* as told */
    struct muster_cluster_spec *unsettled; /* seen once, not told; or NULL */
    uint64_t settle_end_ns;                /* then the newest answer is told anyway */
    struct muster_resolve resolve;
    struct muster_timer timer;
    struct muster_task close_task;
    muster_resolver_watch_close_fn *closed;
    bool is_asking;
    bool is_hurried; /* the platform told of a change since the last question began */
    bool is_spread; /* the first pause is over */
    bool is_closed;
};

/**
 * Ask now, then every interval, and soon after each muster_resolver_changed.
 *
 * A different answer is asked for again after settle_ns and told when it has stayed the same, at
 * the latest with the fifth: a cluster that comes up task by task is told in a few steps. A
 * question that fails is asked again; the last answer stays.
 *
 * Owns:    borrows watch and resolver until closed.
 * Errors:  FAILED_PRECONDITION (resolver closed).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_watch_open(
    struct muster_resolver_watch *watch, struct muster_resolver *resolver);
/** on_change does not come any more; closed (may be NULL) comes last. */
MUSTER_API void muster_resolver_watch_close(struct muster_resolver_watch *watch,
                                            muster_resolver_watch_close_fn *closed);

MUSTER_END

#endif
