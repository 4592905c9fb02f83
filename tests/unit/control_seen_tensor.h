// A tensor of a step as a plan has learned it, for the tests of buckets and of their tuner.
#pragma once

#include <string>

#include "rueda/control/seen_tensor.h"

namespace rueda::control::seen_tensors {

// float32, and submitted before any other one was answered.
inline SeenTensor seen(const std::string& name, int64_t bytes, Nanos ready) {
  SeenTensor tensor;
  tensor.bucket.entries = {{.name = name, .shape = {bytes / 4}, .rows = {}}};
  tensor.bytes = bytes;
  tensor.seen = 1;
  tensor.started = 2;
  tensor.ready = ready;
  return tensor;
}

}  // namespace rueda::control::seen_tensors
