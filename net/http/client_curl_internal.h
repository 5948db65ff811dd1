/* Inside the client on curl: its engines, and the exchanges that they work on. */
#ifndef MUSTER_NET_HTTP_CLIENT_CURL_INTERNAL_H
#define MUSTER_NET_HTTP_CLIENT_CURL_INTERNAL_H

#include <curl/curl.h>

#include "net/http/client_origin.h"
#include "net/http/provider.h"

struct muster_curl_client;

/** A multi handle with its descriptors and its timer. */
struct muster_curl_engine {
    struct muster_curl_client *client;
    CURLM *multi; /* NULL: to be made before the next exchange */
    bool is_broken;
    uint32_t connections_max, per_host_max;
    struct muster_timer timer;
    struct muster_list sockets;
    struct muster_list working; /* of exchange: curl has them */
};

struct muster_curl_client {
    struct muster_http http;
    /* Curl's limit of connections per host is one number for all, and the right one differs: a few
     * connections carry any number of HTTP/2 requests, while HTTP/1.1 needs one for each. */
    struct muster_curl_engine few;  /* HTTP/2, and servers not known yet */
    struct muster_curl_engine many; /* HTTP/1.1 */
    CURLSH *share;                  /* TLS sessions */
    struct muster_http_origins origins;
    struct muster_task task;
    struct muster_list fresh; /* of exchange: not yet given to curl, or told to stop */
    struct muster_list ended; /* of exchange: to be told */
    char *ca_file;
    char *proxy;    /* of https; "" for none */
    char *no_proxy; /* hosts without it */
};

/** One request on its way. */
struct muster_curl_exchange {
    struct muster_curl_client *client;
    struct muster_http_request *request;
    struct muster_http_origin *origin;
    struct muster_curl_engine *engine; /* NULL: not given to curl */
    struct muster_list node;           /* fresh, waiting, working or ended */
    CURL *easy;
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    bool is_released; /* waited long enough to learn how the server speaks */
    bool is_cancelled;
    bool is_ended;
    enum muster_rc rc; /* of a callback that gave up */
    CURLcode code;
    char error[CURL_ERROR_SIZE];
};

/* net/http/client_curl.c */
/** The server's first answer: the exchanges that wait can be sent. */
void muster_curl_exchange_learn(struct muster_curl_exchange *exchange, enum muster_http_wire wire);

/* net/http/client_curl_request.c */
/** Set the options of easy for exchange->request; url is its URL, parsed. */
MUSTER_MUST_CHECK enum muster_rc muster_curl_exchange_set_up(struct muster_curl_exchange *exchange,
                                                             const struct muster_http_url *url,
                                                             struct muster_error *ret_error);
/** Translate code into request->error. */
enum muster_rc muster_curl_exchange_fail(struct muster_curl_exchange *exchange, CURLcode code);

#endif
