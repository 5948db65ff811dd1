/* Which TPU is meant: the caller's word, then the environment's. */
#include "resolvers/platform/tpu/text.h"

#include "assertion_count.h"
#include "test_env.h"
#include "test_vars.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>

#define GKE    "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"
#define CONFIG "{\"tpu_node_name\":\"cfg\",\"project\":\"cp\",\"zone\":\"cz\"}"
#define NOBODY                                                                                     \
    "INVALID_ARGUMENT: no TPU is named: give its name or its grpc:// addresses, or set TPU_NAME, " \
    "TPU_CONFIG or " GKE

struct row {
    struct muster_tpu_target_options options;
    const char *gke, *name, *config; /* NULL: not set */
    const char *expected;            /* "KIND NAME by SOURCE: NODE in PROJECT, ZONE" or an error */
};

static const struct row rows[] = {
    {{.tpu = "a"}, "10.0.0.1:1", "n", CONFIG, "node a by the tpu argument: a in -, -"},
    {{.tpu = ""}, "10.0.0.1:1", "n", CONFIG, "endpoints 10.0.0.1:1 by " GKE ": - in -, -"},
    {{.project = "p", .zone = "z"}, NULL, "n", CONFIG, "node n by TPU_NAME: n in p, z"},
    {{.zone = "own"}, NULL, NULL, CONFIG, "node cfg by TPU_CONFIG: cfg in cp, own"},
    {{.project = "own"}, NULL, NULL, CONFIG, "node cfg by TPU_CONFIG: cfg in own, cz"},
    {{.project = "", .zone = ""}, NULL, NULL, CONFIG, "node cfg by TPU_CONFIG: cfg in cp, cz"},
    {{.tpu = "a", .project = "", .zone = ""},
     NULL,
     NULL,
     NULL,
     "node a by the tpu argument: a in -, -"},
    {{.tpu = NULL},
     NULL,
     NULL,
     "{\"tpu_node_name\":\"c\",\"project\":7}",
     "node c by TPU_CONFIG: c in -, -"},
    {{.tpu = "local"}, NULL, NULL, NULL, "local local by the tpu argument: - in -, -"},
    {{.tpu = NULL}, "local", NULL, NULL, "local local by " GKE ": - in -, -"},
    {{.tpu = "locals"}, NULL, NULL, NULL, "node locals by the tpu argument: locals in -, -"},
    {{.tpu = "grpc://a:1"},
     NULL,
     NULL,
     NULL,
     "endpoints grpc://a:1 by the tpu argument: - in -, -"},
    {{.tpu = NULL}, NULL, "grpc://a:1", NULL, "endpoints grpc://a:1 by TPU_NAME: - in -, -"},
    {{.tpu = "projects/p/locations/z/nodes/x", .project = "q", .zone = "y"},
     NULL,
     NULL,
     NULL,
     "node projects/p/locations/z/nodes/x by the tpu argument: x in p, z"},
    {{.tpu = "projects/p/locations/z", .project = "q"},
     NULL,
     NULL,
     NULL,
     "node projects/p/locations/z by the tpu argument: projects/p/locations/z in q, -"},
    {{.tpu = "projects/p/nodes/z"},
     NULL,
     NULL,
     NULL,
     "node projects/p/nodes/z by the tpu argument: projects/p/nodes/z in -, -"},
    {{.tpu = "x/projects/p/locations/z/nodes/x"},
     NULL,
     NULL,
     NULL,
     "node x/projects/p/locations/z/nodes/x by the tpu argument: x/projects/p/locations/z/nodes/x "
     "in -, -"},
    {{.tpu = "localhost:1", .is_tf1 = true},
     NULL,
     "n",
     NULL,
     "opaque localhost:1 by the tpu argument: - in -, -"},
    {{.tpu = "/bns/x", .is_tf1 = true},
     NULL,
     NULL,
     NULL,
     "opaque /bns/x by the tpu argument: - in -, -"},
    {{.tpu = "uptc://x", .is_tf1 = true},
     NULL,
     NULL,
     NULL,
     "opaque uptc://x by the tpu argument: - in -, -"},
    {{.tpu = "", .is_tf1 = true}, NULL, "n", NULL, "opaque  by the tpu argument: - in -, -"},
    {{.is_tf1 = true}, NULL, "n", NULL, "node n by TPU_NAME: n in -, -"},
    {{.tpu = "localhost", .is_tf1 = true},
     NULL,
     NULL,
     NULL,
     "node localhost by the tpu argument: localhost in -, -"},
    {{.tpu = "localhost:1"},
     NULL,
     NULL,
     NULL,
     "node localhost:1 by the tpu argument: localhost:1 in -, -"},
    {{.tpu = "/bns/x"}, NULL, NULL, NULL, "node /bns/x by the tpu argument: /bns/x in -, -"},
    {{.tpu = NULL}, NULL, NULL, NULL, NOBODY},
    {{.tpu = ""}, NULL, NULL, NULL, NOBODY},
    {{.tpu = NULL}, "", "n", CONFIG, NOBODY},
    {{.tpu = NULL}, NULL, "", CONFIG, NOBODY},
    {{.tpu = NULL}, NULL, NULL, "{}", NOBODY},
    {{.tpu = NULL}, NULL, NULL, "[]", NOBODY},
    {{.tpu = NULL}, NULL, NULL, "{\"tpu_node_name\":\"\"}", NOBODY},
    {{.tpu = NULL},
     NULL,
     NULL,
     "{\"tpu_node_name\"",
     "INVALID_ARGUMENT: TPU_CONFIG: bad JSON at line 1, column 16: ':' expected near end of file "
     "(correct it, or unset it)"},
};

