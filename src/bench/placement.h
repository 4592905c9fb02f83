// Where parameter servers keep the variables of a model, and in which messages gradients travel to them.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rueda::bench {

// Elements of a transfer of whole_transfers(): 4 MiB.
inline constexpr int64_t kMostOfServer = int64_t{1} << 20;

// A part of a tensor, and the server that owns it. In elements.
struct ServerPiece {
  size_t tensor = 0;
  int64_t first = 0, count = 0;
  int server = 0;
};

// What is sent at once, from each rank to the servers and from them to each rank.
struct Transfer {
  std::vector<ServerPiece> pieces = {};  // those of a server side by side, in the order of the servers
  [[nodiscard]] int64_t elements() const;
  size_t last_tensor = 0;  // it can be sent when this one is ready, and those before it
};

// How many elements of each tensor each of `servers` servers owns: [tensors][servers]. A large tensor is cut
// evenly. Any other tensor goes whole to the server with the fewest elements so far.
std::vector<std::vector<int32_t>> assign_shards(std::span<const int64_t> counts, int servers);
// One transfer for each tensor.
std::vector<Transfer> cut_transfers(std::span<const int64_t> counts, int servers);

// Whole variables, in turns, as tf.train.replica_device_setter of TensorFlow 1.x places them by default: in
// the order in which the model makes them, which is the reverse of the order of their gradients.
int server_of(size_t tensor, size_t tensors, int servers);
// Each server receives what is ready for it, in order, while the others receive theirs. Because a transfer is
// sent as one call, it takes up to 4 MiB of what is ready for each server when the one before it has been
// sent over their links: that time is computed from the ready times and the rate.
std::vector<Transfer> whole_transfers(std::span<const int64_t> counts, int servers,
                                      std::span<const double> ready_ms, double ms_per_element);

}  // namespace rueda::bench
