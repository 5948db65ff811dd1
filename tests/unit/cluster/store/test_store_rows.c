/* The store's tables: what is written comes back, is counted, found and scanned; what fails is told. */
#include "store_stage.h"
#include "scene_case.h"

#include <stdio.h>
#include <string.h>

static bool is_equal(struct muster_bytes bytes, const char *text)
{
    return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

SCENE_CASES(struct store_stage, store_stage_open, store_stage_close)

static void counters_come_back_each_in_its_place(void **state)
{
    struct store_stage *f = *state;
    static const struct muster_registry_meta first = {1, 2, 3, 5, 4, 6};
    static const struct muster_registry_meta kept = {.cluster_id = UINT64_MAX,
                                                     .member_id = UINT64_MAX - 1,
                                                     .term = UINT64_MAX - 2,
                                                     .revision = INT64_MAX / 2,
                                                     .compact_revision = INT64_MAX / 2 - 1,
                                                     .compacted_seq = INT64_MAX - 2};
    struct muster_registry_meta meta = {.term = 0};
    struct muster_error error;

    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_save_meta(f->store, &kept), MUSTER_OK);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_save_meta(f->store, &first), MUSTER_OK);
    assert_int_equal(muster_registry_store_load_meta(f->store, &meta), MUSTER_OK);
    assert_memory_equal(&meta, &first, sizeof(meta));

    muster_registry_store_rollback(f->store);
    assert_int_equal(muster_registry_store_load_meta(f->store, &meta), MUSTER_OK);
    assert_memory_equal(&meta, &kept, sizeof(meta));
    muster_registry_store_close(f->store);
    assert_int_equal(store_stage_open_file(f, &f->store, &error), MUSTER_OK);
    assert_int_equal(muster_registry_store_load_meta(f->store, &meta), MUSTER_OK);
    assert_memory_equal(&meta, &kept, sizeof(meta));
}

static void a_record_comes_back_with_all_its_numbers(void **state)
{
    struct store_stage *f = *state;
    struct muster_registry_record record = {.key = store_stage_bytes_of("k"),
                                            .value = store_stage_bytes_of("value"),
                                            .create_revision = 11,
                                            .mod_revision = 12,
                                            .version = 13,
                                            .lease = 14,
                                            .prev_seq = 0};
    struct muster_registry_record found;

    (void)store_stage_append(f, "a", "1", 2, 0);
    assert_int_equal(muster_registry_store_append(f->store, &record), MUSTER_OK);
    assert_int_equal(record.seq, 2);
    record.prev_seq = 2;
    record.create_revision = 21;
    record.mod_revision = 22;
    record.version = 23;
    record.lease = 24;
    record.value = store_stage_bytes_of("another");
    assert_int_equal(muster_registry_store_append(f->store, &record), MUSTER_OK);
    assert_int_equal(record.seq, 3);

    assert_int_equal(muster_registry_store_find(f->store, store_stage_bytes_of("k"), &found),
                     MUSTER_OK);
    assert_true(is_equal(found.key, "k"));
    assert_true(found.create_revision == 21 && found.mod_revision == 22 && found.version == 23);
    assert_true(found.lease == 24 && found.seq == 3 && found.prev_seq == 0);
    assert_int_equal(found.value.size, 0);
    assert_int_equal(muster_registry_store_read(f->store, 2, &found), MUSTER_OK);
    assert_true(is_equal(found.key, "k") && is_equal(found.value, "value"));
    assert_true(found.create_revision == 11 && found.mod_revision == 12 && found.version == 13);
    assert_true(found.lease == 14 && found.seq == 2 && found.prev_seq == 0);
    assert_int_equal(muster_registry_store_read(f->store, 3, &found), MUSTER_OK);
    assert_true(is_equal(found.key, "k") && is_equal(found.value, "another"));
    assert_true(found.lease == 24 && found.seq == 3 && found.prev_seq == 2);
    assert_int_equal(muster_registry_store_read(f->store, 4, &found), MUSTER_NOT_FOUND);
}

static uint64_t count_keys(struct store_stage *f)
{
    struct muster_registry_store_size size;

    muster_registry_store_measure(f->store, &size);
    return size.key_count;
}

static void put_version(struct store_stage *f, const char *key, int64_t version, int64_t prev_seq)
{
    struct muster_registry_record record = {.key = store_stage_bytes_of(key),
                                            .mod_revision = 2,
                                            .version = version,
                                            .prev_seq = prev_seq};

    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_append(f->store, &record), MUSTER_OK);
}

