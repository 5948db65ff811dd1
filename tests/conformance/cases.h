/* The case runner: a case under way, and how its outcome is judged. */
#ifndef MUSTER_CASES_H
#define MUSTER_CASES_H

#include <jansson.h>

#include <muster/env.h>
#include <muster/input.h>

#define CASE_REASON_BYTES 600

/** One case. A handler runs it and calls case_fail for the first thing that is wrong. */
struct case_run {
    struct muster_env *env; /* vars are those of the case */
    const json_t *one;      /* the case, or the member of a union in it */
    struct case_run *top;   /* the case that a member stands in; NULL: one is the case itself */
    uint16_t bound_port;    /* {{bound}}: what a server that the case starts listens on */
    bool is_failed;
    char reason[CASE_REASON_BYTES];
    /* private */
    struct muster_vars vars;
    json_t *variables; /* object from name to text */
};

/** The outcome of a call or a construction. */
struct case_outcome {
    enum muster_rc rc;
    json_t *value; /* owned; with OK. NULL stands for null */
    struct muster_error error;
};

typedef void case_fn(struct case_run *run);

/** Handler of a kind (or resolver class); NULL: not built. */
case_fn *case_handler(const char *kind);

void case_fail(struct case_run *run, const char *fmt, ...) MUSTER_PRINTF(2, 3);

/** Judge against `expectation`: {"expect": {"value"}}, {"error"} or {"ok"}, each replaced by
 * "fixed_expect". `where` names the call. Releases outcome->value. */
void case_judge(struct case_run *run, const char *where, const json_t *expectation,
                struct case_outcome *outcome);

/** Judge the construction. True: it was right, it worked, and there are calls to make (case_calls).
 */
bool case_judge_construct(struct case_run *run, struct case_outcome *outcome);
/** The calls to make: "fixed_calls" where construction was a bug, else "calls"; NULL: none. */
const json_t *case_calls(const struct case_run *run);

/** Member of the arguments of the case or of a call; NULL when it is missing. */
const json_t *case_argument(const json_t *holder, const char *name);
/** Text of a json value, NULL for anything else. */
const char *case_text(const json_t *value);

/** Equal values: 1 equals 1.0, the order of members has no meaning. */
bool case_values_are_equal(const json_t *a, const json_t *b);

/** Change a variable of the case (value NULL or null: remove), as the call set_env does. */
bool case_set_variable(struct case_run *run, const char *name, const json_t *value);

struct muster_cluster_spec;

/** The cluster that a case describes: jobs, {"cluster_def"} or {"cluster_spec_of"}. Gives. */
enum muster_rc case_read_cluster(struct case_run *run, const json_t *cluster,
                                 struct muster_cluster_spec **ret_spec,
                                 struct muster_error *ret_error);
/** as_dict and as_cluster_def of a cluster, as new json values. */
json_t *case_cluster_dict(struct case_run *run, const struct muster_cluster_spec *spec);
json_t *case_cluster_def(const struct muster_cluster_spec *spec);

struct muster_resolver;
struct muster_resolver_options;

/** A call on a resolver, under way. */
struct case_call {
    struct case_run *run;
    struct muster_resolver *resolver;
    const json_t *call;
    struct case_outcome *outcome;
};

struct case_call_kind {
    const char *name;
    void (*make)(struct case_call *call);
};
/** The calls that only a TPU resolver has; ends with a NULL name. */
extern const struct case_call_kind case_tpu_calls[];

/** A port, as a number or as its text; `fallback` where it is missing. Errors: INVALID_ARGUMENT. */
enum muster_rc case_read_port(const json_t *port, uint16_t fallback, uint16_t *ret_port,
                              struct muster_error *ret_error);

/** Opens the resolver of a case; common holds what all resolvers take. */
typedef enum muster_rc case_open_fn(struct case_run *run,
                                    const struct muster_resolver_options *common,
                                    struct muster_resolver **ret_resolver,
                                    struct muster_error *ret_error);
/** How a class of resolvers is opened; NULL: not built. */
case_open_fn *case_resolver_find(const char *class_name);
/** Options that all resolvers take, out of the case's arguments. Errors: INVALID_ARGUMENT. */
enum muster_rc case_read_common(struct case_run *run, struct muster_resolver_options *options,
                                struct muster_error *ret_error);

/** The case with its placeholders filled in, its files written, and its server open. Gives; NULL:
 * case_fail was called. */
struct case_cloud;
json_t *case_cloud_open(struct case_run *run, struct case_cloud **ret_cloud);
/** NULL is accepted. Files are removed. */
void case_cloud_close(struct case_run *run, struct case_cloud *cloud);

/* Pipelines of the areas sharding and batching. Lists are given. */

/** The elements of a source, of shard's files only (NULL: of all). */
json_t *case_input_read(const json_t *source, const struct muster_shard *shard);
bool case_input_has_files(const json_t *source);
bool case_input_has_mark(const json_t *stages);
/** Apply the stages to elements (taken); a mark divides by `mark` (NULL: not). NULL: an unknown stage. */
json_t *case_input_apply(json_t *elements, const json_t *stages, const struct muster_shard *mark);
/* Those that the mark among the stages divides. */
uint64_t case_input_count_at_mark(const json_t *source, const json_t *stages);
json_t *case_input_part(const json_t *elements, uint64_t first, uint64_t size);
json_t *case_input_batch(const json_t *elements, uint64_t size, bool is_remainder_dropped);
json_t *case_input_flatten(const json_t *batches);
json_t *case_input_shard(const json_t *elements, const struct muster_shard *shard);
/** muster_input_batch_size of these stages. */
enum muster_rc case_input_batch_size(const json_t *stages, int64_t *ret_size,
                                     struct muster_error *ret_error);
/** By its name; OFF for another one. */
enum muster_shard_policy case_shard_policy(const char *name);

case_fn case_auto_shard;
case_fn case_batching;
case_fn case_packing;
case_fn case_server;
/** Starts the tasks of a case as processes: runs of this program, by the two below. */
case_fn case_strategy;
/** A task, told its case by standard input, tells standard output what it has seen. Gives the exit code. */
int case_strategy_task(void);
/** The registry of a case, until standard input hangs up; its first line is its address. */
int case_strategy_serve(struct muster_env *env);
case_fn case_cluster_rules;
case_fn case_cluster_spec;
case_fn case_communication;
/** Open the resolver, judge the construction, make the calls, close. */
case_fn case_resolver;

case_open_fn case_open_gce;
case_open_fn case_open_kubernetes;
case_open_fn case_open_sagemaker;
case_open_fn case_open_simple;
case_open_fn case_open_slurm;
case_open_fn case_open_tf_config;
case_open_fn case_open_tpu;
case_open_fn case_open_union;

#endif
