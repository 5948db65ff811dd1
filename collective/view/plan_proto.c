/* Plan parameters to and from the message Plan, a part of View. Rows that this version does not
 * know make the whole view invalid: members with different plans would wait for messages that
 * nobody sends. */
#include "collective/view/plan_proto.h"

#include "collective/view/plan_parameters.h"

static void row_to_message(const struct muster_plan_row *row, Muster__PlanRow *message)
{
    muster__plan_row__init(message);
    message->kind = row->kind;
    message->wire = row->wire;
    message->span = row->span;
    message->algorithm = row->algorithm;
    message->n_min = row->n_min;
    message->bytes_max = row->bytes_max;
}

/* A view with nothing but defaults carries no Plan, which muster_plan_from_message reads as just that. */
Muster__Plan *muster_plan_to_message(const struct muster_plan_parameters *parameters,
                                     struct muster_plan_message *memory)
{
    if (parameters->forced == MUSTER_ALGORITHM_AUTO && !parameters->is_reproducible &&
        parameters->row_count == 0)
        return NULL;
    muster__plan__init(&memory->plan);
    memory->plan.forced = parameters->forced;
    memory->plan.is_reproducible = parameters->is_reproducible;
    for (uint32_t i = 0; i < parameters->row_count; i++) {
        row_to_message(&parameters->rows[i], &memory->rows[i]);
        memory->pointers[i] = &memory->rows[i];
    }
    memory->plan.n_rows = parameters->row_count;
    memory->plan.rows = memory->pointers;
    return &memory->plan;
}

/* The message has 32 bits for each field, a row has 8: a cut value could look like a valid one. */
static bool row_from_message(const Muster__PlanRow *message, struct muster_plan_row *row)
{
    if (message->kind > UINT8_MAX || message->wire > UINT8_MAX || message->span > UINT8_MAX ||
        message->algorithm > UINT8_MAX)
        return false;
    *row = (struct muster_plan_row){
        .kind = (uint8_t)message->kind,
        .wire = (uint8_t)message->wire,
        .span = (uint8_t)message->span,
        .algorithm = (uint8_t)message->algorithm,
        .n_min = message->n_min,
        .bytes_max = message->bytes_max,
    };
    return true;
}

bool muster_plan_from_message(const Muster__Plan *message,
                              struct muster_plan_parameters *parameters)
{
    if (message == NULL)
        return true;
    if (message->n_rows > MUSTER_PLAN_ROWS_MAX)
        return false;
    parameters->forced = (enum muster_algorithm)message->forced;
    parameters->is_reproducible = message->is_reproducible != 0;
    parameters->row_count = (uint32_t)message->n_rows;
    for (uint32_t i = 0; i < parameters->row_count; i++)
        if (!row_from_message(message->rows[i], &parameters->rows[i]))
            return false;
    return muster_plan_parameters_are_valid(parameters);
}
