/* Commands of operations on parts, and of messages, of all members. */
#include "puppet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/strategy_exchange.h>

/* count elements for each member: part r is value + r. */
static struct muster_tensor make_parts(uint64_t count, double value)
{
    uint32_t size = muster_strategy_size(puppet_strategy);
    struct muster_tensor parts = {.count = count * size, .dtype = MUSTER_F64};

    parts.data = puppet_make_tensor(parts.count, value);
    for (uint64_t i = 0; i < parts.count; i++)
        ((double *)parts.data)[i] += (double)(i / count);
    return parts;
}

static struct muster_tensor make_part(uint64_t count, double value)
{
    return (struct muster_tensor){
        .data = puppet_make_tensor(count, value), .count = count, .dtype = MUSTER_F64};
}

static void answer_value(enum muster_rc rc, const struct muster_tensor *tensor)
{
    if (!puppet_is_ok(rc))
        return;
    printf("ok");
    puppet_print_value(tensor);
    printf(" contributors=%u\n", muster_strategy_contributors(puppet_strategy));
}

/* reduce_scatter COUNT VALUE [REDUCTION]: part r is VALUE + r; answers this member's part */
void puppet_reduce_scatter(const struct words *words)
{
    uint64_t count = puppet_number(words, 1, "1");
    struct muster_tensor input = make_parts(count, puppet_seconds(words, 2));
    struct muster_tensor output = make_part(count, -1);

    answer_value(muster_strategy_reduce_scatter(puppet_strategy, &input, &output,
                                                puppet_reduction_of(puppet_word(words, 3, "sum"))),
                 &output);
    free(input.data);
    free(output.data);
}

/* gather COUNT VALUE [ROOT]: the root answers the parts */
void puppet_gather(const struct words *words)
{
    uint32_t size = muster_strategy_size(puppet_strategy);
    uint32_t root = (uint32_t)puppet_number(words, 3, "0");
    bool is_root = root == muster_strategy_rank(puppet_strategy);
    uint64_t count = puppet_number(words, 1, "1");
    struct muster_tensor input = make_part(count, puppet_seconds(words, 2));
    struct muster_tensor output = make_part(count * size, -1);
    enum muster_rc rc =
        muster_strategy_gather(puppet_strategy, &input, is_root ? &output : NULL, root);

    if (is_root && puppet_is_ok(rc))
        puppet_print_parts(&output, size);
    else if (!is_root)
        answer_value(rc, &input);
    free(input.data);
    free(output.data);
}

/* scatter COUNT VALUE [ROOT]: the root's part r is VALUE + r */
void puppet_scatter(const struct words *words)
{
    uint32_t root = (uint32_t)puppet_number(words, 3, "0");
    bool is_root = root == muster_strategy_rank(puppet_strategy);
    uint64_t count = puppet_number(words, 1, "1");
    struct muster_tensor input = make_parts(count, puppet_seconds(words, 2));
    struct muster_tensor output = make_part(count, -1);

    answer_value(muster_strategy_scatter(puppet_strategy, is_root ? &input : NULL, &output, root),
                 &output);
    free(input.data);
    free(output.data);
}

/* --- Uneven parts: member r's has (r + 1) * COUNT elements --- */

enum { SIZE_MAX_OF_JOB = 16 };

struct uneven {
    uint64_t counts[SIZE_MAX_OF_JOB], others[SIZE_MAX_OF_JOB];
    uint32_t size, rank;
};

static struct uneven uneven_of(uint64_t count)
{
    struct uneven uneven = {.size = muster_strategy_size(puppet_strategy),
                            .rank = muster_strategy_rank(puppet_strategy)};

    if (uneven.size > SIZE_MAX_OF_JOB)
        abort();
    for (uint32_t i = 0; i < uneven.size; i++) {
        uneven.counts[i] = (i + 1) * count;
        uneven.others[i] = (uneven.rank + 1) * count;
    }
    return uneven;
}

