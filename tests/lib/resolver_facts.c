/* Asking a resolver for all it knows. */
#include "resolver_facts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "assertion_count.h"
#include "test_env.h"

#define ANSWER_WITHIN_NS (30 * MUSTER_NS_PER_S)

static char facts[8192];
static size_t length;
static char last_error[240]; /* told in full; of this line */

static void print_fact(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void print_fact(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    length += (size_t)vsnprintf(facts + length, sizeof(facts) - length, format, values);
    va_end(values);
    fail_if(length >= sizeof(facts), "the facts of a resolver are longer than %zu bytes",
            sizeof(facts));
}

void resolver_facts_devices(void *data, const char *const **ret_names, size_t *ret_count)
{
    static const char *const names[] = {
        "/job:worker/replica:0/task:0/device:CPU:0",
        "/job:worker/replica:0/task:0/device:GPU:0",
        "/job:worker/replica:0/task:1/device:GPU:0",
        "/job:worker/replica:0/task:1/device:TPU:0",
        "/job:worker/replica:0/task:1/device:GPU:1",
        "/job:worker/task:1/device:XLA_CPU:0",
        "/job:work/task:1/device:GPU:0",
        "/job:worker/task:11/device:GPU:0",
        "/device:XLA_GPU",
        "/job:worker/task:1",
    };

    (void)data;
    *ret_names = names;
    *ret_count = sizeof(names) / sizeof(names[0]);
}

/* Properties. */

static void say_text(enum muster_rc rc, const char *text)
{
    if (rc != MUSTER_OK)
        print_fact("%s", muster_rc_name(rc));
    else if (text == NULL)
        print_fact("none");
    else
        print_fact("'%s'", text);
}

static void say_task(struct muster_resolver *resolver)
{
    struct muster_error error;
    char *type = NULL;
    bool is_set = false;
    int64_t id = 0;
    enum muster_rc rc = muster_resolver_task_type(resolver, &type, &error);

    print_fact("task ");
    say_text(rc, type);
    muster_mem_free(resolver->env->mem, type);
    rc = muster_resolver_task_id(resolver, &is_set, &id, &error);
    if (rc != MUSTER_OK)
        print_fact(" %s\n", muster_rc_name(rc));
    else
        print_fact(is_set ? " %d\n" : " none\n", (int)id);
}

static void say_properties(struct muster_resolver *resolver)
{
    struct muster_error error;
    char *layer = NULL;
    bool is_set = false;
    uint32_t size = 0;
    enum muster_rc rc = muster_resolver_rpc_layer(resolver, &layer, &error);

    print_fact("layer ");
    say_text(rc, layer);
    muster_mem_free(resolver->env->mem, layer);
    print_fact(", environment ");
    say_text(MUSTER_OK, muster_resolver_environment(resolver));
    rc = muster_resolver_world_size(resolver, &is_set, &size, &error);
    if (rc != MUSTER_OK)
        print_fact(", size %s\n", muster_rc_name(rc));
    else
        print_fact(is_set ? ", size %u\n" : ", no size\n", size);
}

static void say_sources(struct muster_resolver *resolver)
{
    static const char *const names[] = {
        [MUSTER_FACT_CLUSTER_SPEC] = "cluster", [MUSTER_FACT_MASTER] = "master",
        [MUSTER_FACT_TASK_TYPE] = "type",       [MUSTER_FACT_TASK_ID] = "id",
        [MUSTER_FACT_RPC_LAYER] = "layer",      [MUSTER_FACT_NUM_ACCELERATORS] = "accelerators",
        [MUSTER_FACT_WORLD_SIZE] = "size",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        print_fact("%s: %s%s", names[i], muster_resolver_source(resolver, (enum muster_fact)i),
                   i + 1 < sizeof(names) / sizeof(names[0]) ? "; " : "\n");
}

/* Questions. */

static void say_error(const struct muster_resolve *resolve)
{
    bool is_new = strcmp(last_error, resolve->error.text) != 0;

    print_fact("%s%s%s", muster_rc_name(resolve->rc), is_new ? ": " : ", as before",
               is_new ? resolve->error.text : "");
    (void)snprintf(last_error, sizeof(last_error), "%s", resolve->error.text);
}

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    fail_if(resolve->rc != rc, "a question ended with two codes");
    *(bool *)resolve->data = true;
}

static enum muster_rc ask_fact(struct muster_resolve *resolve, struct muster_resolver *resolver)
{
    bool is_done = false;

    resolve->data = &is_done;
    resolve->deadline_ns = muster_loop_after_ns(resolver->env->loop, ANSWER_WITHIN_NS);
    assert_int_equal(muster_resolve_start(resolve, resolver, on_answer), MUSTER_OK);
    assert_false(is_done);
    test_env_run_until(resolver->env, test_env_is_true, &is_done);
    fail_if(resolve->rc != MUSTER_OK &&
                (resolve->error.rc != resolve->rc || resolve->error.text[0] == '\0'),
            "%s, but its text is %s: %s", muster_rc_name(resolve->rc),
            muster_rc_name(resolve->error.rc), resolve->error.text);
    return resolve->rc;
}

static void say_cluster(struct muster_resolver *resolver)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    char *text = NULL;

    last_error[0] = '\0';
    print_fact("cluster ");
    if (ask_fact(&resolve, resolver) != MUSTER_OK)
        say_error(&resolve);
    else if (muster_cluster_spec_format(resolve.cluster_spec, resolver->env->mem, &text) !=
             MUSTER_OK)
        print_fact("RESOURCE_EXHAUSTED");
    print_fact("%s\n", text != NULL ? text : "");
    muster_mem_free(resolver->env->mem, text);
    muster_cluster_spec_unref(resolve.cluster_spec);
}

