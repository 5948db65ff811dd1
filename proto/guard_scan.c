/* The scan in front of protobuf-c: validates wire bytes against a descriptor, and strips what is
 * unknown. */
#include "proto/guard_scan.h"

#include <string.h>

#define VARINT_BYTES_MAX       10 /* 64 bits in groups of 7 */
#define SHORT_VARINT_BYTES_MAX 5 /* tags and lengths; protobuf-c reads no more */
#define FIELD_NUMBER_MAX       ((UINT32_C(1) << 29) - 1)

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LENGTH = 2, WIRE_FIXED32 = 5 };

/* One field as it stands on the wire. */
struct wire_field {
    const ProtobufCFieldDescriptor *known; /* NULL: to be skipped */
    uint32_t number;
    unsigned type;
    const uint8_t *start;   /* of the tag */
    size_t head_bytes;      /* tag, and the length of a WIRE_LENGTH field */
    size_t length_bytes;    /* of the length alone */
    const uint8_t *payload; /* head_bytes after start */
    size_t payload_bytes;
};

/* Bytes of the varint at `bytes`, or 0 when it is cut off or longer than bytes_max. */
static size_t varint_read(const uint8_t *bytes, size_t size, size_t bytes_max, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (size_t i = 0; i < size && i < bytes_max; i++) {
        value |= (uint64_t)(bytes[i] & 0x7f) << (7 * i);
        if ((bytes[i] & 0x80) == 0) {
            *ret_value = value;
            return i + 1;
        }
    }
    return 0;
}

/* Write value in exactly count bytes: a shorter number is padded, which every reader accepts. */
static void varint_write_padded(uint8_t *out, size_t count, uint64_t value)
{
    for (size_t i = 0; i + 1 < count; i++) {
        out[i] = (uint8_t)(0x80 | (value & 0x7f));
        value >>= 7;
    }
    out[count - 1] = (uint8_t)value;
}

static unsigned natural_wire_type(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_LENGTH;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM:
        break;
    }
    return WIRE_VARINT;
}

static bool is_packed(const struct wire_field *field)
{
    return field->type == WIRE_LENGTH && natural_wire_type(field->known) != WIRE_LENGTH;
}

/* A known field of another wire type counts as unknown, as protobuf has it. */
static bool is_type_accepted(const ProtobufCFieldDescriptor *known, unsigned type)
{
    if (type == natural_wire_type(known))
        return true;
    return type == WIRE_LENGTH && known->label == PROTOBUF_C_LABEL_REPEATED;
}

/* Fill payload and head of a field whose tag is read; false when it leaves the buffer. */
static bool field_measure(struct wire_field *field, size_t tag_bytes, size_t size)
{
    const uint8_t *rest = field->start + tag_bytes;
    size_t rest_bytes = size - tag_bytes;
    uint64_t value = 0;

    field->length_bytes = 0;
    switch (field->type) {
    case WIRE_VARINT:
        field->payload_bytes = varint_read(rest, rest_bytes, VARINT_BYTES_MAX, &value);
        if (field->payload_bytes == 0)
            return false;
        break;
    case WIRE_FIXED32:
        field->payload_bytes = 4;
        break;
    case WIRE_FIXED64:
        field->payload_bytes = 8;
        break;
    case WIRE_LENGTH:
        field->length_bytes = varint_read(rest, rest_bytes, SHORT_VARINT_BYTES_MAX, &value);
        if (field->length_bytes == 0 || value > INT32_MAX)
            return false;
        field->payload_bytes = (size_t)value;
        break;
    default: /* groups and what does not exist */
        return false;
    }
    field->head_bytes = tag_bytes + field->length_bytes;
    field->payload = field->start + field->head_bytes;
    return field->payload_bytes <= size - field->head_bytes;
}

/* Read the field at `bytes`; false when it is malformed. */
static bool field_read(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                       size_t size, struct wire_field *ret_field)
{
    uint64_t tag = 0;
    size_t tag_bytes = varint_read(bytes, size, SHORT_VARINT_BYTES_MAX, &tag);

    if (tag_bytes == 0 || tag >> 3 == 0 || tag >> 3 > FIELD_NUMBER_MAX)
        return false;
    ret_field->start = bytes;
    ret_field->number = (uint32_t)(tag >> 3);
    ret_field->type = (unsigned)(tag & 7);
    ret_field->known = protobuf_c_message_descriptor_get_field(descriptor, ret_field->number);
    if (ret_field->known != NULL && !is_type_accepted(ret_field->known, ret_field->type))
        ret_field->known = NULL;
    return field_measure(ret_field, tag_bytes, size);
}