static const char *text_or_dash(const char *text)
{
    return text != NULL ? text : "-";
}

/* The outcome of a row as text. */
static const char *describe_target(struct muster_env *env, const struct row *row,
                                   enum muster_rc *ret_rc)
{
    static const char *const kinds[] = {
        [MUSTER_TPU_TARGET_NODE] = "node",
        [MUSTER_TPU_TARGET_ENDPOINTS] = "endpoints",
        [MUSTER_TPU_TARGET_LOCAL] = "local",
        [MUSTER_TPU_TARGET_OPAQUE] = "opaque",
    };
    static char text[400];
    struct muster_tpu_target target;
    struct muster_error error = {.text = ""};

    *ret_rc = muster_tpu_target_init(&target, env, &row->options, &error);
    if (*ret_rc != MUSTER_OK)
        snprintf(text, sizeof(text), "%s: %s", muster_rc_name(*ret_rc), error.text);
    else
        snprintf(text, sizeof(text), "%s %s by %s: %s in %s, %s", kinds[target.kind], target.name,
                 target.source, text_or_dash(target.node), text_or_dash(target.project),
                 text_or_dash(target.zone));
    muster_tpu_target_fini(&target);
    muster_tpu_target_fini(&target);
    return text;
}

static void set_variables(struct muster_env *env, struct test_vars *vars, struct test_var list[4],
                          const struct row *row)
{
    size_t count = 0;

    if (row->gke != NULL)
        list[count++] = (struct test_var){GKE, row->gke};
    if (row->name != NULL)
        list[count++] = (struct test_var){"TPU_NAME", row->name};
    if (row->config != NULL)
        list[count++] = (struct test_var){"TPU_CONFIG", row->config};
    list[count] = (struct test_var){NULL, NULL};
    test_vars_init(vars, list);
    env->vars = &vars->vars;
}

static void the_argument_wins_then_gke_then_the_name_then_the_config(void **state)
{
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_var list[4];
        struct test_vars vars;
        enum muster_rc rc;

        set_variables(&test.env, &vars, list, &rows[i]);
        assert_string_equal(describe_target(&test.env, &rows[i], &rc), rows[i].expected);
    }
    test_env_close(&test);
}

static void find_target(struct torture *torture, const void *data)
{
    const struct row *row = data;
    struct test_var list[4];
    struct test_vars vars;
    struct test_env test;
    const char *text;
    enum muster_rc rc;

    test_env_open(&test);
    set_variables(&test.env, &vars, list, row);
    torture_arm_limited(torture, &test.mem);
    text = describe_target(&test.env, row, &rc);
    torture_disarm(torture);
    if (torture->refused > 0 && rc == MUSTER_RESOURCE_EXHAUSTED)
        assert_string_equal(text, "RESOURCE_EXHAUSTED: no memory");
    else
        assert_string_equal(text, row->expected);
    test_env_close(&test);
}

static void without_memory_no_tpu_is_meant(void **state)
{
    static const size_t tried[] = {0, 1, 3, 13, 17};
    (void)state;

    for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
        struct torture_scenario scenario = {
            .name = rows[tried[i]].expected, .run = find_target, .data = &rows[tried[i]]};

        torture_run(&scenario);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_argument_wins_then_gke_then_the_name_then_the_config),
        cmocka_unit_test(without_memory_no_tpu_is_meant),
    };
    return cmocka_run_group_tests(tests, NULL, torture_tell);
}
