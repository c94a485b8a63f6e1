/* A libcuda.so.1 for the few calls that PyTorch makes to the driver: every device has its primary context. */

#include <stddef.h>

#define PUBLIC __attribute__((visibility("default")))
enum { NOT_SUPPORTED = 801 };

PUBLIC int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = 1;
  return 0;
}
PUBLIC int cuDeviceGet(int *device, int index) { return *device = index, 0; }
PUBLIC int cuDevicePrimaryCtxRetain(void **context, int device) { return (void)device, *context = (void *)1, 0; }
PUBLIC int cuCtxGetCurrent(void **context) { return *context = (void *)1, 0; }
PUBLIC int cuCtxSetCurrent(void *context) { return (void)context, 0; }
PUBLIC int cuGetErrorString(int error, const char **text) {
  (void)error;
  *text = "a part of the CUDA driver that etloop record has no answer for";
  return 0;
}

#define UNANSWERED(name) PUBLIC int name(void) { return NOT_SUPPORTED; }
#include "unanswered_driver.inc"
