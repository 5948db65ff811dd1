/* The parts that every small service has: an environment, a server, the ready line, and draining at
 * SIGTERM. */
#ifndef EXAMPLE_SERVING_H
#define EXAMPLE_SERVING_H

#include <stdbool.h>

#include <muster/muster.h>

struct serving {
    const char *program;
    struct muster_env *env;
    struct muster_rpc_server *server;
    /* May be NULL. SIGTERM came: end streams that would stay open. */
    void (*on_drain)(struct serving *serving);
    /* May be NULL. No call is left: close the rest, then serving_ended. */
    void (*on_closed)(struct serving *serving);
};

/** The command line into *settings. False: help was printed, or what is wrong; *ret_exit is the exit
 * code. */
bool serving_parse(const struct muster_options *options, int argc, char **argv, void *settings,
                   int *ret_exit);
/** Checks the text of --listen. */
bool serving_is_address(const char *text, struct muster_error *ret_error);
/** The row of --listen in a table of options. */
#define SERVING_LISTEN_ROW(settings_type)                                                          \
    {                                                                                              \
        .name = "listen", .kind = MUSTER_OPTION_TEXT, .offset = offsetof(settings_type, listen),   \
        .fallback = "127.0.0.1:0", .check = serving_is_address, .value = "HOST:PORT",              \
        .help = "Where clients connect; port 0 takes a free one."                                  \
    }
/** Environment and server (options may be NULL). False: said on stderr. */
bool serving_open(struct serving *serving, const struct muster_rpc_server_options *options);
/** Add the standard services: health, and reflection of the .proto file. False: reported on
 * stderr. */
bool serving_describe(struct serving *serving, const struct muster_descriptors *descriptors);
/** Listen at place, print "listening HOST:PORT", serve until SIGTERM or SIGINT. Returns the exit
 * code; what serving_open made is gone. */
int serving_run(struct serving *serving, const char *place);
void serving_ended(struct serving *serving);

#endif
