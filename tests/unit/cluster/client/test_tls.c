/* The registry client under TLS: whom it does not trust, and who does not trust it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <muster/registry.h>
#include <muster/tls.h>

#include "tests/lib/registry_pair.h"
#include "scene_case.h"

#define SHORT_NS (300 * MUSTER_NS_PER_MS)

struct scene {
    struct registry_pair pair;
    struct muster_tls_authority *ours, *theirs;
    char listen[MUSTER_ADDRESS_TEXT_BYTES];
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES + 8];
    struct muster_error ended;
    bool is_ended;
};

static struct muster_tls *open_credential(struct scene *scene, struct muster_tls_authority *issuer,
                                          struct muster_tls_authority *trusted,
                                          bool is_peer_required)
{
    const struct muster_tls_subject subject = {
        .name = "registry", .alt_names = "IP:127.0.0.1", .life_s = 3600};
    struct muster_tls_options options = {.ca_pem = muster_tls_authority_pem(trusted),
                                         .is_peer_required = is_peer_required};
    struct muster_tls *tls = NULL;
    struct muster_error error;
    char *pem = NULL;

    if (issuer != NULL)
        assert_int_equal(muster_tls_authority_issue(issuer, &subject, &pem, &error), MUSTER_OK);
    options.cert_pem = options.key_pem = pem;
    assert_int_equal(muster_tls_open(scene->pair.env, &options, &tls, &error), MUSTER_OK);
    muster_mem_free(scene->pair.env->mem, pem);
    return tls;
}

/* issuer NULL: in plain text. */
static void serve_registry(struct scene *scene, struct muster_tls_authority *issuer,
                           bool is_peer_required)
{
    struct registry_pair *f = &scene->pair;
    struct muster_registry_server_options options = {.listen = scene->listen};
    struct muster_error error;

    if (issuer != NULL)
        options.tls = open_credential(scene, issuer, scene->ours, is_peer_required);
    if (muster_registry_server_open(f->env, f->store, &options, &f->server, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_registry_server_set_data(f->server, f);
    (void)snprintf(scene->endpoint, sizeof(scene->endpoint), "https://%s", scene->listen);
    muster_tls_close(options.tls);
}

static void scene_open(struct scene *scene)
{
    struct registry_pair *f = &scene->pair;

    memset(scene, 0, sizeof(*scene));
    registry_pair_open(f);
    registry_pair_close_client(f);
    registry_pair_stop_server(f);
    assert_int_equal(muster_tls_authority_new(f->env, "ours", &scene->ours), MUSTER_OK);
    assert_int_equal(muster_tls_authority_new(f->env, "theirs", &scene->theirs), MUSTER_OK);
    (void)strcpy(scene->listen, f->endpoints);
}

static void dial_registry(struct scene *scene, struct muster_tls_authority *issuer,
                          struct muster_tls_authority *trusted)
{
    struct registry_pair *f = &scene->pair;
    struct muster_registry_options options = {.endpoints = scene->endpoint,
                                              .backoff_max_ns = 20 * MUSTER_NS_PER_MS};
    struct muster_error error;

    options.tls = open_credential(scene, issuer, trusted, false);
    assert_int_equal(muster_registry_open(f->env, &options, &f->registry, &error), MUSTER_OK);
    muster_registry_set_data(f->registry, f);
    muster_tls_close(options.tls);
}

static void scene_close(struct scene *scene)
{
    muster_tls_authority_free(scene->ours);
    muster_tls_authority_free(scene->theirs);
    registry_pair_close(&scene->pair);
}

static void check_refusal(struct scene *scene, const struct muster_error *error, const char *words)
{
    const struct muster_error *refusal = muster_registry_refusal(scene->pair.registry);

    assert_int_equal(error->rc, MUSTER_UNAUTHENTICATED);
    assert_non_null(strstr(error->text, scene->endpoint));
    assert_non_null(strstr(error->text, words));
    assert_non_null(strstr(error->text, "MUSTER_REGISTRY_CA_FILE"));
    assert_non_null(refusal);
    assert_string_equal(refusal->text, error->text);
}

SCENE_CASES(struct scene, scene_open, scene_close)

static void an_operation_ends_at_once_when_the_registry_demands_another_certificate(void **state)
{
    struct scene *scene = *state;

    serve_registry(scene, scene->ours, true);
    dial_registry(scene, NULL, scene->ours);
    assert_int_equal(registry_pair_put(&scene->pair, PREFIX "a", "1"), MUSTER_UNAUTHENTICATED);
    check_refusal(scene, &scene->pair.op.error, "demands a certificate of ours");
    registry_pair_close_client(&scene->pair);
    dial_registry(scene, scene->theirs, scene->ours);
    assert_int_equal(registry_pair_put(&scene->pair, PREFIX "a", "1"), MUSTER_UNAUTHENTICATED);
    check_refusal(scene, &scene->pair.op.error, "does not trust the issuer");
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct scene *scene = watch->data;

    scene->ended = watch->error;
    scene->ended.rc = rc;
    scene->is_ended = true;
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    (void)watch, (void)changes, (void)count;
    fail_msg("a watch without a connection shows something");
}

static void on_bytes(struct muster_registry_snapshot *snapshot, struct muster_bytes bytes)
{
    (void)snapshot, (void)bytes;
    fail_msg("a snapshot without a connection has bytes");
}

static void on_snapshot_done(struct muster_registry_snapshot *snapshot, enum muster_rc rc)
{
    struct scene *scene = snapshot->data;

    scene->ended = snapshot->error;
    scene->ended.rc = rc;
    scene->is_ended = true;
}

/* A registry that the client cannot talk to, and the error that says so. */
struct refusal {
    const char *name;
    bool is_served_by_others; /* by a certificate of an authority that the client does not trust */
    bool is_served_plain;
    bool is_asked_plain;
    enum muster_rc rc;
    const char *words[2];
};

static void check_end(struct scene *scene, const struct refusal *row,
                      const struct muster_error *error)
{
    const struct muster_error *refusal = muster_registry_refusal(scene->pair.registry);

    if (error->rc != row->rc || strstr(error->text, scene->listen) == NULL)
        fail_msg("%s: %d %s", row->name, (int)error->rc, error->text);
    for (size_t i = 0; i < 2; i++) {
        if (strstr(error->text, row->words[i]) == NULL)
            fail_msg("%s: '%s' is not in: %s", row->name, row->words[i], error->text);
    }
    assert_non_null(refusal);
    assert_string_equal(refusal->text, error->text);
}

/* Operations, watches and snapshots, each by a client of its own. */
static void check_all_end_at_once(struct scene *scene, const struct refusal *row)
{
    struct muster_registry_watch watch = {.data = scene};
    struct muster_registry_snapshot snapshot = {.data = scene};
    struct registry_pair *f = &scene->pair;

    dial_registry(scene, NULL, scene->ours);
    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), row->rc);
    check_end(scene, row, &f->op.error);
    assert_true(f->op.is_unsent);
    registry_pair_close_client(f);
    dial_registry(scene, NULL, scene->ours);
    assert_int_equal(muster_registry_watch_start(&watch, f->registry, registry_pair_bytes_of("a"),
                                                 MUSTER_REGISTRY_KEY, 0, on_changes, on_watch_end),
                     MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &scene->is_ended);
    check_end(scene, row, &scene->ended);
    registry_pair_close_client(f);
    dial_registry(scene, NULL, scene->ours);
    scene->is_ended = false;
    assert_int_equal(muster_registry_snapshot_start(&snapshot, f->registry, registry_pair_soon(f),
                                                    on_bytes, on_snapshot_done),
                     MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &scene->is_ended);
    check_end(scene, row, &scene->ended);
}

