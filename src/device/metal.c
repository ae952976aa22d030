// DEV=METAL on systems other than Apple's: an error message. See metal.h.
#include "device/metal.h"

#ifndef WEFT_METAL
static int metal_is_missing(error *err) {
  return error_set(err, "Metal is Apple's: DEV=METAL needs a Mac with a GPU of Apple's own and a Weft that was built "
                        "there (untested); on this system there are DEV=CPU, CL, CUDA, NV and VK");
}

int metal_start(struct device *d, error *err) {
  (void)d;
  return metal_is_missing(err);
}

int metal_list(str *out, error *err) {
  (void)out;
  return metal_is_missing(err);
}
#endif
