/* Frames from the wire find their run; those that come too early are kept (frames.c) and replayed here. A frame is
 * judged by its header when it begins, and used when it has come whole; the run may end at both times. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <string.h>

/* The longest text of a MISMATCH that is taken from a peer; members send at most MUSTER_DESCRIPTION_TEXT_BYTES. */
#define NOTE_BYTES_MAX 256u

static bool is_issued(const struct muster_group *group, const struct muster_op_id *id)
{
    const struct muster_lane *lane = &group->lanes[MUSTER_LANE_INDEX(id->lane)];

    return lane->has_issued && muster_op_id_compare(id, &lane->issued_through) <= 0;
}

static uint32_t participant_of(const struct muster_group *group, uint32_t rank,
                               const struct muster_op_id *id)
{
    return muster_op_participant_index(group, id, rank);
}

/* --- Dispatch --- */

static void *receive_note(struct muster_group *group, uint32_t rank,
                          const struct muster_frame_header *header,
                          struct muster_receiving *receiving)
{
    uint32_t bytes_max = header->type == MUSTER_FRAME_MISMATCH ? NOTE_BYTES_MAX : 0;

    if (header->payload_bytes > bytes_max) {
        muster_wire_refuse(group->wire, rank, "a control frame is too long");
        return NULL;
    }
    receiving->buffer = muster_buffer_get(group->pool, header->payload_bytes);
    /* Not dropped: the sender would count as told, and the operation wait for its deadline. */
    if (receiving->buffer == NULL && header->payload_bytes > 0) {
        muster_wire_refuse(group->wire, rank, "no memory for a description");
        return NULL;
    }
    receiving->mode = MUSTER_RECEIVE_NOTE;
    return receiving->buffer;
}

static bool is_data(uint8_t type)
{
    return type == MUSTER_FRAME_REDUCE || type == MUSTER_FRAME_GATHER ||
           type == MUSTER_FRAME_INPUT || type == MUSTER_FRAME_CHUNK || type == MUSTER_FRAME_PIECE ||
           type == MUSTER_FRAME_STEP;
}

static enum muster_run_outcome receive_by_type(struct muster_run *run, uint32_t participant,
                                               const struct muster_frame_header *header,
                                               struct muster_receiving *receiving, void **ret_place)
{
    if (header->type == MUSTER_FRAME_CHUNK)
        return muster_repair_receive(run, header, receiving, ret_place);
    if ((run->ops->frames >> header->type & 1u) != 0)
        return run->ops->receive(run, participant, header, receiving, ret_place);
    return header->type == MUSTER_FRAME_PIECE ? MUSTER_RUN_GOES_ON : MUSTER_RUN_UNEXPECTED;
}

static void *receive_data(struct muster_run *run, uint32_t rank,
                          const struct muster_frame_header *header,
                          struct muster_receiving *receiving)
{
    struct muster_group *group = run->group;
    uint32_t participant = participant_of(group, rank, &header->op);
    void *place = NULL;
    enum muster_run_outcome outcome = receive_by_type(run, participant, header, receiving, &place);

    if (outcome == MUSTER_RUN_UNEXPECTED && run->state == MUSTER_RUN_ACTIVE)
        muster_wire_refuse(group->wire, rank,
                           header->type == MUSTER_FRAME_PIECE ? "a piece came that is not awaited"
                                                              : "a chunk came that no plan knows");
    if (outcome != MUSTER_RUN_GOES_ON)
        receiving->mode = MUSTER_RECEIVE_NOTHING;
    if (receiving->mode == MUSTER_RECEIVE_DATA) {
        receiving->run = run;
        receiving->type = header->type;
    }
    /* The run may end here: nothing of it is used after this. */
    muster_run_conclude(run, outcome);
    return outcome == MUSTER_RUN_GOES_ON ? place : NULL;
}

/* Frames that only say something about an operation, whatever its state. */
static bool is_about(uint8_t type)
{
    return type == MUSTER_FRAME_QUERY || type == MUSTER_FRAME_STATUS ||
           type == MUSTER_FRAME_MISMATCH;
}

/* The order matters: a split that is not made here makes any rank's part unknown; a skipped operation must be said
 * before the frame could be kept for ever; a question is answered in every state; a different descriptor is found
 * out before any byte is taken. */
static void *receive_frame(struct muster_group *group, uint32_t rank,
                           const struct muster_frame_header *header,
                           struct muster_receiving *receiving)
{
    struct muster_run *run = muster_group_find(group, &header->op);

