/* The registry's meaning: revisions, ranges, writes and compaction, as short scripts and what
 * they answer. */
#include "mvcc_stage.h"
#include "scene_case.h"
#include "store_stage.h"

#include <string.h>

static void ranges_answer_as_etcd_does(void **state)
{
    static const struct mvcc_row rows[] = {
        {"missing key", "", "range a", "#0"},
        {"one key", ABC, "range b", "b=2:3,3,1 #1"},
        {"half-open", ABC, "range a c", "a=1:2,2,1 b=2:3,3,1 #2"},
        {"open end", ABC, "range b *", "b=2:3,3,1 c=3:4,4,1 #2"},
        {"end before key", ABC, "range c a", "#0"},
        {"limit cuts, count does not", ABC, "range a * limit=2", "a=1:2,2,1 b=2:3,3,1 #3+"},
        {"limit equal to the count", ABC, "range a * limit=3", "a=1:2,2,1 b=2:3,3,1 c=3:4,4,1 #3"},
        {"keys only", ABC, "range a c keys_only", "a=:2,2,1 b=:3,3,1 #2"},
        {"count only", ABC, "range a * count_only", "#3"},
        {"descending", ABC, "range a * desc limit=1", "c=3:4,4,1 #3+"},
        {"target without order ascends", ABC "put a 0", "range a * by=mod",
         "b=2:3,3,1 c=3:4,4,1 a=0:2,5,2 #3"},
        {"by value", "put a 9;put b 10;put c 1", "range a * by=value",
         "c=1:4,4,1 b=10:3,3,1 a=9:2,2,1 #3"},
        {"by create, newest first, one", ABC "put a 5", "range a * by=create desc limit=1",
         "c=3:4,4,1 #3+"},
        {"by version", ABC "put b 5", "range a * by=version desc limit=1", "b=5:3,5,2 #3+"},
        {"min and max mod", ABC, "range a * min_mod=3 max_mod=3", "b=2:3,3,1 #3"},
        {"max create", ABC "put a 5", "range a * max_create=2", "a=5:2,5,2 #3"},
        {"the past", ABC "put a 5;del b", "range a * rev=4", "a=1:2,2,1 b=2:3,3,1 c=3:4,4,1 #3"},
        {"before a key was", ABC, "range a * rev=2", "a=1:2,2,1 #1"},
        {"deleted and made again", "put a 1;del a;put a 2", "range a", "a=2:4,4,1 #1"},
        {"while it was deleted", "put a 1;del a;put a 2", "range a rev=3", "#0"},
        {"first life", "put a 1;del a;put a 2", "range a rev=2", "a=1:2,2,1 #1"},
        {"future", ABC, "range a rev=5", FUTURE},
        {"negative is now", ABC, "range a rev=-3", "a=1:2,2,1 #1"},
        {"empty key", ABC, "range ''", "INVALID_ARGUMENT etcdserver: key is not provided"},
        {"bad order", ABC, "range a order=3", "INVALID_ARGUMENT etcdserver: invalid sort option"},
        {"order below all", ABC, "range a order=-1",
         "INVALID_ARGUMENT etcdserver: invalid sort option"},
        {"bad target", ABC, "range a by_number=5",
         "INVALID_ARGUMENT etcdserver: invalid sort option"},
        {"target below all", ABC, "range a by_number=-1",
         "INVALID_ARGUMENT etcdserver: invalid sort option"},
        {"compacted", ABC "put a 2;mvcc_stage_compact 4", "range a rev=3", COMPACTED},
        {"the mvcc_stage_compact revision stays", ABC "put a 2;mvcc_stage_compact 4",
         "range a * rev=4", "a=1:2,2,1 b=2:3,3,1 c=3:4,4,1 #3"},
    };

    (void)state;
    mvcc_stage_check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

static void writes_answer_as_etcd_does(void **state)
{
    static const struct mvcc_row rows[] = {
        {"previous of a new key", "", "put a 1 prev", "put"},
        {"previous", "put a 1", "put a 2 prev", "a=1:2,2,1 put"},
        {"previous of a deleted key", "put a 1;del a", "put a 2 prev", "put"},
        {"ignore value", "put a 1", "put a '' ignore_value prev", "a=1:2,2,1 put"},
        {"ignore value with a value", "put a 1", "put a 2 ignore_value",
         "INVALID_ARGUMENT etcdserver: value is provided"},
        {"ignore value without key", "", "put a '' ignore_value",
         "INVALID_ARGUMENT etcdserver: key not found"},
        {"ignore value of a deleted key", "put a 1;del a", "put a '' ignore_value",
         "INVALID_ARGUMENT etcdserver: key not found"},
        {"ignore lease with a lease", "put a 1", "put a 2 ignore_lease lease=7",
         "INVALID_ARGUMENT etcdserver: lease is provided"},
        {"ignore lease without key", "", "put a 2 ignore_lease",
         "INVALID_ARGUMENT etcdserver: key not found"},
        {"unknown lease", "", "put a 1 lease=9", "NOT_FOUND etcdserver: requested lease not found"},
        {"empty key", "", "put '' 1", "INVALID_ARGUMENT etcdserver: key is not provided"},
        {"delete nothing", "", "del a", "-0"},
        {"delete one", ABC, "del a", "-1"},
        {"delete twice", ABC "del a", "del a", "-0"},
        {"delete a range with previous", ABC, "del a c prev", "a=1:2,2,1 b=2:3,3,1 -2"},
        {"delete everything", ABC, "del * *", "-3"},
        {"delete empty key", "", "del ''", "INVALID_ARGUMENT etcdserver: key is not provided"},
        {"ignore lease keeps it", "put a 1 lease=7;put a 2 ignore_lease", "range a",
         "a=2:2,3,2/7 #1"},
        {"ignore value keeps it", "put a 1;put a '' ignore_value lease=8", "range a",
         "a=1:2,3,2/8 #1"},
        {"a put without lease detaches", "put a 1 lease=7;put a 2", "range a", "a=2:2,3,2 #1"},
        {"reads and empty deletes use no revision", "put a 1;range a;del x;range a", "put b 1 prev",
         "put"},
        {"so the next revision is 3", "put a 1;range a;del x;range a;put b 1", "range b",
         "b=1:3,3,1 #1"},
    };

    (void)state;
    mvcc_stage_check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

static void compaction_forgets_history_and_keeps_what_lives(void **state)
{
    static const struct mvcc_row rows[] = {
        {"live keys stay", ABC "put a 2;del b;mvcc_stage_compact 6", "range a *",
         "a=2:2,5,2 c=3:4,4,1 #2"},
        {"twice", ABC "mvcc_stage_compact 3", "mvcc_stage_compact 3",
         "etcdserver: mvcc: required revision has been compacted"},
        {"future", ABC, "mvcc_stage_compact 9",
         "etcdserver: mvcc: required revision is a future revision"},
        {"deleted key can come again", "put a 1;del a;mvcc_stage_compact 3;put a 2", "range a",
         "a=2:4,4,1 #1"},
        {"deletion after the mvcc_stage_compact revision",
         "put a 1;put b 1;mvcc_stage_compact 3;del a", "range a rev=3", "a=1:2,2,1 #1"},
        {"later history survives", "put a 1;put a 2;put a 3;put a 4;mvcc_stage_compact 3",
         "range a rev=4", "a=3:2,4,3 #1"},
        {"previous of a compacted value", "put a 1;put a 2;mvcc_stage_compact 3", "put a 3 prev",
         "a=2:2,3,2 put"},
    };

    (void)state;
    mvcc_stage_check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

SCENE_CASES(struct mvcc_stage, mvcc_stage_open, mvcc_stage_close)

static void keys_of_a_lease_go_in_one_revision(void **state)
{
    struct mvcc_stage *f = *state;
    int64_t deleted = 0;

    mvcc_stage_run_script(
        f, "put c 1 lease=7;put a 1 lease=7;put b 1 lease=8;put d 1 lease=7;put d 2");

    assert_int_equal(muster_mvcc_delete_leased(&f->mvcc, 7, &f->arena, &deleted), MUSTER_OK);
    assert_int_equal(deleted, 2);
    assert_int_equal(f->mvcc.meta.revision, 7);
    assert_int_equal(muster_mvcc_delete_leased(&f->mvcc, 7, &f->arena, &deleted), MUSTER_OK);
    assert_int_equal(deleted, 0);
    assert_int_equal(f->mvcc.meta.revision, 7);
    assert_string_equal(mvcc_stage_line(f, "range a *"), "b=1:4,4,1/8 d=2:5,6,2 #2");
}

static void rollback_forgets_what_was_not_committed(void **state)
{
    struct mvcc_stage *f = *state;
    struct muster_mvcc_result result;
    struct muster_error error;
    bool is_broken = false;
    char text[64];
    struct muster_mvcc_request put = mvcc_stage_op(text, "put z 1");

    mvcc_stage_run_script(f, ABC);
    assert_int_equal(muster_mvcc_apply(&f->mvcc, &put, &f->arena, &result, &error, &is_broken),
                     MUSTER_OK);

    assert_int_equal(muster_mvcc_init(&f->mvcc, f->store, mvcc_stage_has_lease, NULL), MUSTER_OK);

    assert_int_equal(f->mvcc.meta.revision, 4);
    assert_string_equal(mvcc_stage_line(f, "range z"), "#0");
    assert_string_equal(mvcc_stage_line(f, "put z 2"), "put");
}

static void a_request_without_memory_is_refused_or_undone_whole(void **state)
{
    struct mvcc_stage *f = *state;
    char text[4][64];
    struct muster_mvcc_request ops[4] = {
        mvcc_stage_op(text[0], "put x 1"), mvcc_stage_op(text[1], "range a * by=value"),
        mvcc_stage_op(text[2], "del a c prev"), mvcc_stage_op(text[3], "put b 2 prev")};
    const struct muster_mvcc_compare compare = {.span.key = mvcc_stage_bytes_of("a"),
                                                .span.end = mvcc_stage_bytes_of("''"),
                                                .target = MUSTER_MVCC_COMPARE_VALUE,
                                                .value = mvcc_stage_bytes_of("1")};
    unsigned refusals = 0;

    ops[3].put.key = mvcc_stage_bytes_of("Z");
    mvcc_stage_run_script(f, ABC);
    muster_registry_arena_fini(&f->arena);
    for (size_t limit = 0; limit < 20000; limit++) {
        struct muster_mvcc_request request = mvcc_stage_txn_of(&compare, 1, ops, 4, NULL, 0);
        struct muster_mvcc_result result;
        struct muster_error error;
        bool is_broken = false;
        enum muster_rc rc;

        f->arena.limit_bytes = limit;
        rc = muster_mvcc_apply(&f->mvcc, &request, &f->arena, &result, &error, &is_broken);
        if (rc == MUSTER_OK)
            break;
        refusals++;
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_int_equal(error.rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_true(is_broken || !muster_registry_store_is_writing(f->store));
        assert_int_equal(muster_mvcc_rollback(&f->mvcc), MUSTER_OK);
        assert_int_equal(f->mvcc.meta.revision, 4);
        muster_registry_arena_reset(&f->arena);
    }
    assert_true(refusals > 10);
    muster_registry_arena_reset(&f->arena);
    f->arena.limit_bytes = MUSTER_MVCC_ANSWER_BYTES_MAX;
    assert_string_equal(mvcc_stage_line(f, "range a *"), "c=3:4,4,1 x=1:5,5,1 #2");
}

static void a_full_store_refuses_puts_and_allows_deletes(void **state)
{
    struct mvcc_stage *f = *state;

    mvcc_stage_run_script(f, ABC);
    f->mvcc.is_full = true;

    assert_string_equal(mvcc_stage_line(f, "put d 1"),
                        "RESOURCE_EXHAUSTED etcdserver: mvcc: database space exceeded");
    assert_string_equal(mvcc_stage_line(f, "del a"), "-1");
}

static enum muster_rc hash_history(struct mvcc_stage *f, int64_t revision, size_t step_bytes,
                                   struct muster_mvcc_hash *ret_hash, struct muster_error *error)
{
    bool is_done = false;
    enum muster_rc rc = muster_mvcc_hash_init(&f->mvcc, revision, ret_hash, error);

    while (rc == MUSTER_OK && !is_done)
        rc = muster_mvcc_hash_step(&f->mvcc, ret_hash, step_bytes, &is_done, error);
    return rc;
}

static uint32_t hash_in_steps_of(const char *script, int64_t revision, size_t step_bytes)
{
    struct muster_mvcc_hash hash;
    struct muster_error error;
    struct mvcc_stage f;

    mvcc_stage_open(&f);
    mvcc_stage_run_script(&f, script);
    assert_int_equal(hash_history(&f, revision, step_bytes, &hash, &error), MUSTER_OK);
    mvcc_stage_close(&f);
    return hash.value;
}

static uint32_t hash_of(const char *script, int64_t revision)
{
    return hash_in_steps_of(script, revision, SIZE_MAX);
}

static void hash_tells_equal_histories_and_different_ones(void **state)
{
    static const struct {
        const char *script;
        int64_t revision;
        bool is_equal;
    } rows[] = {
        {ABC, 0, true},
        {ABC, 4, true},
        {ABC "put a 2", 4, true},
        {ABC "put a 2", 0, false},
        {ABC, 3, false},
        {"put a 1;put b 2;put d 3", 0, false},
        {"put a 1;put b 2;put c 4", 0, false},
        {"put a 1;put b 2;put c 33", 0, false},
        {"put a 1;put b 2;put c 3 lease=7", 0, false},
        {"put b 2;put a 1;put c 3", 0, false},
        {"put a 1;put a 1;put a 1", 0, false},
    };

    (void)state;
    assert_int_equal(hash_of("", 0), 2166136261); /* FNV-1a of nothing */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if ((hash_of(rows[i].script, rows[i].revision) == hash_of(ABC, 0)) != rows[i].is_equal)
            fail_msg("%s at %d", rows[i].script, (int)rows[i].revision);
    }
}

/* A registry that was upgraded must not tell another hash of what it holds. */
static void hash_of_one_history_stays_the_same(void **state)
{
    (void)state;
    assert_int_equal(hash_of("put a 1;put b 22 lease=7;put a 3;del b", 0), 0x28ca9d11);
}

static void hash_does_not_depend_on_the_size_of_its_steps(void **state)
{
    static const size_t steps[] = {1, 50, 1000};

    (void)state;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        assert_int_equal(hash_in_steps_of(ABC "put a 2", 0, steps[i]), hash_of(ABC "put a 2", 0));
        assert_int_equal(hash_in_steps_of(ABC "put a 2", 3, steps[i]), hash_of(ABC "put a 2", 3));
    }
}

/* A compaction deletes rows that a step may have hashed, or not yet. */
static void hash_begins_again_when_a_compaction_overtakes_it(void **state)
{
    struct mvcc_stage *f = *state;
    struct muster_mvcc_hash hash, fresh;
    struct muster_error error;
    bool is_done = false;

    mvcc_stage_run_script(f, ABC "put a 2;put a 3");
    assert_int_equal(muster_mvcc_hash_init(&f->mvcc, 0, &hash, &error), MUSTER_OK);
    assert_int_equal(muster_mvcc_hash_step(&f->mvcc, &hash, 1, &is_done, &error), MUSTER_OK);
    assert_false(is_done);
    mvcc_stage_compact(f, 5);
    while (!is_done)
        assert_int_equal(muster_mvcc_hash_step(&f->mvcc, &hash, 1, &is_done, &error), MUSTER_OK);
    assert_int_equal(hash_history(f, 0, SIZE_MAX, &fresh, &error), MUSTER_OK);
    assert_int_equal(hash.value, fresh.value);
    assert_int_equal(hash.revision, 6);
    assert_int_equal(hash.compact_revision, 5);

    assert_int_equal(muster_mvcc_hash_init(&f->mvcc, 5, &hash, &error), MUSTER_OK);
    assert_int_equal(muster_mvcc_hash_step(&f->mvcc, &hash, 1, &is_done, &error), MUSTER_OK);
    mvcc_stage_compact(f, 6);
    assert_int_equal(muster_mvcc_hash_step(&f->mvcc, &hash, 1, &is_done, &error),
                     MUSTER_OUT_OF_RANGE);
}

static void hash_is_refused_where_a_range_is(void **state)
{
    struct mvcc_stage *f = *state;
    struct muster_mvcc_hash hash = {.value = 77};
    struct muster_error error;

    mvcc_stage_run_script(f, ABC "put a 2;mvcc_stage_compact 4");
    assert_int_equal(hash_history(f, 6, SIZE_MAX, &hash, &error), MUSTER_OUT_OF_RANGE);
    assert_int_equal(hash_history(f, 3, SIZE_MAX, &hash, &error), MUSTER_OUT_OF_RANGE);
    assert_int_equal(hash.value, 77);
    store_stage_run_sql(muster_registry_store_database(f->store), "DROP TABLE log");
    assert_int_equal(hash_history(f, 0, SIZE_MAX, &hash, &error), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(error.text, "no such table"));
}

/* Rows that are gone, or cannot be read or written: the request fails, and its owner has to roll
 * back. */
static void damage_of_the_store_breaks_a_request(void **state)
{
    static const struct {
        const char *name, *before, *damage, *script;
        enum muster_rc rc;
    } rows[] = {
        {"no log", ABC, "DROP TABLE log", "put a 1", MUSTER_UNAVAILABLE},
        {"no keys", ABC, "DROP TABLE keys", "put a 1", MUSTER_UNAVAILABLE},
        {"no keys, read", ABC, "DROP TABLE keys", "range a *", MUSTER_UNAVAILABLE},
        {"no keys, one read", ABC, "DROP TABLE keys", "range a", MUSTER_UNAVAILABLE},
        {"no keys, deleted", ABC, "DROP TABLE keys", "del a *", MUSTER_UNAVAILABLE},
        {"no keys, value ignored", ABC, "DROP TABLE keys", "put a '' ignore_value",
         MUSTER_UNAVAILABLE},
        {"no log, deleted", ABC, "DROP TABLE log", "del a *", MUSTER_UNAVAILABLE},
        {"no log, read", ABC, "DROP TABLE log", "range a", MUSTER_UNAVAILABLE},
        {"no log, read before", ABC "put a 5", "DROP TABLE log", "range a rev=3",
         MUSTER_UNAVAILABLE},
        {"no row of the value", ABC, "DELETE FROM log WHERE seq = 2", "range a *",
         MUSTER_DATA_LOSS},
        {"no row of the value to sort by", ABC, "DELETE FROM log WHERE seq = 2",
         "range a * by=value", MUSTER_DATA_LOSS},
        {"no row of the value before", ABC, "DELETE FROM log WHERE seq = 2", "put b 1 prev",
         MUSTER_DATA_LOSS},
        {"no row of the value kept", ABC, "DELETE FROM log WHERE seq = 2", "put b '' ignore_value",
         MUSTER_DATA_LOSS},
        {"no row of the value deleted", ABC, "DELETE FROM log WHERE seq = 2", "del a * prev",
         MUSTER_DATA_LOSS},
        {"no row of the newest, read before", ABC "put b 5", "DELETE FROM log WHERE seq = 4",
         "range b rev=3", MUSTER_NOT_FOUND},
        {"a row of the log too many", ABC, "INSERT INTO log VALUES(4, 'x', '', 1, 9, 1, 0, 0)",
         "put a 1", MUSTER_ALREADY_EXISTS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct mvcc_stage f;
        char text[64];
        struct muster_mvcc_request request = mvcc_stage_op(text, rows[i].script);
        struct muster_mvcc_result result;
        struct muster_error error;
        bool is_broken = false;
        enum muster_rc rc;

        mvcc_stage_open(&f);
        mvcc_stage_run_script(&f, rows[i].before);
        store_stage_run_sql(muster_registry_store_database(f.store), rows[i].damage);

        rc = muster_mvcc_apply(&f.mvcc, &request, &f.arena, &result, &error, &is_broken);
        if (rc != rows[i].rc || error.rc != rows[i].rc || !is_broken)
            fail_msg("%s: %s %s", rows[i].name, muster_rc_name(rc), error.text);
        assert_memory_equal(error.text, "registry store: ", 16);
        assert_int_equal(f.mvcc.meta.revision, strcmp(rows[i].before, ABC) == 0 ? 4 : 5);
        mvcc_stage_close(&f);
    }
}

static void damage_is_told_by_compaction_leases_and_the_past(void **state)
{
    struct mvcc_stage *f = *state;
    struct muster_registry_record record = {.prev_seq = 1, .version = 2}, previous = {.seq = 77};
    struct muster_error error;
    int64_t deleted = 77;
    bool is_done = false;

    mvcc_stage_run_script(f, ABC "put a 1 lease=7");
    assert_int_equal(muster_mvcc_compact(&f->mvcc, 4, &error), MUSTER_OK);
    store_stage_run_sql(muster_registry_store_database(f->store),
                        "DROP TABLE log; CREATE TABLE log(seq, mod_revision); ALTER TABLE leases"
                        " RENAME TO other");
    assert_int_equal(muster_mvcc_delete_leased(&f->mvcc, 7, &f->arena, &deleted),
                     MUSTER_UNAVAILABLE);
    assert_int_equal(deleted, 77);
    assert_int_equal(f->mvcc.meta.revision, 5);
    store_stage_run_sql(muster_registry_store_database(f->store),
                        "DROP TABLE log; DROP TABLE keys");
    assert_int_equal(muster_mvcc_delete_leased(&f->mvcc, 7, &f->arena, &deleted),
                     MUSTER_UNAVAILABLE);
    assert_int_equal(muster_mvcc_compact_step(&f->mvcc, 9, &is_done), MUSTER_UNAVAILABLE);
    assert_int_equal(muster_mvcc_previous(&f->mvcc, &record, &f->arena, &previous),
                     MUSTER_UNAVAILABLE);
    assert_int_equal(previous.seq, 77);
    assert_int_equal(f->mvcc.meta.compacted_seq, 0);
}

/* Changes that are not saved are saved by a later commit, or forgotten by a rollback. */
static void a_commit_that_fails_saves_nothing(void **state)
{
    static const char *const hindrances[] = {"BEGIN", "DROP TABLE meta"};

    (void)state;
    for (size_t i = 0; i < sizeof(hindrances) / sizeof(hindrances[0]); i++) {
        struct mvcc_stage f;
        struct muster_registry_meta meta = {.revision = 0};
        struct muster_error error;

        mvcc_stage_open(&f);
        mvcc_stage_run_script(&f, ABC);
        assert_int_equal(muster_mvcc_compact(&f.mvcc, 3, &error), MUSTER_OK);
        store_stage_run_sql(muster_registry_store_database(f.store), hindrances[i]);

        assert_int_equal(muster_mvcc_commit(&f.mvcc), MUSTER_UNAVAILABLE);
        assert_true(f.mvcc.is_meta_stale);
        assert_int_equal(muster_mvcc_rollback(&f.mvcc), i == 0 ? MUSTER_OK : MUSTER_UNAVAILABLE);
        assert_false(f.mvcc.is_meta_stale);
        if (i == 0) {
            assert_int_equal(f.mvcc.meta.compact_revision, 0);
            assert_int_equal(muster_registry_store_load_meta(f.store, &meta), MUSTER_OK);
            assert_int_equal(meta.compact_revision, 0);
        }
        mvcc_stage_close(&f);
    }
}

static void a_commit_saves_the_counters_with_the_rows(void **state)
{
    struct mvcc_stage *f = *state;
    struct muster_registry_meta meta = {.revision = 0};

    mvcc_stage_run_script(f, ABC);
    assert_false(f->mvcc.is_meta_stale);
    assert_false(muster_registry_store_is_writing(f->store));

    muster_registry_store_rollback(f->store);
    assert_int_equal(muster_registry_store_load_meta(f->store, &meta), MUSTER_OK);
    assert_int_equal(meta.revision, 4);
    assert_int_equal(muster_registry_store_committed_seq(f->store), 3);
}

/* A random run of puts, deletes and compactions agrees with a plain model at every readable
 * revision. */
static void history_agrees_with_a_model(void **state)
{
    struct mvcc_stage *f = *state;
    enum { KEYS = 6, STEPS = 120 };
    static int values[STEPS + 2][KEYS]; /* by revision; 0: absent */
    struct muster_rng_seeded rng;
    int64_t oldest = 1;

    memset(values, 0, sizeof(values));
    muster_rng_seeded_init(&rng, 17);
    for (int step = 0; step < STEPS; step++) {
        int64_t revision = f->mvcc.meta.revision;
        unsigned key = (unsigned)muster_rng_below(&rng.rng, KEYS);
        char text[64];

        memcpy(values[revision + 1], values[revision], sizeof(values[0]));
        values[revision + 1][key] = muster_rng_below(&rng.rng, 3) == 0 ? 0 : step + 1;
        (void)snprintf(text, sizeof(text),
                       values[revision + 1][key] == 0 ? "del k%u" : "put k%u %d", key,
                       values[revision + 1][key]);
        (void)mvcc_stage_line(f, text);
        if (muster_rng_below(&rng.rng, 10) == 0) {
            oldest +=
                (int64_t)muster_rng_below(&rng.rng, (uint64_t)(f->mvcc.meta.revision - oldest + 1));
            mvcc_stage_compact(f, oldest);
        }
    }
    for (int64_t revision = oldest; revision <= f->mvcc.meta.revision; revision++) {
        for (unsigned key = 0; key < KEYS; key++) {
            char text[64];
            char expected[32];

            (void)snprintf(text, sizeof(text), "range k%u rev=%d", key, (int)revision);
            (void)snprintf(expected, sizeof(expected), "k%u=%d:", key, values[revision][key]);
            (void)mvcc_stage_line(f, text);
            if (values[revision][key] == 0)
                assert_string_equal(f->text, "#0");
            else
                assert_memory_equal(f->text, expected, strlen(expected));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_answer_as_etcd_does),
        cmocka_unit_test(writes_answer_as_etcd_does),
        cmocka_unit_test(compaction_forgets_history_and_keeps_what_lives),
        CASE(keys_of_a_lease_go_in_one_revision),
        CASE(rollback_forgets_what_was_not_committed),
        CASE(a_request_without_memory_is_refused_or_undone_whole),
        CASE(a_full_store_refuses_puts_and_allows_deletes),
        cmocka_unit_test(hash_tells_equal_histories_and_different_ones),
        cmocka_unit_test(hash_of_one_history_stays_the_same),
        cmocka_unit_test(hash_does_not_depend_on_the_size_of_its_steps),
        CASE(hash_begins_again_when_a_compaction_overtakes_it),
        CASE(hash_is_refused_where_a_range_is),
        cmocka_unit_test(damage_of_the_store_breaks_a_request),
        CASE(damage_is_told_by_compaction_leases_and_the_past),
        cmocka_unit_test(a_commit_that_fails_saves_nothing),
        CASE(a_commit_saves_the_counters_with_the_rows),
        CASE(history_agrees_with_a_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
