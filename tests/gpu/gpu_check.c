/* NCCL and CUDA on a real device, all ranks on one: values against the host's, times, kill -9 and
 * recovery, a rank that comes back. Exit code 77: there is no device, or no NCCL (the text says).
 * */
#include "gpu_check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* libevent takes this from glibc 2.36; defined here, so that an older glibc will do. */
uint32_t arc4random(void);
void arc4random_buf(void *bytes, size_t count);

void arc4random_buf(void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t got = getrandom((char *)bytes + done, count - done, 0);

        if (got < 0 && errno != EINTR)
            abort();
        done += got > 0 ? (size_t)got : 0;
    }
}

uint32_t arc4random(void)
{
    uint32_t value;

    arc4random_buf(&value, sizeof(value));
    return value;
}

#define WAIT_S       180 /* for anything: then the check has failed */
#define STEPS_BEFORE 3   /* steps between changes */

struct child {
    pid_t pid; /* 0: dead */
    int socket;
    uint32_t life;
    char line[CHECK_LINE_BYTES];
    size_t line_bytes;
    char address[256];
    unsigned frozen, finished, closed;
    uint64_t steps; /* of the current epoch */
};

struct check {
    const char *program;
    uint32_t count, kills;
    uint64_t bytes, epoch;
    struct child children[CHECK_RANKS_MAX];
    bool has_failed;
};

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* --- Ranks --- */

