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
struct muster_resolver_watch;

typedef void muster_resolve_fn(struct muster_resolve *resolve, enum muster_rc rc);
typedef void muster_resolver_close_fn(struct muster_resolver *resolver);
typedef void muster_resolver_watch_close_fn(struct muster_resolver_watch *watch);

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

/** What a caller may set for any resolver. All zero: nothing. */
struct muster_resolver_options {
    const char *task_type; /* NULL: what the platform says */
    const char *rpc_layer; /* NULL: what the platform says */
    bool has_task_id;
    int64_t task_id;
    const char *environment;             /* NULL: the resolver's default */
    muster_device_list_fn *list_devices; /* NULL: no accelerators */
    void *list_devices_data;
};

/** What a kind of resolver provides. The text properties give memory of env->mem, or NULL for
 * "none". */
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
    void (*close)(struct muster_resolver *resolver); /* nothing is pending; frees the resolver */
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
    bool is_closed;
    int64_t task_id; /* override */
    muster_device_list_fn *list_devices;
    void *list_devices_data;
    struct muster_list pending; /* of muster_resolve */
    struct muster_task close_task;
    muster_resolver_close_fn *closed;
};

/* Opening. */

/**
 * A resolver by scheme. "static:worker=a:1,b:1;ps=c:1" or "static:{JSON}"; "tf_config:" reads the
 * variable TF_CONFIG; "auto:" takes the first platform that left its mark in the environment.
 *
 * Owns:    gives; borrows env, and options during the call.
 * Errors:  INVALID_ARGUMENT names the scheme and those that exist; NOT_FOUND: auto found no mark.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_open(
    struct muster_env *env, const char *uri, const struct muster_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

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

/** Override what the platform says; NULL takes the override back. Copies. Errors:
 * RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_set_task_type(
    struct muster_resolver *resolver, const char *task_type);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_set_rpc_layer(
    struct muster_resolver *resolver, const char *rpc_layer);
MUSTER_API void muster_resolver_set_task_id(struct muster_resolver *resolver, bool is_set,
                                            int64_t task_id);

/* Watching: ask again and again, tell what changed. */

typedef void muster_resolver_change_fn(struct muster_resolver_watch *watch,
                                       struct muster_cluster_spec *spec);
/** Caller's memory. */
struct muster_resolver_watch {
    void *data;
    muster_resolver_change_fn *on_change; /* first answer, then each different one; borrows spec */
    uint64_t interval_ns;                 /* between two questions; 0: 10 s */
    struct muster_error error;            /* of the last question; all zero when it was answered */
    /* private */
    struct muster_resolver *resolver;
    struct muster_cluster_spec *spec;
    struct muster_resolve resolve;
    struct muster_timer timer;
    struct muster_task close_task;
    muster_resolver_watch_close_fn *closed;
    bool is_asking;
    bool is_closed;
};
/** A question that fails is asked again after the interval; the last answer stays. Borrows watch
 * and resolver until closed. Errors: FAILED_PRECONDITION (resolver closed). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_watch_open(
    struct muster_resolver_watch *watch, struct muster_resolver *resolver);
/** on_change does not come any more; closed (may be NULL) comes last. */
MUSTER_API void muster_resolver_watch_close(struct muster_resolver_watch *watch,
                                            muster_resolver_watch_close_fn *closed);

/* For those who provide a resolver. */

/** Answer resolve once, from its start or later: done runs in the next turn. Results and error are
 * set before. */
MUSTER_API void muster_resolve_finish(struct muster_resolve *resolve, enum muster_rc rc);
/** Fill the common part. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_resolver_init(
    struct muster_resolver *resolver, struct muster_env *env, const struct muster_resolver_ops *ops,
    const struct muster_resolver_options *options);
/** Release the common part. */
MUSTER_API void muster_resolver_fini(struct muster_resolver *resolver);

MUSTER_END

#endif
