/* Stands for the NVIDIA driver: FAKE_GPUS says how many devices it knows; without it the driver finds none and says so,
 * as a real one does. */
#include <stdio.h>
#include <stdlib.h>

static int Count(void) {
  const char* count = getenv("FAKE_GPUS");
  return count == NULL ? 0 : atoi(count);
}

int cuInit(unsigned flags) {
  (void)flags;
  return Count() > 0 ? 0 : 100;
}
int cuDriverGetVersion(int* version) {
  *version = 12020;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = Count();
  return 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, (size_t)size, "Pretended %d", device);
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  (void)device;
  *bytes = (size_t)16000000000;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? 8 : attribute == 76 ? 6 : -1;
  return 0;
}
