/* Incarnations: compared, shown and read. */
#include <muster/incarnation.h>

#include <string.h>

#include "runtime/value/hex.h"

bool muster_incarnation_is_equal(const struct muster_incarnation *a,
                                 const struct muster_incarnation *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

bool muster_incarnation_is_zero(const struct muster_incarnation *a)
{
    static const struct muster_incarnation zero;

    return muster_incarnation_is_equal(a, &zero);
}

const char *muster_incarnation_format(const struct muster_incarnation *a,
                                      char ret_text[MUSTER_INCARNATION_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < sizeof(a->bytes); i++) {
        ret_text[2 * i] = digits[a->bytes[i] >> 4];
        ret_text[2 * i + 1] = digits[a->bytes[i] & 15];
    }
    ret_text[MUSTER_INCARNATION_TEXT_BYTES - 1] = '\0';
    return ret_text;
}

/* All zeros is refused: it stands for "no process" wherever an incarnation is optional. */
enum muster_rc muster_incarnation_parse(const char *text,
                                        struct muster_incarnation *ret_incarnation)
{
    struct muster_incarnation incarnation = {.bytes = {0}};

    if (strlen(text) != MUSTER_INCARNATION_TEXT_BYTES - 1)
        return MUSTER_INVALID_ARGUMENT;
    for (size_t i = 0; i < sizeof(incarnation.bytes); i++) {
        int high = muster_hex_digit(text[2 * i]);
        int low = muster_hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return MUSTER_INVALID_ARGUMENT;
        incarnation.bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (muster_incarnation_is_zero(&incarnation))
        return MUSTER_INVALID_ARGUMENT;
    *ret_incarnation = incarnation;
    return MUSTER_OK;
}
