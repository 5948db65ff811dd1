/* Softmax regression: one layer of weights. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIXEL_MAX 16.0f

void model_describe(const struct model *model, struct muster_named_tensor *ret_tensors)
{
    ret_tensors[0] = (struct muster_named_tensor){
        "weights", MUSTER_F32, (uint64_t)MODEL_CLASSES * MODEL_PIXELS, model->weights};
    ret_tensors[1] = (struct muster_named_tensor){"bias", MUSTER_F32, MODEL_CLASSES, model->bias};
}

bool model_is_in(const struct muster_version *version)
{
    static const struct model model;
    struct muster_named_tensor tensors[MODEL_TENSORS];

    model_describe(&model, tensors);
    if (version->count != MODEL_TENSORS)
        return false;
    for (int i = 0; i < MODEL_TENSORS; i++) {
        const struct muster_named_tensor *tensor = &version->tensors[i];

        if (strcmp(tensor->name, tensors[i].name) != 0 || tensor->dtype != tensors[i].dtype ||
            tensor->count != tensors[i].count)
            return false;
    }
    return true;
}

void model_classify(const float *weights, const float *bias, const float *pixels,
                    float *ret_probabilities)
{
    float largest = -INFINITY, sum = 0.0f;

    for (int c = 0; c < MODEL_CLASSES; c++) {
        float score = bias[c];

        for (int i = 0; i < MODEL_PIXELS; i++)
            score += weights[c * MODEL_PIXELS + i] * pixels[i];
        ret_probabilities[c] = score;
        largest = fmaxf(largest, score);
    }
    for (int c = 0; c < MODEL_CLASSES; c++) {
        ret_probabilities[c] = expf(ret_probabilities[c] - largest);
        sum += ret_probabilities[c];
    }
    for (int c = 0; c < MODEL_CLASSES; c++)
        ret_probabilities[c] /= sum;
}

int model_best(const float *probabilities)
{
    int best = 0;

    for (int c = 1; c < MODEL_CLASSES; c++)
        best = probabilities[c] > probabilities[best] ? c : best;
    return best;
}

const char *model_parse_pixels(const char *text, float *ret_pixels)
{
    for (int i = 0; i < MODEL_PIXELS; i++) {
        char *end;
        float value = strtof(text, &end);

        if (end == text || !(value >= 0.0f && value <= PIXEL_MAX))
            return NULL;
        ret_pixels[i] = value / PIXEL_MAX;
        text = end + (*end == ',' && i < MODEL_PIXELS - 1);
    }
    return text;
}
