/* Readers that the case plays, at the door of a publisher: whom it lets in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_peer.h"
#include "publication_stand.h"

#include <stdio.h>
#include <string.h>

#include "params/publication/messages.h"

struct scene {
    struct publication_stand stand;
    struct muster_publication *publication;
    struct params_peer reader;
};

/* A publication with version 1, and a link to it. */
static void scene_open(struct scene *scene)
{
    struct muster_peer_hello hello = params_peer_hello();
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    memset(scene, 0, sizeof(*scene));
    publication_stand_open(&scene->stand);
    scene->publication = publication_stand_publish(&scene->stand);
    assert_int_equal(
        publication_stand_put(&scene->stand, scene->publication, 1, 0, 30 * MUSTER_NS_PER_S, NULL),
        MUSTER_OK);
    hello.purpose = MUSTER_LINK_PUBLICATION;
    (void)muster_address_format(muster_publication_address(scene->publication), address);
    params_peer_open(&scene->reader, scene->stand.env, address, &hello);
}

static void scene_close(struct scene *scene)
{
    params_peer_close(&scene->reader);
    publication_stand_end(&scene->stand, scene->publication);
    publication_stand_close(&scene->stand);
}

static void join_send(struct scene *scene, uint8_t channel, const char *name)
{
    const struct muster_frame_header header = {.channel = channel,
                                               .type = MUSTER_PUBLICATION_JOIN,
                                               .payload_bytes = MUSTER_PUBLICATION_JOIN_BYTES};
    struct muster_publication_join join = {.reader.bytes = {1}};
    uint8_t bytes[MUSTER_PUBLICATION_JOIN_BYTES];

    (void)snprintf(join.name, sizeof(join.name), "%s", name);
    muster_publication_join_pack(&join, bytes);
    params_peer_send(&scene->reader, &header, bytes);
}

static void manifest_ask(struct scene *scene)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PUBLICATION,
                                               .type = MUSTER_PUBLICATION_MANIFEST_REQUEST,
                                               .op.step = 1,
                                               .chunk = MUSTER_PUBLICATION_NO_CHUNK};

    params_peer_send(&scene->reader, &header, NULL);
}

/* Several publishers may listen on one host: an old address can be that of another one. */
static void a_reader_of_another_publication_is_refused(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    join_send(&scene, MUSTER_FRAME_PUBLICATION, "gradients");
    params_peer_await(&scene.reader, 1);

    assert_int_equal(scene.reader.headers[0].type, MUSTER_PUBLICATION_REFUSED);
    assert_int_equal(scene.reader.headers[0].phase, MUSTER_NOT_FOUND);
    scene_close(&scene);
}

static void an_introduction_on_another_channel_is_none(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    join_send(&scene, MUSTER_FRAME_PARAMS, PUBLICATION_STAND_NAME);
    join_send(&scene, MUSTER_FRAME_PUBLICATION, PUBLICATION_STAND_NAME);
    manifest_ask(&scene);
    params_peer_await(&scene.reader, 1);

    assert_false(scene.reader.is_down);
    assert_int_equal(scene.reader.headers[0].type, MUSTER_PUBLICATION_MANIFEST);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_of_another_publication_is_refused),
        cmocka_unit_test(an_introduction_on_another_channel_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
