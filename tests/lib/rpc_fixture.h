/* A gRPC server with small methods and a channel to it, on one loop over loopback sockets. */
#ifndef MUSTER_RPC_FIXTURE_H
#define MUSTER_RPC_FIXTURE_H

#include <muster/rpc.h>

#include "held_port.h"
#include "test_env.h"

struct rpc_fixture {
    struct test_env test;
    struct muster_env *env;
    struct muster_rpc_server *server;
    struct muster_channel *channel;
    struct held_ports ports; /* of the fixture and of backends beside it */
    struct muster_address address;
    /* seen by the server */
    unsigned started, ended, writable;
    enum muster_rc end_rc;
    struct muster_rpc *hanging; /* the newest call of /test.Echo/Hang, NULL once ended */
    uint64_t deadline_ns;
    bool is_server_closed, is_channel_closed;
};

/** Environment, server on a free port, channel. NULL options: defaults. */
void rpc_fixture_open(struct rpc_fixture *fixture, const struct muster_rpc_server_options *server,
                      const struct muster_channel_options *channel);
void rpc_fixture_close(struct rpc_fixture *fixture);
/** For cmocka: *state is a fixture with default options. */
int rpc_fixture_set_up(void **state);
/** *state is a zeroed scene of so many bytes; its first member is a fixture, which is opened. */
void *rpc_scene_open(void **state, size_t bytes, const struct muster_rpc_server_options *server,
                     const struct muster_channel_options *channel);
/** For cmocka: close the fixture and free the scene that begins with it. */
int rpc_scene_tear_down(void **state);
/** (Again) a server at fixture->address (port 0: one that is held from now on). */
void rpc_fixture_serve(struct rpc_fixture *fixture,
                       const struct muster_rpc_server_options *options);
/** Close the server, letting calls end for grace_ns, and wait for it. */
void rpc_fixture_stop_serving(struct rpc_fixture *fixture, uint64_t grace_ns);
/** Another server at the same address instead, with these options. */
void rpc_fixture_serve_with(struct rpc_fixture *fixture,
                            const struct muster_rpc_server_options *options);
void rpc_fixture_dial(struct rpc_fixture *fixture, const char *target,
                      const struct muster_channel_options *options);
void rpc_fixture_hang_up(struct rpc_fixture *fixture);
/** Another channel to the server instead, with these options. */
void rpc_fixture_redial(struct rpc_fixture *fixture, const struct muster_channel_options *options);
/** Turn until a call of Hang has come. */
void rpc_fixture_wait_hanging(struct rpc_fixture *fixture);
/** Loop time from now. */
uint64_t rpc_fixture_after_ms(const struct rpc_fixture *fixture, uint64_t ms);

/* Methods: Unary, Bidi (echo), Source (request "N": N messages "0".."N-1"), Sink (answers the byte
 * count), Hang (never answers), Fail (request "CODE text"), Metadata (gives metadata back, initial
 * and trailing), Burst (request "SIZE": sends messages of SIZE until its queue refuses one), Large
 * (request "SIZE": one message of SIZE). */

/** A call that records all it is told. */
struct rpc_probe {
    struct muster_call call;
    char messages[4096]; /* joined by ',' */
    unsigned message_count;
    size_t message_bytes;
    unsigned headers, writable, done;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
    char initial[256], trailing[256]; /* "name=value;" */
    void (*on_message_hook)(struct rpc_probe *probe);
    void (*on_done_hook)(struct rpc_probe *probe);
    void *data;
};
/** method is short: "Unary". */
enum muster_rc rpc_probe_start(struct rpc_probe *probe, struct rpc_fixture *fixture,
                               const char *method, uint64_t deadline_ns);
enum muster_rc rpc_probe_start_with(struct rpc_probe *probe, struct rpc_fixture *fixture,
                                    struct muster_call_options *options);
/** rpc_probe_start without a deadline, which must succeed. */
void rpc_probe_begin(struct rpc_probe *probe, struct rpc_fixture *fixture, const char *method);
void rpc_probe_send(struct rpc_probe *probe, const char *text);
/** Send text, half-close. */
void rpc_probe_send_last(struct rpc_probe *probe, const char *text);
/** Half-close and wait. */
void rpc_probe_end(struct rpc_probe *probe, struct rpc_fixture *fixture);
/** Cancel and wait. */
void rpc_probe_cancel(struct rpc_probe *probe, struct rpc_fixture *fixture);
/** Turn the loop until done has run. */
void rpc_probe_wait(struct rpc_probe *probe, struct rpc_fixture *fixture);
/** Turn until so many messages have come (or done). */
void rpc_probe_wait_messages(struct rpc_probe *probe, struct rpc_fixture *fixture, unsigned count);
/** start, send text, half-close, wait. */
void rpc_probe_ask(struct rpc_probe *probe, struct rpc_fixture *fixture, const char *method,
                   const char *text);
void rpc_probe_ask_with(struct rpc_probe *probe, struct rpc_fixture *fixture,
                        struct muster_call_options *options, const char *text);
/** The same with a probe that is not needed before the end. */
struct rpc_probe rpc_fixture_ask(struct rpc_fixture *fixture, const char *method, const char *text);

#endif
