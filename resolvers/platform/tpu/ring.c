/* Rings through a box of chips, computed place by place: neighbours in the ring are neighbours in
 * the mesh, and so are its ends. TensorFlow builds the same rings as lists (_open_ring_2d, _ring_3d
 * of tpu.device_assignment); a place needs no memory here. */
#include "resolvers/platform/tpu/ring.h"

#include <stdbool.h>

struct ring_cell {
    int32_t u, v;
};

/*
 * Place `index` (from 1) of the ring through a plane that starts at (0, 0): to and fro in rows over
 * the columns 1 … width-1, then back along column 0. 4 x 4:
 *
 *    0  1  2  3
 *   15  6  5  4
 *   14  7  8  9
 *   13 12 11 10
 */
static struct ring_cell plane_cell(int32_t width, int32_t height, int32_t index)
{
    int32_t row_length = width - 1;
    int32_t row, column;

    index--;
    if (index >= row_length * height)
        return (struct ring_cell){0, height - 1 - (index - row_length * height)};
    row = index / row_length;
    column = index % row_length;
    return (struct ring_cell){row % 2 == 0 ? 1 + column : row_length - column, row};
}

/* TensorFlow closes rings of even sizes only; 1 is a flat dimension, not an odd one. */
static bool is_odd(int32_t size)
{
    return size > 1 && size % 2 != 0;
}

static struct muster_tpu_ring_place line_by_line(const int32_t sizes[3], int32_t index)
{
    return (struct muster_tpu_ring_place){
        {index % sizes[0], index / sizes[0] % sizes[1], index / sizes[0] / sizes[1]}};
}

/* A box that is flat in one dimension: `u` and `v` are the two others. */
static struct muster_tpu_ring_place flat_ring(const int32_t sizes[3], int u, int v, int32_t index)
{
    struct ring_cell cell = plane_cell(sizes[u], sizes[v], index);
    struct muster_tpu_ring_place place = {{0, 0, 0}};

    place.at[u] = cell.u;
    place.at[v] = cell.v;
    return place;
}

/* Planes one above the other, walked forwards and backwards in turn without their corner, then back
 * down along the corners. */
static struct muster_tpu_ring_place box_ring(const int32_t sizes[3], int32_t index)
{
    int32_t plane_length = sizes[0] * sizes[1] - 1;
    int32_t plane = (index - 1) / plane_length;
    int32_t step = (index - 1) % plane_length;
    struct ring_cell cell;

    if (plane >= sizes[2])
        return (struct muster_tpu_ring_place){
            {0, 0, sizes[2] - 1 - (index - 1 - plane_length * sizes[2])}};
    cell = plane_cell(sizes[0], sizes[1], plane % 2 == 0 ? step + 1 : plane_length - step);
    return (struct muster_tpu_ring_place){{cell.u, cell.v, plane}};
}

struct muster_tpu_ring_place muster_tpu_ring_place(const int32_t sizes[3], uint32_t index)
{
    int flat_count = (sizes[0] == 1) + (sizes[1] == 1) + (sizes[2] == 1);
    int32_t i = (int32_t)index;

    if (index == 0 || flat_count >= 2 || is_odd(sizes[0]) || is_odd(sizes[1]) || is_odd(sizes[2]))
        return line_by_line(sizes, i);
    if (sizes[2] == 1)
        return flat_ring(sizes, 0, 1, i);
    if (sizes[1] == 1)
        return flat_ring(sizes, 0, 2, i);
    if (sizes[0] == 1)
        return flat_ring(sizes, 1, 2, i);
    return box_ring(sizes, i);
}