static void all_end_at_once_when_the_registry_cannot_be_talked_to(void **state)
{
    static const struct refusal rows[] = {
        {"served by others",
         true,
         false,
         false,
         MUSTER_UNAUTHENTICATED,
         {"its issuer CN=theirs is not trusted", "MUSTER_REGISTRY_CA_FILE"}},
        {"TLS, asked in plain text",
         false,
         false,
         true,
         MUSTER_FAILED_PRECONDITION,
         {"speaks TLS, and is asked in plain text", "write https://127.0.0.1:"}},
        {"plain text, asked for TLS",
         false,
         true,
         false,
         MUSTER_FAILED_PRECONDITION,
         {"speaks plain text, and https:// asks for TLS", "write 127.0.0.1:"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;

        scene_open(&scene);
        serve_registry(&scene,
                       rows[i].is_served_plain       ? NULL
                       : rows[i].is_served_by_others ? scene.theirs
                                                     : scene.ours,
                       false);
        if (rows[i].is_asked_plain)
            (void)strcpy(scene.endpoint, scene.listen);

        check_all_end_at_once(&scene, &rows[i]);

        scene_close(&scene);
    }
}

/* The registry has let us in, and comes back in plain text or by an issuer that is not trusted. A
 * question waits for it until its deadline, because certificates may be about to change. The first
 * deadline that leaves time to meet it decides: a busy machine needs a long one. */
static void check_waits_for_return(struct scene *scene, bool comes_back_plain, const char *words)
{
    struct registry_pair *f = &scene->pair;
    struct muster_registry_range range = {.key = registry_pair_bytes_of(PREFIX "a"),
                                          .reach = MUSTER_REGISTRY_KEY};
    enum muster_rc rc;

    serve_registry(scene, scene->ours, false);
    dial_registry(scene, NULL, scene->ours);
    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_OK);
    registry_pair_stop_server(f);
    serve_registry(scene, comes_back_plain ? NULL : scene->theirs, false);
    for (uint64_t within_ns = SHORT_NS; within_ns < DEADLINE_NS; within_ns *= 4) {
        rc = registry_pair_finish_op(
            f, muster_registry_range_start(&f->op, f->registry, &range,
                                           muster_loop_after_ns(f->env->loop, within_ns),
                                           registry_pair_on_op));
        assert_true(rc == MUSTER_UNAVAILABLE || rc == MUSTER_DEADLINE_EXCEEDED);
        if (strstr(f->op.error.text, words) != NULL)
            break;
    }
    assert_non_null(strstr(f->op.error.text, words));
    assert_null(muster_registry_refusal(f->registry));
}

static void a_registry_that_speaks_tls_again_later_is_waited_for(void **state)
{
    struct scene *scene = *state;

    check_waits_for_return(scene, true, "speaks plain text");
}

static void after_a_first_contact_a_refusal_is_waited_out(void **state)
{
    struct scene scene;
    struct registry_pair *f = &scene.pair;

    (void)state;
    scene_open(&scene);
    check_waits_for_return(&scene, false, "is not trusted");

    registry_pair_stop_server(f);
    serve_registry(&scene, scene.ours, false);
    assert_int_equal(registry_pair_range(f, PREFIX "a", MUSTER_REGISTRY_KEY), MUSTER_OK);
    assert_string_equal(f->text, PREFIX "a=1;");

    scene_close(&scene);
}

static void a_refusal_is_over_once_somebody_lets_us_in(void **state)
{
    struct scene scene;
    struct muster_registry_snapshot snapshot = {.data = &scene};
    struct registry_pair *f = &scene.pair;
    uint64_t deadline_ns;

    (void)state;
    scene_open(&scene);
    serve_registry(&scene, scene.theirs, false);
    dial_registry(&scene, NULL, scene.ours);
    assert_int_equal(registry_pair_put(f, PREFIX "a", "1"), MUSTER_UNAUTHENTICATED);
    registry_pair_stop_server(f);
    serve_registry(&scene, scene.ours, false);
    while (registry_pair_put(f, PREFIX "a", "1") != MUSTER_OK)
        assert_int_equal(f->op.error.rc, MUSTER_UNAUTHENTICATED); /* it dials again soon */
    registry_pair_stop_server(f);
    deadline_ns = muster_loop_after_ns(f->env->loop, SHORT_NS);
    assert_int_equal(muster_registry_snapshot_start(&snapshot, f->registry, deadline_ns, on_bytes,
                                                    on_snapshot_done),
                     MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &scene.is_ended);

    assert_null(muster_registry_refusal(f->registry));
    assert_int_equal(scene.ended.rc, MUSTER_DEADLINE_EXCEEDED);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_operation_ends_at_once_when_the_registry_demands_another_certificate),
        cmocka_unit_test(after_a_first_contact_a_refusal_is_waited_out),
        cmocka_unit_test(all_end_at_once_when_the_registry_cannot_be_talked_to),
        CASE(a_registry_that_speaks_tls_again_later_is_waited_for),
        cmocka_unit_test(a_refusal_is_over_once_somebody_lets_us_in),
    };

    if (getenv("MUSTER_TEST_REGISTRY") != NULL)
        return 0; /* it has certificates of its own, or none */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
