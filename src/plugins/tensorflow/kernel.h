// The attributes of one node of a graph, or of one cached eager operation. They are read once, when
// TensorFlow makes the kernel. Immutable.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/tensorflow/tf_api.h"
#include "rueda/rueda.h"

namespace rueda::tensorflow {

struct Kernel {
  rueda_collective what = RUEDA_ALLREDUCE;
  bool is_group = false;
  std::string name;  // ranks are matched by it
  int32_t op = RUEDA_SUM;
  float prescale = 1.0F;  // attributes of TensorFlow hold 32 bits
  float postscale = 1.0F;
  int32_t wire = RUEDA_WIRE_DEFAULT;
  int32_t process_set = 0;
  int32_t root_rank = -1;
};

// Reads the attributes that operations of this kind have. If that fails, it reports the failure and returns
// null, with nothing read.
Kernel* read_kernel(TF_OpKernelConstruction* construction, rueda_collective what, bool is_group);

}  // namespace rueda::tensorflow
