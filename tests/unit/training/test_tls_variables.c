/* The credential of a member: half of what TLS needs is no plain text, and who is let in by it. */
#include "training/tls_variables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/tls.h>

#include "net/tls/tls_internal.h"
#include "test_vars.h"
#include "tls_pair.h"

#define OUR_JOB    "spiffe://test/job/a"
#define OTHER_JOB  "spiffe://test/job/b"
#define PEERS      OUR_JOB "/*"
#define PATH_BYTES 128
#define VARS_MAX   8

/* --- Half of it --- */

static enum muster_rc open_with(const struct test_var *list, struct muster_error *ret_error)
{
    struct test_env test;
    struct test_vars vars;
    enum muster_rc rc;

    test_env_open(&test);
    test_vars_init(&vars, list);
    test.env.vars = &vars.vars;
    rc = muster_training_open_tls(&test.env, ret_error);
    assert_null(test.env.tls);
    test_env_close(&test);
    return rc;
}

static void without_variables_links_are_plain(void **state)
{
    static const struct test_var list[] = {
        {"MUSTER_TLS_RELOAD_MS", "50"}, {"MUSTER_TLS_PEERS", ""}, {NULL, NULL}};
    struct muster_error error;

    (void)state;
    assert_int_equal(open_with(list, &error), MUSTER_OK);
}

static void half_of_them_are_refused(void **state)
{
    static const struct test_var rows[] = {{"MUSTER_TLS_PEERS", PEERS},
                                           {"MUSTER_TLS_CA_FILE", "/nowhere/ca.pem"},
                                           {"MUSTER_TLS_KEY_FILE", "/nowhere/key.pem"},
                                           {"MUSTER_TLS_DATA", "authenticated"}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct test_var list[] = {rows[i], {NULL, NULL}};
        struct muster_error error;

        assert_int_equal(open_with(list, &error), MUSTER_INVALID_ARGUMENT);
        assert_ptr_equal(strstr(error.text, rows[i].name), error.text);
        assert_non_null(strstr(error.text, "without MUSTER_TLS_CERT_FILE"));
    }
}

/* --- All of it --- */

/* The files of a member, and its environment. */
struct member {
    struct tls_pair pair;
    struct muster_tls_authority *authority, *stranger;
    char folder[PATH_BYTES], cert[PATH_BYTES + 16], ca[PATH_BYTES + 16];
    struct test_var list[VARS_MAX];
    struct test_vars vars;
};

static struct member member; /* of the case that runs */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static char *issue_cert(struct muster_tls_authority *authority, const char *spiffe_id)
{
    const struct muster_tls_subject subject = {
        .name = "task", .spiffe_id = spiffe_id, .life_s = 3600};
    char *pem = NULL;

    assert_int_equal(muster_tls_authority_issue(authority, &subject, &pem, NULL), MUSTER_OK);
    return pem;
}

static void set_variable(const char *name, const char *value)
{
    size_t i = 0;

    while (member.list[i].name != NULL && strcmp(member.list[i].name, name) != 0)
        i++;
    assert_true(i < VARS_MAX - 1);
    member.list[i] = (struct test_var){name, value};
}

static void member_init(void)
{
    struct muster_env *env = &member.pair.test.env;
    char *pem;

    memset(&member, 0, sizeof(member));
    tls_pair_open(&member.pair);
    assert_int_equal(muster_tls_authority_new(env, "ours", &member.authority), MUSTER_OK);
    assert_int_equal(muster_tls_authority_new(env, "ours", &member.stranger), MUSTER_OK);
    snprintf(member.folder, sizeof(member.folder), "/tmp/muster-tls-variables-XXXXXX");
    assert_non_null(mkdtemp(member.folder));
    snprintf(member.cert, sizeof(member.cert), "%s/cert.pem", member.folder);
    snprintf(member.ca, sizeof(member.ca), "%s/ca.pem", member.folder);
    pem = issue_cert(member.authority, OUR_JOB "/task/0");
    write_file(member.cert, pem);
    write_file(member.ca, muster_tls_authority_pem(member.authority));
    muster_mem_free(env->mem, pem);
    set_variable("MUSTER_TLS_CERT_FILE", member.cert);
    set_variable("MUSTER_TLS_CA_FILE", member.ca);
    set_variable("MUSTER_TLS_PEERS", PEERS);
    test_vars_init(&member.vars, member.list);
    env->vars = &member.vars.vars;
}

