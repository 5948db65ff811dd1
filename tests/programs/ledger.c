/* ledger HOST:PORT COUNT: writes to a registry, and says of each write how it ended, so that a test can
 * look later whether that is so: "acked KEY=VALUE REVISION", "unknown KEY=VALUE", "refused KEY=VALUE RC
 * TEXT" (not applied); "KEY-" is a deletion (of nothing: its revision is 0), and /pair/a and /pair/b are
 * written together. "saw …" is told by a watch from the first revision on. Every other key hangs on a
 * lease. An error ends nothing.
 *
 * ledger HOST:PORT: says what is there: "has KEY=VALUE REVISION". Exit code 1 when it cannot be read. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/muster.h>

#define LEASE_S   600
#define WITHIN_NS (5 * MUSTER_NS_PER_S)
#define KEY_BYTES 40

struct ledger {
    struct muster_env *env;
    struct muster_registry *registry;
    struct muster_registry_op op;
    struct muster_registry_lease lease;
    struct muster_registry_watch watch;
    struct muster_task next;
    char write[2 * KEY_BYTES]; /* the one under way, as it is told */
    uint64_t count, number;
    bool is_deletion;
    bool is_leased, is_watching, is_closed;
    int code;
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static void print_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void print_line(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    (void)fflush(stdout);
}

static uint64_t deadline_within(const struct ledger *ledger)
{
    return muster_loop_after_ns(ledger->env->loop, WITHIN_NS);
}

/* The end. */

static void on_registry_closed(struct muster_registry *registry)
{
    ((struct ledger *)muster_registry_data(registry))->is_closed = true;
}

static void close_ledger(struct ledger *ledger)
{
    if (ledger->is_watching)
        muster_registry_watch_stop(&ledger->watch);
    if (ledger->is_leased)
        muster_registry_lease_stop(&ledger->lease);
    ledger->is_watching = ledger->is_leased = false;
    muster_registry_close(ledger->registry, on_registry_closed);
}

/* Entries. */

static void on_listed(struct muster_registry_op *op, enum muster_rc rc)
{
    struct ledger *ledger = op->data;

    for (size_t i = 0; rc == MUSTER_OK && i < op->kv_count; i++)
        print_line("has %.*s=%.*s %" PRIu64, (int)op->kvs[i].key.size,
                   (const char *)op->kvs[i].key.data, (int)op->kvs[i].value.size,
                   (const char *)op->kvs[i].value.data, op->kvs[i].mod_revision);
    if (rc != MUSTER_OK)
        fprintf(stderr, "ledger: %s: %s\n", muster_rc_name(rc), op->error.text);
    ledger->code = rc == MUSTER_OK ? 0 : 1;
    close_ledger(ledger);
}

static void list_entries(struct ledger *ledger)
{
    const struct muster_registry_range all = {.key = bytes_of("/"),
                                              .reach = MUSTER_REGISTRY_PREFIX};
    enum muster_rc rc = muster_registry_range_start(&ledger->op, ledger->registry, &all,
                                                    deadline_within(ledger), on_listed);

    if (rc == MUSTER_OK)
        return;
    fprintf(stderr, "ledger: %s\n", muster_rc_name(rc));
    ledger->code = 1;
    close_ledger(ledger);
}

/* The watch and the lease. */

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    (void)watch;
    for (size_t i = 0; i < count; i++) {
        const struct muster_registry_kv *kv = &changes[i].kv;

        if (changes[i].is_delete)
            print_line("saw %.*s- %" PRIu64, (int)kv->key.size, (const char *)kv->key.data,
                       kv->mod_revision);
        else
            print_line("saw %.*s=%.*s %" PRIu64, (int)kv->key.size, (const char *)kv->key.data,
                       (int)kv->value.size, (const char *)kv->value.data, kv->mod_revision);
    }
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct ledger *ledger = watch->data;

    ledger->is_watching = false;
    print_line("watch ended %s %s", muster_rc_name(rc), watch->error.text);
}

static void start_watch(struct ledger *ledger)
{
    enum muster_rc rc =
        muster_registry_watch_start(&ledger->watch, ledger->registry, bytes_of("/"),
                                    MUSTER_REGISTRY_PREFIX, 1, on_changes, on_watch_end);

    ledger->is_watching = rc == MUSTER_OK;
    if (rc != MUSTER_OK)
        print_line("watch refused %s", muster_rc_name(rc));
}

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct ledger *ledger = lease->data;

    ledger->is_leased = rc == MUSTER_OK;
    if (rc != MUSTER_OK)
        print_line("lease refused %s %s", muster_rc_name(rc), lease->error.text);
    muster_task_post(&ledger->next, ledger->env->loop);
}

static void on_lost(struct muster_registry_lease *lease)
{
    ((struct ledger *)lease->data)->is_leased = false;
    print_line("lease lost");
}

/* The writes, one after the other. */

static void tell_refusal(struct ledger *ledger, enum muster_rc rc, const char *text)
{
    print_line("refused %s %s %s", ledger->write, muster_rc_name(rc), text);
    muster_task_post(&ledger->next, ledger->env->loop);
}

