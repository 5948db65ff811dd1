/* The metrics of a publication and of a reader show what both have done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "publication_stand.h"

#include <string.h>

#include <muster/metrics.h>

static char *metrics_text(struct publication_stand *stand)
{
    size_t bytes;
    char *text = NULL;

    assert_int_equal(muster_metrics_format(stand->env->metrics, stand->env->mem, &text, &bytes),
                     MUSTER_OK);
    return text;
}

static void metrics_show_what_publisher_and_reader_have_done(void **state)
{
    /* 800,000 bytes of weights and 8 of the step: four chunks, of which a step without others changes one. */
    static const char *const lines[] = {
        "\nmuster_publication_version{publication=\"weights\"} 2\n",
        "\nmuster_publication_readers{publication=\"weights\"} 1\n",
        "\nmuster_publication_sent_chunks_total{publication=\"weights\",kind=\"whole\"} 4\n",
        "\nmuster_publication_sent_chunks_total{publication=\"weights\",kind=\"delta\"} 1\n",
        "\nmuster_reader_version{publication=\"weights\"} 2\n",
        "\nmuster_reader_newest_version{publication=\"weights\"} 2\n",
        "\nmuster_reader_versions_total{publication=\"weights\"} 2\n",
        "\nmuster_reader_received_chunks_total{publication=\"weights\",kind=\"whole\"} 4\n",
        "\nmuster_reader_received_chunks_total{publication=\"weights\",kind=\"delta\"} 1\n",
        "\nmuster_reader_received_chunks_total{publication=\"weights\",kind=\"equal\"} 3\n",
        "\nmuster_reader_received_chunks_total{publication=\"weights\",kind=\"mapped\"} 0\n",
        "\nmuster_reader_wrong_chunks_total{publication=\"weights\"} 0\n",
        "\nmuster_reader_lost_sources_total{publication=\"weights\"} 0\n",
        "# TYPE muster_reader_received_bytes_total counter\n"};
    struct publication_stand stand;
    struct muster_publication *publication;
    struct muster_reader *reader;
    char *text;

    (void)state;
    publication_stand_open(&stand);
    assert_int_equal(muster_metrics_open(stand.env->mem, &stand.env->metrics), MUSTER_OK);
    publication = publication_stand_publish(&stand);
    reader = publication_stand_read(&stand, 0);
    publication_stand_commit(&stand, publication, 1, 1);
    publication_stand_commit(&stand, publication, 1, 1);
    text = metrics_text(&stand);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (strstr(text, lines[i]) == NULL)
            fail_msg("no %s in %s", lines[i], text);
    }
    muster_mem_free(stand.env->mem, text);

    publication_stand_leave(&stand, reader);
    publication_stand_end(&stand, publication);
    text = metrics_text(&stand);
    assert_null(strstr(text, "muster_publication_"));
    assert_null(strstr(text, "muster_reader_"));
    muster_mem_free(stand.env->mem, text);
    muster_metrics_close(stand.env->metrics);
    stand.env->metrics = NULL;
    publication_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_show_what_publisher_and_reader_have_done),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
