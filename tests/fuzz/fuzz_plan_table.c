/* Tuning files: whatever is accepted is valid, can be chosen by, and reads the same once written. */
#include <stdlib.h>
#include <string.h>

#include "collective/plan/steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define TEXT_BYTES 8192u

static void check_choices(const struct muster_plan_parameters *parameters)
{
    for (uint32_t n = 1; n < 20; n += 3)
        for (uint64_t count = 0; count < 1 << 20; count = count * 7 + 1) {
            struct muster_plan_input input = {.kind = (enum muster_op_kind)(count % 3),
                                              .n = n,
                                              .count = count * n, /* whole parts */
                                              .element_bytes = 4,
                                              .host_count = 1 + n / 4,
                                              .parameters = *parameters};
            enum muster_algorithm algorithm = muster_plan_choose(&input);

            if (!muster_algorithm_fits(algorithm, input.kind) ||
                (count > 0 && muster_plan_make(&input).chunk_count == 0))
                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_plan_parameters parameters, again;
    struct muster_error error = {0};
    char *text = calloc(size + 1, 1);
    char written[TEXT_BYTES], rewritten[TEXT_BYTES];

    if (text == NULL)
        abort();
    memcpy(text, bytes, size);
    if (muster_plan_parameters_parse(text, &parameters, &error) != MUSTER_OK) {
        if (strncmp(error.text, "line ", 5) != 0)
            abort();
    } else {
        if (!muster_plan_parameters_are_valid(&parameters) ||
            muster_plan_parameters_format(&parameters, written, TEXT_BYTES) >= TEXT_BYTES ||
            muster_plan_parameters_parse(written, &again, &error) != MUSTER_OK)
            abort();
        (void)muster_plan_parameters_format(&again, rewritten, TEXT_BYTES);
        if (strcmp(written, rewritten) != 0)
            abort();
        check_choices(&parameters);
    }
    free(text);
    return 0;
}
