/* The calls of env.h that pass on to an implementation's table, and what they do where it has no entry. */
#include "test_env.h"

#include <string.h>

#include "runtime/system/host_share.h"

/* --- Files --- */

static char content[] = "content";

static enum muster_rc played_read(struct muster_files *files, struct muster_mem *mem,
                                  const char *path, size_t limit_bytes, char **ret_text,
                                  size_t *ret_bytes)
{
    (void)files;
    assert_ptr_equal(mem, muster_mem_system());
    assert_string_equal(path, "/read");
    assert_int_equal(limit_bytes, 77);
    *ret_text = content;
    *ret_bytes = 5;
    return MUSTER_ABORTED;
}

static enum muster_rc played_write(struct muster_files *files, const char *path, const void *bytes,
                                   size_t count)
{
    (void)files;
    assert_string_equal(path, "/write");
    assert_ptr_equal(bytes, content);
    assert_int_equal(count, 7);
    return MUSTER_DATA_LOSS;
}

static bool played_is_special(struct muster_files *files, const char *path)
{
    (void)files;
    return strcmp(path, "/special") == 0;
}

static size_t played_count(struct muster_files *files, const char *pattern)
{
    (void)files;
    return strcmp(pattern, "/dev/nvidia[0-9]*") == 0 ? 5 : strlen(pattern);
}

static void files_are_asked_of_their_table(void **state)
{
    static const struct muster_files_ops all = {
        .read = played_read,
        .write = played_write,
        .is_special = played_is_special,
        .count = played_count,
    };
    static const struct muster_files_ops least = {.read = played_read, .write = played_write};
    struct muster_files files = {.ops = &all}, few = {.ops = &least};
    char *text = NULL;
    size_t bytes = 0;

    (void)state;
    assert_int_equal(muster_files_read(&files, muster_mem_system(), "/read", 77, &text, &bytes),
                     MUSTER_ABORTED);
    assert_ptr_equal(text, content);
    assert_int_equal(bytes, 5);
    assert_int_equal(muster_files_write(&files, "/write", content, 7), MUSTER_DATA_LOSS);
    assert_true(muster_files_is_special(&files, "/special"));
    assert_false(muster_files_is_special(&files, "/regular"));
    assert_int_equal(muster_files_count(&files, "/a*"), 3);
    assert_int_equal(muster_host_count_gpus(&files), 5);

    assert_false(muster_files_is_special(&few, "/special"));
    assert_int_equal(muster_files_count(&few, "/a*"), 0);
    assert_int_equal(muster_host_count_gpus(&few), 0);
}

/* --- The host --- */

struct played_host {
    struct muster_host host;
    struct muster_shares shares;
    enum muster_rc rc;
    unsigned watch_count, unwatch_count;
};

static const char *played_key(struct muster_host *host)
{
    (void)host;
    return content;
}

static int64_t played_pid(struct muster_host *host)
{
    (void)host;
    return INT64_C(1) << 40;
}

static uint64_t played_started(struct muster_host *host, int64_t pid)
{
    (void)host;
    return (uint64_t)pid + 1;
}

static uint64_t played_wall_ns(struct muster_host *host)
{
    (void)host;
    return UINT64_MAX - 1;
}

static enum muster_rc played_watch(struct muster_host *host, struct muster_process_watch *watch)
{
    struct played_host *played = (struct played_host *)host;

    assert_null(watch->host); /* it is not open yet */
    played->watch_count++;
    return played->rc;
}

static void played_unwatch(struct muster_host *host, struct muster_process_watch *watch)
{
    assert_null(watch->host);
    ((struct played_host *)host)->unwatch_count++;
}

static struct muster_shares *played_shares(struct muster_host *host)
{
    return &((struct played_host *)host)->shares;
}

static const struct muster_host_ops all_of_host = {
    .key = played_key,
    .pid = played_pid,
    .started = played_started,
    .wall_ns = played_wall_ns,
    .watch = played_watch,
    .unwatch = played_unwatch,
    .shares = played_shares,
};

static void a_host_is_asked_of_its_table(void **state)
{
    static const struct muster_host_ops least = {.key = played_key};
    struct played_host played = {.host = {.ops = &all_of_host}};
    struct muster_host few = {.ops = &least};

    (void)state;
    assert_ptr_equal(muster_host_key(&played.host), content);
    assert_int_equal(muster_host_pid(&played.host), INT64_C(1) << 40);
    assert_int_equal(muster_host_started(&played.host, 41), 42);
    assert_int_equal(muster_host_wall_ns(&played.host), UINT64_MAX - 1);
    assert_ptr_equal(muster_host_shares(&played.host), &played.shares);

    assert_int_equal(muster_host_started(&few, 41), 0);
    assert_null(muster_host_shares(&few));
    assert_null(muster_host_shares(NULL));
}

static void never_exits(struct muster_process_watch *watch)
{
    (void)watch;
}

static void only_an_open_watch_is_closed_and_only_once(void **state)
{
    static const enum muster_rc rows[] = {MUSTER_OK, MUSTER_NOT_FOUND};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct played_host played = {.host = {.ops = &all_of_host}, .rc = rows[i]};
        struct muster_process_watch watch = {
            .on_exit = never_exits, .host = &played.host /* left from an earlier use */};

        assert_int_equal(muster_process_watch_open(&watch, &played.host), rows[i]);
        assert_int_equal(played.watch_count, 1);
        assert_int_equal(played.unwatch_count, 0);
        muster_process_watch_close(&watch);
        muster_process_watch_close(&watch);
        assert_int_equal(played.unwatch_count, rows[i] == MUSTER_OK);
    }
}

static void loopback_is_shared_by_processes_of_one_network(void **state)
{
    static const struct {
        const char *a, *b;
        bool is_shared;
    } rows[] = {
        {"boot/1/5", "boot/1/5", true},   /* one host */
        {"boot/1/5", "boot/2/5", true},   /* a container on the host's network */
        {"boot/1/5", "boot/1/6", false},  /* a network of its own */
        {"boot/1/5", "root/1/5", false},  /* another machine whose numbers are the same */
        {"boot/1/5", "boots/1/5", false}, /* and whose name is longer */
        {"boot/1/5", "boot/1/55", false},
        {"boot/1/15", "boot/1/5", false},
        {"host0", "host1", false},
        {"host0", "host0", true},
        {"alone/7", "alone/8", false},
        {"boot/5", "boot/1/5", false},
        {"boot/1/5", "boot", false},
        {"boot/5", "boot/55", false},
        {"boot/5", "root/5", false},
        {"", "/", false},
        {"", "", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s %s\n", rows[i].a, rows[i].b);
        assert_int_equal(muster_host_key_shares_loopback(rows[i].a, rows[i].b), rows[i].is_shared);
        assert_int_equal(muster_host_key_shares_loopback(rows[i].b, rows[i].a), rows[i].is_shared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_asked_of_their_table),
        cmocka_unit_test(a_host_is_asked_of_its_table),
        cmocka_unit_test(only_an_open_watch_is_closed_and_only_once),
        cmocka_unit_test(loopback_is_shared_by_processes_of_one_network),
    };

    return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}
