/* A registry client with a password, before a registry that is played by hand and forgets tokens. */
#include "played_registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

#define STALE "etcdserver: invalid auth token"

struct row {
    const char *name;
    const char *password;   /* what the file holds; NULL: no file */
    unsigned stale;         /* so many tokens are forgotten at once */
    unsigned refused;       /* so many logins fail … */
    enum muster_rc refusal; /* … so */
    const char *refusal_text;
    unsigned logins, calls; /* expected */
    enum muster_rc rc;
    const char *token; /* of the last call; NULL: none */
    const char *text;  /* in the error */
};

struct stand {
    struct played_registry played;
    const struct row *row;
    char file[40];
    unsigned logins, calls, watches;
    unsigned created;   /* the watch of this number is created before it is refused; 0: none */
    bool is_first_held; /* the first call of all is not answered */
    struct muster_rpc *held;
    char token[8]; /* of the last call */
    struct muster_registry_op op;
    struct muster_registry_watch watch;
    bool is_done;
    enum muster_rc rc;
};

/* --- The registry --- */

static void note_token(struct stand *stand, const struct muster_rpc *rpc)
{
    const struct muster_metadata metadata = muster_rpc_metadata(rpc);
    const struct muster_metadata_entry *entry = muster_metadata_find(&metadata, "token");

    (void)snprintf(stand->token, sizeof(stand->token), "%.*s",
                   entry != NULL ? (int)entry->value_bytes : 0,
                   entry != NULL ? (const char *)entry->value : "");
}

static void on_login(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct stand *stand = muster_rpc_service(rpc);
    Etcdserverpb__AuthenticateRequest *request = NULL;
    bool is_right;
    char answer[8];
    int length;

    assert_int_equal(muster_proto_unpack(stand->played.env->mem,
                                         &etcdserverpb__authenticate_request__descriptor,
                                         bytes.data, bytes.size, NULL, &request, NULL),
                     MUSTER_OK);
    is_right = strcmp(request->name, "u") == 0 && strcmp(request->password, "secret") == 0;
    muster_proto_free(request);
    if (stand->logins++ < stand->row->refused && stand->row->refusal == MUSTER_OK) {
        return; /* no answer at all */
    } else if (stand->logins <= stand->row->refused) {
        muster_rpc_finish(rpc, stand->row->refusal, stand->row->refusal_text);
    } else if (!is_right) {
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "etcdserver: authentication failed");
    } else { /* field 2: the token "T1", "T2", … */
        length = snprintf(answer, sizeof(answer), "\x12\x02T%u", stand->logins);
        assert_int_equal(muster_rpc_send(rpc, answer, (size_t)length), MUSTER_OK);
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
    }
}

