/* Parts of `muster resolve`: explanation and output. */
#ifndef MUSTER_RESOLVE_H
#define MUSTER_RESOLVE_H

#include <muster/env.h>
#include <muster/http.h>
#include <muster/json.h>
#include <muster/options.h>
#include <muster/resolver.h>

/** Every look at the outside, told on standard error: variables and files as they are read,
 * requests when they are answered, and what resolvers log of name queries and programs. Values of
 * secrets are not shown. */
struct resolve_explain {
    struct muster_vars vars;
    struct muster_files files;
    struct muster_http_tracer tracer;
    struct muster_log log;
    struct muster_vars *real_vars;
    struct muster_files *real_files;
    struct muster_log *real_log;
    bool is_json;         /* a JSON object on each line: {"explain": "request", ...} */
    const char *seen[64]; /* names of variables that were told */
    size_t seen_count;
};
/** Stands in env for what is there; env->http may be NULL. Borrows env until fini. */
void resolve_explain_init(struct resolve_explain *explain, struct muster_env *env, bool is_json);
void resolve_explain_fini(struct resolve_explain *explain, struct muster_env *env);

/** One line, or plain text with the source of each fact. False: out of memory. */
bool resolve_print(struct muster_env *env, const struct muster_json *answer, bool is_json);
/** The same for a change: with is_json one object, else a line per task. */
bool resolve_print_change(struct muster_env *env, const struct muster_cluster_spec *spec,
                          const struct muster_cluster_diff *diff, bool is_json);

/** {"worker": […]}; NULL: out of memory. Gives. */
struct muster_json *resolve_spec_json(struct muster_env *env,
                                      const struct muster_cluster_spec *spec);

int command_resolve(int argc, char **argv);
extern const struct muster_options resolve_options;

#endif
