/* A training program to look at: watched FILE steps until there is FILE, reporting "loss" and a
 * name that a page must not take for markup. Rank 1 takes 20 ms longer for each step than the
 * others, and stands still outside of calls while there is FILE.stall. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <muster/muster.h>

#define ELEMENTS 4096

static void strategy_compute(struct muster_strategy *strategy, const char *file)
{
    char stall[4096];

    snprintf(stall, sizeof(stall), "%s.stall", file);
    usleep(2000);
    if (muster_strategy_rank(strategy) != 1)
        return;
    usleep(20000);
    while (access(stall, F_OK) == 0)
        usleep(1000);
}

static enum muster_rc strategy_train(struct muster_strategy *strategy, const char *file)
{
    static double total, values[ELEMENTS];
    struct muster_tensor state = {&total, 1, MUSTER_F64};
    struct muster_tensor share = {values, ELEMENTS, MUSTER_F64};
    enum muster_rc rc = muster_strategy_register(strategy, "total", &state);
    uint64_t step;

    while (rc == MUSTER_OK) {
        rc = muster_strategy_begin(strategy, &step, NULL);
        if (rc != MUSTER_OK)
            return rc;
        strategy_compute(strategy, file);
        values[0] = access(file, F_OK) == 0; /* all end in the same step */
        values[1] = 1;
        rc = muster_strategy_all_reduce(strategy, &share, 1, MUSTER_SUM);
        if (rc != MUSTER_OK)
            return rc;
        total += 1;
        muster_strategy_report(strategy, "loss", exp(-total / 200));
        muster_strategy_report(strategy, "<img src=x onerror=alert(1)>", total);
        rc = muster_strategy_commit(strategy);
        if (values[0] > 0)
            return rc;
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct muster_strategy *strategy;
    struct muster_error error;
    enum muster_rc rc;

    if (argc != 2 || muster_strategy_open(NULL, &strategy, &error) != MUSTER_OK) {
        fprintf(stderr, "watched: %s\n", argc != 2 ? "usage: watched FILE" : error.text);
        return 1;
    }
    rc = strategy_train(strategy, argv[1]);
    if (rc != MUSTER_OK)
        fprintf(stderr, "watched: %s\n", muster_strategy_error(strategy)->text);
    muster_strategy_close(strategy);
    return rc == MUSTER_OK ? 0 : 1;
}