static enum muster_rc member_open(struct muster_error *ret_error)
{
    return muster_training_open_tls(&member.pair.test.env, ret_error);
}

static void member_fini(void)
{
    unlink(member.cert);
    unlink(member.ca);
    rmdir(member.folder);
    muster_tls_authority_free(member.authority);
    muster_tls_authority_free(member.stranger);
    tls_pair_close(&member.pair);
}

struct peer {
    const char *name;
    const char *spiffe_id; /* NULL: it shows no certificate */
    bool is_of_stranger;   /* … of another authority */
    bool is_let_in;
};

static const struct peer peers[] = {
    {"a task of the job", OUR_JOB "/task/1", false, true},
    {"a task of another job", OTHER_JOB "/task/1", false, false},
    {"a job whose name begins so", OUR_JOB "b/task/1", false, false},
    {"a stranger with our names", OUR_JOB "/task/1", true, false},
    {"nobody", NULL, false, false},
};

/* It trusts everybody here. */
static struct muster_tls *tls_of(const struct peer *peer)
{
    struct muster_env *env = &member.pair.test.env;
    struct muster_tls_options options = {.ca_pem = muster_tls_authority_pem(member.authority)};
    const char *const names[] = {PEERS};
    struct muster_tls *tls = NULL;
    char *pem = NULL;

    if (peer->spiffe_id != NULL)
        pem =
            issue_cert(peer->is_of_stranger ? member.stranger : member.authority, peer->spiffe_id);
    options.cert_pem = options.key_pem = pem;
    options.peer_names = names;
    options.peer_name_count = 1;
    assert_int_equal(muster_tls_open(env, &options, &tls, NULL), MUSTER_OK);
    muster_mem_free(env->mem, pem);
    return tls;
}

/* As those who dial it, and as those whom it dials. */
static void members_of_the_job_alone_are_let_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++) {
        for (unsigned dials = 0; dials < 2; dials++) {
            struct tls_pair *pair = &member.pair;
            struct muster_tls *tls;
            enum muster_rc rc;

            if (dials == 1 && peers[i].spiffe_id == NULL)
                continue; /* no server is without a certificate */
            member_init();
            assert_int_equal(member_open(NULL), MUSTER_OK);
            tls = tls_of(&peers[i]);
            tls_pair_shake(pair, dials ? pair->test.env.tls : tls, dials ? tls : pair->test.env.tls,
                           "muster-link", NULL);
            rc = dials ? pair->client.rc : pair->server.rc;

            if ((rc == MUSTER_OK) != peers[i].is_let_in)
                fail_msg("%s, %u: %d %s", peers[i].name, dials, (int)rc,
                         (dials ? pair->client : pair->server).error.text);
            tls_pair_again(pair);
            muster_tls_close(tls);
            muster_training_close_tls(&pair->test.env);
            member_fini();
        }
    }
}

static void without_peers_or_roots_nothing_is_opened(void **state)
{
    static const struct {
        const char *missing;
        const char *text;
    } rows[] = {
        {"MUSTER_TLS_PEERS", "without MUSTER_TLS_PEERS: say which names"},
        {"MUSTER_TLS_CA_FILE", "without MUSTER_TLS_CA_FILE: name the roots"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error;

        member_init();
        set_variable(rows[i].missing, "");

        assert_int_equal(member_open(&error), MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, rows[i].text));
        assert_null(member.pair.test.env.tls);
        member_fini();
    }
}

static void the_key_may_be_in_a_file_of_its_own(void **state)
{
    static const char *const rows[] = {"cert.pem", "ca.pem"}; /* has the key, has not */

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[2 * PATH_BYTES];

        member_init();
        snprintf(path, sizeof(path), "%s/%s", member.folder, rows[i]);
        set_variable("MUSTER_TLS_KEY_FILE", path);

        assert_int_equal(member_open(NULL), i == 0 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        muster_training_close_tls(&member.pair.test.env);
        member_fini();
    }
}

