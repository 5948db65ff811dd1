/* Decimal numbers and stream masks in option values. The table of options knows plain numbers only;
 * these stand inside of a text such as "worker:2@step=150" or "0:1,2:3". */
#include "run/state/number.h"

#include <muster/base.h>

#include <ctype.h>
#include <stddef.h>

/* max is at most UINT64_MAX / 16, so that the next digit cannot overflow before the comparison. */
bool run_number_parse(const char *text, char end, uint64_t max, uint64_t *ret_value,
                      const char **ret_rest)
{
    uint64_t value = 0;

    MUSTER_ASSERT(max <= UINT64_MAX / 16);
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

/* The whole text is checked, also after the entry of this rank; of two entries for a rank the last
 * counts. */
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
