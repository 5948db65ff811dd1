/* URLs: taken apart, resolved, shown without secrets. */
#include "careful_mem.h"
#include "test_env.h"
#include "torture.h"

#include <muster/http.h>
#include <string.h>

#include "net/http/url.h"

static void parts_of_a_url_are_found(void **state)
{
    struct muster_http_url url;

    (void)state;
    assert_int_equal(muster_http_url_parse("https://Host.example:8443/a/b?x=1#frag", &url, NULL),
                     MUSTER_OK);

    assert_true(url.is_https && url.has_port);
    assert_int_equal(url.port, 8443);
    assert_memory_equal(url.host, "Host.example", url.host_length);
    assert_int_equal(url.path_length, 4);
    assert_memory_equal(url.path, "/a/b", 4);
    assert_int_equal(url.query_length, 3);
    assert_memory_equal(url.query, "x=1", 3);
}

static void an_ipv6_host_loses_its_brackets(void **state)
{
    struct muster_http_url url;

    (void)state;
    assert_int_equal(muster_http_url_parse("http://[::1]:80", &url, NULL), MUSTER_OK);

    assert_int_equal(url.host_length, 3);
    assert_memory_equal(url.host, "::1", 3);
    assert_int_equal(url.path_length, 0);
    assert_null(url.query);
}

static void what_is_no_url_of_ours_is_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "ftp://a/",
        "file:///etc/passwd",
        "http://",
        "http:///path",
        "https://user:hunter2@host/",
        "http://host:0/",
        "http://host:65536/",
        "http://host:99999999999999999999/",
        "http://host:8a/",
        "http://ho st/",
        "http://host/a b",
        "http://host/\r\nX: y",
        "http://[::1/",
        "http://[]/",
        "http://[::1]x/",
        "http://ho\\st/",
    };
    struct muster_http_url url;
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (muster_http_url_parse(rows[i], &url, &error) != MUSTER_INVALID_ARGUMENT)
            fail_msg("accepted: %s", rows[i]);
        assert_null(strstr(error.text, "hunter2"));
    }
}

static void origins_differ_by_scheme_host_and_port(void **state)
{
    static const struct {
        const char *a, *b;
        bool is_same;
    } rows[] = {
        {"https://a/x", "https://A:443/y", true}, {"http://a", "http://a:80/", true},
        {"https://a/", "http://a/", false},       {"https://a/", "https://a:444/", false},
        {"https://a/", "https://b/", false},      {"https://a/", "https://a.b/", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_http_url a, b;

        assert_int_equal(muster_http_url_parse(rows[i].a, &a, NULL), MUSTER_OK);
        assert_int_equal(muster_http_url_parse(rows[i].b, &b, NULL), MUSTER_OK);
        if (muster_http_url_is_same_origin(&a, &b) != rows[i].is_same)
            fail_msg("%s and %s", rows[i].a, rows[i].b);
    }
}

/* RFC 3986 5.4, with http://a/b/c/d;p?q as base. */
static void references_resolve_as_in_the_standard(void **state)
{
    static const char *const rows[][2] = {
        {"g", "http://a/b/c/g"},        {"./g", "http://a/b/c/g"},     {"g/", "http://a/b/c/g/"},
        {"/g", "http://a/g"},           {"//g", "http://g"},           {"?y", "http://a/b/c/d;p?y"},
        {"g?y", "http://a/b/c/g?y"},    {"#s", "http://a/b/c/d;p?q"},  {"g#s", "http://a/b/c/g"},
        {";x", "http://a/b/c/;x"},      {"", "http://a/b/c/d;p?q"},    {".", "http://a/b/c/"},
        {"./", "http://a/b/c/"},        {"..", "http://a/b/"},         {"../g", "http://a/b/g"},
        {"../..", "http://a/"},         {"../../../g", "http://a/g"},  {"/./g", "http://a/g"},
        {"/../g", "http://a/g"},        {"g.", "http://a/b/c/g."},     {"..g", "http://a/b/c/..g"},
        {"./../g", "http://a/b/g"},     {"g/./h", "http://a/b/c/g/h"}, {"g/../h", "http://a/b/c/h"},
        {"https://b/x", "https://b/x"},
    };
    struct muster_mem *mem = muster_mem_system();

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *url = NULL;

        assert_int_equal(muster_http_url_resolve("http://a/b/c/d;p?q", rows[i][0], mem, &url, NULL),
                         MUSTER_OK);
        assert_string_equal(url, rows[i][1]);
        muster_mem_free(mem, url);
    }
}

