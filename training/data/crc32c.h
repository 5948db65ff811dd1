/* CRC32C (Castagnoli), as TFRecord files have it. */
#ifndef MUSTER_TRAINING_DATA_CRC32C_H
#define MUSTER_TRAINING_DATA_CRC32C_H

#include <muster/base.h>

/** The CRC of bytes; with the instruction where the processor has it. */
uint32_t muster_crc32c(const void *bytes, size_t count);
/** The same by a table, on any processor. */
uint32_t muster_crc32c_table(const void *bytes, size_t count);
/** Rotated and added to, so that a CRC over bytes that hold CRCs is sound. Source: tensorflow::crc32c::Mask. */
uint32_t muster_crc32c_mask(uint32_t crc);

#endif
