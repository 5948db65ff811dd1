/* Work beside the loop: operations on other lanes, of some members or all, with priorities;
 * weights, functions of the program's own, roots that do not fit; a list of tensors. */
#include <muster/collective.h>

#include "collective/view/progress.h"
#include "tests/sim/trainee.h"

#define LANE_OF_ALL 1
#define LANE_SPLIT  2
#define LANES       4 /* 3: the list's */

static uint32_t color_of(void *data, const struct muster_member *member)
{
    (void)data;
    return ledger_color(&member->incarnation);
}

static const struct muster_split split = {.lane = LANE_SPLIT, .lane_count = 1, .color = color_of};

/* False: the group has ended, an exclusion follows. */
static bool split_group(struct trainee *trainee, struct muster_group *group)
{
    enum muster_rc rc = muster_group_split(group, &split);

    if (rc != MUSTER_OK && rc != MUSTER_ALREADY_EXISTS && !trainee->may_cancel)
        sim_fail(trainee->world, "a group is not split: %d", (int)rc);
    return rc == MUSTER_OK || rc == MUSTER_ALREADY_EXISTS;
}

static void draw_priorities(struct trainee *trainee, struct muster_group *group)
{
    uint32_t lane;

    for (lane = 0; lane < LANES; lane++)
        if (muster_rng_below(trainee->env->rng, 4) == 0 &&
            muster_group_set_priority(group, lane,
                                      (uint8_t)muster_rng_below(trainee->env->rng, 3)) != MUSTER_OK)
            sim_fail(trainee->world, "a priority is refused");
}

static void on_done(struct trainee_op *op)
{
    trainee_aside_closed(op->trainee);
}

static struct trainee_wish wish_of(uint64_t shape)
{
    struct trainee_wish wish = {.shape = sim_mix(shape, 1) | 1};

    switch (shape >> 56 & 7) {
    case 0:
        wish.flavour = TRAINEE_WEIGHTED;
        break;
    case 1:
        wish.flavour = TRAINEE_USER;
        break;
    case 2:
    case 3:
        wish.has_root = true;
        wish.is_unfit = (shape >> 50 & 3) == 0;
        break;
    default:
        break;
    }
    return wish;
}

static void trainee_start(struct trainee *trainee, struct trainee_op *op, uint64_t shape,
                          uint32_t *sequences)
{
    uint32_t lane = (shape >> 30 & 1) != 0 ? LANE_SPLIT : LANE_OF_ALL;
    uint32_t color = lane == LANE_SPLIT ? trainee->color + 1 : 0;
    struct muster_op_id id = {.step = trainee->step,
                              .sequence = sequences[lane]++,
                              .lane = lane + color * MUSTER_LANE_COLOR};
    struct trainee_wish wish = wish_of(shape);

    trainee->aside_open++;
    trainee_op_start(op, trainee, &id, &wish, on_done);
    if (op->state == TRAINEE_OP_NONE)
        trainee->aside_open--;
}

void trainee_aside_begin(struct trainee *trainee)
{
    struct muster_group *group = trainee->ops->group(trainee->keeper);
    uint64_t shape = sim_mix(sim_mix(trainee->seed, trainee->step), 900);
    uint32_t count = (uint32_t)(shape % (TRAINEE_ASIDES_MAX + 1)), i, sequences[LANES] = {0};

    if (!trainee->has_asides || group == NULL || !split_group(trainee, group))
        return;
    draw_priorities(trainee, group);
    for (i = 0; i < count && trainee->is_running; i++)
        trainee_start(trainee, &trainee->asides[i], sim_mix(shape, i), sequences);
    if (trainee->is_running && (shape >> 20 & 3) == 0)
        (void)trainee_list_start(trainee, group, sim_mix(shape, 99));
}

void trainee_aside_fini(struct trainee *trainee)
{
    uint32_t i;

    for (i = 0; i < TRAINEE_ASIDES_MAX; i++)
        trainee_op_fini(&trainee->asides[i]);
    trainee_list_fini(&trainee->list);
}
