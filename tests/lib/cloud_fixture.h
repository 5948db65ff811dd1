/* The fixture of tests of a cloud's client: a leak-checked environment with network, HTTP client,
 * variables, and a fake cloud. */
#ifndef MUSTER_CLOUD_FIXTURE_H
#define MUSTER_CLOUD_FIXTURE_H

#include <muster/credentials.h>
#include <muster/http.h>

#include "fake_cloud.h"
#include "test_env.h"

#define CLOUD_FIXTURE_VARS 16

/** The outcome of a request, whose data it is. */
struct cloud_outcome {
    int count;
    enum muster_rc rc;
    bool is_done;
};

struct cloud_fixture {
    struct test_env test;
    struct muster_env *env; /* &test.env */
    struct fake_cloud *cloud;
    struct muster_http_tls tls; /* trusts the cloud; for requests to it */
    char folder[64];            /* for files; empty until asked for */
    struct muster_http_request request; /* its data is outcome; given back at the end */
    struct cloud_outcome outcome;
    /* private */
    struct muster_vars vars;
    struct {
        char name[64];
        char value[512];
    } list[CLOUD_FIXTURE_VARS];
    size_t var_count;
};

/** options NULL: plain HTTP. No variable is set, no file is there, and the client uses no proxy.
 * Fails the case when something cannot be opened. */
void cloud_fixture_open(struct cloud_fixture *fixture, const struct fake_cloud_options *options);
/** Fails the case when a block was not freed. */
void cloud_fixture_close(struct cloud_fixture *fixture);

/** For cmocka: a fixture is *state until the tear down. options as for open. */
int cloud_fixture_set_up_with(void **state, const struct fake_cloud_options *options);
/** Over plain HTTP. */
int cloud_fixture_set_up(void **state);
/** Plain HTTP, and the cloud is the metadata server. */
int cloud_fixture_set_up_metadata(void **state);
int cloud_fixture_tear_down(void **state);

/** Set a variable; {{base}} and {{hostport}} are replaced. NULL value: unset. */
void cloud_fixture_set_var(struct cloud_fixture *fixture, const char *name, const char *value);
/** Append a script of the cloud; the case fails when it is none. */
void cloud_fixture_script(struct cloud_fixture *fixture, const char *json);
/** Write text (with {{base}} and {{hostport}} replaced) to a file of that name. Returns its path,
 * valid until the next call. */
const char *cloud_fixture_write(struct cloud_fixture *fixture, const char *name, const char *text);
/** base + path; valid until the next call. */
const char *cloud_fixture_url(struct cloud_fixture *fixture, const char *path);
/** Requests that the cloud has had. */
size_t cloud_fixture_request_count(const struct cloud_fixture *fixture);
/** Close the client, and turn the loop until it is closed. */
void cloud_fixture_close_http(struct cloud_fixture *fixture, struct muster_http *http);
/** Close them, and turn the loop until they are closed. */
void cloud_fixture_close_credentials(struct cloud_fixture *fixture,
                                     struct muster_credentials *credentials);

void cloud_outcome_on_done(struct muster_http_request *request, enum muster_rc rc);
/** Start the request, turn the loop until its end, give its code. It trusts the cloud and has 30 s,
 * unless something else was set. */
enum muster_rc cloud_fixture_ask(struct cloud_fixture *fixture,
                                 struct muster_http_request *request);

/** A call and what came of it. */
struct cloud_caller {
    struct muster_http_call call; /* to be given back with muster_http_call_fini */
    int count;
    enum muster_rc rc;
    bool is_done;
};
/** A call of base + path, 30 s from now, with hardly a wait between its attempts. */
void cloud_caller_init(struct cloud_fixture *fixture, struct cloud_caller *caller,
                       const char *path);
void cloud_caller_start(struct cloud_fixture *fixture, struct cloud_caller *caller);
/** Start it, turn the loop until its end, give its code. Again and again. */
enum muster_rc cloud_caller_run(struct cloud_fixture *fixture, struct cloud_caller *caller);

/** Absolute loop time in that many seconds. */
uint64_t cloud_fixture_in_s(struct cloud_fixture *fixture, uint64_t seconds);

#endif
