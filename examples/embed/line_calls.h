/* The gRPC part of the program: serve lines of text, or send them as requests.
 * It knows nothing of the loop that drives it. */
#ifndef EXAMPLE_LINE_CALLS_H
#define EXAMPLE_LINE_CALLS_H

#include <stdbool.h>
#include <stddef.h>

#include <muster/muster.h>

struct line_calls {
    struct muster_env *env;
    struct muster_rpc_server *server; /* of one that serves */
    struct muster_channel *channel;   /* of one that asks */
    unsigned open_count;              /* calls without an answer */
    bool has_failed;                  /* some call had no answer */
    bool is_input_over;
    bool is_closed; /* nothing is left to be driven: line_calls_free may be called */
};

/** "serve HOST:PORT" (port 0: a free one; prints "listening HOST:PORT") or "ask HOST:PORT". base:
 * the event_base to join, or NULL for a loop whose descriptor the caller watches. False: said on
 * stderr. */
bool line_calls_open(struct line_calls *calls, int argc, char **argv, struct event_base *base);
/** Each line of text becomes one call; each answer one line on stdout. */
void line_calls_ask(struct line_calls *calls, const char *text, size_t bytes);
/** No more lines; closes once the last answer is there. */
void line_calls_end_input(struct line_calls *calls);
/** End what is open now; is_closed comes true in a later turn. */
void line_calls_close(struct line_calls *calls);
/** The exit code. */
int line_calls_free(struct line_calls *calls);

#endif
