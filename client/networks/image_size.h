// The size of an image: [height, width, channels], channels nearest in memory.
#ifndef LEEWAY_CLIENT_NETWORKS_IMAGE_SIZE_H_
#define LEEWAY_CLIENT_NETWORKS_IMAGE_SIZE_H_

#include "client/networks/gemm.h"

namespace leeway::networks {

struct ImageSize {
  Index height;
  Index width;
  Index channels;
  Index size() const { return height * width * channels; }
};

}  // namespace leeway::networks

#endif  // LEEWAY_CLIENT_NETWORKS_IMAGE_SIZE_H_
