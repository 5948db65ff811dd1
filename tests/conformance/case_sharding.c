/* Cases of kind auto_shard. */
#include "cases.h"

#include <string.h>

enum muster_shard_policy case_shard_policy(const char *name)
{
    static const char *const names[] = {
        [MUSTER_SHARD_AUTO] = "AUTO", [MUSTER_SHARD_FILE] = "FILE", [MUSTER_SHARD_DATA] = "DATA",
        [MUSTER_SHARD_HINT] = "HINT", [MUSTER_SHARD_OFF] = "OFF",
    };
    unsigned i = 0;

    while (i < MUSTER_SHARD_OFF && (name == NULL || strcmp(name, names[i]) != 0))
        i++;
    return (enum muster_shard_policy)i;
}

static void find_elements(const struct case_run *run, const struct muster_shard *shard,
                          struct case_outcome *outcome)
{
    const json_t *source = case_argument(run->one, "source");
    const json_t *stages = case_argument(run->one, "ops");
    const struct muster_shard_input input = {
        .has_files = case_input_has_files(source),
        .file_count = json_array_size(json_object_get(source, "files")),
        .has_mark = case_input_has_mark(stages),
    };
    enum muster_shard_unit unit;
    json_t *elements;

    outcome->rc = muster_shard_choose(shard, &input, &unit, &outcome->error);
    if (outcome->rc != MUSTER_OK)
        return;
    if (unit == MUSTER_SHARD_MARK)
        outcome->rc = muster_shard_check_elements(shard, case_input_count_at_mark(source, stages),
                                                  &outcome->error);
    if (outcome->rc != MUSTER_OK)
        return;
    elements = case_input_read(source, unit == MUSTER_SHARD_FILES ? shard : NULL);
    elements = case_input_apply(elements, stages, unit == MUSTER_SHARD_MARK ? shard : NULL);
    if (unit == MUSTER_SHARD_ELEMENTS) {
        outcome->rc =
            muster_shard_check_elements(shard, json_array_size(elements), &outcome->error);
        if (outcome->rc == MUSTER_OK)
            outcome->value = case_input_shard(elements, shard);
        json_decref(elements);
    } else {
        outcome->value = elements;
    }
}

void case_auto_shard(struct case_run *run)
{
    const json_t *calls = case_calls(run);
    struct muster_shard shard = {
        .policy = case_shard_policy(case_text(case_argument(run->one, "policy"))),
        .num_workers = (uint32_t)json_integer_value(case_argument(run->one, "num_workers")),
    };

    for (size_t i = 0; i < json_array_size(calls) && !run->is_failed; i++) {
        const json_t *call = json_array_get(calls, i);
        struct case_outcome outcome = {0};

        shard.index = (uint32_t)json_integer_value(case_argument(call, "worker"));
        find_elements(run, &shard, &outcome);
        case_judge(run, "worker_elements", call, &outcome);
    }
}