static void keys_that_exist_are_counted(void **state)
{
    struct store_stage *f = *state;
    struct muster_error error;

    assert_int_equal(count_keys(f), 0);
    put_version(f, "a", 1, 0);
    put_version(f, "b", 1, 0);
    put_version(f, "a", 2, 1);
    put_version(f, "a", 3, 3);
    assert_int_equal(count_keys(f), 2);
    put_version(f, "b", 0, 2);
    assert_int_equal(count_keys(f), 1);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
    assert_int_equal(count_keys(f), 1);

    put_version(f, "c", 1, 0);
    put_version(f, "d", 1, 0);
    assert_int_equal(count_keys(f), 3);
    muster_registry_store_rollback(f->store);
    assert_int_equal(count_keys(f), 1);
    muster_registry_store_close(f->store);
    assert_int_equal(store_stage_open_file(f, &f->store, &error), MUSTER_OK);
    assert_int_equal(count_keys(f), 1);
}

static void only_a_commit_moves_what_is_committed(void **state)
{
    struct store_stage *f = *state;
    struct muster_error error;

    assert_int_equal(muster_registry_store_committed_seq(f->store), 0);
    assert_false(muster_registry_store_is_writing(f->store));
    assert_int_equal(store_stage_append(f, "a", "1", 2, 0), 1);
    assert_true(muster_registry_store_is_writing(f->store));
    assert_int_equal(muster_registry_store_committed_seq(f->store), 0);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
    assert_false(muster_registry_store_is_writing(f->store));
    assert_int_equal(muster_registry_store_committed_seq(f->store), 1);

    assert_int_equal(store_stage_append(f, "b", "1", 3, 0), 2);
    assert_int_equal(store_stage_append(f, "c", "1", 3, 0), 3);
    muster_registry_store_rollback(f->store);
    assert_false(muster_registry_store_is_writing(f->store));
    assert_int_equal(muster_registry_store_committed_seq(f->store), 1);
    assert_int_equal(store_stage_append(f, "b", "1", 3, 0), 2); /* its place is free again */
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
    muster_registry_store_close(f->store);
    assert_int_equal(store_stage_open_file(f, &f->store, &error), MUSTER_OK);
    assert_int_equal(muster_registry_store_committed_seq(f->store), 2);
}

struct visited {
    char text[128];
    size_t count_max;
    size_t count;
};

static enum muster_rc on_record(void *data, const struct muster_registry_record *record)
{
    struct visited *visited = data;

    if (visited->count == visited->count_max)
        return MUSTER_ABORTED;
    (void)snprintf(visited->text + 3 * visited->count, sizeof(visited->text) - 3 * visited->count,
                   "%.1s%d ", (const char *)record->key.data, (int)record->seq);
    visited->count++;
    return MUSTER_OK;
}

static enum muster_rc on_lease(void *data, int64_t id, int64_t ttl_s)
{
    struct muster_registry_record record = {.key = store_stage_bytes_of(id == 5 ? "5" : "7"),
                                            .seq = ttl_s};

    return on_record(data, &record);
}

enum scan { SCAN_KEYS, SCAN_LEASE, SCAN_LOG, SCAN_LEASES };

static enum muster_rc scan_store(struct store_stage *f, enum scan scan, const char *key,
                                 const char *end, struct visited *visited)
{
    struct muster_registry_span span = {.key = store_stage_bytes_of(key),
                                        .end = store_stage_bytes_of(end)};

    if (strcmp(end, "*") == 0)
        span.end = (struct muster_bytes){.data = "\0", .size = 1};
    switch (scan) {
    case SCAN_KEYS:
        return muster_registry_store_scan_keys(f->store, &span, on_record, visited);
    case SCAN_LEASE:
        return muster_registry_store_scan_lease(f->store, 7, on_record, visited);
    case SCAN_LOG:
        return muster_registry_store_scan_log(f->store, 3, on_record, visited);
    case SCAN_LEASES:
        break;
    }
    return muster_registry_store_scan_leases(f->store, on_lease, visited);
}

/* a is put, c on a lease, b on it, a deleted, d on none. */
static void fill_store(struct store_stage *f)
{
    struct muster_registry_record records[] = {
        {.key = store_stage_bytes_of("a"), .version = 1},
        {.key = store_stage_bytes_of("c"), .version = 1, .lease = 7},
        {.key = store_stage_bytes_of("b"), .version = 1, .lease = 7},
        {.key = store_stage_bytes_of("a"), .version = 0, .prev_seq = 1},
        {.key = store_stage_bytes_of("d"), .version = 1},
    };

    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        records[i].mod_revision = (int64_t)i + 2;
        assert_int_equal(muster_registry_store_append(f->store, &records[i]), MUSTER_OK);
    }
    assert_int_equal(muster_registry_store_put_lease(f->store, 7, 2), MUSTER_OK);
    assert_int_equal(muster_registry_store_put_lease(f->store, 5, 3), MUSTER_OK);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
}