static struct muster_parts make_uneven(const uint64_t *counts, uint32_t size, double value)
{
    struct muster_parts parts = {.counts = counts, .part_count = size, .dtype = MUSTER_F64};
    uint64_t whole = 0;
    double *at;

    for (uint32_t i = 0; i < size; i++)
        whole += counts[i];
    at = parts.data = puppet_make_tensor(whole, value);
    for (uint32_t i = 0; i < size; i++)
        for (uint64_t k = 0; k < counts[i]; k++)
            *at++ += i;
    return parts;
}

/* Each part's value, where all its elements have it. */
static void answer_uneven(enum muster_rc rc, const struct muster_parts *parts)
{
    const double *at = parts->data;

    if (!puppet_is_ok(rc))
        return;
    printf("ok parts=");
    for (uint32_t i = 0; i < parts->part_count; at += parts->counts[i++]) {
        bool is_one = true;

        for (uint64_t k = 1; k < parts->counts[i]; k++)
            is_one = is_one && at[k] == at[0];
        printf(is_one ? "%s%.17g" : "%smixed", i == 0 ? "" : ",",
               parts->counts[i] > 0 ? at[0] : 0.0);
    }
    printf("\n");
}

/* all_gather_uneven COUNT VALUE */
void puppet_all_gather_uneven(const struct words *words)
{
    struct uneven uneven = uneven_of(puppet_number(words, 1, "1"));
    struct muster_tensor input = make_part(uneven.counts[uneven.rank], puppet_seconds(words, 2));
    struct muster_parts output = make_uneven(uneven.counts, uneven.size, -1);

    answer_uneven(muster_strategy_all_gather_uneven(puppet_strategy, &input, &output), &output);
    free(input.data);
    free(output.data);
}

/* reduce_scatter_uneven COUNT VALUE: part r is VALUE + r */
void puppet_reduce_scatter_uneven(const struct words *words)
{
    struct uneven uneven = uneven_of(puppet_number(words, 1, "1"));
    struct muster_parts input = make_uneven(uneven.counts, uneven.size, puppet_seconds(words, 2));
    struct muster_tensor output = make_part(uneven.counts[uneven.rank], -1);

    answer_value(
        muster_strategy_reduce_scatter_uneven(puppet_strategy, &input, &output, MUSTER_SUM),
        &output);
    free(input.data);
    free(output.data);
}

/* all_to_all_uneven COUNT VALUE: VALUE + r for rank r, which gets (r + 1) * COUNT elements of each */
void puppet_all_to_all_uneven(const struct words *words)
{
    struct uneven uneven = uneven_of(puppet_number(words, 1, "1"));
    struct muster_parts input = make_uneven(uneven.counts, uneven.size, puppet_seconds(words, 2));
    struct muster_parts output = make_uneven(uneven.others, uneven.size, -1);

    answer_uneven(muster_strategy_all_to_all_uneven(puppet_strategy, &input, &output), &output);
    free(input.data);
    free(output.data);
}

/* --- Messages --- */

/* send COUNT VALUE TO; receive COUNT VALUE FROM */
void puppet_message(const struct words *words)
{
    struct muster_tensor tensor = make_part(puppet_number(words, 1, "1"), puppet_seconds(words, 2));
    uint32_t peer = (uint32_t)puppet_number(words, 3, "0");

    answer_value(strcmp(words->at[0], "send") == 0
                     ? muster_strategy_send(puppet_strategy, &tensor, peer)
                     : muster_strategy_receive(puppet_strategy, &tensor, peer),
                 &tensor);
    free(tensor.data);
}

/* exchange COUNT VALUE TO FROM: - for nobody */
void puppet_exchange(const struct words *words)
{
    struct muster_tensor output = make_part(puppet_number(words, 1, "1"), puppet_seconds(words, 2));
    struct muster_tensor input = make_part(output.count, -1);

    answer_value(muster_strategy_exchange(puppet_strategy, &output, puppet_partner(words, 3),
                                          &input, puppet_partner(words, 4)),
                 &input);
    free(output.data);
    free(input.data);
}