    if (!is_about(header->type) && !muster_group_is_lane_known(group, &header->op))
        return muster_frame_receive_early(group, rank, header, receiving);
    if (run == NULL && header->type != MUSTER_FRAME_STATUS &&
        muster_group_has_skipped(group, &header->op)) {
        muster_group_say_skipped(group, rank, &header->op);
        muster_group_drop_early_of(group, &header->op);
        return NULL;
    }
    if (run == NULL && is_issued(group, &header->op) && header->type != MUSTER_FRAME_QUERY)
        return NULL;
    if (header->type == MUSTER_FRAME_QUERY || (run != NULL && is_about(header->type)))
        return receive_note(group, rank, header, receiving);
    if (run != NULL && muster_run_is_unfit(run))
        return NULL;
    if (run != NULL && header->descriptor != run->descriptor) {
        muster_run_send_mismatch(run);
        return NULL;
    }
    if (run == NULL || run->state <= MUSTER_RUN_QUEUED)
        return muster_frame_receive_early(group, rank, header, receiving);
    if (run->state == MUSTER_RUN_ENDED)
        return NULL;
    muster_run_hear_issued(run, participant_of(group, rank, &header->op));
    return is_data(header->type) ? receive_data(run, rank, header, receiving)
                                 : receive_note(group, rank, header, receiving);
}

/* The header of a frame has come. NULL with a payload: the link discards that, or waits if it was paused. */
static void *on_frame(void *client, uint32_t rank, const struct muster_frame_header *header)
{
    struct muster_group *group = client;
    struct muster_receiving *receiving = &group->receiving[rank];
    struct muster_group_part *part;

    muster_buffer_unref(receiving->buffer); /* of a frame that the link was told to discard */
    memset(receiving, 0, sizeof(*receiving));
    if (group->is_frozen || group->is_closed)
        return NULL;
    part = muster_group_part_of_frame(group, header->type);
    if (part != NULL && part->ops->receive != NULL)
        return part->ops->receive(part, rank, header, receiving);
    if (header->type == MUSTER_FRAME_BOARD || header->type == MUSTER_FRAME_ALARM) {
        receiving->mode = MUSTER_RECEIVE_NOTE;
        return NULL;
    }
    if (MUSTER_LANE_INDEX(header->op.lane) >= MUSTER_LANES_MAX ||
        (muster_group_is_lane_known(group, &header->op) &&
         participant_of(group, rank, &header->op) == UINT32_MAX)) {
        muster_wire_refuse(group->wire, rank, "a frame names no operation of this view");
        return NULL;
    }
    return receive_frame(group, rank, header, receiving);
}

static void on_progress(void *client, uint32_t rank, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done)
{
    struct muster_group *group = client;
    struct muster_receiving *receiving = &group->receiving[rank];

    (void)header;
    (void)buffer;
    if (receiving->mode == MUSTER_RECEIVE_DATA && receiving->run->ops->progress != NULL)
        receiving->run->ops->progress(receiving->run, receiving, bytes_done);
}

/* Another member looks for the one that holds an operation up: the answer says whether it was started here. */
static void answer_query(struct muster_group *group, uint32_t rank,
                         const struct muster_frame_header *query)
{
    struct muster_frame_header header = *query;

    header.type = MUSTER_FRAME_STATUS;
    header.flags = is_issued(group, &query->op) ? 1 : 0;
    header.payload_bytes = 0;
    muster_wire_send(group->wire, rank, &header, NULL, NULL);
}

static void use_mismatch(struct muster_run *run, uint32_t participant,
                         const struct muster_frame_header *header, const char *text)
{
    struct muster_group *group = run->group;
    struct muster_lane *lane = &group->lanes[MUSTER_LANE_INDEX(run->id.lane)];

    switch (muster_run_hear_mismatch(run, participant, header, text)) {
    case MUSTER_MISMATCH_IS_THEIRS:
        muster_run_hear_complete(run, participant);
        return;
    case MUSTER_MISMATCH_CONTRADICTS:
        muster_run_end_contradicted(run);
        return;
    case MUSTER_MISMATCH_NOTED:
        muster_lane_settle(group, lane);
        return;
    }
}

static void use_run_note(struct muster_run *run, uint32_t participant,
                         const struct muster_frame_header *header, const void *text)
{
    switch (header->type) {
    case MUSTER_FRAME_START:
        if (run->ops != NULL && run->ops->hear_start != NULL)
            muster_run_conclude(run, run->ops->hear_start(run, participant, header));
        break;
    case MUSTER_FRAME_COMPLETE:
        muster_run_hear_spent(run, participant, header->chunk);
        muster_run_hear_complete(run, participant);
        break;
    case MUSTER_FRAME_FETCH:
        muster_repair_serve(run, participant, header->chunk, header->phase);
        break;
    case MUSTER_FRAME_STATUS:
        muster_run_hear_status(run, participant, header->flags == 1);
        break;
    case MUSTER_FRAME_MISMATCH:
        use_mismatch(run, participant, header, text);
        break;
    default:
        break;
    }
}

static void use_note(struct muster_group *group, uint32_t rank,
                     const struct muster_frame_header *header, const void *text)
{
    struct muster_group_part *part = muster_group_part_of_frame(group, header->type);
    struct muster_run *run;

    if (part != NULL && part->ops->hear != NULL)
        part->ops->hear(part, rank, header);
    if (header->type == MUSTER_FRAME_BOARD || header->type == MUSTER_FRAME_ALARM)
        return; /* of no operation */
    run = muster_group_find(group, &header->op);
    if (header->type == MUSTER_FRAME_QUERY)
        answer_query(group, rank, header);
    if (run != NULL)
        use_run_note(run, participant_of(group, rank, &header->op), header, text);
}

