/* Commands of groups of some members. */
#include "puppet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/strategy_exchange.h>

static uint32_t color_of(void *data, const struct muster_member *member)
{
    const char *kind = data;

    if (strcmp(kind, "column") == 0)
        return member->task_index % 2;
    if (strcmp(kind, "row") == 0)
        return member->task_index / 2;
    return member->task_index == 0 ? MUSTER_COLOR_NO_GROUP : 0; /* "rest" */
}

static struct {
    char kind[16];
    struct muster_strategy_split *split;
} splits[MUSTER_SPLITS_MAX];
static uint32_t split_count;

static enum muster_rc split_by_table(const struct words *words,
                                     struct muster_strategy_split **ret_split)
{
    struct muster_task_color colors[8] = {{.task_type = "worker"}};
    size_t count = 0;

    for (const char *row; count < 8 && *(row = puppet_word(words, (int)count + 2, "")) != '\0';) {
        colors[count] = (struct muster_task_color){.task_type = count % 2 == 0 ? "worker" : NULL};
        if (sscanf(row, "%u:%u", &colors[count].task_index, &colors[count].color) != 2)
            abort();
        count++;
    }
    return muster_strategy_split_table(puppet_strategy, colors, count, ret_split);
}

/* split KIND: column (index % 2), row (index / 2) or rest (all but index 0); split table TASK:COLOR … */
void puppet_split(const struct words *words)
{
    struct muster_strategy_split **ret_split = &splits[split_count].split;
    const char *kind = puppet_word(words, 1, "");

    if (split_count == MUSTER_SPLITS_MAX)
        abort();
    snprintf(splits[split_count].kind, sizeof(splits[0].kind), "%s", kind);
    if (!puppet_is_ok(strcmp(kind, "table") == 0
                          ? split_by_table(words, ret_split)
                          : muster_strategy_split(puppet_strategy, color_of,
                                                  splits[split_count].kind, ret_split)))
        return;
    split_count++;
    printf("ok\n");
}

static struct muster_strategy_split *split_of(const struct words *words)
{
    for (uint32_t i = 0; i < split_count; i++)
        if (strcmp(splits[i].kind, puppet_word(words, 1, "")) == 0)
            return splits[i].split;
    abort();
}

/* split_place KIND */
void puppet_split_place(const struct words *words)
{
    printf("ok rank=%u size=%u\n", muster_strategy_split_rank(split_of(words)),
           muster_strategy_split_size(split_of(words)));
}

/* split_all_reduce KIND COUNT VALUE */
void puppet_split_all_reduce(const struct words *words)
{
    struct muster_tensor tensor = {.count = puppet_number(words, 2, "1"), .dtype = MUSTER_F64};

    tensor.data = puppet_make_tensor(tensor.count, puppet_seconds(words, 3));
    if (puppet_is_ok(muster_strategy_split_all_reduce(split_of(words), &tensor, 1, MUSTER_SUM))) {
        printf("ok");
        puppet_print_value(&tensor);
        printf(" contributors=%u interrupted=%d\n", muster_strategy_contributors(puppet_strategy),
               muster_strategy_result(puppet_strategy)->is_interrupted);
    }
    free(tensor.data);
}

/* split_broadcast KIND COUNT VALUE ROOT, split_reduce likewise */
void puppet_split_broadcast(const struct words *words)
{
    struct muster_tensor tensor = {.count = puppet_number(words, 2, "1"), .dtype = MUSTER_F64};
    uint32_t root = (uint32_t)puppet_number(words, 4, "0");

    tensor.data = puppet_make_tensor(tensor.count, puppet_seconds(words, 3));
    if (puppet_is_ok(strcmp(words->at[0], "split_reduce") == 0
                         ? muster_strategy_split_reduce(split_of(words), &tensor, MUSTER_SUM, root)
                         : muster_strategy_split_broadcast(split_of(words), &tensor, root))) {
        printf("ok");
        puppet_print_value(&tensor);
        printf("\n");
    }
    free(tensor.data);
}

/* split_all_gather KIND COUNT VALUE; split_all_to_all likewise: VALUE + r for rank r of the group
 * */
void puppet_split_all_gather(const struct words *words)
{
    bool is_gather = strcmp(words->at[0], "split_all_gather") == 0;
    uint32_t size = muster_strategy_split_size(split_of(words));
    uint64_t count = puppet_number(words, 2, "1");
    struct muster_tensor input = {.count = is_gather ? count : count * size, .dtype = MUSTER_F64};
    struct muster_tensor output = {.count = count * size, .dtype = MUSTER_F64};

    input.data = puppet_make_tensor(input.count, puppet_seconds(words, 3));
    output.data = puppet_make_tensor(output.count, 0);
    for (uint64_t i = 0; i < input.count; i++)
        ((double *)input.data)[i] += (double)(i / count);
    if (puppet_is_ok(is_gather
                         ? muster_strategy_split_all_gather(split_of(words), &input, &output)
                         : muster_strategy_split_all_to_all(split_of(words), &input, &output)))
        puppet_print_parts(&output, size);
    free(input.data);
    free(output.data);
}

uint32_t puppet_partner(const struct words *words, int i)
{
    const char *text = puppet_word(words, i, "-");

    return *text == '-' ? MUSTER_SPLIT_NOBODY : (uint32_t)strtoul(text, NULL, 10);
}

/* split_exchange KIND COUNT VALUE TO FROM: ranks in the group, - for nobody */
void puppet_split_exchange(const struct words *words)
{
    struct muster_tensor output = {.count = puppet_number(words, 2, "1"), .dtype = MUSTER_F64};
    struct muster_tensor input = output;

    output.data = puppet_make_tensor(output.count, puppet_seconds(words, 3));
    input.data = puppet_make_tensor(input.count, 0);
    if (puppet_is_ok(muster_strategy_split_exchange(split_of(words), &output,
                                                    puppet_partner(words, 4), &input,
                                                    puppet_partner(words, 5)))) {
        printf("ok");
        puppet_print_value(&input);
        printf("\n");
    }
    free(output.data);
    free(input.data);
}

/* split_barrier KIND */
void puppet_split_barrier(const struct words *words)
{
    if (puppet_is_ok(muster_strategy_split_barrier(split_of(words))))
        printf("ok\n");
}

void puppet_splits_forget(void)
{
    split_count = 0;
}
