/* The order of operation names: by lane first, because only operations of one lane are in the same
 * order on all members. */
#include <muster/op_id.h>

int muster_op_id_compare(const struct muster_op_id *a, const struct muster_op_id *b)
{
    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}