static void on_written(struct muster_registry_op *op, enum muster_rc rc)
{
    struct ledger *ledger = op->data;

    if (rc != MUSTER_OK && (op->is_unsent || !muster_registry_is_unknown(rc))) {
        tell_refusal(ledger, rc, op->error.text);
        return;
    }
    if (rc == MUSTER_OK)
        print_line("acked %s %" PRIu64, ledger->write,
                   ledger->is_deletion && op->count == 0 ? 0 : op->revision);
    else
        print_line("unknown %s %s", ledger->write, muster_rc_name(rc));
    muster_task_post(&ledger->next, ledger->env->loop);
}

static enum muster_rc put_pair(struct ledger *ledger, const char *value)
{
    const struct muster_registry_step steps[] = {
        {.kind = MUSTER_REGISTRY_PUT, .key = bytes_of("/pair/a"), .value = bytes_of(value)},
        {.kind = MUSTER_REGISTRY_PUT, .key = bytes_of("/pair/b"), .value = bytes_of(value)}};
    const struct muster_registry_txn txn = {.success = steps, .success_count = 2};

    (void)snprintf(ledger->write, sizeof(ledger->write), "/pair/a=%s", value);
    return muster_registry_txn_start(&ledger->op, ledger->registry, &txn, deadline_within(ledger),
                                     on_written);
}

static enum muster_rc delete_key(struct ledger *ledger, uint64_t number)
{
    char key[KEY_BYTES];

    (void)snprintf(key, sizeof(key), "/k/%" PRIu64, number);
    (void)snprintf(ledger->write, sizeof(ledger->write), "%s-", key);
    return muster_registry_delete_start(&ledger->op, ledger->registry, bytes_of(key),
                                        MUSTER_REGISTRY_KEY, deadline_within(ledger), on_written);
}

static enum muster_rc put_key(struct ledger *ledger, const char *value)
{
    int64_t lease = ledger->is_leased && ledger->number % 2 == 0 ? ledger->lease.id : 0;
    char key[KEY_BYTES];

    (void)snprintf(key, sizeof(key), "/k/%s", value);
    (void)snprintf(ledger->write, sizeof(ledger->write), "%s=%s", key, value);
    return muster_registry_put_start(&ledger->op, ledger->registry, bytes_of(key), bytes_of(value),
                                     lease, deadline_within(ledger), on_written);
}

static void on_next(struct muster_task *task)
{
    struct ledger *ledger = task->data;
    char value[24];
    enum muster_rc rc;

    if (ledger->number == ledger->count) {
        close_ledger(ledger);
        return;
    }
    ledger->number++;
    (void)snprintf(value, sizeof(value), "%" PRIu64, ledger->number);
    ledger->is_deletion = ledger->number % 7 == 0 && ledger->number % 5 != 0;
    if (ledger->number % 5 == 0)
        rc = put_pair(ledger, value);
    else if (ledger->is_deletion)
        rc = delete_key(ledger, ledger->number - 3);
    else
        rc = put_key(ledger, value);
    if (rc != MUSTER_OK)
        tell_refusal(ledger, rc, "");
}

static void begin_ledger(struct ledger *ledger)
{
    enum muster_rc rc;

    ledger->op.data = ledger->lease.data = ledger->watch.data = ledger;
    muster_registry_set_data(ledger->registry, ledger);
    muster_task_init(&ledger->next, on_next, ledger);
    if (ledger->count == 0) {
        list_entries(ledger);
        return;
    }
    start_watch(ledger);
    rc = muster_registry_lease_start(&ledger->lease, ledger->registry, LEASE_S,
                                     deadline_within(ledger), on_granted, on_lost);
    if (rc != MUSTER_OK) {
        print_line("lease refused %s", muster_rc_name(rc));
        muster_task_post(&ledger->next, ledger->env->loop);
    }
}

static enum muster_rc run_ledger(struct ledger *ledger, const char *endpoints,
                                 struct muster_error *ret_error)
{
    const struct muster_registry_options options = {.endpoints = endpoints};
    enum muster_rc rc = muster_registry_open(ledger->env, &options, &ledger->registry, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    begin_ledger(ledger);
    while (!ledger->is_closed)
        muster_loop_turn(ledger->env->loop, UINT64_MAX);
    return MUSTER_OK;
}

int main(int argc, char **argv)
{
    struct ledger ledger = {.count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0};
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;

    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: ledger HOST:PORT [COUNT]\n");
        return 2;
    }
    rc = muster_env_system_open(NULL, &ledger.env);
    if (rc == MUSTER_OK) {
        rc = muster_net_system_open(ledger.env, &ledger.env->net);
        if (rc == MUSTER_OK) {
            rc = run_ledger(&ledger, argv[1], &error);
            muster_net_system_close(ledger.env->net);
        }
        muster_env_system_close(ledger.env);
    }
    if (rc != MUSTER_OK)
        fprintf(stderr, "ledger: %s: %s\n", muster_rc_name(rc), error.text);
    else if (ledger.code == 0)
        print_line("done");
    return rc != MUSTER_OK ? 1 : ledger.code;
}
