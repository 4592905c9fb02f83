// What encoding sums for the way between hosts has left behind on this rank, by process set and name, until a
// later call sends it (error feedback). It lives as long as the epoch. Engine thread only, unless a function
// says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "rueda/base/status.h"
#include "rueda/runtime/batch.h"

namespace rueda::runtime {

class ResidualStore {
 public:
  // Gives the segments of a prepared batch the hashes of their names, and their residuals. A residual is
  // empty at first, and anew when the tensor has another size. Tensors whose names contain a running number
  // have none: nothing says which of them continues which. Fails if this machine has no memory.
  Status attach(Batch& batch);
  // The set was removed.
  void drop(int32_t process_set);
  // From the next call on, residuals count `factor` times: the values they belong to have been rescaled. Any
  // thread.
  void rescale(double factor);
  [[nodiscard]] int64_t bytes() const { return bytes_; }  // of all residuals

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  using Floats = std::unique_ptr<float, Free>;
  struct Kept {
    int64_t count = 0;  // elements of the tensor
    double scale = 1;   // the scale of the values
    Floats sent, owned;
  };
  Status attach(backend::Segment& segment, std::pair<int32_t, std::string> key);
  Status begin(Kept& kept, int64_t count, const std::string& name);

  std::map<std::pair<int32_t, std::string>, Kept> kept_;
  std::atomic<double> scale_{1};
  int64_t bytes_ = 0;
};

}  // namespace rueda::runtime
