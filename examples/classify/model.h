/* The model that classify_train makes and classify uses: softmax regression on images of digits. */
#ifndef EXAMPLE_CLASSIFY_MODEL_H
#define EXAMPLE_CLASSIFY_MODEL_H

#include <stdbool.h>

#include <muster/publication.h>

#define MODEL_PUBLICATION "digits"

enum {
    MODEL_PIXELS = 64, /* 8 x 8, each 0 to 16 */
    MODEL_CLASSES = 10,
    MODEL_TENSORS = 2,
};

struct model {
    float weights[MODEL_CLASSES][MODEL_PIXELS];
    float bias[MODEL_CLASSES];
};

/** The model as the tensors of a version: they point into model. */
void model_describe(const struct model *model, struct muster_named_tensor *ret_tensors);
/** False: the version is not of such a model. */
bool model_is_in(const struct muster_version *version);
/** The probability of each class; weights and bias may be tensors of a version. */
void model_classify(const float *weights, const float *bias, const float *pixels,
                    float *ret_probabilities);
/** The class of the highest probability. */
int model_best(const float *probabilities);
/** Reads 64 numbers with commas between them. Returns what follows, or NULL: there are fewer. */
const char *model_parse_pixels(const char *text, float *ret_pixels);

#endif
