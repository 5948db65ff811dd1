/* The value of a hexadecimal digit. */
#ifndef MUSTER_RUNTIME_HEX_H
#define MUSTER_RUNTIME_HEX_H

/** 0 to 15, in either case; -1: not such a digit. */
static inline int muster_hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

#endif
