/* The list of servers that a client knows. */
#include "test_env.h"

#include <stdio.h>

#include "net/http/client_origin.h"

static struct muster_http_origin *take_origin(struct muster_http_origins *origins, const char *text)
{
    struct muster_http_url url;

    assert_int_equal(muster_http_url_parse(text, &url, NULL), MUSTER_OK);
    return muster_http_origins_take(origins, &url);
}

static void a_server_is_known_by_scheme_host_and_port(void **state)
{
    struct muster_http_origins origins;
    struct muster_http_origin *a, *b, *c;

    (void)state;
    muster_http_origins_init(&origins, muster_mem_system());
    a = take_origin(&origins, "https://Host.test/x");
    b = take_origin(&origins, "https://host.test:443/y?z");
    c = take_origin(&origins, "http://host.test:443/");

    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    assert_int_equal(a->use_count, 2);
    assert_int_equal(a->wire, MUSTER_HTTP_WIRE_UNKNOWN);
    assert_int_equal(c->wire, MUSTER_HTTP_WIRE_1);
    muster_http_origins_put(&origins, a);
    muster_http_origins_put(&origins, b);
    muster_http_origins_put(&origins, c);
    muster_http_origins_fini(&origins);
}

static void the_longest_unused_are_forgotten_and_those_in_use_are_not(void **state)
{
    struct muster_http_origins origins;
    struct muster_http_origin *kept;
    char text[64];

    (void)state;
    muster_http_origins_init(&origins, muster_mem_system());
    kept = take_origin(&origins, "https://kept.test/");
    kept->wire = MUSTER_HTTP_WIRE_2;
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "https://h%d.test/", i);
        muster_http_origins_put(&origins, take_origin(&origins, text));
    }

    assert_in_range(origins.count, 1, MUSTER_HTTP_ORIGINS_MAX);
    assert_ptr_equal(take_origin(&origins, "https://kept.test/"), kept);
    assert_int_equal(kept->wire, MUSTER_HTTP_WIRE_2);
    muster_http_origins_put(&origins, kept);
    muster_http_origins_put(&origins, kept);
    muster_http_origins_fini(&origins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_is_known_by_scheme_host_and_port),
        cmocka_unit_test(the_longest_unused_are_forgotten_and_those_in_use_are_not),
    };

    return cmocka_run_group_tests_name("http origins", tests, NULL, NULL);
}