static void use_data(struct muster_group *group, uint32_t rank,
                     const struct muster_frame_header *header, struct muster_receiving *receiving)
{
    struct muster_run *run = receiving->run;
    uint32_t participant = participant_of(group, rank, &header->op);

    MUSTER_ASSERT(run != NULL && run->ops != NULL);
    receiving->mode = MUSTER_RECEIVE_NOTHING;
    receiving->run = NULL;
    if (header->type == MUSTER_FRAME_CHUNK)
        muster_run_conclude(run, muster_repair_received(run, receiving));
    else
        muster_run_conclude(run, run->ops->received(run, participant, receiving));
}

static void use_frame(struct muster_group *group, uint32_t rank,
                      const struct muster_frame_header *header, struct muster_receiving *receiving)
{
    switch (receiving->mode) {
    case MUSTER_RECEIVE_NOTHING:
        break;
    case MUSTER_RECEIVE_EARLY:
        muster_frame_keep_early(group, rank, header, receiving->buffer);
        if (is_issued(group, &header->op)) /* it began while the payload was coming in */
            muster_group_replay_early(group, &header->op);
        break;
    case MUSTER_RECEIVE_NOTE:
        use_note(group, rank, header, receiving->buffer);
        muster_buffer_unref(receiving->buffer);
        receiving->buffer = NULL;
        break;
    case MUSTER_RECEIVE_MESSAGE:
        group->parts[MUSTER_PART_MESSAGES]->ops->received(group->parts[MUSTER_PART_MESSAGES], rank,
                                                          header, receiving);
        break;
    case MUSTER_RECEIVE_DATA:
        use_data(group, rank, header, receiving);
        break;
    }
}

static void on_payload(void *client, uint32_t rank, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_group *group = client;
    struct muster_receiving receiving = group->receiving[rank];

    (void)buffer;
    /* Taken out first: the run that the frame completes may abandon all that is half-received. */
    group->receiving[rank].mode = MUSTER_RECEIVE_NOTHING;
    group->receiving[rank].buffer = NULL;
    use_frame(group, rank, header, &receiving);
    if (!group->is_done_late)
        muster_group_run_done(group);
}

/* The frame goes the same way as from the wire; its buffer takes the place of the one that would be
 * filled. */
static void replay_frame(struct muster_group *group, struct muster_early *early)
{
    struct muster_receiving receiving = {.mode = MUSTER_RECEIVE_NOTHING};
    struct muster_frame_header header = early->header;
    uint32_t rank = early->rank;
    void *place = receive_frame(group, rank, &header, &receiving);

    if (receiving.mode == MUSTER_RECEIVE_DATA && receiving.buffer != NULL) {
        muster_buffer_unref(receiving.buffer);
        receiving.buffer = early->buffer;
        early->buffer = NULL;
    } else if (place != NULL && header.payload_bytes > 0) {
        memcpy(place, early->buffer, header.payload_bytes);
    }
    muster_early_free(group, early);
    use_frame(group, rank, &header, &receiving);
}

void muster_group_replay_early(struct muster_group *group, const struct muster_op_id *id)
{
    struct muster_op_id op = *id; /* the caller's may be a run's, which may end */
    struct muster_early *early;
    bool has_freed = false;

    while ((early = muster_early_find(group, &op)) != NULL) {
        struct muster_run *run = muster_group_find(group, &op);

        if (run == NULL ? !is_issued(group, &op) : run->state <= MUSTER_RUN_QUEUED)
            break;
        replay_frame(group, early);
        has_freed = true;
    }
    if (has_freed)
        muster_group_resume_paused(group);
}

/* --- News of links --- */

static void on_higher_epoch(void *client, const struct muster_incarnation *peer, uint64_t epoch)
{
    struct muster_group *group = client;

    if (!group->is_closed && group->events->on_higher_epoch != NULL)
        group->events->on_higher_epoch(group->data, peer, epoch);
}

static void on_abandoned(void *client, uint32_t rank)
{
    struct muster_group *group = client;

    muster_group_abandon(&group->receiving[rank]);
}

static void on_link_down(void *client, uint32_t rank, const struct muster_error *error)
{
    struct muster_group *group = client;

    on_abandoned(client, rank);
    if (!group->is_closed && group->events->on_suspect != NULL)
        group->events->on_suspect(group->data, &group->view->members[rank].incarnation, error);
}

const struct muster_wire_client muster_group_wire_client = {
    .on_frame = on_frame,
    .on_progress = on_progress,
    .on_payload = on_payload,
    .on_higher_epoch = on_higher_epoch,
    .on_abandoned = on_abandoned,
    .on_link_down = on_link_down,
};
