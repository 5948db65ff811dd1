/* The result that is kept of one call's operations. */
#include "training/strategy_call.h"

#include <string.h>

#include "test_env.h"

struct row {
    const char *name;
    bool has_result;                     /* the call has delivered something before */
    uint64_t before_ns, now_ns, kept_ns; /* of the interruption; 0: none */
};

/* A call of many operations was interrupted if any of them was; one before it does not count. */
static void an_interruption_of_any_operation_is_one_of_the_call(void **state)
{
    static const struct row rows[] = {
        {"of none", true, 0, 0, 0},           {"of an operation before", true, 5, 0, 5},
        {"of a call before", false, 5, 0, 0}, {"of the last", true, 0, 7, 7},
        {"of both", true, 5, 7, 7},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static struct muster_strategy strategy;
        const struct muster_op_result before = {.is_interrupted = rows[i].before_ns != 0,
                                                .interrupted_ns = rows[i].before_ns,
                                                .contributor_count = 3,
                                                .phase = "reduce",
                                                .verdict = MUSTER_VERDICT_RETRY};
        const struct muster_op_result now = {.is_interrupted = rows[i].now_ns != 0,
                                             .interrupted_ns = rows[i].now_ns,
                                             .contributor_count = 2,
                                             .phase = "start",
                                             .verdict = MUSTER_VERDICT_ADOPT};
        const struct muster_op_result *kept = &strategy.result;

        memset(&strategy, 0, sizeof(strategy));
        strategy.result = before;
        strategy.has_result = rows[i].has_result;
        muster_strategy_keep_result(&strategy, &now);

        if (kept->interrupted_ns != rows[i].kept_ns ||
            kept->is_interrupted != (rows[i].kept_ns != 0) || kept->contributor_count != 2)
            fail_msg("%s", rows[i].name);
        if (rows[i].kept_ns == 5) {
            assert_string_equal(kept->phase, "reduce");
            assert_int_equal(kept->verdict, MUSTER_VERDICT_RETRY);
        }
        assert_true(strategy.has_result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interruption_of_any_operation_is_one_of_the_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
