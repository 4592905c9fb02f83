// The parts of the verifier, in the order they run. Each returns the first fault it finds, as a sentence that
// names the rank and the step.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/expression.h"
#include "rueda/schedule/interval_map.h"

namespace rueda::schedule {

struct Shape {
  int64_t input = 0, output = 0;  // elements of a rank's buffers
};
Shape shape_of(const Spec& spec, Rank size, Rank rank);

// A fault of one step of one rank.
Status step_fault(Rank rank, size_t step, const Schedule& schedule, const std::string& why);

// Checks indices, bounds, buffers and wire types of the steps of one rank.
Status check_form(const Spec& spec, Rank size, Rank rank, const Schedule& schedule);

// Which earlier steps are certainly complete when a step starts: one bit per pair of steps.
class Ancestors {
 public:
  explicit Ancestors(const Schedule& schedule);
  [[nodiscard]] bool precedes(size_t earlier, size_t later) const {
    return (bits_[later * words_ + earlier / 64] >> (earlier % 64) & 1) != 0;
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;  // [steps * words_]
};

Status check_races(Rank rank, const Schedule& schedule, const Ancestors& ancestors, bool is_aliased);

// What one place of a buffer holds: a formula over the inputs of the ranks, and which element of the inputs
// it takes. That element has the index place + shift.
struct Cell {
  Expr expr = kUnwritten;
  int64_t shift = 0;
};
struct Extent {
  int64_t offset = 0, count = 0;  // within the slice that was read
  Cell cell;                      // the one that was read
  int64_t element = 0;            // which element of the inputs the first place holds
};

class SymbolicMemory {
 public:
  void write(const Slice& to, const std::vector<Extent>& extents);
  std::vector<Extent> read(const Slice& from);
  void set_aliased() { is_aliased_ = true; }

 private:
  [[nodiscard]] size_t index(Buffer buffer) const {
    return is_aliased_ && buffer == Buffer::kOutput ? 0 : static_cast<size_t>(buffer);
  }
  std::array<IntervalMap<Cell>, kBufferCount> buffers_;
  bool is_aliased_ = false;
};

// Executes all ranks on channels that buffer nothing.
class SymbolicExecution {
 public:
  SymbolicExecution(const Spec& spec, std::span<const Schedule> schedules, bool is_aliased,
                    Expressions& expressions);

  Status run();
  [[nodiscard]] SymbolicMemory& memory(Rank rank) { return memories_[rank]; }
  [[nodiscard]] int64_t rounds() const { return rounds_; }

 private:
  struct StepState {
    int32_t waits_for = 0;  // incomplete steps in `after`
    bool is_started = false, is_complete = false;
    int64_t channel = -1, place = -1;  // of a message: its channel, and its index there
    int64_t round = 0;                 // longest chain of messages that ends here
  };
  struct Channel {                     // from one rank to another
    std::vector<size_t> sends, recvs;  // step indices
    size_t sends_posted = 0, recvs_posted = 0;
  };
  struct Event {
    Rank rank;
    size_t step;
  };

  void index_rank(Rank rank);
  Status check_channels() const;
  Status advance(Event event);  // starts the step if it may start, and completes what that makes possible
  Status meet(int64_t channel, size_t place);
  Status apply(Event event, const std::vector<Extent>* received);
  void complete(Event event, int64_t round);
  Status stuck() const;
  Status encode(Event event, std::vector<Extent> extents);
  Status combine(Event event, const std::vector<Extent>& a, const std::vector<Extent>& b);
  [[nodiscard]] const Step& step(Event event) const { return schedules_[event.rank].steps[event.step]; }

  const Spec& spec_;
  std::span<const Schedule> schedules_;
  Expressions& expressions_;
  std::vector<SymbolicMemory> memories_;
  std::vector<std::vector<StepState>> states_;
  std::vector<std::vector<std::vector<size_t>>> dependents_;  // [rank][step]
  std::vector<Channel> channels_;                             // [sender * ranks + receiver]
  std::vector<Event> ready_;
  int64_t rounds_ = 0;
};

// The canonical formula of an element that all ranks contribute to.
Expr canonical(const Spec& spec, const Topology& topology, Expressions& expressions);
// The same in a call with a wire type: the sum of each host, encoded there, in the order of the hosts; the
// owner encodes the sum.
Expr canonical_encoded(const Topology& topology, Rank owner, Expressions& expressions);

}  // namespace rueda::schedule