/* Each is cut short by its visitor first, and then begins anew. */
static void a_scan_visits_what_it_should_in_order(void **state)
{
    struct store_stage *f = *state;
    static const struct {
        const char *name;
        enum scan scan;
        const char *key, *end, *visits;
    } rows[] = {
        {"one key", SCAN_KEYS, "b", "", "b3 "},
        {"a key that is not there", SCAN_KEYS, "bb", "", ""},
        {"a span", SCAN_KEYS, "a", "c", "a4 b3 "},
        {"up to the end", SCAN_KEYS, "b", "*", "b3 c2 d5 "},
        {"keys of a lease", SCAN_LEASE, "", "", "b3 c2 "},
        {"the log", SCAN_LOG, "", "", "b3 a4 d5 "},
        {"leases", SCAN_LEASES, "", "", "53 72 "},
    };

    fill_store(f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct visited none = {.count_max = 0};
        struct visited all = {.count_max = 9};

        assert_int_equal(scan_store(f, rows[i].scan, rows[i].key, rows[i].end, &none),
                         rows[i].visits[0] == '\0' ? MUSTER_OK : MUSTER_ABORTED);
        assert_int_equal(none.count, 0);
        assert_int_equal(scan_store(f, rows[i].scan, rows[i].key, rows[i].end, &all), MUSTER_OK);
        if (strcmp(all.text, rows[i].visits) != 0)
            fail_msg("%s: %s", rows[i].name, all.text);
    }
}

static void leases_are_there_once_until_they_are_deleted(void **state)
{
    struct store_stage *f = *state;
    struct visited visited = {.count_max = 9};

    fill_store(f);
    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_put_lease(f->store, 5, 8), MUSTER_ALREADY_EXISTS);
    assert_int_equal(muster_registry_store_delete_lease(f->store, 7), MUSTER_OK);
    assert_int_equal(muster_registry_store_put_lease(f->store, 7, 9), MUSTER_OK);
    assert_int_equal(muster_registry_store_delete_lease(f->store, 5), MUSTER_OK);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);

    assert_int_equal(scan_store(f, SCAN_LEASES, "", "", &visited), MUSTER_OK);
    assert_string_equal(visited.text, "79 ");
}

/* The store on a disk that loses rows, or gives back others. */
static void damage_of_the_tables_is_told(void **state)
{
    static const struct {
        const char *sql;
        enum muster_rc rc;
        const char *says;
    } rows[] = {
        {"DELETE FROM meta", MUSTER_DATA_LOSS, "the counters of the registry are missing"},
        {"UPDATE meta SET revision = -1", MUSTER_DATA_LOSS, "or damaged; restore a backup"},
        {"UPDATE meta SET revision = 9223372036854775807", MUSTER_DATA_LOSS, "or damaged"},
        {"UPDATE meta SET compact_revision = -1", MUSTER_DATA_LOSS, "or damaged"},
        {"UPDATE meta SET compact_revision = revision + 1", MUSTER_DATA_LOSS, "or damaged"},
        {"UPDATE meta SET compacted_seq = -1", MUSTER_DATA_LOSS, "or damaged"},
        {"DROP TABLE meta", MUSTER_UNAVAILABLE, "no such table"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct store_stage f;
        struct muster_registry_meta meta = {.term = 77};

        store_stage_open(&f);
        store_stage_run_sql(muster_registry_store_database(f.store), rows[i].sql);

        if (muster_registry_store_load_meta(f.store, &meta) != rows[i].rc)
            fail_msg("%s is not told", rows[i].sql);
        assert_int_equal(meta.term, 77);
        assert_non_null(strstr(muster_registry_store_error(f.store), rows[i].says));
        assert_non_null(strstr(muster_registry_store_error(f.store), f.path));
        store_stage_close(&f);
    }
}

static void a_log_at_the_end_of_its_range_is_damage(void **state)
{
    struct store_stage *f = *state;
    struct muster_error error;

    store_stage_run_sql(muster_registry_store_database(f->store),
                        "INSERT INTO log VALUES(9223372036854775807, x'61', x'', 2, 2, 1, 0, 0)");
    muster_registry_store_close(f->store);
    f->store = NULL;
    assert_int_equal(store_stage_open_file(f, &f->store, &error), MUSTER_DATA_LOSS);
    assert_null(f->store);
    assert_non_null(strstr(error.text, "is damaged"));
}

static void every_call_tells_that_its_table_is_gone(void **state)
{
    struct store_stage *f = *state;
    static const enum scan scans[] = {SCAN_KEYS, SCAN_LEASE, SCAN_LOG, SCAN_LEASES};
    struct muster_registry_record record = {.key = store_stage_bytes_of("x"), .version = 1};
    struct visited visited = {.count_max = 9};
    struct muster_registry_meta meta = {.term = 1};
    int64_t seq = 77;

    fill_store(f);
    store_stage_run_sql(muster_registry_store_database(f->store),
                        "DROP TABLE meta; DROP TABLE keys; DROP TABLE log; DROP TABLE leases");

    for (size_t i = 0; i < sizeof(scans) / sizeof(scans[0]); i++)
        assert_int_equal(scan_store(f, scans[i], "a", "*", &visited), MUSTER_UNAVAILABLE);
    assert_int_equal(scan_store(f, SCAN_KEYS, "a", "", &visited), MUSTER_UNAVAILABLE);
    assert_int_equal(visited.count, 0);
    assert_int_equal(muster_registry_store_find(f->store, store_stage_bytes_of("a"), &record),
                     MUSTER_UNAVAILABLE);
    assert_int_equal(muster_registry_store_read(f->store, 1, &record), MUSTER_UNAVAILABLE);
    assert_int_equal(muster_registry_store_seek(f->store, 3, &seq), MUSTER_UNAVAILABLE);
    assert_int_equal(seq, 77);
    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_append(f->store, &record), MUSTER_UNAVAILABLE);
    assert_int_equal(muster_registry_store_save_meta(f->store, &meta), MUSTER_UNAVAILABLE);
    assert_int_equal(muster_registry_store_put_lease(f->store, 1, 1), MUSTER_UNAVAILABLE);
    assert_int_equal(muster_registry_store_delete_lease(f->store, 1), MUSTER_UNAVAILABLE);
    assert_int_equal(muster_registry_store_compact(f->store, 0, 1, 1), MUSTER_UNAVAILABLE);
}