/* Bytes of the UTF-8 sequence at text, 0 when it is invalid or U+0000 (Unicode 15, table 3-7). */
static size_t utf8_sequence(const uint8_t *text, size_t size)
{
    uint8_t lead = text[0];
    size_t length;
    uint8_t low = 0x80, high = 0xbf;

    if (lead < 0x80)
        return lead != 0 ? 1 : 0;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (length > size)
        return 0;
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

static bool is_text(const uint8_t *text, size_t size)
{
    while (size > 0) {
        size_t step = utf8_sequence(text, size);

        if (step == 0)
            return false;
        text += step;
        size -= step;
    }
    return true;
}

/* Values in a packed field; false when the last one is cut off. Each counts against elements_max,
 * because protobuf-c makes an array of them from as little as a byte each. */
static bool packed_count(const struct wire_field *field, size_t *ret_count)
{
    unsigned type = natural_wire_type(field->known);
    size_t width = type == WIRE_FIXED32 ? 4 : 8;
    size_t count = 0, at = 0;
    uint64_t value;

    if (type != WIRE_VARINT) {
        *ret_count = field->payload_bytes / width;
        return field->payload_bytes % width == 0;
    }
    while (at < field->payload_bytes) {
        size_t step =
            varint_read(field->payload + at, field->payload_bytes - at, VARINT_BYTES_MAX, &value);

        if (step == 0)
            return false;
        at += step;
        count++;
    }
    *ret_count = count;
    return true;
}

static enum muster_rc fail_field(struct muster_proto_scan *scan,
                                 const ProtobufCMessageDescriptor *descriptor,
                                 const struct wire_field *field, const char *what)
{
    return muster_error_set(scan->error, MUSTER_INVALID_ARGUMENT, "%s.%s: %s", descriptor->name,
                            field->known->name, what);
}

static enum muster_rc count_elements(struct muster_proto_scan *scan, size_t count)
{
    if (count > scan->elements_max - scan->elements)
        return muster_error_set(scan->error, MUSTER_RESOURCE_EXHAUSTED,
                                "message has more than %zu fields and values", scan->elements_max);
    scan->elements += count;
    return MUSTER_OK;
}

static enum muster_rc check_message(struct muster_proto_scan *scan,
                                    const ProtobufCMessageDescriptor *descriptor,
                                    const uint8_t *bytes, size_t size, uint32_t depth);

static enum muster_rc check_known(struct muster_proto_scan *scan,
                                  const ProtobufCMessageDescriptor *descriptor,
                                  const struct wire_field *field, uint32_t depth)
{
    size_t count = 0;

    if (field->type != WIRE_LENGTH)
        return MUSTER_OK;
    if (is_packed(field)) {
        if (!packed_count(field, &count))
            return fail_field(scan, descriptor, field, "packed values are cut off");
        return count_elements(scan, count);
    }
    if (field->known->type == PROTOBUF_C_TYPE_STRING &&
        !is_text(field->payload, field->payload_bytes))
        return fail_field(scan, descriptor, field, "not UTF-8 text without NUL");
    if (field->known->type == PROTOBUF_C_TYPE_MESSAGE)
        return check_message(scan, field->known->descriptor, field->payload, field->payload_bytes,
                             depth + 1);
    return MUSTER_OK;
}

static enum muster_rc check_message(struct muster_proto_scan *scan,
                                    const ProtobufCMessageDescriptor *descriptor,
                                    const uint8_t *bytes, size_t size, uint32_t depth)
{
    struct wire_field field;

    if (depth > scan->depth_max)
        return muster_error_set(scan->error, MUSTER_RESOURCE_EXHAUSTED,
                                "message is nested deeper than %u", scan->depth_max);
    for (size_t at = 0; at < size; at += field.head_bytes + field.payload_bytes) {
        enum muster_rc rc;

        if (!field_read(descriptor, bytes + at, size - at, &field))
            return muster_error_set(scan->error, MUSTER_INVALID_ARGUMENT,
                                    "%s: malformed field at byte %zu of %zu", descriptor->name, at,
                                    size);
        rc = count_elements(scan, 1);
        if (rc != MUSTER_OK)
            return rc;
        if (field.known == NULL) {
            scan->unknown_fields++;
            continue;
        }
        rc = check_known(scan, descriptor, &field, depth);
        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

enum muster_rc muster_proto_scan_check(struct muster_proto_scan *scan,
                                       const ProtobufCMessageDescriptor *descriptor,
                                       const uint8_t *bytes, size_t size)
{
    return check_message(scan, descriptor, bytes, size, 1);
}

size_t muster_proto_scan_strip(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                               size_t size, uint8_t *out)
{
    struct wire_field field;
    size_t written = 0;

    for (size_t at = 0; at < size; at += field.head_bytes + field.payload_bytes) {
        if (!field_read(descriptor, bytes + at, size - at, &field))
            return written; /* cannot be: the check has passed */
        if (field.known == NULL)
            continue;
        memcpy(out + written, field.start, field.head_bytes);
        written += field.head_bytes;
        if (field.known->type == PROTOBUF_C_TYPE_MESSAGE) {
            size_t inner = muster_proto_scan_strip(field.known->descriptor, field.payload,
                                                   field.payload_bytes, out + written);

            varint_write_padded(out + written - field.length_bytes, field.length_bytes, inner);
            written += inner;
        } else {
            memcpy(out + written, field.payload, field.payload_bytes);
            written += field.payload_bytes;
        }
    }
    return written;
}
