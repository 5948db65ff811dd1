/* The supervisor of several seats: each has a keeper of its own, which is started again when it is
 * killed.
 *
 * This process has the memory and the socket of each seat, too, so that a seat outlives its keeper.
 * With replicas it has only the sockets: the other servers have the rows, and a process that joins
 * again begins with empty memory. */
#include "params/servers.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/command.h"
#include "common/output.h"
#include "params/cutter.h"

#define NAME "params serve"
/* So many keepers in a row that die before a server has the seat: the next one would die, too. */
#define FAILURES_MAX 5u
#define LINES_BYTES  1024u /* what a server says when it is ready */

struct slot {
    struct params_seat seat;
    char listen[SERVERS_ADDRESS_BYTES], reach[SERVERS_ADDRESS_BYTES], status[SERVERS_ADDRESS_BYTES];
    bool is_opened;
    pid_t keeper; /* 0: none */
    unsigned failures, takes_seen;
    int output;              /* of the first server in the seat, until it is ready; -1: none */
    char lines[LINES_BYTES]; /* what came from there */
    size_t line_bytes;
};

struct supervisor {
    const struct params_seat_settings *settings;
    struct slot *slots;
    uint32_t count;
    int signals;
    sigset_t before;
    pid_t cutter; /* with --cut-dir: makes the cuts; 0: there is none */
    bool is_ready, is_stopping;
    int code;
};

bool servers_address(const char *text, uint32_t i, char address[SERVERS_ADDRESS_BYTES])
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    unsigned long port;

    if (colon == NULL || colon[1] < '0' || colon[1] > '9')
        return false;
    errno = 0;
    port = strtoul(colon + 1, &end, 10);
    if (errno != 0 || *end != '\0' || port > UINT16_MAX || (port > 0 && port + i > UINT16_MAX))
        return false;
    return snprintf(address, SERVERS_ADDRESS_BYTES, "%.*s:%lu", (int)(colon - text), text,
                    port > 0 ? port + i : 0) < (int)SERVERS_ADDRESS_BYTES;
}

/* --- Opening --- */

static enum muster_rc slot_open(struct slot *slot, uint32_t i,
                                const struct params_seat_settings *settings,
                                struct muster_error *ret_error)
{
    struct params_seat_settings own = *settings;
    bool is_address;
    const struct {
        char *text;
        const char **place;
    } addresses[] = {
        {slot->listen, &own.listen}, {slot->reach, &own.reach}, {slot->status, &own.status}};

    for (size_t at = 0; at < sizeof(addresses) / sizeof(addresses[0]); at++) {
        const char **place = addresses[at].place;

        if (*place == NULL)
            continue;
        is_address = servers_address(*place, i, addresses[at].text);
        MUSTER_ASSERT(is_address); /* the options were checked */
        *place = addresses[at].text;
    }
    slot->is_opened = true;
    return params_seat_open(&slot->seat, &own, ret_error);
}

static bool supervisor_open(struct supervisor *supervisor,
                            const struct params_seat_settings *settings,
                            struct muster_error *ret_error)
{
    sigset_t signals;

    supervisor->signals = -1;
    supervisor->count = (uint32_t)settings->server_count;
    supervisor->slots = calloc(supervisor->count, sizeof(*supervisor->slots));
    if (supervisor->slots == NULL)
        output_no_memory();
    for (uint32_t i = 0; i < supervisor->count; i++)
        supervisor->slots[i].output = -1;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        if (slot_open(&supervisor->slots[i], i, settings, ret_error) != MUSTER_OK)
            return false;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &signals, &supervisor->before);
    supervisor->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (supervisor->signals >= 0)
        return true;
    muster_error_set_sys(ret_error, MUSTER_RESOURCE_EXHAUSTED, errno, "no descriptor for signals");
    return false;
}

static void output_end(struct slot *slot)
{
    if (slot->output >= 0)
        close(slot->output);
    slot->output = -1;
}

static void supervisor_close(struct supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->count; i++) {
        output_end(&supervisor->slots[i]);
        if (supervisor->slots[i].is_opened)
            params_seat_close(&supervisor->slots[i].seat);
    }
    if (supervisor->signals >= 0) {
        close(supervisor->signals);
        (void)sigprocmask(SIG_SETMASK, &supervisor->before, NULL);
    }
    free(supervisor->slots);
}

/* --- Keepers --- */

