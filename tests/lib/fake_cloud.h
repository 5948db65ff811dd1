/* One small real HTTP server that plays clouds from scripts: metadata, tokens, TPU, compute,
 * Kubernetes. */
#ifndef MUSTER_FAKE_CLOUD_H
#define MUSTER_FAKE_CLOUD_H

#include <muster/address.h>
#include <muster/env.h>
#include <muster/http.h>
#include <muster/json.h>
#include <muster/list.h>

#include "fake_identity.h"

struct fake_cloud;
typedef void fake_cloud_close_fn(void *data);

/** All zero: plain HTTP/1.1 (and HTTP/2 with prior knowledge) on a free port of 127.0.0.1. */
struct fake_cloud_options {
    const char *listen; /* "127.0.0.1:8080"; NULL: a free port */
    bool is_tls;        /* HTTP/1.1 and HTTP/2 by ALPN; http:// is not answered */
    bool is_expired;    /* the certificate */
    bool is_http1_only; /* TLS: no HTTP/2 offered */
    bool wants_client;  /* TLS: a client certificate of the same authority */
    const char *dns_names;
    uint64_t latency_ns;  /* before each answer */
    uint32_t streams_max; /* per HTTP/2 connection; 0: 250 */
    size_t crowd;         /* no answer before so many requests are open at once */
};

/** A request that a client has sent. Borrowed from the cloud until its close or forget. */
struct fake_cloud_request {
    const char *method;
    const char *target; /* as sent */
    const char *path;   /* decoded */
    const char *body;
    size_t body_bytes;
    bool is_h2;
    const struct muster_json *headers; /* object, names in lower case */
    const struct muster_json *query;   /* object, decoded */
};

struct fake_cloud_counts {
    size_t requests;
    size_t unmatched;   /* answered 404 for lack of an entry */
    size_t connections; /* ever accepted */
    size_t connections_open;
    size_t connections_peak;
    size_t connections_h2;
    size_t answers_open; /* requests not fully answered yet */
    size_t answers_open_peak;
};

/**
 * Serve on env's loop and net. The script is added by fake_cloud_script.
 *
 * A script is the list "http" of a case (cases/README.md): entries {match, response, times}; the first that
 * matches and is not used up answers; none: 404 and {}. {{base}}, {{hostport}}, {{host}} and {{port}} are
 * replaced. Beside status, headers and body a response may say:
 *   delay_ms     wait before the status line
 *   chunks       list of {after_ms, body}: a chunked answer, each piece so long after the one before
 *   hold         true: after the chunks (or the body) the answer stays open; fake_cloud_push goes there
 *   cut          true: after the chunks the connection breaks
 *   repeat_bytes the body is repeated up to this many bytes (1 GiB without memory for it)
 *   truncate     after so many bytes of the announced body the connection breaks
 *   raw          text that is sent instead of any HTTP, then the connection ends (HTTP/2: the stream breaks)
 *   hang         true: never an answer
 *   close        true: the connection ends without an answer
 *
 * Gives. Errors: as muster_listener_open; INTERNAL (no certificate could be made).
 */
enum muster_rc fake_cloud_open(struct muster_env *env, const struct fake_cloud_options *options,
                               struct fake_cloud **ret_cloud, struct muster_error *ret_error);
/** Connections are cut; then closed (may be NULL) runs. */
void fake_cloud_close(struct fake_cloud *cloud, fake_cloud_close_fn *closed, void *data);
/** Turns the loop until it is closed. */
void fake_cloud_close_wait(struct fake_cloud *cloud);

/** Append entries: a JSON array, or a case with a member "http". INVALID_ARGUMENT. */
enum muster_rc fake_cloud_script(struct fake_cloud *cloud, const char *json,
                                 struct muster_error *ret_error);
/** Append one entry: METHOD, path (NULL: any), status, body (NULL: none), always. */
void fake_cloud_say(struct fake_cloud *cloud, const char *method, const char *path, int status,
                    const char *body);
/** No entries any more; answers under way go on. */
void fake_cloud_forget_script(struct fake_cloud *cloud);

/** Send a piece of body on every answer that is held open, and break them all, respectively. */
size_t fake_cloud_push(struct fake_cloud *cloud, const char *text);
size_t fake_cloud_cut(struct fake_cloud *cloud);

const char *fake_cloud_base(const struct fake_cloud *cloud);     /* "http://127.0.0.1:1234" */
const char *fake_cloud_hostport(const struct fake_cloud *cloud); /* "127.0.0.1:1234" */
/** With is_tls: trust identity->ca_pem. */
const struct fake_identity *fake_cloud_identity(const struct fake_cloud *cloud);
const struct fake_cloud_counts *fake_cloud_counts(const struct fake_cloud *cloud);

/** The first 4,096 requests since open or forget are kept. */
const struct fake_cloud_request *fake_cloud_request(const struct fake_cloud *cloud, size_t index);
void fake_cloud_forget_requests(struct fake_cloud *cloud);
const char *fake_cloud_request_header(const struct fake_cloud_request *request, const char *name);
/** Told of every request and its status (0: none is sent); for the program's log. */
typedef void fake_cloud_log_fn(void *data, const struct fake_cloud_request *request, int status);
void fake_cloud_set_log(struct fake_cloud *cloud, fake_cloud_log_fn *on_request, void *data);

#endif