/* One device for all: each looks like a host of its own (before 2.30), or is allowed to share. */
static void set_rank_environment(uint32_t rank)
{
    char host[32];

    snprintf(host, sizeof(host), "muster-check-%u", rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_NET", "Socket", 0); /* no plugin that the machine may have */
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_RAS_ENABLE", "0", 0); /* all would listen at one port */
    setenv("NCCL_MNNVL_ENABLE", "0", 0);
    setenv("NCCL_MAX_CTAS", "2", 0);
}

static bool start_rank(struct check *check, uint32_t rank)
{
    struct child *child = &check->children[rank];
    char rank_text[16], life_text[16], count_text[16], bytes_text[32], socket_text[16];
    char *arguments[] = {(char *)(uintptr_t)check->program,
                         (char *)(uintptr_t) "--rank",
                         rank_text,
                         life_text,
                         count_text,
                         bytes_text,
                         socket_text,
                         NULL};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return false;
    (void)fcntl(pair[1], F_SETFD, 0); /* the rank's own, no other's */
    snprintf(rank_text, sizeof(rank_text), "%u", rank);
    snprintf(life_text, sizeof(life_text), "%u", child->life);
    snprintf(count_text, sizeof(count_text), "%u", check->count);
    snprintf(bytes_text, sizeof(bytes_text), "%llu", (unsigned long long)check->bytes);
    snprintf(socket_text, sizeof(socket_text), "%d", pair[1]);
    set_rank_environment(rank);
    child->socket = pair[0];
    child->line_bytes = 0;
    child->address[0] = '\0';
    if (posix_spawn(&child->pid, check->program, NULL, NULL, arguments, environ) != 0)
        child->pid = 0;
    close(pair[1]);
    return child->pid != 0;
}

static void check_tell(struct check *check, const char *text)
{
    for (uint32_t rank = 0; rank < check->count; rank++)
        if (check->children[rank].pid != 0 &&
            send(check->children[rank].socket, text, strlen(text), MSG_NOSIGNAL) < 0)
            fprintf(stderr, "rank %u does not listen\n", rank);
}

static void on_line(struct check *check, struct child *child, const char *line)
{
    unsigned long long epoch, step;

    if (strncmp(line, "listening ", 10) == 0)
        snprintf(child->address, sizeof(child->address), "%s", line + 10);
    else if (strcmp(line, "frozen") == 0)
        child->frozen++;
    else if (strcmp(line, "finished") == 0)
        child->finished++;
    else if (strcmp(line, "closed") == 0)
        child->closed++;
    else if (sscanf(line, "step %llu %llu", &epoch, &step) == 2)
        child->steps += epoch == check->epoch;
    else if (strncmp(line, "result ", 7) == 0)
        printf("%s\n", line + 7);
    else
        check->has_failed = true, printf("%s\n", line);
}

static void read_child(struct check *check, struct child *child)
{
    ssize_t count = read(child->socket, child->line + child->line_bytes,
                         sizeof(child->line) - child->line_bytes - 1);
    char *end;

    if (count <= 0) {
        close(child->socket);
        child->socket = -1;
        if (child->closed == 0)
            check->has_failed = true;
        return;
    }
    child->line_bytes += (size_t)count;
    child->line[child->line_bytes] = '\0';
    while ((end = memchr(child->line, '\n', child->line_bytes)) != NULL) {
        *end = '\0';
        on_line(check, child, child->line);
        child->line_bytes -= (size_t)(end + 1 - child->line);
        memmove(child->line, end + 1, child->line_bytes + 1);
    }
}

static bool has_address(const struct child *child)
{
    return child->address[0] != '\0';
}

static bool is_frozen(const struct child *child)
{
    return child->frozen > 0;
}

static bool is_finished(const struct child *child)
{
    return child->finished > 0;
}

static bool has_stepped(const struct child *child)
{
    return child->steps >= 1;
}

static bool has_stepped_often(const struct child *child)
{
    return child->steps >= STEPS_BEFORE;
}

static bool is_closed(const struct child *child)
{
    return child->closed > 0;
}

static bool are_all(const struct check *check, bool (*is)(const struct child *child))
{
    for (uint32_t rank = 0; rank < check->count; rank++)
        if (check->children[rank].pid != 0 && !is(&check->children[rank]))
            return false;
    return true;
}

static bool wait_all(struct check *check, bool (*is)(const struct child *child), const char *what)
{
    double end_ms = now_ms() + WAIT_S * 1e3;

    while (!check->has_failed && !are_all(check, is)) {
        struct pollfd polls[CHECK_RANKS_MAX];

        if (now_ms() > end_ms) {
            printf("failed: waited %d s for all ranks to have %s\n", WAIT_S, what);
            check->has_failed = true;
        }
        for (uint32_t rank = 0; rank < check->count; rank++)
            polls[rank] = (struct pollfd){
                .fd = check->children[rank].pid != 0 ? check->children[rank].socket : -1,
                .events = POLLIN};
        if (poll(polls, check->count, 1000) <= 0)
            continue;
        for (uint32_t rank = 0; rank < check->count; rank++)
            if (polls[rank].revents != 0)
                read_child(check, &check->children[rank]);
    }
    return !check->has_failed;
}

static void end_rank(struct child *child)
{
    if (child->pid == 0)
        return;
    kill(child->pid, SIGKILL);
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    child->pid = 0;
    if (child->socket >= 0)
        close(child->socket);
    child->socket = -1;
}

/* --- The story --- */

static void send_view(struct check *check)
{
    char text[CHECK_LINE_BYTES];
    size_t length =
        (size_t)snprintf(text, sizeof(text), "view %llu", (unsigned long long)++check->epoch);

    for (uint32_t rank = 0; rank < check->count; rank++) {
        struct child *child = &check->children[rank];

        if (child->pid == 0)
            continue;
        child->steps = 0;
        length += (size_t)snprintf(text + length, sizeof(text) - length, " %u:%u:%s", rank,
                                   child->life, child->address);
    }
    snprintf(text + length, sizeof(text) - length, "\n");
    check_tell(check, text);
}

static bool check_freeze(struct check *check)
{
    for (uint32_t rank = 0; rank < check->count; rank++)
        check->children[rank].frozen = 0;
    check_tell(check, "freeze\n");
    return wait_all(check, is_frozen, "stopped");
}

static bool run_phase(struct check *check, enum check_phase phase, const char *what)
{
    char text[32];

    for (uint32_t rank = 0; rank < check->count; rank++)
        check->children[rank].finished = 0;
    snprintf(text, sizeof(text), "go %d\n", (int)phase);
    check_tell(check, text);
    return wait_all(check, is_finished, what);
}

/* Kill one, go on without it, take it in again. */
static bool kill_and_return(struct check *check, uint32_t victim)
{
    struct child *child = &check->children[victim];
    double killed_ms = now_ms(), frozen_ms, back_ms;

    end_rank(child);
    if (!check_freeze(check))
        return false;
    frozen_ms = now_ms();
    send_view(check);
    if (!wait_all(check, has_stepped, "committed a step without the dead"))
        return false;
    printf(
        "rank %u killed: stopped after %.1f ms, first step of %u ranks committed after %.1f ms\n",
        victim, frozen_ms - killed_ms, check->count - 1, now_ms() - killed_ms);
    if (!wait_all(check, has_stepped_often, "gone on"))
        return false;
    child->life++;
    back_ms = now_ms();
    if (!start_rank(check, victim) || !wait_all(check, has_address, "come back") ||
        !check_freeze(check))
        return false;
    send_view(check);
    if (send(child->socket, "go 3\n", 5, MSG_NOSIGNAL) < 0)
        return false;
    if (!wait_all(check, has_stepped, "committed a step with the returned"))
        return false;
    printf("rank %u back: first step of %u ranks committed after %.1f ms\n", victim, check->count,
           now_ms() - back_ms);
    return wait_all(check, has_stepped_often, "gone on");
}

static bool run_check(struct check *check)
{
    char text[32];

    for (uint32_t rank = 0; rank < check->count; rank++)
        if (!start_rank(check, rank))
            return false;
    if (!wait_all(check, has_address, "started"))
        return false;
    send_view(check);
    if (!run_phase(check, PHASE_VALUES, "compared values") ||
        !run_phase(check, PHASE_TIMES, "measured times"))
        return false;
    snprintf(text, sizeof(text), "go %d\n", (int)PHASE_STEPS);
    check_tell(check, text);
    for (uint32_t i = 0; i < check->kills; i++) {
        if (!wait_all(check, has_stepped_often, "made steps") ||
            !kill_and_return(check, i % check->count))
            return false;
    }
    if (!check_freeze(check)) /* all stop at the same step */
        return false;
    check_tell(check, "go 0\n");
    send_view(check);
    check_tell(check, "quit\n");
    return wait_all(check, is_closed, "closed");
}

/* --- Program --- */

static bool probe_program(const char *program, int *ret_code)
{
    char *arguments[] = {(char *)(uintptr_t)program, (char *)(uintptr_t) "--probe", NULL};
    int status = 0;
    pid_t pid;

    fflush(stdout);
    if (posix_spawn(&pid, program, NULL, NULL, arguments, environ) != 0)
        return false;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    *ret_code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return *ret_code == 0;
}

static int rank_main(char **arguments)
{
    const struct check_options options = {
        .rank = (uint32_t)strtoul(arguments[0], NULL, 10),
        .life = (uint32_t)strtoul(arguments[1], NULL, 10),
        .count = (uint32_t)strtoul(arguments[2], NULL, 10),
        .bytes = strtoull(arguments[3], NULL, 10),
        .socket = (int)strtol(arguments[4], NULL, 10),
    };

    return check_rank_main(&options);
}

static bool read_options(struct check *check, int count, char **arguments)
{
    for (int i = 1; i + 1 < count; i += 2) {
        unsigned long long value = strtoull(arguments[i + 1], NULL, 10);

        if (strcmp(arguments[i], "--ranks") == 0)
            check->count = (uint32_t)value;
        else if (strcmp(arguments[i], "--bytes") == 0)
            check->bytes = value;
        else if (strcmp(arguments[i], "--kills") == 0)
            check->kills = (uint32_t)value;
        else
            return false;
    }
    return count % 2 == 1 && check->count >= 2 && check->count <= CHECK_RANKS_MAX &&
           check->bytes >= 4;
}

int main(int count, char **arguments)
{
    static struct check check = {.count = 3, .kills = 3, .bytes = (uint64_t)16 << 20};
    int code = 1;
    bool is_fine;

    check.program = arguments[0];
    signal(SIGPIPE, SIG_IGN);
    if (count == 7 && strcmp(arguments[1], "--rank") == 0)
        return rank_main(arguments + 2);
    if (count == 2 && strcmp(arguments[1], "--probe") == 0)
        return check_probe_main();
    if (!read_options(&check, count, arguments)) {
        fprintf(stderr, "usage: gpu_check [--ranks N] [--bytes B] [--kills K]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!probe_program(check.program, &code))
        return code;
    is_fine = run_check(&check);
    for (uint32_t rank = 0; rank < check.count; rank++)
        end_rank(&check.children[rank]);
    printf("gpu_check: %s\n", is_fine ? "passed" : "failed");
    return is_fine ? 0 : 1;
}
