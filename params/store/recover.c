/* Recovery: the row that was being changed becomes what it was, the change of structure that was
 * under way is done again. Its work does not grow with the tables. */
#include "params/store/apply.h"
#include "params/store/index.h"
#include "params/store/row.h"

typedef void complete_fn(struct muster_params_region *region,
                         const struct muster_params_intent *intent);

static complete_fn *const completes[] = {
    [MUSTER_PARAMS_INTENT_TABLE] = muster_params_table_complete,
    [MUSTER_PARAMS_INTENT_SEGMENT] = muster_params_segment_complete,
    [MUSTER_PARAMS_INTENT_PAGE] = muster_params_page_complete,
    [MUSTER_PARAMS_INTENT_ROW] = muster_params_row_complete,
    [MUSTER_PARAMS_INTENT_GROW] = muster_params_grow_complete,
    [MUSTER_PARAMS_INTENT_GROWN] = muster_params_grown_complete,
    [MUSTER_PARAMS_INTENT_SOURCES] = muster_params_sources_complete,
    [MUSTER_PARAMS_INTENT_SOURCE] = muster_params_source_complete,
    [MUSTER_PARAMS_INTENT_REUSE] = muster_params_reuse_complete,
    [MUSTER_PARAMS_INTENT_REMOVE] = muster_params_remove_complete,
    [MUSTER_PARAMS_INTENT_SOURCE_FREE] = muster_params_source_free_complete,
};

enum muster_rc muster_params_region_recover(struct muster_params_region *region, void *memory,
                                            size_t bytes,
                                            const struct muster_params_region_options *options,
                                            struct muster_error *ret_error)
{
    enum muster_rc rc = muster_params_region_attach(region, memory, bytes, options, ret_error);
    uint32_t kind;

    if (rc != MUSTER_OK)
        return rc;
    kind = region->head->intent.kind;
    if (kind >= sizeof(completes) / sizeof(completes[0]))
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the memory of the seat is damaged: a change of unknown kind %u "
                                "is under way",
                                kind);
    muster_params_undo_restore(region);
    if (kind != MUSTER_PARAMS_INTENT_NONE) {
        completes[kind](region, &region->head->intent);
        muster_params_intent_end(region);
    }
    return MUSTER_OK;
}