/* In the child: drop all that belongs to other seats, and keep this one. Does not return. */
static void keeper_begin(struct supervisor *supervisor, struct slot *slot, pid_t parent,
                         const int output[2])
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the line above */
        _exit(EXIT_OTHER);
    for (uint32_t i = 0; i < supervisor->count; i++) {
        output_end(&supervisor->slots[i]);
        if (&supervisor->slots[i] != slot)
            params_seat_close(&supervisor->slots[i].seat);
    }
    if (dup2(output[1], STDOUT_FILENO) < 0)
        _exit(EXIT_OTHER);
    close(output[0]);
    close(output[1]);
    close(supervisor->signals);
    (void)sigprocmask(SIG_SETMASK, &supervisor->before, NULL);
    exit(keeper_run(&slot->seat.keeper));
}

/* Only the first server in a seat says where it listens, so later keepers' output is not read. */
static bool keeper_start(struct supervisor *supervisor, struct slot *slot)
{
    struct keeper *keeper = &slot->seat.keeper;
    pid_t parent = getpid();
    int output[2];

    fflush(NULL);
    if (pipe(output) == 0) {
        slot->keeper = fork();
        if (slot->keeper == 0)
            keeper_begin(supervisor, slot, parent, output);
        close(output[1]);
        if (slot->keeper > 0 && !supervisor->is_ready && slot->output < 0)
            slot->output = output[0];
        else
            close(output[0]);
    }
    if (slot->keeper <= 0) {
        fprintf(stderr, "muster " NAME ": cannot start a process: %s\n", strerror(errno));
        slot->keeper = 0;
        return false;
    }
    if (keeper->renew != NULL)
        params_seat_forget(&slot->seat);
    return true;
}

static char *addresses_join(const struct supervisor *supervisor)
{
    size_t bytes = supervisor->count * (SERVERS_ADDRESS_BYTES + 1u), used = 0;
    char *joined = malloc(bytes);

    if (joined == NULL)
        output_no_memory();
    for (uint32_t i = 0; i < supervisor->count; i++) {
        const struct slot *slot = &supervisor->slots[i];
        char address[MUSTER_ADDRESS_TEXT_BYTES];

        used += (size_t)snprintf(joined + used, bytes - used, "%s%s", i > 0 ? "," : "",
                                 slot->reach[0] != '\0'
                                     ? slot->reach
                                     : muster_address_format(&slot->seat.address, address));
    }
    return joined;
}

static void cutter_start(struct supervisor *supervisor, bool is_again)
{
    const struct params_seat_settings *settings = supervisor->settings;
    char *servers;

    supervisor->cutter = cutter_fork(is_again);
    if (supervisor->cutter != 0)
        return;
    servers = addresses_join(supervisor);
    supervisor_close(supervisor);
    cutter_run(settings, servers);
}

static void keepers_signal(const struct supervisor *supervisor, int number)
{
    for (uint32_t i = 0; i < supervisor->count; i++) {
        if (supervisor->slots[i].keeper != 0)
            (void)kill(supervisor->slots[i].keeper, number);
    }
}

static bool has_keepers(const struct supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->count; i++) {
        if (supervisor->slots[i].keeper != 0)
            return true;
    }
    return false;
}

static void supervisor_stop(struct supervisor *supervisor)
{
    if (!supervisor->is_stopping)
        keepers_signal(supervisor, SIGTERM);
    supervisor->is_stopping = true;
}

/* A keeper that ends with 0 has drained its seat: the others go on. One that gives up has said why:
 * before all seats are ready the others end, too; later they have rows that must not be lost. */
static void keeper_ended(struct supervisor *supervisor, int code)
{
    if (code == EXIT_OK && supervisor->is_ready)
        return;
    if (supervisor->code == EXIT_OK)
        supervisor->code = code == EXIT_OK && !supervisor->is_stopping ? EXIT_OTHER : code;
    if (!supervisor->is_ready)
        supervisor_stop(supervisor);
}

static void keeper_killed(struct supervisor *supervisor, struct slot *slot, int number)
{
    struct keeper *keeper = &slot->seat.keeper;
    unsigned takes = atomic_load_explicit(&keeper->board->takes, memory_order_relaxed);
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    if (supervisor->is_stopping)
        return;
    (void)muster_address_format(&slot->seat.address, address);
    fprintf(stderr, "muster " NAME ": the keeper of the seat at %s was killed by signal %d (%s)\n",
            address, number, strsignal(number));
    slot->failures = takes == slot->takes_seen ? slot->failures + 1 : 0;
    slot->takes_seen = takes;
    if (slot->failures < FAILURES_MAX && (keeper->renew == NULL || keeper->renew(keeper)) &&
        keeper_start(supervisor, slot))
        return;
    fprintf(stderr, "muster " NAME ": the seat at %s is given up\n", address);
    keeper_ended(supervisor, EXIT_OTHER);
}

