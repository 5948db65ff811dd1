/* The cluster of an Amazon SageMaker training job (TensorFlow's SageMakerClusterResolver). */
#ifndef MUSTER_SAGEMAKER_RESOLVER_H
#define MUSTER_SAGEMAKER_RESOLVER_H

#include <muster/resolver.h>

MUSTER_BEGIN

#define MUSTER_SAGEMAKER_PORT 2223

struct muster_sagemaker_resolver_options {
    struct muster_resolver_options common;
    uint16_t port; /* of every task; 0: MUSTER_SAGEMAKER_PORT */
};

/** The variables SM_HOSTS and SM_CURRENT_HOST, read anew at each question: one job, "worker", of
 * the hosts sorted by name. Gives. Questions: FAILED_PRECONDITION where one of them is not set. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_sagemaker_resolver_open(
    struct muster_env *env, const struct muster_sagemaker_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

MUSTER_END

#endif
