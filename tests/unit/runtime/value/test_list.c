/* The intrusive list: loops over its entries. */
#include <muster/list.h>

#include "test_env.h"

#include <string.h>

struct entry {
    _Alignas(64) uint32_t number; /* the head of a list is not aligned like this */
    struct muster_list node;
};

struct stage {
    struct muster_list list;
    struct entry entries[4];
    char text[16];
};

static void stage_init(struct stage *stage, uint32_t count)
{
    memset(stage, 0, sizeof(*stage));
    muster_list_init(&stage->list);
    for (uint32_t i = 0; i < count; i++) {
        stage->entries[i].number = i;
        muster_list_append(&stage->list, &stage->entries[i].node);
    }
}

static void stage_see(struct stage *stage, uint32_t number)
{
    size_t length = strlen(stage->text);

    assert_true(length + 1 < sizeof(stage->text));
    stage->text[length] = (char)('0' + number);
}

static void each_entry_is_seen_once_in_order(void **state)
{
    static const char *const texts[] = {"", "0", "01", "012", "0123"};
    (void)state;
    for (uint32_t count = 0; count <= 4; count++) {
        struct stage stage;

        stage_init(&stage, count);

        MUSTER_LIST_EACH(&stage.list, entry, struct entry, node)
            stage_see(&stage, entry->number);

        assert_string_equal(stage.text, texts[count]);
    }
}

static void a_loop_may_be_left_and_continued_and_stand_inside_another(void **state)
{
    struct stage stage;
    const struct muster_list *list = &stage.list;
    (void)state;
    stage_init(&stage, 4);

    MUSTER_LIST_EACH(list, outer, const struct entry, node) {
        if (outer->number == 1)
            continue;
        if (outer->number == 3)
            break;
        MUSTER_LIST_EACH(list, inner, const struct entry, node) {
            if (inner->number == 2)
                break;
            stage_see(&stage, inner->number);
        }
        stage_see(&stage, 9);
    }

    assert_string_equal(stage.text, "019019");
}

static void an_entry_may_be_removed_and_spoilt_in_the_safe_loop(void **state)
{
    static const struct {
        uint32_t removed; /* bit i: entry i */
        const char *left;
    } rows[] = {{0x0, "0123"}, {0x1, "123"}, {0x8, "012"}, {0x6, "03"}, {0xf, ""}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage stage;

        stage_init(&stage, 4);

        MUSTER_LIST_EACH_SAFE(&stage.list, entry, struct entry, node) {
            stage_see(&stage, entry->number);
            if ((rows[i].removed >> entry->number & 1) == 0)
                continue;
            muster_list_remove(&entry->node);
            memset(entry, 0xff, sizeof(*entry));
        }

        assert_string_equal(stage.text, "0123");
        memset(stage.text, 0, sizeof(stage.text));
        MUSTER_LIST_EACH(&stage.list, entry, struct entry, node)
            stage_see(&stage, entry->number);
        assert_string_equal(stage.text, rows[i].left);
    }
}

static void the_safe_loop_sees_nothing_in_an_empty_list(void **state)
{
    struct stage stage;
    (void)state;
    stage_init(&stage, 0);

    MUSTER_LIST_EACH_SAFE(&stage.list, entry, struct entry, node)
        stage_see(&stage, entry->number);

    assert_string_equal(stage.text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_entry_is_seen_once_in_order),
        cmocka_unit_test(a_loop_may_be_left_and_continued_and_stand_inside_another),
        cmocka_unit_test(an_entry_may_be_removed_and_spoilt_in_the_safe_loop),
        cmocka_unit_test(the_safe_loop_sees_nothing_in_an_empty_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