static void on_range(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct stand *stand = muster_rpc_service(rpc);

    (void)bytes;
    note_token(stand, rpc);
    if (stand->calls++ == 0 && stand->is_first_held) {
        stand->held = rpc;
        return;
    }
    if (stand->calls - (stand->held != NULL) <= stand->row->stale) {
        muster_rpc_finish(rpc, MUSTER_UNAUTHENTICATED, STALE);
        return;
    }
    assert_int_equal(muster_rpc_send(rpc, "\x0a\x02\x18\x05", 4), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* So many watches are refused in the words that a forgotten token gets, too; the next ends otherwise. */
static void on_watch(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    static const char refused[] = "\x20\x01\x32\x1d"
                                  "etcdserver: permission denied";
    static const char other[] = "\x20\x01\x32\x05"
                                "other";
    struct stand *stand = muster_rpc_service(rpc);
    bool is_refused = stand->watches++ < stand->row->stale;

    (void)bytes;
    note_token(stand, rpc);
    if (stand->watches == stand->created)
        assert_int_equal(muster_rpc_send(rpc, "\x18\x01", 2), MUSTER_OK);
    assert_int_equal(muster_rpc_send(rpc, is_refused ? refused : other,
                                     is_refused ? sizeof(refused) - 1 : sizeof(other) - 1),
                     MUSTER_OK);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.Auth/Authenticate", .on_message = on_login, .is_unary = true},
    {.path = "/etcdserverpb.KV/Range", .on_message = on_range, .is_unary = true},
    {.path = "/etcdserverpb.Watch/Watch", .on_message = on_watch},
};

/* --- The stand --- */

static void write_password(struct stand *stand, const char *password)
{
    int file;

    strcpy(stand->file, "/tmp/muster-password-XXXXXX");
    file = mkstemp(stand->file);
    assert_true(file >= 0);
    if (password != NULL)
        assert_int_equal(write(file, password, strlen(password)), strlen(password));
    (void)close(file);
    if (password == NULL)
        (void)unlink(stand->file);
}

static void stand_open(struct stand *stand, const struct row *row)
{
    memset(stand, 0, sizeof(*stand));
    stand->row = row;
    write_password(stand, row->password);
    played_registry_open(&stand->played, methods, sizeof(methods) / sizeof(methods[0]), stand,
                         stand->file);
    stand->op.data = stand->watch.data = stand;
}

static void stand_close(struct stand *stand)
{
    played_registry_close(&stand->played);
    (void)unlink(stand->file);
}

/* --- Cases --- */

static void on_op(struct muster_registry_op *op, enum muster_rc rc)
{
    struct stand *stand = op->data;

    stand->is_done = true;
    stand->rc = rc;
}

static const struct row rows[] = {
    {"right", "secret\n", 0, 0, 0, NULL, 1, 1, MUSTER_OK, "T1", ""},
    {"right, of another system", "secret\r\n", 0, 0, 0, NULL, 1, 1, MUSTER_OK, "T1", ""},
    {"right, more lines", "secret\nmore", 0, 0, 0, NULL, 1, 1, MUSTER_OK, "T1", ""},
    {"forgotten", "secret", 1, 0, 0, NULL, 2, 2, MUSTER_OK, "T2", ""},
    {"forgotten by several", "secret", 3, 0, 0, NULL, 4, 4, MUSTER_OK, "T4", ""},
    {"forgotten for ever", "secret", 9, 0, 0, NULL, 4, 4, MUSTER_UNAUTHENTICATED, "T4", STALE},
    {"wrong", "Secret", 0, 0, 0, NULL, 1, 0, MUSTER_UNAUTHENTICATED, "",
     "registry user 'u': etcdserver: authentication failed"},
    {"no file", NULL, 0, 0, 0, NULL, 0, 0, MUSTER_UNAUTHENTICATED, "", "cannot be read"},
    {"refused", "secret", 0, 9, MUSTER_PERMISSION_DENIED, "no", 1, 0, MUSTER_UNAUTHENTICATED, "",
     "registry user 'u': no"},
    {"no such thing", "secret", 0, 9, MUSTER_UNIMPLEMENTED, "no", 1, 0, MUSTER_UNAUTHENTICATED, "",
     "registry user 'u': no"},
    {"busy", "secret", 0, 2, MUSTER_UNAVAILABLE, "later", 3, 1, MUSTER_OK, "T3", ""},
    {"open to all", "secret", 0, 9, MUSTER_FAILED_PRECONDITION,
     "etcdserver: authentication is not enabled", 1, 1, MUSTER_OK, "", ""},
};

static void a_token_is_asked_for_and_asked_for_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_registry_range range = {.key = {"k", 1}};
        const struct row *row = &rows[i];
        struct stand stand;

        stand_open(&stand, row);
        assert_int_equal(muster_registry_range_start(&stand.op, stand.played.registry, &range,
                                                     played_registry_soon(&stand.played), on_op),
                         MUSTER_OK);
        test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);

        if (stand.logins != row->logins || stand.calls != row->calls || stand.rc != row->rc ||
            strcmp(stand.token, row->token) != 0 || strstr(stand.op.error.text, row->text) == NULL)
            fail_msg("%s: %u logins, %u calls with '%s', %s '%s'", row->name, stand.logins,
                     stand.calls, stand.token, muster_rc_name(stand.rc), stand.op.error.text);
        assert_int_equal(stand.op.is_unsent, row->calls == 0);
        stand_close(&stand);
    }
}

static void start_range(struct stand *stand, struct muster_registry_op *op)
{
    const struct muster_registry_range range = {.key = {"k", 1}};

    op->data = stand;
    assert_int_equal(muster_registry_range_start(op, stand->played.registry, &range,
                                                 played_registry_soon(&stand->played), on_op),
                     MUSTER_OK);
}

static bool has_logged_in(void *data)
{
    return ((struct stand *)data)->logins > 0;
}

static void what_waits_for_a_token_ends_with_the_client(void **state)
{
    static const struct row silent = {.password = "secret", .refused = 1};
    struct stand stand;

    (void)state;
    stand_open(&stand, &silent);
    start_range(&stand, &stand.op);
    test_env_run_until(stand.played.env, has_logged_in, &stand);
    played_registry_hang_up(&stand.played);
    test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);

    assert_int_equal(stand.rc, MUSTER_CANCELLED);
    stand_close(&stand);
}