static void keepers_reap(struct supervisor *supervisor)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (!supervisor->is_stopping && cutter_must_restart(supervisor->cutter, pid, status))
            cutter_start(supervisor, true);
        for (uint32_t i = 0; i < supervisor->count; i++) {
            struct slot *slot = &supervisor->slots[i];

            if (slot->keeper != pid)
                continue;
            slot->keeper = 0;
            if (WIFEXITED(status))
                keeper_ended(supervisor, WEXITSTATUS(status));
            else
                keeper_killed(supervisor, slot, WTERMSIG(status));
            break;
        }
    }
}

/* --- The ready line --- */

/* The text after word in the line of the slot that begins with it. */
static const char *line_find(const struct slot *slot, const char *word, int *ret_length)
{
    const char *line = slot->lines;

    while (strncmp(line, word, strlen(word)) != 0) {
        line = strchr(line, '\n');
        if (line == NULL)
            return NULL;
        line++;
    }
    line += strlen(word);
    *ret_length = (int)strcspn(line, "\n");
    return line[*ret_length] == '\n' ? line : NULL;
}

static bool slot_is_ready(const struct slot *slot)
{
    int length;

    return line_find(slot, "listening ", &length) != NULL &&
           (slot->status[0] == '\0' || line_find(slot, "status ", &length) != NULL);
}

/* One line tells all addresses, as clients take them; those of --status follow, one a line. */
static void ready_tell(struct supervisor *supervisor)
{
    const char *separator = "listening ", *text;
    int length = 0;

    for (uint32_t i = 0; i < supervisor->count; i++) {
        if (!slot_is_ready(&supervisor->slots[i]))
            return;
    }
    supervisor->is_ready = true;
    for (uint32_t i = 0; i < supervisor->count; i++, separator = ",") {
        text = line_find(&supervisor->slots[i], "listening ", &length);
        printf("%s%.*s", separator, length, text);
    }
    printf("\n");
    for (uint32_t i = 0; i < supervisor->count; i++) {
        output_end(&supervisor->slots[i]);
        text = line_find(&supervisor->slots[i], "status ", &length);
        if (text != NULL)
            printf("status %.*s\n", length, text);
    }
    if (!output_flush()) { /* a script that waits for the line would wait for ever */
        supervisor->code = EXIT_OTHER;
        supervisor_stop(supervisor);
    }
}

static void output_read(struct supervisor *supervisor, struct slot *slot)
{
    size_t room = sizeof(slot->lines) - 1 - slot->line_bytes;
    ssize_t got = read(slot->output, slot->lines + slot->line_bytes, room);

    if (got > 0)
        slot->line_bytes += (size_t)got;
    if (got == 0 || (got < 0 && errno != EINTR) || slot_is_ready(slot))
        output_end(slot);
    if (!supervisor->is_ready)
        ready_tell(supervisor);
}

/* --- Serving --- */

static void signals_read(struct supervisor *supervisor)
{
    struct signalfd_siginfo info;

    while (read(supervisor->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP)
            keepers_signal(supervisor, SIGHUP);
        else if (info.ssi_signo != SIGCHLD)
            supervisor_stop(supervisor);
    }
    keepers_reap(supervisor);
}

static void supervisor_turn(struct supervisor *supervisor)
{
    struct pollfd waits[SERVERS_MAX + 1];

    for (uint32_t i = 0; i < supervisor->count; i++)
        waits[i] = (struct pollfd){.fd = supervisor->slots[i].output, .events = POLLIN};
    waits[supervisor->count] = (struct pollfd){.fd = supervisor->signals, .events = POLLIN};
    if (poll(waits, supervisor->count + 1, -1) < 0)
        return;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        if (waits[i].revents != 0 && supervisor->slots[i].output >= 0)
            output_read(supervisor, &supervisor->slots[i]);
    }
    if (waits[supervisor->count].revents != 0)
        signals_read(supervisor);
}

int servers_run(const struct params_seat_settings *settings)
{
    struct supervisor supervisor = {.settings = settings, .code = EXIT_OK};
    struct muster_error error = {.rc = MUSTER_OK};

    if (!supervisor_open(&supervisor, settings, &error)) {
        supervisor.code = command_fail(NAME, &error);
        service_tell_listen(NAME, "--listen", "--listen", &error);
    }
    if (supervisor.code == EXIT_OK && settings->cut_folder != NULL)
        cutter_start(&supervisor, false);
    for (uint32_t i = 0; i < supervisor.count && supervisor.code == EXIT_OK; i++)
        supervisor.code = keeper_start(&supervisor, &supervisor.slots[i]) ? EXIT_OK : EXIT_OTHER;
    if (supervisor.code != EXIT_OK)
        supervisor_stop(&supervisor);
    while (has_keepers(&supervisor))
        supervisor_turn(&supervisor);
    supervisor_close(&supervisor);
    return supervisor.code;
}
