/* locker lock|elect|observe NAME [VALUE]: one who wants a lock or an election of the registry that
 * MUSTER_REGISTRY names, and says on standard output what becomes of it. A line on standard input
 * is the leader's new word; its end lets go. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/muster.h>

#define TTL_S 2

struct locker {
    struct muster_env *env;
    struct muster_registry *registry;
    struct muster_session session;
    struct muster_lock lock;
    struct muster_election election;
    struct muster_election_watch watch;
    struct muster_fd_watch input;
    const char *what, *name, *value;
    char line[256];
    size_t line_bytes;
    bool is_held, is_over, is_session_closed, is_registry_closed;
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "locker: %s: %s\n", what, why);
    exit(1);
}

static void print_number(const char *text, unsigned long long number)
{
    printf("%s %llu\n", text, number);
    fflush(stdout);
}

static void on_lock_done(struct muster_lock *lock, enum muster_rc rc)
{
    struct locker *locker = lock->data;

    if (rc != MUSTER_OK)
        give_up("lock", lock->error.text);
    locker->is_held = true;
    print_number("held", lock->token);
}

static void on_lock_lost(struct muster_lock *lock)
{
    struct locker *locker = lock->data;

    print_number("lost", lock->token);
    locker->is_over = true;
}

static void on_unlocked(struct muster_lock *lock)
{
    struct locker *locker = lock->data;

    print_number("unlocked", lock->token);
    locker->is_over = true;
}

static void on_elected(struct muster_election *election, enum muster_rc rc)
{
    struct locker *locker = election->data;

    if (rc != MUSTER_OK)
        give_up("elect", election->error.text);
    locker->is_held = true;
    print_number("elected", election->term);
}

static void on_deposed(struct muster_election *election)
{
    struct locker *locker = election->data;

    print_number("lost", election->term);
    locker->is_over = true;
}

static void on_proclaimed(struct muster_election *election, enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        give_up("proclaim", election->error.text);
    print_number("proclaimed", election->term);
}

static void on_resigned(struct muster_election *election)
{
    struct locker *locker = election->data;

    print_number("resigned", election->term);
    locker->is_over = true;
}

static void on_leader(struct muster_election_watch *watch, const struct muster_registry_kv *leader)
{
    (void)watch;
    if (leader != NULL)
        printf("leader %.*s\n", (int)leader->value.size, (const char *)leader->value.data);
    else
        puts("nobody");
    fflush(stdout);
}

static void on_opened(struct muster_session *session, enum muster_rc rc)
{
    struct locker *locker = session->data;
    struct muster_lock_options lock = {.name = bytes_of(locker->name), .deadline_ns = UINT64_MAX};
    struct muster_election_options election = {.name = bytes_of(locker->name),
                                               .value = bytes_of(locker->value),
                                               .deadline_ns = UINT64_MAX};

    if (rc != MUSTER_OK)
        give_up("session", session->error.text);
    if (strcmp(locker->what, "lock") == 0)
        rc = muster_lock_start(&locker->lock, session, &lock, on_lock_done, on_lock_lost);
    else
        rc = muster_election_start(&locker->election, session, &election, on_elected, on_deposed);
    if (rc != MUSTER_OK)
        give_up("start", muster_rc_text(rc));
}

static void on_session_lost(struct muster_session *session)
{
    struct locker *locker = session->data;

    locker->is_over = true;
}

static void let_go(struct locker *locker)
{
    enum muster_rc rc = MUSTER_FAILED_PRECONDITION;

    if (locker->is_held && strcmp(locker->what, "lock") == 0)
        rc = muster_lock_stop(&locker->lock, on_unlocked);
    else if (locker->is_held)
        rc = muster_election_stop(&locker->election, on_resigned);
    if (rc != MUSTER_OK)
        locker->is_over = true;
}

static void on_input(struct muster_fd_watch *input, unsigned ready)
{
    struct locker *locker = input->data;
    ssize_t got =
        read(0, locker->line + locker->line_bytes, sizeof(locker->line) - locker->line_bytes);
    char *end = NULL;

    (void)ready;
    if (got <= 0) {
        muster_fd_watch_close(input);
        let_go(locker);
        return;
    }
    locker->line_bytes += (size_t)got;
    end = memchr(locker->line, '\n', locker->line_bytes);
    if (end == NULL)
        return;
    locker->line_bytes = 0;
    if (muster_election_proclaim_start(
            &locker->election, (struct muster_bytes){locker->line, (size_t)(end - locker->line)},
            muster_loop_after_ns(locker->env->loop, 30 * MUSTER_NS_PER_S),
            on_proclaimed) != MUSTER_OK)
        give_up("proclaim", "refused");
}

static void locker_begin(struct locker *locker)
{
    struct muster_registry_options options = {.endpoints = getenv("MUSTER_REGISTRY")};
    struct muster_error error;

    if (muster_registry_open(locker->env, &options, &locker->registry, &error) != MUSTER_OK)
        give_up("registry", error.text);
    muster_registry_set_data(locker->registry, locker);
    locker->session.data = locker->lock.data = locker->election.data = locker;
    locker->input.data = locker;
    locker->input.on_ready = on_input;
    locker->input.wanted = MUSTER_FD_READ;
    if (muster_fd_watch_open(&locker->input, locker->env->loop) != MUSTER_OK)
        give_up("input", "cannot be watched");
    if (strcmp(locker->what, "observe") == 0) {
        if (muster_election_watch_start(&locker->watch, locker->registry, bytes_of(locker->name),
                                        on_leader) != MUSTER_OK)
            give_up("observe", "refused");
    } else if (muster_session_open(&locker->session, locker->registry, TTL_S,
                                   muster_loop_after_ns(locker->env->loop, 60 * MUSTER_NS_PER_S),
                                   on_opened, on_session_lost) != MUSTER_OK) {
        give_up("session", "refused");
    }
}

static void on_session_closed(struct muster_session *session)
{
    struct locker *locker = session->data;

    locker->is_session_closed = true;
}

static void on_registry_closed(struct muster_registry *registry)
{
    struct locker *locker = muster_registry_data(registry);

    locker->is_registry_closed = true;
}

static void locker_end(struct locker *locker)
{
    if (strcmp(locker->what, "observe") == 0) {
        muster_election_watch_stop(&locker->watch);
    } else {
        muster_session_close(&locker->session, on_session_closed);
        while (!locker->is_session_closed)
            muster_loop_turn(locker->env->loop, UINT64_MAX);
    }
    muster_fd_watch_close(&locker->input);
    muster_registry_close(locker->registry, on_registry_closed);
    while (!locker->is_registry_closed)
        muster_loop_turn(locker->env->loop, UINT64_MAX);
}

int main(int argc, char **argv)
{
    struct locker locker = {.what = argc > 1 ? argv[1] : "",
                            .name = argc > 2 ? argv[2] : "",
                            .value = argc > 3 ? argv[3] : ""};

    if (argc < 3 || muster_env_system_open(NULL, &locker.env) != MUSTER_OK ||
        muster_net_system_open(locker.env, &locker.env->net) != MUSTER_OK)
        give_up("usage", "locker lock|elect|observe NAME [VALUE]");
    locker_begin(&locker);
    while (!locker.is_over)
        muster_loop_turn(locker.env->loop, UINT64_MAX);
    locker_end(&locker);
    muster_net_system_close(locker.env->net);
    muster_env_system_close(locker.env);
    return 0;
}
