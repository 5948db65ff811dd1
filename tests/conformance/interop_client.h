/* The client of the official gRPC interop cases: what a case is given, and the calls it makes. */
#ifndef MUSTER_INTEROP_CLIENT_H
#define MUSTER_INTEROP_CLIENT_H

#include <protobuf-c/protobuf-c.h>

#include <muster/env.h>
#include <muster/rpc.h>

#define INTEROP_TEST_SERVICE "/grpc.testing.TestService/"

#define INTEROP_DEADLINE_NS     (60 * MUSTER_NS_PER_S)
#define INTEROP_ANSWERS_MAX     8
#define INTEROP_METADATA_MAX    8
#define INTEROP_VALUE_BYTES     1024
#define INTEROP_LARGE_REQUEST   271828
#define INTEROP_LARGE_RESPONSE  314159
#define INTEROP_RECEIVE_BYTES   (64u << 20)
#define INTEROP_FAILURE_BYTES   512
#define INTEROP_ADDITIONAL_MAX  4
#define INTEROP_ADDITIONAL_TEXT 256

struct interop_settings {
    const char *server_host, *test_case, *server_host_override, *ca_file;
    const char *additional_metadata, *default_service_account, *oauth_scope;
    const char *service_account_key_file, *service_config_json;
    uint64_t server_port;
    bool is_tls, is_test_ca, is_alts;
    uint64_t soak_iterations, soak_failures_max, soak_thread_count;
    uint64_t soak_latency_max_ns, soak_timeout_ns, soak_interval_ns;
    uint64_t soak_request_bytes, soak_response_bytes;
};

struct interop_client {
    struct muster_env *env;
    const struct interop_settings *settings;
    struct muster_tls *tls; /* NULL: plain text */
    struct muster_channel *channel;
    /* metadata of every call, from --additional_metadata */
    struct muster_metadata_entry additional[INTEROP_ADDITIONAL_MAX];
    size_t additional_count;
    char additional_text[INTEROP_ADDITIONAL_TEXT];
    char failure[INTEROP_FAILURE_BYTES]; /* the first check that failed; "" while none has */
};

/** A case: false after a check that failed. */
typedef bool interop_case_fn(struct interop_client *client);

struct interop_case {
    const char *name;
    interop_case_fn *run; /* NULL: cannot be run here */
    const char *reason;   /* why */
};

/** One more channel to the server. NULL: failed, as with interop_check. Gives. */
struct muster_channel *interop_channel_open(struct interop_client *client);
/** Close it and wait. NULL is accepted. Takes. */
void interop_channel_close(struct interop_client *client, struct muster_channel *channel);

/** Returns is_right; if it is not, the text is kept as the failure (the first one). */
bool interop_check(struct interop_client *client, bool is_right, const char *fmt, ...)
    MUSTER_PRINTF(3, 4);

struct interop_answer {
    void *message; /* unpacked */
    bool is_compressed;
};

/** A metadata value that a call has kept. */
struct interop_value {
    unsigned count; /* entries of that name */
    size_t bytes;
    uint8_t value[INTEROP_VALUE_BYTES];
};

/** How a call begins. */
struct interop_ask {
    const char *method;
    const ProtobufCMessageDescriptor *answer; /* of each answer */
    uint64_t timeout_ns;                      /* 0: a generous one */
    struct muster_metadata metadata;
    bool can_compress;
    const char *initial_name, *trailing_name; /* metadata to keep; NULL: none */
};

/** A call of any kind, waited for step by step. */
struct interop_call {
    struct muster_call call;
    struct interop_client *client;
    struct muster_channel *channel; /* NULL before start: the client's */
    const ProtobufCMessageDescriptor *descriptor;
    struct interop_answer answers[INTEROP_ANSWERS_MAX];
    size_t answer_count; /* all that came, also beyond those that are kept */
    const char *initial_name, *trailing_name;
    struct interop_value initial, trailing;
    bool is_started, is_done;
    enum muster_rc rc;                  /* once done */
    char text[MUSTER_ERROR_TEXT_BYTES]; /* grpc-message */
};

/** All of these return false after a failed check. A call is zero before start and must be ended
 * with fini. */
bool interop_call_start(struct interop_call *call, struct interop_client *client,
                        const struct interop_ask *ask);
bool interop_call_send(struct interop_call *call, const void *message, bool is_compressed);
/** Wait until `count` answers are there. */
bool interop_call_await(struct interop_call *call, size_t count);
/** Wait for the end, which must be this one. */
bool interop_call_end(struct interop_call *call, enum muster_rc expected);
/** Cancels, if need be, and frees the answers. */
void interop_call_fini(struct interop_call *call);
/** A whole call with one message each way. */
bool interop_unary(struct interop_call *call, struct interop_client *client,
                   const struct interop_ask *ask, const void *request, enum muster_rc expected);

/* Cases by file: interop_unary.c, interop_streams.c, interop_ends.c, interop_load.c,
 * interop_soak.c, interop_peer.c. */
interop_case_fn interop_empty_unary, interop_large_unary, interop_client_compressed_unary,
    interop_server_compressed_unary, interop_very_large_request, interop_pick_first_unary,
    interop_custom_metadata;
interop_case_fn interop_client_streaming, interop_client_compressed_streaming,
    interop_server_streaming, interop_server_compressed_streaming, interop_ping_pong,
    interop_empty_stream;
interop_case_fn interop_status_code_and_message, interop_special_status_message,
    interop_unimplemented_method, interop_unimplemented_service, interop_cancel_after_begin,
    interop_cancel_after_first_response, interop_timeout_on_sleeping_server;
interop_case_fn interop_orca_per_rpc, interop_orca_oob;
interop_case_fn interop_rpc_soak, interop_channel_soak;
interop_case_fn interop_goaway, interop_reset, interop_max_streams;

/** Whether an answer's payload has this size and holds zeros. */
bool interop_check_body(struct interop_client *client, const ProtobufCBinaryData *body,
                        size_t bytes);

#endif
