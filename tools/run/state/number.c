/* Decimal numbers and stream masks in option values. */
#include "run/state/number.h"

#include <ctype.h>
#include <stddef.h>

bool run_number_parse(const char *text, char end, uint64_t max, uint64_t *ret_value,
                      const char **ret_rest)
{
    uint64_t value = 0;

    if (!isdigit((unsigned char)*text))
        return false;
    for (; isdigit((unsigned char)*text); text++) {
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > max)
            return false;
    }
    if (*text != end)
        return false;
    *ret_value = value;
    if (ret_rest != NULL)
        *ret_rest = end != '\0' ? text + 1 : text;
    return true;
}

bool run_mask_of(const char *text, uint32_t local_rank, unsigned *ret_mask)
{
    uint64_t mask = 0;
    uint64_t rank = 0;

    *ret_mask = 0;
    if (text == NULL || run_number_parse(text, '\0', 3, &mask, NULL)) {
        *ret_mask = (unsigned)mask;
        return true;
    }
    for (;;) {
        if (!run_number_parse(text, ':', UINT32_MAX, &rank, &text))
            return false;
        if (run_number_parse(text, '\0', 3, &mask, NULL)) {
            *ret_mask = rank == local_rank ? (unsigned)mask : *ret_mask;
            return true;
        }
        if (!run_number_parse(text, ',', 3, &mask, &text))
            return false;
        *ret_mask = rank == local_rank ? (unsigned)mask : *ret_mask;
    }
}
