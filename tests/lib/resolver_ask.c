/* Questions to resolvers, one at a time. */
#include "resolver_ask.h"

#include "test_env.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_WITHIN_NS (30 * MUSTER_NS_PER_S)

static char answer[8192];

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    (void)rc;
    *(bool *)resolve->data = true;
}

/* True: answered with OK; otherwise `answer` tells the error. */
static bool ask_resolver(struct muster_resolve *resolve, struct muster_resolver *resolver)
{
    bool is_done = false;

    resolve->data = &is_done;
    resolve->deadline_ns = muster_loop_after_ns(resolver->env->loop, ANSWER_WITHIN_NS);
    assert_int_equal(muster_resolve_start(resolve, resolver, on_answer), MUSTER_OK);
    test_env_run_until(resolver->env, test_env_is_true, &is_done);
    if (resolve->rc == MUSTER_OK)
        return true;
    snprintf(answer, sizeof(answer), "%s: %s", muster_rc_name(resolve->rc), resolve->error.text);
    return false;
}

const char *ask_cluster(struct muster_resolver *resolver)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    char *text = NULL;

    if (!ask_resolver(&resolve, resolver))
        return answer;
    assert_int_equal(muster_cluster_spec_format(resolve.cluster_spec, resolver->env->mem, &text),
                     MUSTER_OK);
    snprintf(answer, sizeof(answer), "%s", text);
    muster_mem_free(resolver->env->mem, text);
    muster_cluster_spec_unref(resolve.cluster_spec);
    return answer;
}

const char *ask_master(struct muster_resolver *resolver, const char *task_type, int64_t task_id)
{
    struct muster_resolve resolve = {
        .what = MUSTER_RESOLVE_MASTER,
        .query = {.task_type = task_type, .has_task_id = task_id >= 0, .task_id = task_id}};

    if (!ask_resolver(&resolve, resolver))
        return answer;
    snprintf(answer, sizeof(answer), "%s", resolve.master);
    muster_mem_free(resolver->env->mem, resolve.master);
    return answer;
}

const char *ask_accelerators(struct muster_resolver *resolver)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_NUM_ACCELERATORS};
    const struct muster_accelerators *found = &resolve.accelerators;
    int length;

    if (!ask_resolver(&resolve, resolver))
        return answer;
    length = snprintf(answer, sizeof(answer), "{");
    for (size_t i = 0; i < found->kind_count; i++)
        length +=
            snprintf(answer + length, sizeof(answer) - (size_t)length, "%s\"%s\":%lld",
                     i > 0 ? "," : "", found->kinds[i].kind, (long long)found->kinds[i].count);
    snprintf(answer + length, sizeof(answer) - (size_t)length, "}");
    return answer;
}

static void on_closed(struct muster_resolver *resolver)
{
    *(bool *)resolver->data = true;
}

void close_resolver(struct muster_resolver *resolver)
{
    struct muster_env *env = resolver->env;
    bool is_closed = false;

    resolver->data = &is_closed;
    muster_resolver_close(resolver, on_closed);
    test_env_run_until(env, test_env_is_true, &is_closed);
}

void assert_says(const char *text, const char *prefix, ...)
{
    const char *word;
    va_list words;

    if (strncmp(text, prefix, strlen(prefix)) != 0)
        fail_msg("'%s' does not begin with '%s'", text, prefix);
    va_start(words, prefix);
    while ((word = va_arg(words, const char *)) != NULL) {
        if (strstr(text, word) == NULL)
            fail_msg("'%s' does not hold '%s'", text, word);
    }
    va_end(words);
}
