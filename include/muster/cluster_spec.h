/* The description of a cluster: which jobs it has, and the address of each task. An immutable,
 * counted value. */
#ifndef MUSTER_CLUSTER_SPEC_H
#define MUSTER_CLUSTER_SPEC_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_CLUSTER_SPEC_BYTES_MAX ((size_t)16 << 20) /* of text or wire form that is read */

/** "host:port" in general; kept as given, not checked. */
struct muster_cluster_task {
    int32_t index;
    const char *address;
};

struct muster_cluster_job {
    const char *name;
    size_t task_count;
    const struct muster_cluster_task *tasks; /* by index, each index once */
};

struct muster_cluster_spec {
    /* private */
    uint32_t references;
    struct muster_mem *mem;
    const struct muster_cluster_job **by_name;
    /* fields, immutable after build */
    size_t job_count;
    const struct muster_cluster_job **jobs; /* each name once, in the order given */
    /* The jobs as a ClusterDef lists them: by name, or, when the cluster was read from a
     * ClusterDef, in its order. A ClusterDef may repeat a name; its last one is in `jobs`. */
    size_t def_count;
    const struct muster_cluster_job *defs;
};

/* Building. */

/** Collects jobs and tasks. Caller's memory; texts are borrowed until build. */
struct muster_cluster_spec_builder {
    /* private */
    struct muster_mem *mem;
    struct muster_cluster_builder_job *jobs;
    size_t job_count;
    size_t job_capacity;
    bool is_def;
    bool is_failed;
};

/** is_def: jobs keep their order and may repeat, as in a ClusterDef. Borrows mem until the spec is
 * freed. */
MUSTER_API void muster_cluster_spec_builder_init(struct muster_cluster_spec_builder *builder,
                                                 struct muster_mem *mem, bool is_def);
MUSTER_API void muster_cluster_spec_builder_fini(struct muster_cluster_spec_builder *builder);

/** Begin a job; tasks that follow are its tasks. Borrows name. A failure shows in build. */
MUSTER_API void muster_cluster_spec_builder_add_job(struct muster_cluster_spec_builder *builder,
                                                    const char *name);
/** Add a task; the later of two tasks with one index replaces the earlier. Borrows address. build
 * reports any failure. */
MUSTER_API void muster_cluster_spec_builder_add_task(struct muster_cluster_spec_builder *builder,
                                                     int32_t index, const char *address);
/** The value of what was collected. Gives a reference. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_build(
    struct muster_cluster_spec_builder *builder, struct muster_cluster_spec **ret_spec);

MUSTER_API struct muster_cluster_spec *muster_cluster_spec_ref(struct muster_cluster_spec *spec);
/** NULL is accepted. */
MUSTER_API void muster_cluster_spec_unref(struct muster_cluster_spec *spec);

/* Text: JSON, {"worker": ["a:1", "b:1"], "ps": {"3": "c:1"}}. */

/**
 * A job is a list of addresses, or an object from index to address; an empty list is a job without
 * tasks.
 *
 * Owns:    gives a reference.
 * Errors:  INVALID_ARGUMENT names the job and what is wrong with it; RESOURCE_EXHAUSTED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_parse(
    struct muster_mem *mem, const char *text, size_t size, struct muster_cluster_spec **ret_spec,
    struct muster_error *ret_error);
/** One line: a dense job (indices exactly 0 … n-1) as a list, another as an object, one without
 * tasks as {}. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_format(
    const struct muster_cluster_spec *spec, struct muster_mem *mem, char **ret_text);

/* Wire form: tensorflow.ClusterDef. */

/** Jobs as in `defs`, tasks from the highest index down (so TensorFlow writes its maps). Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_pack(
    const struct muster_cluster_spec *spec, struct muster_mem *mem, void **ret_bytes,
    size_t *ret_size);
/** Bytes of a stranger are welcome. Gives a reference. Errors: INVALID_ARGUMENT,
 * RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_unpack(
    struct muster_mem *mem, const void *bytes, size_t size, struct muster_cluster_spec **ret_spec,
    struct muster_error *ret_error);

/**
 * Merge two specs as protobuf merges two messages that are read in turn: the jobs of `first`, then
 * those of `second`; of a job in both, the one of `second` counts as a whole. Gives a
 * reference.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_merge(
    struct muster_mem *mem, const struct muster_cluster_spec *first,
    const struct muster_cluster_spec *second, struct muster_cluster_spec **ret_spec);

/* Looking. */

/** Equal jobs with equal tasks; the order of jobs has no meaning. */
MUSTER_API bool muster_cluster_spec_is_equal(const struct muster_cluster_spec *a,
                                             const struct muster_cluster_spec *b);
/** No job at all (TensorFlow's truth value, negated). */
MUSTER_API bool muster_cluster_spec_is_empty(const struct muster_cluster_spec *spec);
/** The job, or NULL; name may be NULL. Borrowed. */
MUSTER_API const struct muster_cluster_job *muster_cluster_spec_job(
    const struct muster_cluster_spec *spec, const char *name);
/** Indices are exactly 0 … n-1, n > 0. */
MUSTER_API bool muster_cluster_job_is_dense(const struct muster_cluster_job *job);
/** The address of a task, or NULL. Borrowed. */
MUSTER_API const char *muster_cluster_job_address(const struct muster_cluster_job *job,
                                                  int64_t index);

/** Errors: NOT_FOUND names the job. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_num_tasks(
    const struct muster_cluster_spec *spec, const char *job, size_t *ret_count,
    struct muster_error *ret_error);
/** The indices, ascending. Gives. Errors: NOT_FOUND, RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_task_indices(
    const struct muster_cluster_spec *spec, const char *job, struct muster_mem *mem,
    int32_t **ret_indices, size_t *ret_count, struct muster_error *ret_error);
/** Highest index + 1 addresses, NULL where there is no task. Gives the array, the texts are
 * borrowed from spec. Errors: NOT_FOUND, RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_job_tasks(
    const struct muster_cluster_spec *spec, const char *job, struct muster_mem *mem,
    const char ***ret_addresses, size_t *ret_count, struct muster_error *ret_error);
/** Borrowed. Errors: NOT_FOUND names the job, and the index when the job exists; job NULL is an
 * unknown job. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_task_address(
    const struct muster_cluster_spec *spec, const char *job, int64_t index,
    const char **ret_address, struct muster_error *ret_error);

/* Differences between two descriptions of one cluster, task by task. */

enum muster_cluster_change_kind {
    MUSTER_CLUSTER_ADDED,
    MUSTER_CLUSTER_REMOVED,
    MUSTER_CLUSTER_MOVED, /* another address */
};

/** One task that is not as before. Texts belong to the two descriptions. */
struct muster_cluster_change {
    enum muster_cluster_change_kind kind;
    int32_t index;
    const char *job;
    const char *before; /* address; NULL: added */
    const char *after;  /* address; NULL: removed */
};

/** Changes by job name, then index. Jobs without tasks make no change. */
struct muster_cluster_diff {
    size_t added_count;
    size_t removed_count;
    size_t moved_count;
    size_t change_count;
    struct muster_cluster_change *changes;
    struct muster_mem *mem; /* private */
};

/** `before` NULL: nothing was known, every task is added. Borrows both descriptions until fini.
 * Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_diff_init(
    struct muster_cluster_diff *diff, struct muster_mem *mem,
    const struct muster_cluster_spec *before, const struct muster_cluster_spec *after);
MUSTER_API void muster_cluster_diff_fini(struct muster_cluster_diff *diff);

MUSTER_END

#endif
