/* iperf3 beside `muster bench params --bulk-bytes`: what TCP on the loopback carries on this host, on the same
 * processors. */
#include "bench/params.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <muster/json.h>

#include "bench/meet.h"

#define TEXT_BYTES  65536u
#define TRIES       50
#define TRY_WAIT_US 20000

/* Another process may take it before iperf3 does; iperf3 says so then. */
static unsigned port_find(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    unsigned port = 0;

    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* Start a program with its standard output at `out`. Returns its process. */
static pid_t program_start(char *const words[], int out, const unsigned *processor)
{
    pid_t parent = getpid(), child;

    fflush(NULL);
    child = fork();
    if (child != 0)
        return child;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    if (processor != NULL)
        bench_bind(*processor);
    (void)dup2(out, STDOUT_FILENO);
    (void)freopen("/dev/null", "w", stderr);
    execvp(words[0], words);
    _exit(127);
}

static int program_end(pid_t child)
{
    int status = 0;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Its report, or why there is none. */
static bool client_run(const struct bench_params_settings *settings, const char *port,
                       const unsigned *processor, char *ret_text)
{
    char name[] = "iperf3", json[] = "-J", to[] = "-c", host[] = "127.0.0.1", at[] = "-p", time[] = "-t";
    char seconds[16], port_text[16];
    char *words[] = {name, json, to, host, at, port_text, time, seconds, NULL};
    uint64_t whole = settings->duration_ns / MUSTER_NS_PER_S;
    size_t length = 0;
    ssize_t some;
    int ends[2];
    pid_t child;

    snprintf(seconds, sizeof(seconds), "%u", whole > 0 ? (unsigned)whole : 1u);
    snprintf(port_text, sizeof(port_text), "%s", port);
    if (pipe(ends) != 0)
        return false;
    child = program_start(words, ends[1], processor);
    close(ends[1]);
    while (child > 0 && length < TEXT_BYTES &&
           (some = read(ends[0], ret_text + length, TEXT_BYTES - length)) > 0)
        length += (size_t)some;
    ret_text[length] = '\0';
    close(ends[0]);
    return child > 0 && program_end(child) == EXIT_SUCCESS;
}

/* end.sum_received.bits_per_second */
static double report_read(const char *text)
{
    struct muster_error error;
    struct muster_json *root = NULL, *sum;
    double bits;

    if (muster_json_parse(text, strlen(text), &root, &error) != MUSTER_OK)
        return 0;
    sum = muster_json_member(muster_json_member(root, "end"), "sum_received");
    bits = muster_json_number(muster_json_member(sum, "bits_per_second"));
    muster_json_free(root);
    return bits / 8e9;
}

/* The server listens some time after its start: the client is started again until then. */
static double iperf3_run(const struct bench_params_settings *settings, char *text, const char **ret_why)
{
    static const unsigned server_processor = BENCH_SERVER_PROCESSOR, load_processor = BENCH_LOAD_PROCESSOR;
    char name[] = "iperf3", serve[] = "-s", bind_to[] = "-B", host[] = "127.0.0.1", at[] = "-p", port[16];
    char *words[] = {name, serve, bind_to, host, at, port, NULL};
    int nowhere[2];
    double rate = 0;
    pid_t server;

    *ret_why = "it does not run";
    snprintf(port, sizeof(port), "%u", port_find());
    if (pipe(nowhere) != 0)
        return 0;
    server = program_start(words, nowhere[1], settings->is_bound ? &server_processor : NULL);
    close(nowhere[1]);
    for (int i = 0; server > 0 && i < TRIES && !(rate > 0); i++) {
        int status;

        usleep(TRY_WAIT_US);
        if (waitpid(server, &status, WNOHANG) == server) {
            *ret_why = WIFEXITED(status) && WEXITSTATUS(status) == 127
                           ? "it is not installed (tools/install-dependencies bench)"
                           : "its server has ended";
            server = -1;
        } else if (client_run(settings, port, settings->is_bound ? &load_processor : NULL, text)) {
            rate = report_read(text);
        }
    }
    if (server > 0) {
        (void)kill(server, SIGKILL);
        (void)program_end(server);
    }
    close(nowhere[0]);
    return rate;
}

void bench_params_beside(struct bench_params *bench)
{
    char *text = malloc(TEXT_BYTES + 1);
    const char *why = "no memory";

    if (text != NULL)
        bench->iperf3_gb_per_s = iperf3_run(bench->settings, text, &why);
    if (!(bench->iperf3_gb_per_s > 0))
        fprintf(stderr, "muster bench params: iperf3 is left out: %s\n", why);
    free(text);
}