struct row {
    const char *name;
    struct muster_task_query query;
};

static void say_master(struct muster_resolver *resolver, const struct row *row)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_MASTER, .query = row->query};

    print_fact(" %s=", row->name);
    if (ask_fact(&resolve, resolver) == MUSTER_OK)
        print_fact("'%s'", resolve.master);
    else
        say_error(&resolve);
    muster_mem_free(resolver->env->mem, resolve.master);
}

static void say_masters(struct muster_resolver *resolver)
{
    static const struct row rows[] = {
        {"own", {.task_type = NULL}},
        {"worker:1", {.task_type = "worker", .has_task_id = true, .task_id = 1}},
        {"none:0", {.task_type = "none", .has_task_id = true}},
        {"worker", {.task_type = "worker"}},
        {":1", {.has_task_id = true, .task_id = 1}},
        {"http", {.rpc_layer = "http"}},
        {"no-layer", {.rpc_layer = ""}},
    };

    last_error[0] = '\0';
    print_fact("masters");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        say_master(resolver, &rows[i]);
    print_fact("\n");
}

static void say_accelerators(struct muster_resolver *resolver)
{
    static const struct row rows[] = {
        {"own", {.task_type = NULL}},
        {"worker:1", {.task_type = "worker", .has_task_id = true, .task_id = 1}},
        {"worker", {.task_type = "worker"}},
        {":1", {.has_task_id = true, .task_id = 1}},
    };

    last_error[0] = '\0';
    print_fact("accelerators");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_resolve resolve = {.what = MUSTER_RESOLVE_NUM_ACCELERATORS,
                                         .query = rows[i].query};
        const struct muster_accelerators *found = &resolve.accelerators;

        print_fact(" %s=", rows[i].name);
        if (ask_fact(&resolve, resolver) != MUSTER_OK)
            say_error(&resolve);
        else if (found->kind_count == 0)
            print_fact("0");
        for (size_t k = 0; resolve.rc == MUSTER_OK && k < found->kind_count; k++)
            print_fact("%s%s*%d", k > 0 ? "+" : "", found->kinds[k].kind,
                       (int)found->kinds[k].count);
        assert_null(resolve.master);
        assert_null(resolve.cluster_spec);
    }
    print_fact("\n");
}

const char *resolver_facts(struct muster_resolver *resolver)
{
    length = 0;
    print_fact("%s, %s\n", muster_resolver_name(resolver), muster_resolver_reason(resolver));
    say_task(resolver);
    say_properties(resolver);
    say_cluster(resolver);
    say_masters(resolver);
    say_accelerators(resolver);
    print_fact("then ");
    say_task(resolver);
    say_sources(resolver);
    return facts;
}

void assert_facts_or_no_memory(const char *text, const char *expected)
{
    static const char sources[] = "cluster: ", excuse[] = "RESOURCE_EXHAUSTED";
    bool is_excused_once = false;

    while (*text != '\0' || *expected != '\0') {
        size_t text_length = strcspn(text, "\n"), expected_length = strcspn(expected, "\n");
        const char *found = strstr(text, excuse);
        bool is_excused = found != NULL && found < text + text_length;
        bool is_of_sources = strncmp(text, sources, sizeof(sources) - 1) == 0;
        bool is_equal = text_length == expected_length && memcmp(text, expected, text_length) == 0;

        is_excused_once |= is_excused;
        fail_if(!is_equal && !is_excused && !(is_of_sources && is_excused_once),
                "'%.*s', not '%.*s'", (int)text_length, text, (int)expected_length, expected);
        text += text_length + (text[text_length] == '\n');
        expected += expected_length + (expected[expected_length] == '\n');
    }
}
