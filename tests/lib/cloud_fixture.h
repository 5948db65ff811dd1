/* The fixture of tests of a cloud's client: a leak-checked environment with network, HTTP client,
 * variables, and a fake cloud. */
#ifndef MUSTER_CLOUD_FIXTURE_H
#define MUSTER_CLOUD_FIXTURE_H

#include <muster/http.h>

#include "fake_cloud.h"
#include "test_env.h"

#define CLOUD_FIXTURE_VARS 16

struct cloud_fixture {
    struct test_env test;
    struct muster_env *env; /* &test.env */
    struct fake_cloud *cloud;
    struct muster_http_tls tls; /* trusts the cloud; for requests to it */
    char folder[64];            /* for files; empty until asked for */
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

/** For cmocka_unit_test_setup_teardown: each case has a fixture without TLS of its own, `*state`. */
int cloud_fixture_set_up(void **state);
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
