// What encoding sums for the way between hosts has left behind on this rank, by process set and name, until a
// later call sends it (error feedback). It lives as long as the epoch; save() and restore() carry it to
// another one. Engine thread only, unless a function says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/runtime/batch.h"

namespace rueda::runtime {

// How the members of a process set lie on hosts, as one number, with the rank that asks; 0: there is no such
// set. Under another one, a residual is of blocks that this rank does not encode.
using Placements = std::function<uint64_t(int32_t process_set)>;

class ResidualStore {
 public:
  // What save() is to hold: these tensors of a process set, also those without a residual, or everything.
  struct Wanted {
    int32_t process_set = 0;
    std::vector<std::string> names;
    bool is_all = false;
  };
  // What restore() has done.
  struct Restored {
    int64_t tensors = 0;
    int64_t dropped = 0;  // tensors whose residuals belong to another placement or size
  };
  // most_elements: of one tensor, in what restore() takes.
  explicit ResidualStore(int64_t most_elements = int64_t{1} << 40) : most_elements_(most_elements) {}
  // Gives the segments of a prepared batch the hashes of their names, and their residuals. A residual is
  // empty at first, and anew when the tensor has another size. Tensors whose names contain a running number
  // have none: nothing says which of them continues which. Fails if this machine has no memory.
  Status attach(Batch& batch);
  // The set was removed.
  void drop(int32_t process_set);
  // From the next call on, residuals count `factor` times: the values they belong to have been rescaled. Any
  // thread. Changes nothing and returns false if all factors together would leave [1 / kMostScale,
  // kMostScale].
  bool rescale(double factor);
  static constexpr double kMostScale = 1e50;
  // Residuals as bytes of this rank: blocks of zeros take none. Any thread, while nothing is in flight.
  [[nodiscard]] Bytes save(const Wanted& wanted, const Placements& placements) const;
  // Gives the tensors that save() was asked for the residuals that they had then, or none; where it was asked
  // for everything, others have none afterwards. Fails, and changes nothing, if the bytes are not of save().
  // Any thread, while nothing is in flight.
  Result<Restored> restore(std::span<const std::byte> saved, const Placements& placements);
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
  using Key = std::pair<int32_t, std::string>;
  struct Saved;
  Status attach(backend::Segment& segment, Key key);
  Status begin(Kept& kept, int64_t count, const std::string& name);
  void put(ByteWriter& to, const Key& key, const Kept* kept, uint64_t placement) const;
  [[nodiscard]] bool has_other_size(const Saved& saved) const;
  Status take(const Saved& saved);
  [[nodiscard]] std::optional<std::vector<Saved>> parse(ByteReader& from) const;
  static void clear(Kept& kept);

  int64_t most_elements_;
  mutable std::mutex mutex_;  // guards kept_, which other threads save and restore
  std::map<Key, Kept> kept_;
  std::atomic<double> scale_{1};
  std::atomic<int64_t> bytes_ = 0;
};

}  // namespace rueda::runtime