static void files_are_looked_at_again_as_often_as_said(void **state)
{
    static const struct {
        const char *text;
        uint64_t interval_ns;
    } rows[] = {{"50", 50 * MUSTER_NS_PER_MS},
                {NULL, 60 * MUSTER_NS_PER_S},
                {"", 60 * MUSTER_NS_PER_S},
                {"5s", 0}, /* refused */
                {"-1", 0},
                {"1000000001", 0},
                {"99999999999999999999", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error;
        enum muster_rc rc;

        member_init();
        set_variable("MUSTER_TLS_RELOAD_MS", rows[i].text);
        rc = member_open(&error);

        assert_int_equal(rc, rows[i].interval_ns > 0 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        if (rc == MUSTER_OK)
            assert_int_equal(member.pair.test.env.tls->reload_interval_ns, rows[i].interval_ns);
        else
            assert_non_null(strstr(error.text, rows[i].text));
        muster_training_close_tls(&member.pair.test.env);
        member_fini();
    }
}

static void data_is_encrypted_unless_it_is_said_otherwise(void **state)
{
    static const struct {
        const char *text;
        enum muster_rc rc;
        bool is_authenticated_only;
    } rows[] = {
        {NULL, MUSTER_OK, false},
        {"", MUSTER_OK, false},
        {"encrypted", MUSTER_OK, false},
        {"authenticated", MUSTER_OK, true},
        {"Authenticated", MUSTER_INVALID_ARGUMENT, false},
        {"none", MUSTER_INVALID_ARGUMENT, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_env *env = &member.pair.test.env;
        struct muster_error error;

        member_init();
        env->is_data_authenticated_only = !rows[i].is_authenticated_only;
        set_variable("MUSTER_TLS_DATA", rows[i].text);

        assert_int_equal(member_open(&error), rows[i].rc);
        assert_int_equal(env->is_data_authenticated_only, rows[i].is_authenticated_only);
        assert_int_equal(env->tls != NULL, rows[i].rc == MUSTER_OK);
        if (rows[i].rc != MUSTER_OK)
            assert_non_null(strstr(error.text, "must be encrypted or authenticated"));
        muster_training_close_tls(env);
        member_fini();
    }
}

static void give_back(struct muster_timer *timer)
{
    muster_tls_close(timer->data);
}

/* The last connection says goodbye while it is waited for. */
static void a_credential_in_use_is_waited_for(void **state)
{
    struct muster_env *env = &member.pair.test.env;
    struct muster_timer timer;

    (void)state;
    member_init();
    assert_int_equal(member_open(NULL), MUSTER_OK);
    muster_timer_init(&timer, give_back, muster_tls_share(env->tls));
    muster_timer_start(&timer, env->loop, muster_loop_after_ns(env->loop, MUSTER_NS_PER_MS));
    muster_training_close_tls(env);

    assert_null(env->tls);
    assert_false(muster_timer_is_started(&timer));
    muster_timer_stop(&timer);
}

/* A connection that never gives its credential back is not waited for any longer. */
static void a_credential_that_stays_in_use_is_left(void **state)
{
    struct muster_env *env = &member.pair.test.env;
    struct muster_tls *shared;
    uint64_t before_ns;

    (void)state;
    member_init();
    assert_int_equal(member_open(NULL), MUSTER_OK);
    shared = muster_tls_share(env->tls);
    before_ns = muster_loop_now_ns(env->loop);
    muster_training_close_tls(env);

    assert_null(env->tls);
    assert_true(muster_loop_now_ns(env->loop) - before_ns >= 2 * MUSTER_NS_PER_S);
    muster_tls_close(shared);
}

TEST_SET_UP(tear_down, member_fini())
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_variables_links_are_plain),
        cmocka_unit_test(half_of_them_are_refused),
        cmocka_unit_test(members_of_the_job_alone_are_let_in),
        cmocka_unit_test(without_peers_or_roots_nothing_is_opened),
        cmocka_unit_test(the_key_may_be_in_a_file_of_its_own),
        cmocka_unit_test(files_are_looked_at_again_as_often_as_said),
        cmocka_unit_test(data_is_encrypted_unless_it_is_said_otherwise),
        CASE(a_credential_in_use_is_waited_for),
        CASE(a_credential_that_stays_in_use_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
