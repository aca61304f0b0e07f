/* A plug-in for tests that was made for another version of the interface: only the first two fields of its table are what this
 * version knows. */
#include <stdint.h>

typedef struct {
  uint32_t version, size;
  double whatever[3];
} later_plugin;

__attribute__((visibility("default"))) const later_plugin* trireme_env_plugin(void) {
  static const later_plugin plugin = {2, sizeof plugin, {1, 2, 3}};
  return &plugin;
}