/* The next login waits for a second, and a registry may take its time with it. */
static void a_deadline_after_a_refused_login_tells_the_refusal(void **state)
{
    static const struct row refusing = {.password = "secret",
                                        .refused = 1,
                                        .refusal = MUSTER_PERMISSION_DENIED,
                                        .refusal_text = "no"};
    static const struct row silent = {.password = "secret", .refused = 99};
    const struct muster_registry_range range = {.key = {"k", 1}};
    struct stand stand;

    (void)state;
    stand_open(&stand, &refusing);
    start_range(&stand, &stand.op);
    test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);
    assert_int_equal(stand.rc, MUSTER_UNAUTHENTICATED);
    stand.row = &silent;
    stand.is_done = false;
    assert_int_equal(muster_registry_range_start(
                         &stand.op, stand.played.registry, &range,
                         muster_loop_after_ns(stand.played.env->loop, 100 * MUSTER_NS_PER_MS),
                         on_op),
                     MUSTER_OK);
    test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);

    assert_int_equal(stand.rc, MUSTER_UNAUTHENTICATED);
    assert_string_equal(stand.op.error.text, "registry user 'u': no");
    assert_true(stand.op.is_unsent);
    stand_close(&stand);
}

static bool is_held(void *data)
{
    return ((struct stand *)data)->held != NULL;
}

/* A new token that another operation has asked for is none of its business. */
static void an_operation_under_way_is_not_begun_again(void **state)
{
    static const struct row forgotten = {.password = "secret", .stale = 1};
    struct muster_registry_op second;
    struct stand stand;

    (void)state;
    memset(&second, 0, sizeof(second));
    stand_open(&stand, &forgotten);
    stand.is_first_held = true;
    start_range(&stand, &stand.op);
    test_env_run_until(stand.played.env, is_held, &stand);
    start_range(&stand, &second);
    test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);
    assert_int_equal(stand.logins, 2);
    assert_int_equal(stand.calls, 3); /* one is held, one was refused, one answered */
    test_env_turn(stand.played.env, 20);
    assert_int_equal(stand.calls, 3);
    stand.is_done = false;
    assert_int_equal(muster_rpc_send(stand.held, "\x0a\x02\x18\x05", 4), MUSTER_OK);
    muster_rpc_finish(stand.held, MUSTER_OK, NULL);
    test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);

    assert_int_equal(stand.rc, MUSTER_OK);
    stand_close(&stand);
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    (void)watch;
    (void)changes;
    (void)count;
    fail();
}

static void on_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct stand *stand = watch->data;

    stand->is_done = true;
    stand->rc = rc;
}

/* The words are the same for a token that was forgotten: a new one shows which it is. */
static void a_watch_that_is_refused_is_asked_for_with_a_new_token(void **state)
{
    static const struct row refusals[] = {
        {"forgotten", "secret", 1, 0, 0, NULL, 2, 2, MUSTER_FAILED_PRECONDITION, "T2", "other"},
        {"refused", "secret", 9, 0, 0, NULL, 2, 2, MUSTER_PERMISSION_DENIED, "T2", "permission"},
        {"forgotten, and later again", "secret", 2, 0, 0, NULL, 3, 3, MUSTER_FAILED_PRECONDITION,
         "T3", "other"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct row *row = &refusals[i];
        struct stand stand;

        stand_open(&stand, row);
        stand.created = i == 2 ? 2 : 0; /* the new token was right for a while */
        stand.watch.error.rc = MUSTER_INTERNAL; /* of a watch before */
        assert_int_equal(muster_registry_watch_start(&stand.watch, stand.played.registry,
                                                     (struct muster_bytes){"k", 1},
                                                     MUSTER_REGISTRY_KEY, 0, on_changes, on_end),
                         MUSTER_OK);
        assert_int_equal(stand.watch.error.rc, MUSTER_OK);
        test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);

        if (stand.logins != row->logins || stand.watches != row->calls || stand.rc != row->rc ||
            strcmp(stand.token, row->token) != 0 ||
            strstr(stand.watch.error.text, row->text) == NULL)
            fail_msg("%s: %u logins, %u watches with '%s', %s '%s'", row->name, stand.logins,
                     stand.watches, stand.token, muster_rc_name(stand.rc), stand.watch.error.text);
        stand_close(&stand);
    }
}

int main(void)
{
    const struct CMUnitTest registry_client_auth[] = {
        cmocka_unit_test(a_token_is_asked_for_and_asked_for_again),
        cmocka_unit_test(what_waits_for_a_token_ends_with_the_client),
        cmocka_unit_test(a_deadline_after_a_refused_login_tells_the_refusal),
        cmocka_unit_test(an_operation_under_way_is_not_begun_again),
        cmocka_unit_test(a_watch_that_is_refused_is_asked_for_with_a_new_token),
    };

    return cmocka_run_group_tests(registry_client_auth, NULL, NULL);
}
