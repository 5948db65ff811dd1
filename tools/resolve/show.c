/* Answers and changes of `muster resolve` as text and JSON. Both are made of one JSON object, so
 * that they cannot tell different things. */
#include "resolve/resolve.h"

#include "common/output.h"

#include <stdio.h>
#include <string.h>

/* Through the text of the cluster: its form in JSON is defined in one place. */
struct muster_json *resolve_spec_json(struct muster_env *env,
                                      const struct muster_cluster_spec *spec)
{
    struct muster_json *value = NULL;
    char *text = NULL;

    if (muster_cluster_spec_format(spec, env->mem, &text) == MUSTER_OK &&
        muster_json_parse(text, strlen(text), &value, NULL) != MUSTER_OK)
        value = NULL;
    muster_mem_free(env->mem, text);
    return value;
}

static bool print_line(struct muster_env *env, const struct muster_json *value)
{
    char *text = NULL;

    if (muster_json_format(value, false, env->mem, &text) != MUSTER_OK)
        return false;
    printf("%s\n", text);
    muster_mem_free(env->mem, text);
    return output_flush();
}

/* "worker:1   b:1   (TF_CONFIG.task)" */
static void print_fact(struct muster_env *env, const char *name, const struct muster_json *value,
                       const char *source)
{
    const char *text = muster_json_text(value);
    char *dumped = NULL;

    if (muster_json_kind(value) == MUSTER_JSON_NULL)
        text = "none";
    else if (text == NULL && muster_json_format(value, false, env->mem, &dumped) == MUSTER_OK)
        text = dumped;
    else if (text != NULL && text[0] == '\0')
        text = "(local)";
    printf("%-17s %s", name, text != NULL ? text : "");
    if (source != NULL)
        printf("   (%s)", source);
    printf("\n");
    muster_mem_free(env->mem, dumped);
}

/* One line per key, in the order of the answer; sources stand behind their facts instead of in a
 * line of their own. */
static bool print_plain(struct muster_env *env, const struct muster_json *answer)
{
    const struct muster_json *sources = muster_json_member(answer, "sources");
    const char *reason = muster_json_text(muster_json_member(answer, "reason"));
    struct muster_json_walk walk;

    for (bool more = muster_json_walk_first(&walk, answer); more;
         more = muster_json_walk_next(&walk)) {
        const char *source = muster_json_text(muster_json_member(sources, walk.name));

        if (strcmp(walk.name, "sources") == 0 || strcmp(walk.name, "reason") == 0)
            continue;
        print_fact(env, walk.name, walk.value,
                   strcmp(walk.name, "resolver") == 0 ? reason : source);
    }
    return output_flush();
}

bool resolve_print(struct muster_env *env, const struct muster_json *answer, bool is_json)
{
    return is_json ? print_line(env, answer) : print_plain(env, answer);
}

/* {"job", "index", "before", "after"} */
static struct muster_json *change_json(const struct muster_cluster_change *change)
{
    struct muster_json *value = muster_json_object_new();

    if (muster_json_set(value, "job", muster_json_text_new(change->job)) &&
        muster_json_set(value, "index", muster_json_integer_new(change->index)) &&
        (change->before == NULL ||
         muster_json_set(value, "before", muster_json_text_new(change->before))) &&
        (change->after == NULL ||
         muster_json_set(value, "after", muster_json_text_new(change->after))))
        return value;
    muster_json_free(value);
    return NULL;
}

static struct muster_json *changes_json(const struct muster_cluster_diff *diff,
                                        enum muster_cluster_change_kind kind)
{
    struct muster_json *list = muster_json_array_new();

    for (size_t i = 0; i < diff->change_count; i++) {
        if (diff->changes[i].kind == kind &&
            !muster_json_append(list, change_json(&diff->changes[i]))) {
            muster_json_free(list);
            return NULL;
        }
    }
    return list;
}

static bool print_change_line(struct muster_env *env, const struct muster_cluster_spec *spec,
                              const struct muster_cluster_diff *diff)
{
    struct muster_json *value = muster_json_object_new();
    bool is_printed =
        muster_json_set(value, "added", changes_json(diff, MUSTER_CLUSTER_ADDED)) &&
        muster_json_set(value, "removed", changes_json(diff, MUSTER_CLUSTER_REMOVED)) &&
        muster_json_set(value, "moved", changes_json(diff, MUSTER_CLUSTER_MOVED)) &&
        muster_json_set(value, "cluster_spec", resolve_spec_json(env, spec)) &&
        print_line(env, value);

    muster_json_free(value);
    return is_printed;
}

bool resolve_print_change(struct muster_env *env, const struct muster_cluster_spec *spec,
                          const struct muster_cluster_diff *diff, bool is_json)
{
    if (is_json)
        return print_change_line(env, spec, diff);
    for (size_t i = 0; i < diff->change_count; i++) {
        const struct muster_cluster_change *change = &diff->changes[i];

        printf("%c %s:%d %s%s%s\n", "+-~"[change->kind], change->job, change->index,
               change->before != NULL ? change->before : "",
               change->kind == MUSTER_CLUSTER_MOVED ? " -> " : "",
               change->after != NULL ? change->after : "");
    }
    return output_flush();
}