static void a_transaction_that_somebody_else_began_is_an_error(void **state)
{
    struct store_stage *f = *state;

    store_stage_run_sql(muster_registry_store_database(f->store), "BEGIN");

    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_UNAVAILABLE);
    assert_false(muster_registry_store_is_writing(f->store));
    muster_registry_store_rollback(f->store);
    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK); /* it is open */
    store_stage_run_sql(muster_registry_store_database(f->store), "COMMIT");
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_UNAVAILABLE);
    assert_true(muster_registry_store_is_writing(f->store));
    muster_registry_store_rollback(f->store);
    assert_false(muster_registry_store_is_writing(f->store));
}

static void seek_finds_the_first_change_at_or_after_a_revision(void **state)
{
    struct store_stage *f = *state;
    static const int64_t revisions[] = {2, 3, 3, 3, 7, 8, 8, 20};
    int64_t prev = 0;

    for (size_t i = 0; i < sizeof(revisions) / sizeof(revisions[0]); i++)
        prev = store_stage_append(f, "a", "1", revisions[i], prev);

    for (int64_t revision = 0; revision <= 22; revision++) {
        int64_t expected = 1;
        int64_t seq = 0;

        for (size_t i = 0; i < sizeof(revisions) / sizeof(revisions[0]); i++)
            expected += revisions[i] < revision;
        assert_int_equal(muster_registry_store_seek(f->store, revision, &seq), MUSTER_OK);
        assert_int_equal(seq, expected);
    }
}

static void keys_and_values_may_hold_any_bytes_and_be_empty(void **state)
{
    struct store_stage *f = *state;
    struct muster_registry_record record = {.key = {.data = "\0\xff", .size = 2},
                                            .value = {.data = NULL, .size = 0},
                                            .version = 1,
                                            .mod_revision = 2};
    struct muster_registry_record found;

    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_append(f->store, &record), MUSTER_OK);

    assert_int_equal(muster_registry_store_read(f->store, record.seq, &found), MUSTER_OK);
    assert_int_equal(found.key.size, 2);
    assert_memory_equal(found.key.data, "\0\xff", 2);
    assert_int_equal(found.value.size, 0);
    assert_non_null(found.value.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(counters_come_back_each_in_its_place),
        CASE(a_record_comes_back_with_all_its_numbers),
        CASE(keys_that_exist_are_counted),
        CASE(only_a_commit_moves_what_is_committed),
        CASE(a_scan_visits_what_it_should_in_order),
        CASE(leases_are_there_once_until_they_are_deleted),
        cmocka_unit_test(damage_of_the_tables_is_told),
        CASE(a_log_at_the_end_of_its_range_is_damage),
        CASE(every_call_tells_that_its_table_is_gone),
        CASE(a_transaction_that_somebody_else_began_is_an_error),
        CASE(seek_finds_the_first_change_at_or_after_a_revision),
        CASE(keys_and_values_may_hold_any_bytes_and_be_empty),
    };

    return cmocka_run_group_tests_name("registry_store_rows", tests, NULL, NULL);
}
