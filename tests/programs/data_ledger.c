/* A training program that counts: usage: data_ledger RECORDS EPOCHS BATCH PATTERN. The members share the steps of a
 * dataset of TFRecords whose payloads are the numbers from 0 on, in decimal. Each member adds 1 for each record that it
 * has read to a sum behind the claims, so that the sum counts the records whose contributions are in it; the sums of
 * all steps are state. At the end the results uses_min and uses_max are what any record was used, and must be EPOCHS.
 * With DATA_LEDGER_LINGER_MS each step takes that long. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/muster.h>

struct ledger {
    struct muster_strategy *strategy;
    struct muster_dataset *dataset;
    struct muster_tensor sum; /* F32: a use of each record, then the claims */
    float *uses;              /* state: of all steps */
    uint64_t *counts;         /* state: steps whose parts overlapped; steps of less than a batch */
    size_t record_count;
    uint32_t batch;
    struct muster_error error;
};

static void batch_count(const struct muster_dataset_batch *batch, float *ret_uses, size_t count)
{
    memset(ret_uses, 0, count * sizeof(*ret_uses));
    for (size_t i = 0; i < batch->count; i++) {
        char text[16] = {0};
        size_t size = batch->records[i].size < 15 ? batch->records[i].size : 15;

        memcpy(text, batch->records[i].data, size);
        ret_uses[strtoull(text, NULL, 10) % count] += 1;
    }
}

static void step_linger(void)
{
    const char *ms = getenv("DATA_LEDGER_LINGER_MS");

    if (ms != NULL)
        usleep(1000 * (useconds_t)strtoul(ms, NULL, 10));
}

/* OK: the step is done, or is to be run again; OUT_OF_RANGE: all epochs are. */
static enum muster_rc step_run(struct ledger *ledger)
{
    float *sum = ledger->sum.data, *claims = sum + ledger->record_count;
    struct muster_dataset_batch batch;
    uint64_t step, used;
    enum muster_rc rc = muster_strategy_begin(ledger->strategy, &step, NULL);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_dataset_next_share(ledger->dataset, muster_strategy_rank(ledger->strategy),
                                   muster_strategy_size(ledger->strategy), &batch, &ledger->error);
    if (rc != MUSTER_OK)
        return rc;
    step_linger();
    batch_count(&batch, sum, ledger->record_count);
    muster_dataset_record_claims(ledger->dataset, claims);
    rc = muster_strategy_all_reduce(ledger->strategy, &ledger->sum, 1, MUSTER_SUM);
    if (rc != MUSTER_OK)
        return rc == MUSTER_ABORTED ? MUSTER_OK : rc;
    rc = muster_strategy_update_begin(ledger->strategy); /* so that close saves the last step */
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_dataset_apply_claims(ledger->dataset, claims, &used, &ledger->error);
    for (size_t i = 0; i < ledger->record_count && rc == MUSTER_OK; i++)
        ledger->uses[i] += sum[i];
    ledger->counts[0] += rc == MUSTER_ABORTED;
    ledger->counts[1] += rc == MUSTER_OK && used < ledger->batch;
    if (rc != MUSTER_OK && rc != MUSTER_ABORTED)
        return rc;
    return muster_strategy_commit(ledger->strategy);
}

static enum muster_rc ledger_open(struct ledger *ledger)
{
    struct muster_tensor uses = {ledger->uses, ledger->record_count, MUSTER_F32};
    struct muster_tensor counts = {ledger->counts, 2, MUSTER_U64};
    struct muster_tensor position = muster_dataset_position(ledger->dataset);
    enum muster_rc rc = muster_strategy_open(NULL, &ledger->strategy, &ledger->error);

    if (rc == MUSTER_OK)
        rc = muster_strategy_register(ledger->strategy, "uses", &uses);
    if (rc == MUSTER_OK)
        rc = muster_strategy_register(ledger->strategy, "counts", &counts);
    if (rc == MUSTER_OK)
        rc = muster_strategy_register(ledger->strategy, "position", &position);
    if (rc == MUSTER_OK)
        rc = muster_strategy_tensor_new(ledger->strategy, MUSTER_F32,
                                        ledger->record_count + MUSTER_DATASET_CLAIMS(ledger->batch),
                                        &ledger->sum);
    return rc;
}

static void ledger_report(const struct ledger *ledger)
{
    float least = INFINITY, most = 0;

    for (size_t i = 0; i < ledger->record_count; i++) {
        least = fminf(least, ledger->uses[i]);
        most = fmaxf(most, ledger->uses[i]);
    }
    muster_strategy_report_result(ledger->strategy, "uses_min", (double)least);
    muster_strategy_report_result(ledger->strategy, "uses_max", (double)most);
    muster_strategy_report_result(ledger->strategy, "skipped", (double)ledger->counts[0]);
    muster_strategy_report_result(ledger->strategy, "partial", (double)ledger->counts[1]);
}

int main(int argc, char **argv)
{
    struct ledger ledger = {.counts = calloc(2, sizeof(uint64_t))};
    const char *pattern = argc == 5 ? argv[4] : "";
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_TFRECORD,
                                             .paths = &pattern,
                                             .path_count = 1,
                                             .is_shuffled = true,
                                             .seed = 11};
    enum muster_rc rc;

    if (argc != 5)
        return 2;
    ledger.record_count = strtoull(argv[1], NULL, 10);
    options.epoch_count = strtoull(argv[2], NULL, 10);
    options.batch = ledger.batch = (uint32_t)strtoul(argv[3], NULL, 10);
    ledger.uses = calloc(ledger.record_count, sizeof(float));
    rc = muster_dataset_open(&options, &ledger.dataset, &ledger.error);
    if (rc == MUSTER_OK)
        rc = ledger_open(&ledger);
    while (rc == MUSTER_OK)
        rc = step_run(&ledger);
    if (rc == MUSTER_OUT_OF_RANGE)
        ledger_report(&ledger);
    else
        fprintf(stderr, "data_ledger: %s; %s\n", ledger.error.text,
                ledger.strategy != NULL ? muster_strategy_error(ledger.strategy)->text : "");
    muster_strategy_tensor_free(ledger.strategy, &ledger.sum);
    muster_strategy_close(ledger.strategy);
    muster_dataset_close(ledger.dataset);
    free(ledger.uses);
    free(ledger.counts);
    return rc == MUSTER_OUT_OF_RANGE ? 0 : 1;
}
