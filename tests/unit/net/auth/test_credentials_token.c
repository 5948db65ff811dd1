/* Answers of token servers: which are believed, and for how long. */
#include "test_env.h"

#include <string.h>

#include "assertion_count.h"
#include "net/http/credentials_internal.h"

#define WALL_NS (UINT64_C(1900000000) * MUSTER_NS_PER_S) /* 2030-03-17T17:46:40Z */
#define YEAR_S  (UINT64_C(366) * 24 * 3600)

static void an_answer_is_a_token_and_its_life(void **state)
{
    static const struct {
        const char *text, *token; /* NULL: refused, because of … */
        uint64_t life_s;
        const char *why;
    } rows[] = {
        {"{\"access_token\": \"t\", \"expires_in\": 77}", "t", 77, NULL},
        {"{\"access_token\": \"t\", \"expires_in\": \"77\"}", "t", 77, NULL},
        {"{\"access_token\": \"t\", \"expires_in\": 77.9}", "t", 77, NULL},
        {"{\"access_token\": \"t\", \"expires_in\": 0}", "t", 0, NULL},
        {"{\"access_token\": \"t\", \"expires_in\": 31622400}", "t", YEAR_S, NULL},
        {"{\"access_token\": \"t\"}", "t", 300, NULL},
        {"{\"access_token\": \"t\", \"expires_in\": null}", "t", 300, NULL},
        {"{\"access_token\": \"t\", \"token_type\": \"bEARER\"}", "t", 300, NULL},
        {"{\"accessToken\": \"t\", \"expires_in\": 5}", "t", 5, NULL},
        {"{\"access_token\": \"t\", \"accessToken\": \"u\"}", "t", 300, NULL},
        {"{\"accessToken\": \"t\", \"expireTime\": \"2030-03-17T18:46:40Z\"}", "t", 3600, NULL},
        {"{\"accessToken\": \"t\", \"expireTime\": \"2030-03-17T18:46:40Z\", \"expires_in\": 5}",
         "t", 3600, NULL},
        {"{\"access_token\": \"t\", \"expires_in\": 31622401}", NULL, 0, "expires_in"},
        {"{\"access_token\": \"t\", \"expires_in\": -1}", NULL, 0, "expires_in"},
        {"{\"access_token\": \"t\", \"expires_in\": \"\"}", NULL, 0, "expires_in"},
        {"{\"access_token\": \"t\", \"expires_in\": \"7x\"}", NULL, 0, "expires_in"},
        {"{\"access_token\": \"t\", \"expires_in\": \"nan\"}", NULL, 0, "expires_in"},
        {"{\"access_token\": \"t\", \"expires_in\": true}", NULL, 0, "expires_in"},
        {"{\"access_token\": \"t\", \"expires_in\": [5]}", NULL, 0, "expires_in"},
        {"{\"access_token\": \"t\", \"token_type\": \"mac\"}", NULL, 0, "not Bearer"},
        {"{\"access_token\": \"a b\"}", NULL, 0, "no usable access_token"},
        {"{\"accessToken\": \"\"}", NULL, 0, "no usable access_token"},
        {"{\"access_token\": 7}", NULL, 0, "no usable access_token"},
        {"{}", NULL, 0, "no usable access_token"},
        {"[]", NULL, 0, "no usable access_token"},
        {"{\"accessToken\": \"t\", \"expireTime\": \"soon\"}", NULL, 0, "expireTime"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_json *root = NULL;
        struct muster_error error = {.text = ""};
        const char *token = NULL;
        uint64_t life_ns = 7;
        enum muster_rc rc;

        assert_int_equal(muster_json_parse(rows[i].text, strlen(rows[i].text), &root, NULL),
                         MUSTER_OK);
        rc = muster_token_answer_read(root, WALL_NS, &token, &life_ns, &error);
        if (rows[i].token != NULL) {
            fail_if(rc != MUSTER_OK || life_ns != rows[i].life_s * MUSTER_NS_PER_S, "%s: %s",
                    rows[i].text, error.text);
            assert_string_equal(token, rows[i].token);
        } else {
            fail_if(rc != MUSTER_INVALID_ARGUMENT || error.rc != rc ||
                        strstr(error.text, rows[i].why) == NULL,
                    "%s: %s", rows[i].text, error.text);
            assert_null(token);
            assert_int_equal(life_ns, 7);
        }
        muster_json_free(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_a_token_and_its_life),
    };

    return cmocka_run_group_tests_name("credentials_token", tests, NULL, NULL);
}
