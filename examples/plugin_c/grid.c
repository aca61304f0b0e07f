/* A robot in a square grid looks for its charger. It sees where it is and where the charger is; it may go in four directions,
 * but not through the walls around (a mask says so). Each step costs 1 / size; at the charger there is 1 to earn.
 *
 *   cc -O2 -shared -fPIC grid.c -o libgrid.so
 *   trireme train --env plugin:./libgrid.so --env-arg size=5
 */
#include "env_plugin.h"

static const trireme_option options[] = {
    {"size", TRIREME_INT, 5, NULL, 2, 100, "rows and columns of the grid"},
    {"slip", TRIREME_FLOAT, 0, NULL, 0, 1, "probability that a step goes in a random direction"}};
enum { SIZE, SLIP };

typedef struct {
  int row, column, goal_row, goal_column;
} Grid;

/* up, down, left, right */
static const int row_step[4] = {-1, 1, 0, 0}, column_step[4] = {0, 0, -1, 1};

static const char* grid_describe(const trireme_value* chosen, trireme_spec* spec) {
  trireme_obs_floats(spec, 4);
  trireme_discrete(spec, 4);
  spec->masks = 1;
  spec->max_episode_steps = (int32_t)(10 * chosen[SIZE].whole);
  spec->reward_threshold = chosen[SLIP].number > 0 ? NAN : 0.2;
  return NULL;
}

static int inside(const trireme_copy* copy, int place) {
  return place >= 0 && place < copy->options[SIZE].whole;
}

static void observe(const Grid* grid, trireme_copy* copy) {
  const float scale = 1.0f / (float)copy->options[SIZE].whole;
  int choice;
  copy->obs[0] = (float)grid->row * scale;
  copy->obs[1] = (float)grid->column * scale;
  copy->obs[2] = (float)(grid->goal_row - grid->row) * scale;
  copy->obs[3] = (float)(grid->goal_column - grid->column) * scale;
  for (choice = 0; choice < 4; ++choice) {
    copy->mask[choice] = (uint8_t)(inside(copy, grid->row + row_step[choice]) &&
                                   inside(copy, grid->column + column_step[choice]));
  }
}

static void grid_reset(Grid* grid, trireme_copy* copy) {
  const uint32_t size = (uint32_t)copy->options[SIZE].whole;
  grid->row = (int)trireme_below(copy->random, size);
  grid->column = (int)trireme_below(copy->random, size);
  do {
    grid->goal_row = (int)trireme_below(copy->random, size);
    grid->goal_column = (int)trireme_below(copy->random, size);
  } while (grid->row == grid->goal_row && grid->column == grid->goal_column);
  observe(grid, copy);
}

static void grid_step(Grid* grid, trireme_copy* copy) {
  int choice = (int)copy->action[0], row, column;
  if (trireme_uniform(copy->random) < copy->options[SLIP].number)
    choice = (int)trireme_below(copy->random, 4);
  row = grid->row + row_step[choice];
  column = grid->column + column_step[choice];
  if (inside(copy, row) && inside(copy, column)) {
    grid->row = row;
    grid->column = column;
  }
  copy->terminated = grid->row == grid->goal_row && grid->column == grid->goal_column;
  copy->reward = (copy->terminated ? 1.0f : 0.0f) - 1.0f / (float)copy->options[SIZE].whole;
  observe(grid, copy);
}

TRIREME_SINGLE_ENV(grid, Grid, "Grid-v0", "find the charger in a square grid; 4 actions", options, 2)
TRIREME_PLUGIN(&grid)
