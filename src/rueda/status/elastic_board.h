// Memory that the agent of a host shares with one process of an elastic job. Through it all members leave
// their view at the same commit, without a message while nothing changes:
//
// The launcher asks how far the members are, proposes a commit that none has reached yet, and each process
// notes whether it saw the proposal in time. When all did, the launcher confirms it. A member that has
// reached the commit meanwhile waits there for the answer; if one was too far already, the proposal is
// withdrawn, and a later commit follows. No member can wait in vain: members are at most one commit apart,
// one that waits has contributed all that the others need to come there, and for one that has come there and
// gone on before it could see the proposal, its agent answers (launch/boards.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"

namespace rueda::status {

inline constexpr const char* kBoardVariable = "RUEDA_ELASTIC_BOARD";  // tells a process where its board is

// What the launcher has said last.
struct ViewChange {
  enum class Phase : uint8_t { kNone = 0, kAsked = 1, kProposed = 2, kConfirmed = 3 };
  uint16_t round = 0;  // counts the changes of this
  Phase phase = Phase::kNone;
  int64_t commit = -1;  // kProposed, kConfirmed
  bool are_hosts_added = false, are_hosts_removed = false;
  bool does_leave = false;  // this process
  bool operator==(const ViewChange&) const = default;
};

class ElasticBoard {
 public:
  // The agent makes the file, and the process opens it.
  static Result<ElasticBoard> make(const std::string& path);
  static Result<ElasticBoard> open(const std::string& path);
  ElasticBoard(ElasticBoard&& other) noexcept;
  ElasticBoard& operator=(ElasticBoard&& other) noexcept;
  ElasticBoard(const ElasticBoard&) = delete;
  ElasticBoard& operator=(const ElasticBoard&) = delete;
  ~ElasticBoard();

  // The agent.
  void write(const ViewChange& change);
  [[nodiscard]] int64_t commit() const { return words_->commit.load(std::memory_order_acquire); }
  // Of a proposal: 0: no answer yet, 1: it was seen in time, -1: too late.
  [[nodiscard]] int answer(uint16_t round) const;
  [[nodiscard]] bool wants_to_leave() const { return words_->wants_to_leave.load(std::memory_order_acquire); }

  // The process.
  // It holds this commit. Waits, for so long at most, if members are about to leave at this commit.
  void committed(int64_t commit, Nanos at_most);
  [[nodiscard]] ViewChange read() const;
  // It was told to leave the job, and does so at a commit. Returns false if it has said so before. May be
  // called by a signal handler.
  bool ask_to_leave() { return !words_->wants_to_leave.exchange(true, std::memory_order_acq_rel); }

 private:
  struct Words {
    std::atomic<uint64_t> change;    // round, phase, flags and commit: see pack()
    std::atomic<int64_t> commit;     // of the process
    std::atomic<uint32_t> answered;  // round * 2 + (1: in time)
    std::atomic<bool> wants_to_leave;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

  explicit ElasticBoard(Words* words) : words_(words) {}
  static Result<ElasticBoard> map(const std::string& path, int flags);
  void answer_proposal(const ViewChange& change, int64_t commit);

  Words* words_ = nullptr;
};

}  // namespace rueda::status
