// The last calls of all process sets, and whether they repeat on every rank. A rank sees the calls of the
// sets to which it belongs. It repeats with a period of p calls if its last p calls are those of the p before
// them, in any order (because the order of answers varies with the timing of the ranks), and so on a few
// times. Ranks may have different periods; those that share a set must agree how many calls of it one step
// has. Pure.
//
// Example: the world has calls A, set 1 {0, 1} has calls B, and set 2 {2, 3} has calls C:
//   A1 B1 C1 B2 | C2 A2 B3 B4 C3 | C4 A3 B5 C5 B6 C6
// Ranks 0 and 1 see A B B A B B A B B, and ranks 2 and 3 see A C C A C C A C C. So a step is A3 B5 C5 B6 C6
// in the order of the answers. That every rank begins and ends its step here does not mean that all do so at
// one time: sets without common ranks may be far apart.
//
// Where nothing repeats, but would if allgathers and alltoalls with other rows were the same call, those
// whose rows differ between the steps have varying rows. That takes more steps, so that a call that recurs
// within a step with different rows each time is taken for several calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "rueda/control/seen_tensor.h"
#include "rueda/control/set_members.h"
#include "rueda/control/varying_names.h"

namespace rueda::control {

class CallHistory {
 public:
  void add(SeenTensor call);  // in the order of the answers
  void clear();               // but for which names were seen with varying rows
  // The calls of a step in the order of the answers, if the calls of all ranks that had some lately have
  // repeated so often after the first time, and for at least so many calls of each rank. The shortest such
  // step. Numbers in names have their stride.
  // A call that was submitted before the one of the period before was answered is no repetition of it.
  // Entry::rows_vary says whose rows vary.
  struct Proof {
    int repeats = 2;
    size_t calls = 0;
  };
  std::optional<std::vector<SeenTensor>> last_step(const Proof& proof, const SetMembers& sets);

 private:
  struct Call {
    uint32_t kind = 0;  // equal for calls that may be the same in different steps
    int32_t set = 0;
    int64_t number = 0;
    uint64_t seen = 0, started = 0;
    Nanos ready = 0;
  };
  struct Kind {
    SeenTensor first;     // the first call of it
    uint64_t weight = 0;  // a random number; sums of them tell multisets of calls apart
    uint32_t series = 0;  // equal for names of a set that differ in the number alone; 0: no number
    uint32_t alike = 0;   // the first kind that differs at most in the rows
    bool varies = false;  // its calls have any rows
  };
  using Places = std::vector<uint32_t>;  // of calls in calls_, ascending
  struct OfSet {
    Places places;
    size_t plain_kinds = 0;       // names without a number
    uint32_t plain_end = 0;       // behind the last of them; 0: there was none
    std::vector<uint32_t> lanes;  // that see its calls
  };
  // Ranks that see the same calls: those of these sets.
  struct Lane {
    std::vector<int32_t> sets;
    Places places;
    // Of the weights of all calls before each place, and of all; and of those of the kinds that are alike.
    std::vector<uint64_t> sums = {0}, alike_sums = {0};
    size_t step = 0, times = 0;  // calls of one step, and how many steps were compared
  };
  struct Period {
    size_t calls = 0, times = 0;
  };
  using Strides = std::unordered_map<uint32_t, int64_t>;  // of series
  using Needed = std::map<int32_t, size_t>;               // calls of a set in one step

  struct Keys {
    std::string exact, alike;  // alike: without rows; the same where none vary
    uint32_t series = 0;
  };
  Keys keys_of(const SeenTensor& call);
  uint32_t kind_of(SeenTensor call);
  void enter(uint32_t place);
  void trim();
  // Lets the lanes see all calls.
  void look(const SetMembers& sets);
  std::optional<Places> find_last_step(const Proof& proof, Strides& strides);
  std::vector<SeenTensor> learned(const Places& places, const Strides& strides);
  // The calls of the last step that had other rows in a step before it.
  void add_varying(const Lane& lane, Places& varying) const;
  // Calls are the same if this is: their kind, or what it is without the numbers of rows.
  [[nodiscard]] uint32_t id_of(const Call& call) const {
    return ignores_rows_ ? kinds_[call.kind].alike : call.kind;
  }
  void make_lanes(const SetMembers& sets);
  // The shortest period of at least `least` calls, as far as sums tell. overlooked: so many of the last calls
  // alone make no step.
  [[nodiscard]] static std::optional<Period> period(std::span<const uint64_t> sums, const Proof& proof,
                                                    size_t least, size_t overlooked);
  [[nodiscard]] size_t overlooked_calls(const Lane& lane) const;
  [[nodiscard]] bool is_surely_step(const Lane& lane, const Proof& proof) const;
  // Gives every lane that had calls since then its step. False if one does not repeat, or they do not agree.
  bool find_steps(uint32_t since, const Proof& proof);
  bool find_step_of(Lane& lane, const Proof& proof, Needed& needed, bool& has_changed) const;
  // The least of at least `least` calls; false if there is none.
  bool find_step(Lane& lane, const Proof& proof, size_t least) const;
  // Whether the windows are equal call by call; and by how much their numbers grow.
  [[nodiscard]] bool check(const Lane& lane, Strides& strides) const;
  [[nodiscard]] bool recurs(const Call& call, const Call& before, Strides& strides) const;
  [[nodiscard]] Places in_order(std::span<const uint32_t> window) const;
  [[nodiscard]] std::vector<SeenTensor> tensors(const Places& places, const Strides& strides) const;

  std::vector<Call> calls_;
  std::vector<Kind> kinds_;
  std::unordered_map<std::string, uint32_t> known_;   // what tells kinds apart -> kind
  std::unordered_map<std::string, uint32_t> alike_;   // the same without rows -> the first kind
  std::unordered_map<std::string, uint32_t> series_;  // set, and name without the number
  VaryingNames varying_names_;
  bool has_variants_ = false;  // some kinds differ in the rows alone
  bool ignores_rows_ = false;  // while a step is sought
  std::map<int32_t, OfSet> of_set_;
  size_t rows_ = 0;  // in all kinds
  std::vector<Lane> lanes_;
  uint32_t looked_ = 0;       // the lanes have seen the calls before this place
  size_t sets_looked_ = 0;    // for so many sets the lanes were made
  uint32_t last_failed_ = 0;  // the lane that did not repeat when it was asked last: it is asked first
};

}  // namespace rueda::control
