// How the members of a process set tell one another which GPU they have, and map windows. What follows from
// it is the same on every member. Engine thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/device/peer_sync.h"
#include "rueda/backend/device/peer_terms.h"
#include "rueda/backend/device/peer_window.h"
#include "rueda/memory/cuda/ipc.h"

namespace rueda::backend {

// All fields but `wake` and `local_rank` are the same on every rank.
struct PeerOptions {
  enum class Use : uint8_t { kNever, kLargeCalls, kAlways };
  Use use = Use::kNever;
  std::function<bool(const Group& group)> is_one_host;  // whether its ranks share the memory of a host
  bool warns_of_shared_gpu = true;                      // no other backend has said it
  size_t section_bytes = 8 << 20;                       // wanted; less if a device has less memory left
  Rank local_rank = 0;                                  // chooses the GPU of a rank that has joined
  std::function<void()> wake;                           // any thread; wakes the engine thread
};

// What is known of one process set.
struct PeerMembers {
  bool has_met = false, has_tried = false;  // or will, before any later call of the set
  bool is_met = false, is_tried = false;    // it is over
  std::string why_not;                      // windows are not used
  size_t section_bytes = 0;                 // with windows
  std::vector<const std::byte*> windows;    // [members]; mine as well
  std::vector<size_t> window_bytes;         // [members]
};

class PeerSetup {
 public:
  // options, window and host sync are borrowed.
  PeerSetup(const PeerOptions& options, bool has_devices, PeerWindow& window, PeerSync& sync)
      : options_(options), has_devices_(has_devices), window_(window), sync_(sync) {}

  // Pinned: in host memory. Slots: in windows. Set up: the same, and the members must set up the process set
  // before.
  struct Way {
    bool uses_slots = false, must_set_up = false;
  };
  // How a call in device memory runs; asked in the global order, before anything else of the call.
  Way way_of(const Call& call);
  // The members tell which GPU they have and, if the call uses slots, map windows.
  void begin(const Call& call, bool uses_slots);
  // Whether one is under way. Then its host syncs' outcomes are to be given to go_on().
  [[nodiscard]] bool is_open() const { return state_ != State::kIdle; }
  void go_on(const Status& met);
  void abort() { state_ = State::kIdle; }
  // Whether the setup that way_of() has asked for is over.
  [[nodiscard]] bool is_settled(const Group& group, bool uses_slots) const;
  // Null: this process set does without slots.
  [[nodiscard]] StagingBuffers* slots_of(const Group& group);
  [[nodiscard]] const PeerMembers& members_of(const Group& group) const { return members_.at(key_of(group)); }
  // Why calls of this process set fail, because RUEDA_CUDA_IPC=on cannot be kept; the same on every member.
  [[nodiscard]] Status refusal(const Group& group) const;

 private:
  enum class State : uint8_t { kIdle, kSettingUp, kMapping };
  using Key = std::pair<int32_t, std::vector<Rank>>;
  static Key key_of(const Group& group) { return {group.id, group.members}; }

  [[nodiscard]] bool may_use_slots(const Call& call) const;
  void meet(State state);
  void finish_setup();
  void map_windows();
  void finish_mapping();

  const PeerOptions& options_;
  bool has_devices_;
  PeerWindow& window_;
  PeerSync& sync_;
  std::map<Key, PeerMembers> members_;
  std::map<Rank, cuda::MappedMemory> mapped_;  // windows of others, by world rank, until the epoch ends

  // The setup under way.
  State state_ = State::kIdle;
  Call at_;
  Group group_;  // a copy: it may outlive its call
  bool uses_slots_ = false;
  Segment segment_;  // of the host sync
  std::vector<PeerRow> rows_, all_rows_;
};

}  // namespace rueda::backend
