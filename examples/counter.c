/* Every worker adds 1 in each of 1,000 steps; the total survives the death of any of them. */
#include <stdio.h>
#include <muster/muster.h>

int main(void)
{
    double total = 0, share;
    struct muster_tensor state = {&total, 1, MUSTER_F64}, tensor = {&share, 1, MUSTER_F64};
    struct muster_strategy *strategy;
    struct muster_error error;
    uint64_t step;

    if (muster_strategy_open(NULL, &strategy, &error) != MUSTER_OK) {
        fprintf(stderr, "counter: %s\n", error.text);
        return 1;
    }
    enum muster_rc rc = muster_strategy_register(strategy, "total", &state);
    while (rc == MUSTER_OK) { /* until OUT_OF_RANGE: 1,000 steps are committed */
        rc = muster_strategy_begin_until(strategy, 1000, &step, NULL); /* a joiner gets the total */
        share = 1;
        if (rc == MUSTER_OK)
            rc = muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM);
        total += rc == MUSTER_OK ? share : 0;
        if (rc == MUSTER_OK)
            rc = muster_strategy_commit(strategy);
    }
    if (rc == MUSTER_OUT_OF_RANGE && muster_strategy_rank(strategy) == 0)
        printf("total %.0f\n", total);
    enum muster_rc closed = muster_strategy_close_checked(strategy, &error); /* is the end saved? */
    return rc == MUSTER_OUT_OF_RANGE && closed == MUSTER_OK ? 0 : 1;
}
