/* A dataset, for the files of this folder. */
#ifndef MUSTER_TRAINING_DATA_DATASET_INTERNAL_H
#define MUSTER_TRAINING_DATA_DATASET_INTERNAL_H

#include "training/data/queue_system.h"

struct muster_dataset {
    struct muster_mem *mem;
    struct muster_data_source source;
    struct muster_data_division division;
    uint64_t hash; /* of the index */
    uint64_t *position;
    struct muster_data_queue *queue;
    struct muster_data_slot *taken; /* the batch that the program has */
    struct muster_data_place ahead; /* after the last batch in the queue */
};

#endif
