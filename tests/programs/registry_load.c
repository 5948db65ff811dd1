/* registry_load PREFIX: one who writes to the registry that MUSTER_REGISTRY names as fast as it
 * goes, and checks that nothing is lost, repeated or out of order, until standard input ends. Then
 * one JSON line; exit code 1 when something was wrong. A line "acked N" every hundred writes. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/muster.h>

#define LEASE_TTL_S  60
#define WITHIN_NS    (5 * MUSTER_NS_PER_S)
#define PAUSE_NS     (50 * MUSTER_NS_PER_MS)
#define TELL_EVERY   100
#define RELIST_EVERY 300 /* the watch stays away for some writes, and what it missed is forgotten */
#define RELIST_AWAY  20

struct load {
    struct muster_env *env;
    struct muster_registry *registry;
    struct muster_session session;
    struct muster_registry_op op;
    struct muster_registry_op list;
    struct muster_registry_op compact;
    struct muster_registry_watch watch;
    struct muster_timer again;
    struct muster_timer list_again;
    struct muster_fd_watch input;
    char first[128], second[128], leased[128];
    uint64_t number;       /* the last one that is certainly written */
    uint64_t mod_revision; /* of that */
    uint64_t seen;         /* the last one that the watch has shown */
    uint64_t leased_revision;
    uint64_t unknown_count, relist_count;
    bool is_one_late;    /* a write of unknown outcome was not there yet; it may still be applied */
    uint64_t away_since; /* the number at which the watch was stopped */
    bool has_begun, is_watching, is_stopping, is_over, is_closed;
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

__attribute__((format(printf, 1, 2))) static _Noreturn void wrong(const char *format, ...)
{
    va_list args;

    fputs("registry_load: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t deadline_within(const struct load *load)
{
    return muster_loop_after_ns(load->env->loop, WITHIN_NS);
}

static uint64_t number_of(struct muster_bytes bytes)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%.*s", (int)bytes.size, (const char *)bytes.data);
    return strtoull(text, NULL, 10);
}

static void write_next(struct load *load);
static void read_back(struct load *load);
static void list_keys(struct load *load);

static void schedule_later(struct load *load, muster_timer_fn *what)
{
    muster_timer_init(&load->again, what, load);
    muster_timer_start(&load->again, load->env->loop,
                       muster_loop_after_ns(load->env->loop, PAUSE_NS));
}

/* The watch. */

static void show_load(struct load *load, const struct muster_registry_change *changes, size_t count)
{
    for (size_t i = 0; i + 1 < count; i += 2) {
        uint64_t first = number_of(changes[i].kv.value);
        uint64_t second = number_of(changes[i + 1].kv.value);

        if (first != second || changes[i].kv.mod_revision != changes[i + 1].kv.mod_revision)
            wrong("a transaction came in pieces: %" PRIu64 ", %" PRIu64, first, second);
        if (first != load->seen + 1)
            wrong("the watch showed %" PRIu64 " after %" PRIu64, first, load->seen);
        load->seen = first;
    }
    if (count % 2 != 0)
        wrong("half a transaction");
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    show_load(watch->data, changes, count);
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct load *load = watch->data;

    if (rc != MUSTER_OUT_OF_RANGE)
        wrong("the watch ended: %s", watch->error.text);
    load->is_watching = false;
    load->relist_count++;
    list_keys(load);
}

static void watch_from(struct load *load, uint64_t revision)
{
    static char prefix[128];

    (void)snprintf(prefix, sizeof(prefix), "%.*s", (int)strlen(load->first) - 1, load->first);
    load->watch.data = load;
    if (muster_registry_watch_start(&load->watch, load->registry, bytes_of(prefix),
                                    MUSTER_REGISTRY_PREFIX, revision, on_changes,
                                    on_watch_end) != MUSTER_OK)
        wrong("no watch");
    load->is_watching = true;
}

static void on_list_again(struct muster_timer *timer)
{
    list_keys(timer->data);
}

static void on_listed(struct muster_registry_op *op, enum muster_rc rc)
{
    struct load *load = op->data;

    if (rc != MUSTER_OK) {
        muster_timer_init(&load->list_again, on_list_again, load);
        muster_timer_start(&load->list_again, load->env->loop,
                           muster_loop_after_ns(load->env->loop, PAUSE_NS));
        return;
    }
    if (op->kv_count > 0 && number_of(op->kvs[0].value) < load->seen)
        wrong("the registry went back to %" PRIu64 " from %" PRIu64, number_of(op->kvs[0].value),
              load->seen);
    load->seen = op->kv_count > 0 ? number_of(op->kvs[0].value) : 0;
    watch_from(load, op->revision + 1);
    if (!load->has_begun)
        write_next(load);
    load->has_begun = true;
}

static void list_keys(struct load *load)
{
    struct muster_registry_range range = {.key = bytes_of(load->first)};

    load->list.data = load;
    if (muster_registry_range_start(&load->list, load->registry, &range, deadline_within(load),
                                    on_listed) != MUSTER_OK)
        wrong("no range");
}

static void on_compacted(struct muster_registry_op *op, enum muster_rc rc)
{
    struct load *load = op->data;

    (void)rc;
    watch_from(load, load->watch.next_revision);
}

/* Stay away for some writes, let them be forgotten, and come back. */
static void be_away(struct load *load)
{
    if (load->is_watching && load->number % RELIST_EVERY == 0 && load->watch.next_revision != 0) {
        muster_registry_watch_stop(&load->watch);
        load->is_watching = false;
        load->away_since = load->number;
    } else if (load->away_since != 0 && load->number >= load->away_since + RELIST_AWAY) {
        load->away_since = 0;
        load->compact.data = load;
        if (muster_registry_compact_start(&load->compact, load->registry, load->mod_revision,
                                          deadline_within(load), on_compacted) != MUSTER_OK)
            wrong("no compaction");
    }
}

/* Writing: two keys in one transaction, on the condition that nobody wrote since. */

static void take_answer(struct load *load, uint64_t number, uint64_t revision)
{
    load->number = number;
    load->mod_revision = revision;
    if (number % TELL_EVERY == 0) {
        printf("acked %" PRIu64 "\n", number);
        fflush(stdout);
    }
    be_away(load);
    write_next(load);
}

static void on_read_again(struct muster_timer *timer)
{
    read_back(timer->data);
}

static void on_read_back(struct muster_registry_op *op, enum muster_rc rc)
{
    struct load *load = op->data;
    uint64_t number = op->kv_count > 0 ? number_of(op->kvs[0].value) : 0;

    if (rc != MUSTER_OK && !muster_registry_is_unknown(rc))
        wrong("a read was refused: %s", op->error.text);
    if (rc != MUSTER_OK) {
        schedule_later(load, on_read_again);
        return;
    }
    if (number != load->number && number != load->number + 1)
        wrong("%" PRIu64 " was written, and %" PRIu64 " is there", load->number, number);
    load->is_one_late = number == load->number;
    take_answer(load, number, op->kv_count > 0 ? op->kvs[0].mod_revision : 0);
}

static void read_back(struct load *load)
{
    struct muster_registry_range range = {.key = bytes_of(load->first)};

    load->op.data = load;
    if (muster_registry_range_start(&load->op, load->registry, &range, deadline_within(load),
                                    on_read_back) != MUSTER_OK)
        wrong("no range");
}

static void on_written(struct muster_registry_op *op, enum muster_rc rc)
{
    struct load *load = op->data;

    if (rc == MUSTER_OK && !op->is_succeeded && !load->is_one_late)
        wrong("somebody else wrote %" PRIu64, load->number + 1);
    if (rc == MUSTER_OK && !op->is_succeeded) {
        read_back(load); /* the unknown one has come in meanwhile */
    } else if (rc == MUSTER_OK) {
        load->is_one_late = false; /* its condition does not hold any more */
        take_answer(load, load->number + 1, op->revision);
    } else if (muster_registry_is_unknown(rc)) {
        load->unknown_count++;
        read_back(load);
    } else {
        wrong("a write was refused: %s", op->error.text);
    }
}

static void write_next(struct load *load)
{
    char text[24];
    struct muster_registry_compare as_read = {.key = bytes_of(load->first),
                                              .target = MUSTER_REGISTRY_MOD_REVISION,
                                              .relation = MUSTER_REGISTRY_EQUAL,
                                              .number = load->mod_revision};
    struct muster_registry_step puts[] = {
        {.kind = MUSTER_REGISTRY_PUT, .key = bytes_of(load->first)},
        {.kind = MUSTER_REGISTRY_PUT, .key = bytes_of(load->second)}};
    struct muster_registry_txn txn = {
        .compares = &as_read, .compare_count = 1, .success = puts, .success_count = 2};

    if (load->is_stopping)
        return;
    (void)snprintf(text, sizeof(text), "%" PRIu64, load->number + 1);
    puts[0].value = puts[1].value = bytes_of(text);
    load->op.data = load;
    if (muster_registry_txn_start(&load->op, load->registry, &txn, deadline_within(load),
                                  on_written) != MUSTER_OK)
        wrong("no transaction");
}

/* The lease. */

static void put_leased(struct load *load);

static void on_put_again(struct muster_timer *timer)
{
    put_leased(timer->data);
}

static void on_leased(struct muster_registry_op *op, enum muster_rc rc)
{
    struct load *load = op->data;

    if (rc != MUSTER_OK && !muster_registry_is_unknown(rc))
        wrong("no key of the lease: %s", op->error.text);
    if (rc != MUSTER_OK) {
        schedule_later(load, on_put_again);
        return;
    }
    load->leased_revision = op->revision;
    list_keys(load);
}

static void put_leased(struct load *load)
{
    load->op.data = load;
    if (muster_registry_put_start(&load->op, load->registry, bytes_of(load->leased), bytes_of("1"),
                                  load->session.lease, deadline_within(load),
                                  on_leased) != MUSTER_OK)
        wrong("no put");
}

static void on_opened(struct muster_session *session, enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        wrong("no session: %s", session->error.text);
    put_leased(session->data);
}

static void on_lost(struct muster_session *session)
{
    (void)session;
    wrong("the lease was lost");
}

/* The end. */

static void on_checked(struct muster_registry_op *op, enum muster_rc rc)
{
    struct load *load = op->data;

    if (rc != MUSTER_OK) {
        wrong("the key of the lease cannot be read: %s", op->error.text);
    } else if (op->kv_count != 1 || op->kvs[0].create_revision != op->kvs[0].mod_revision) {
        wrong("the key of the lease is gone");
    }
    load->is_over = true;
}

static bool is_calm(const struct load *load)
{
    return load->op.request == NULL && !muster_timer_is_started(&load->again) &&
           load->is_watching && load->seen == load->number;
}

static void on_input(struct muster_fd_watch *input, unsigned ready)
{
    struct load *load = input->data;
    char bytes[64];

    (void)ready;
    if (read(0, bytes, sizeof(bytes)) > 0)
        return;
    muster_fd_watch_close(input);
    load->is_stopping = true;
    if (load->away_since != 0)
        watch_from(load, load->watch.next_revision);
    load->away_since = 0;
}

static void check_end(struct load *load)
{
    struct muster_registry_range range = {.key = bytes_of(load->leased)};

    load->op.data = load;
    if (muster_registry_range_start(&load->op, load->registry, &range, deadline_within(load),
                                    on_checked) != MUSTER_OK)
        wrong("no range");
    while (!load->is_over)
        muster_loop_turn(load->env->loop, UINT64_MAX);
}

static void on_session_closed(struct muster_session *session)
{
    ((struct load *)session->data)->is_over = true;
}

static void on_registry_closed(struct muster_registry *registry)
{
    ((struct load *)muster_registry_data(registry))->is_closed = true;
}

static void close_all(struct load *load)
{
    muster_registry_watch_stop(&load->watch);
    load->is_over = false;
    muster_session_close(&load->session, on_session_closed);
    while (!load->is_over)
        muster_loop_turn(load->env->loop, UINT64_MAX);
    muster_registry_set_data(load->registry, load);
    muster_registry_close(load->registry, on_registry_closed);
    while (!load->is_closed)
        muster_loop_turn(load->env->loop, UINT64_MAX);
    muster_net_system_close(load->env->net);
    muster_env_system_close(load->env);
}

static void open_all(struct load *load)
{
    struct muster_registry_options options = {.endpoints = getenv("MUSTER_REGISTRY")};
    struct muster_error error;

    if (muster_env_system_open(NULL, &load->env) != MUSTER_OK ||
        muster_net_system_open(load->env, &load->env->net) != MUSTER_OK)
        wrong("no environment");
    if (muster_registry_open(load->env, &options, &load->registry, &error) != MUSTER_OK)
        wrong("%s", error.text);
    load->input.data = load->session.data = load;
    load->input.on_ready = on_input;
    load->input.wanted = MUSTER_FD_READ;
    muster_timer_init(&load->again, on_read_again, load);
    if (muster_fd_watch_open(&load->input, load->env->loop) != MUSTER_OK ||
        muster_session_open(&load->session, load->registry, LEASE_TTL_S,
                            muster_loop_after_ns(load->env->loop, 60 * MUSTER_NS_PER_S), on_opened,
                            on_lost) != MUSTER_OK)
        wrong("no session");
}

int main(int argc, char **argv)
{
    struct load load = {.number = 0};
    const char *prefix = argc == 2 ? argv[1] : "/load/";

    (void)snprintf(load.first, sizeof(load.first), "%sn/1", prefix);
    (void)snprintf(load.second, sizeof(load.second), "%sn/2", prefix);
    (void)snprintf(load.leased, sizeof(load.leased), "%sleased", prefix);
    open_all(&load);
    while (!load.is_stopping || !is_calm(&load))
        muster_loop_turn(load.env->loop, UINT64_MAX);
    check_end(&load);
    printf("{\"acked\":%" PRIu64 ",\"seen\":%" PRIu64 ",\"unknown\":%" PRIu64
           ",\"relists\":%" PRIu64 "}\n",
           load.number, load.seen, load.unknown_count, load.relist_count);
    close_all(&load);
    return 0;
}
