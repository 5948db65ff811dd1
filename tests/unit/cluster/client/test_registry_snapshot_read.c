/* Snapshots read from a registry that is played by hand: what is begun again, and what ends. */
#include "played_registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/registry.h>

#define LIVES_MAX 4
#define LONG_NS   (3600 * MUSTER_NS_PER_S)

struct row {
    const char *name;
    const char *lives[LIVES_MAX]; /* what each call says: see on_snapshot */
    unsigned calls;
    uint64_t bytes;
    enum muster_rc rc;
    const char *text; /* in the error */
};

struct stand {
    struct played_registry played;
    const struct row *row;
    char password_file[40];
    unsigned calls, logins;
    char token[8];
    struct muster_registry_snapshot snapshot;
    uint64_t bytes;
    bool is_done;
    enum muster_rc rc;
    struct muster_error error;
};

/* --- The registry --- */

/* "3" is a piece of three bytes, "G" no message, "!14" ends with that code, F says that
 * the token is forgotten, "-" leaves it open. */
static void on_snapshot(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct stand *stand = muster_rpc_service(rpc);
    const struct muster_metadata metadata = muster_rpc_metadata(rpc);
    const struct muster_metadata_entry *token = muster_metadata_find(&metadata, "token");
    const char *life = stand->row->lives[stand->calls++];

    assert_int_equal(bytes.size, 0);
    assert_non_null(life);
    (void)snprintf(stand->token, sizeof(stand->token), "%.*s",
                   token != NULL ? (int)token->value_bytes : 0,
                   token != NULL ? (const char *)token->value : "");
    for (const char *at = life; at != NULL && *at != '\0'; at = strchr(at, ' ')) {
        char piece[] = "\x1a\x00---------"; /* field 3: the bytes */

        at += *at == ' ';
        piece[1] = (char)atoi(at);
        if (*at == '-')
            return;
        if (*at == 'F') {
            muster_rpc_finish(rpc, MUSTER_UNAUTHENTICATED, "etcdserver: invalid auth token");
            return;
        }
        if (*at == '!') {
            muster_rpc_finish(rpc, (enum muster_rc)atoi(at + 1), "it is so");
            return;
        }
        if (*at == 'G')
            assert_int_equal(muster_rpc_send(rpc, "\xff", 1), MUSTER_OK);
        else
            assert_int_equal(muster_rpc_send(rpc, piece, 2 + (size_t)piece[1]), MUSTER_OK);
    }
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* Tokens "T1", "T2", … */
static void on_login(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct stand *stand = muster_rpc_service(rpc);
    char answer[8];

    (void)bytes;
    (void)snprintf(answer, sizeof(answer), "\x12\x02T%u", ++stand->logins);
    assert_int_equal(muster_rpc_send(rpc, answer, 4), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.Maintenance/Snapshot", .on_message = on_snapshot},
    {.path = "/etcdserverpb.Auth/Authenticate", .on_message = on_login, .is_unary = true},
};

/* --- The stand --- */

static void stand_open(struct stand *stand, const struct row *row, bool has_user)
{
    memset(stand, 0, sizeof(*stand));
    stand->row = row;
    stand->snapshot.data = stand;
    if (has_user) {
        int file;

        strcpy(stand->password_file, "/tmp/muster-password-XXXXXX");
        file = mkstemp(stand->password_file);
        assert_true(file >= 0 && write(file, "secret", 6) == 6);
        (void)close(file);
    }
    played_registry_open(&stand->played, methods, sizeof(methods) / sizeof(methods[0]), stand,
                         has_user ? stand->password_file : NULL);
}

static void stand_close(struct stand *stand)
{
    played_registry_close(&stand->played);
    if (stand->password_file[0] != '\0')
        (void)unlink(stand->password_file);
}

static void on_bytes(struct muster_registry_snapshot *snapshot, struct muster_bytes bytes)
{
    struct stand *stand = snapshot->data;

    stand->bytes += bytes.size;
    assert_int_equal(stand->bytes, snapshot->bytes);
}

static void on_done(struct muster_registry_snapshot *snapshot, enum muster_rc rc)
{
    struct stand *stand = snapshot->data;

    assert_false(stand->is_done);
    stand->is_done = true;
    stand->rc = rc;
    stand->error = snapshot->error;
}

static enum muster_rc start_read(struct stand *stand, uint64_t deadline_ns)
{
    return muster_registry_snapshot_start(&stand->snapshot, stand->played.registry, deadline_ns,
                                          on_bytes, on_done);
}

static void finish_read(struct stand *stand)
{
    assert_int_equal(start_read(stand, played_registry_soon(&stand->played)), MUSTER_OK);
    assert_false(stand->is_done);
    test_env_run_until(stand->played.env, test_env_is_true, &stand->is_done);
}

/* --- Cases --- */

static const struct row rows[] = {
    {"whole", {"3 4"}, 1, 7, MUSTER_OK, ""},
    {"empty", {""}, 1, 0, MUSTER_OK, ""},
    {"not there yet", {"!14", "!14", "3"}, 3, 3, MUSTER_OK, ""},
    {"broken off", {"3 !14"}, 1, 3, MUSTER_UNAVAILABLE, "it is so"},
    {"another error", {"!8"}, 1, 0, MUSTER_RESOURCE_EXHAUSTED, "it is so"},
    {"no message", {"3 G -"}, 1, 3, MUSTER_INTERNAL, "cannot be read"},
    {"no message, whole", {"G"}, 1, 0, MUSTER_INTERNAL, "cannot be read"},
};

static void a_snapshot_is_begun_again_until_something_came(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct stand stand;

        stand_open(&stand, row, false);
        finish_read(&stand);

        if (stand.calls != row->calls || stand.bytes != row->bytes || stand.rc != row->rc ||
            (row->rc != MUSTER_OK && stand.error.rc != row->rc) ||
            strstr(stand.error.text, row->text) == NULL)
            fail_msg("%s: %u calls, %u bytes, %s '%s'", row->name, stand.calls,
                     (unsigned)stand.bytes, muster_rc_name(stand.rc), stand.error.text);
        stand_close(&stand);
    }
}

static void an_endpoint_that_does_not_answer_is_left(void **state)
{
    static const struct row row = {.lives = {"3"}};
    char endpoints[MUSTER_ADDRESS_TEXT_BYTES + 16];
    struct stand stand;

    (void)state;
    stand_open(&stand, &row, false);
    (void)snprintf(endpoints, sizeof(endpoints), "127.0.0.1:1,%s", stand.played.endpoint);
    played_registry_dial(&stand.played,
                         (struct muster_registry_options){.endpoints = endpoints,
                                                          .backoff_base_ns = MUSTER_NS_PER_MS});
    finish_read(&stand);

    assert_int_equal(stand.rc, MUSTER_OK);
    assert_int_equal(stand.bytes, 3);
    stand_close(&stand);
}

static void a_token_is_sent_and_asked_for_again_when_it_is_forgotten(void **state)
{
    static const struct row row = {.lives = {"F", "3"}};
    struct stand stand;

    (void)state;
    stand_open(&stand, &row, true);
    finish_read(&stand);

    assert_int_equal(stand.rc, MUSTER_OK);
    assert_int_equal(stand.logins, 2);
    assert_string_equal(stand.token, "T2");
    stand_close(&stand);
}

static void the_reason_of_the_last_failure_is_told_at_the_deadline(void **state)
{
    static const struct row row = {.lives = {"!14"}};
    struct stand stand;

    (void)state;
    stand_open(&stand, &row, false);
    played_registry_dial(&stand.played, (struct muster_registry_options){
                                            .backoff_base_ns = LONG_NS, .backoff_max_ns = LONG_NS});
    finish_read(&stand); /* the next attempt would be too late */

    assert_int_equal(stand.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_string_equal(stand.error.text, "it is so");
    stand_close(&stand);
}

static bool is_waiting(void *data)
{
    const struct stand *stand = data;

    return stand->calls == 1 && !stand->snapshot.is_calling;
}

static void wait_for_the_next_attempt(struct stand *stand, const struct row *row)
{
    stand_open(stand, row, false);
    played_registry_dial(
        &stand->played,
        (struct muster_registry_options){.backoff_base_ns = LONG_NS, .backoff_max_ns = LONG_NS});
    assert_int_equal(start_read(stand, muster_loop_after_ns(stand->played.env->loop, 2 * LONG_NS)),
                     MUSTER_OK);
    test_env_run_until(stand->played.env, is_waiting, stand);
    assert_false(stand->is_done);
}

static void one_that_waits_is_cancelled_at_once(void **state)
{
    static const struct row row = {.lives = {"!14"}};
    struct stand stand;

    (void)state;
    wait_for_the_next_attempt(&stand, &row);
    muster_registry_snapshot_cancel(&stand.snapshot);
    muster_registry_snapshot_cancel(&stand.snapshot);
    assert_false(stand.is_done);
    test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);
    assert_int_equal(stand.rc, MUSTER_CANCELLED);
    muster_registry_snapshot_cancel(&stand.snapshot); /* it is over: nothing happens */

    test_env_turn(stand.played.env, 4);
    stand_close(&stand);
}

static void one_that_waits_ends_with_the_client(void **state)
{
    static const struct row row = {.lives = {"!14"}};
    struct stand stand;

    (void)state;
    wait_for_the_next_attempt(&stand, &row);
    played_registry_hang_up(&stand.played);
    assert_int_equal(start_read(&stand, played_registry_soon(&stand.played)),
                     MUSTER_FAILED_PRECONDITION);
    test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);

    assert_int_equal(stand.rc, MUSTER_CANCELLED);
    stand_close(&stand);
}

static void a_deadline_that_has_passed_is_refused(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, NULL, false);
    assert_int_equal(start_read(&stand, 0), MUSTER_INVALID_ARGUMENT);
    stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest registry_snapshot_client[] = {
        cmocka_unit_test(a_snapshot_is_begun_again_until_something_came),
        cmocka_unit_test(an_endpoint_that_does_not_answer_is_left),
        cmocka_unit_test(a_token_is_sent_and_asked_for_again_when_it_is_forgotten),
        cmocka_unit_test(the_reason_of_the_last_failure_is_told_at_the_deadline),
        cmocka_unit_test(one_that_waits_is_cancelled_at_once),
        cmocka_unit_test(one_that_waits_ends_with_the_client),
        cmocka_unit_test(a_deadline_that_has_passed_is_refused),
    };

    return cmocka_run_group_tests(registry_snapshot_client, NULL, NULL);
}
