/* Messages of members and joiners: views, control messages, manifests, frames. A message that was
 * read must survive the way out. */
#include <stdlib.h>
#include <string.h>

#include <muster/view.h>

#include "cluster/membership/control_proto.h"
#include "cluster/node/state_manifest.h"
#include "net/link/peer_link_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_view(const uint8_t *bytes, size_t size)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_view *view = NULL, *again = NULL;
    void *wire = NULL;
    size_t wire_size = 0;

    if (muster_view_unpack(mem, bytes, size, &view) != MUSTER_OK)
        return;
    if (muster_view_pack(view, mem, &wire, &wire_size) != MUSTER_OK ||
        muster_view_unpack(mem, wire, wire_size, &again) != MUSTER_OK ||
        again->digest != view->digest)
        abort();
    muster_view_unref(again);
    muster_view_unref(view);
    muster_mem_free(mem, wire);
}

static void read_control(const uint8_t *bytes, size_t size)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_control control;
    void *wire = NULL;
    size_t wire_size = 0;

    if (muster_control_unpack(mem, bytes, size, &control) != MUSTER_OK)
        return;
    if (muster_control_pack(&control, mem, &wire, &wire_size) != MUSTER_OK)
        abort();
    muster_control_fini(&control);
    muster_mem_free(mem, wire);
}

static void read_manifest(const uint8_t *bytes, size_t size)
{
    struct muster_state_manifest manifest;

    if (muster_state_manifest_unpack(muster_mem_system(), bytes, size, &manifest, NULL) ==
        MUSTER_OK)
        muster_state_manifest_fini(&manifest);
}

static void read_frame(const uint8_t *bytes, size_t size)
{
    uint8_t again[MUSTER_FRAME_HEADER_BYTES];
    struct muster_frame_header header;
    struct muster_peer_hello hello;

    if (size >= MUSTER_HELLO_BYTES && muster_peer_hello_unpack(bytes, &hello, NULL) == MUSTER_OK &&
        memchr(hello.job, '\0', sizeof(hello.job)) == NULL)
        abort();
    if (size < MUSTER_FRAME_HEADER_BYTES ||
        muster_frame_header_unpack(bytes, &header, NULL) != MUSTER_OK)
        return;
    if (header.payload_bytes > MUSTER_FRAME_PAYLOAD_MAX)
        abort();
    muster_frame_header_pack(&header, again);
    if (memcmp(again, bytes, 16) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    read_view(bytes, size);
    read_control(bytes, size);
    read_manifest(bytes, size);
    read_frame(bytes, size);
    return 0;
}