static void a_base_without_path_still_resolves(void **state)
{
    struct muster_mem *mem = muster_mem_system();
    char *url = NULL;

    (void)state;
    assert_int_equal(muster_http_url_resolve("http://[::1]:81", "x/y", mem, &url, NULL), MUSTER_OK);
    assert_string_equal(url, "http://[::1]:81/x/y");
    muster_mem_free(mem, url);
    assert_int_equal(muster_http_url_resolve("http://a", "", mem, &url, NULL), MUSTER_OK);
    assert_string_equal(url, "http://a/");
    muster_mem_free(mem, url);
    assert_int_equal(muster_http_url_resolve("http://a", "javascript:alert(1)", mem, &url, NULL),
                     MUSTER_INVALID_ARGUMENT);
}

static void run_resolve(struct torture *torture, const void *data)
{
    struct muster_mem_limited mem;
    char *url = NULL;
    enum muster_rc rc;

    (void)data;
    muster_mem_limited_init(&mem, careful_mem(), 0);
    torture_arm_limited(torture, &mem);
    rc = muster_http_url_resolve("http://a/b/c", "d?e", &mem.mem, &url, NULL);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc == MUSTER_OK)
        assert_string_equal(url, "http://a/b/d?e");
    muster_mem_free(&mem.mem, url);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void no_memory_to_resolve_is_told(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "resolve", .run = run_resolve});
}

static void secrets_of_a_url_are_hidden(void **state)
{
    static const char *const rows[][2] = {
        {"https://h/p?labelSelector=a%3Db&limit=5", "https://h/p?labelSelector=a%3Db&limit=5"},
        {"https://h/p?access_token=abc&x=1", "https://h/p?access_token=***&x=1"},
        {"https://h/p?x=1&KEY=abc", "https://h/p?x=1&KEY=***"},
        {"https://h/p?X-Goog-Signature=abc#frag", "https://h/p?X-Goog-Signature=***"},
        {"https://h/p?a=b;client_secret=s", "https://h/p?a=b;client_secret=***"},
        {"https://h/p?ac%63ess=abc", "https://h/p?ac%63ess=***"},
        {"https://h/p#access_token=abc", "https://h/p"},
        {"https://user:pw@h/p", "https://h/p"},
        {"https://a@b:pw@h/p?q", "https://h/p?q"},
        {"", ""},
        {"no url ? token=1", "no url ? token=***"},
    };
    char out[128];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(muster_http_url_redact(rows[i][0], out, sizeof(out)), rows[i][1]);
    assert_string_equal(muster_http_url_redact_short("https://u:p@h/p?x=1", out, sizeof(out)),
                        "https://h/p");
}

static void a_redacted_url_is_cut_to_its_room(void **state)
{
    char out[12];

    (void)state;
    assert_string_equal(muster_http_url_redact("https://host/path?token=abc", out, sizeof(out)),
                        "https://hos");
}

static void a_secret_is_starred_out_wherever_it_stands(void **state)
{
    char text[] = "bad token s3cr3t, really s3cr3t.";
    char other[] = "ab ab";

    (void)state;
    muster_http_redact_secret(text, "s3cr3t");
    muster_http_redact_secret(other, "ab");
    muster_http_redact_secret(other, NULL);

    assert_string_equal(text, "bad token ******, really ******.");
    assert_string_equal(other, "ab ab");
}

static void encoding_and_decoding_are_inverse(void **state)
{
    struct muster_text text;
    char *encoded = NULL;
    char decoded[64];
    size_t count;

    (void)state;
    muster_text_init(&text, muster_mem_system());
    muster_http_url_add_encoded(&text, "a b/c=d&\xc3\xa9~", "/");
    assert_int_equal(muster_text_take(&text, &encoded, &count), MUSTER_OK);

    assert_string_equal(encoded, "a%20b/c%3Dd%26%C3%A9~");
    assert_true(muster_http_url_decode(encoded, count, false, decoded));
    assert_string_equal(decoded, "a b/c=d&\xc3\xa9~");
    assert_true(muster_http_url_decode("a+b%2B", 6, true, decoded));
    assert_string_equal(decoded, "a b+");
    assert_false(muster_http_url_decode("%4", 2, false, decoded));
    assert_false(muster_http_url_decode("%zz", 3, false, decoded));
    assert_false(muster_http_url_decode("%00", 3, false, decoded));
    muster_mem_free(muster_mem_system(), encoded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_url_are_found),
        cmocka_unit_test(an_ipv6_host_loses_its_brackets),
        cmocka_unit_test(what_is_no_url_of_ours_is_refused),
        cmocka_unit_test(origins_differ_by_scheme_host_and_port),
        cmocka_unit_test(references_resolve_as_in_the_standard),
        cmocka_unit_test(a_base_without_path_still_resolves),
        cmocka_unit_test_teardown(no_memory_to_resolve_is_told, torture_tell),
        cmocka_unit_test(secrets_of_a_url_are_hidden),
        cmocka_unit_test(a_redacted_url_is_cut_to_its_room),
        cmocka_unit_test(a_secret_is_starred_out_wherever_it_stands),
        cmocka_unit_test(encoding_and_decoding_are_inverse),
    };

    return cmocka_run_group_tests_name("http url", tests, NULL, NULL);
}
