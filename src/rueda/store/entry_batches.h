// Entries that ranks of a host give to their relay, and how they become batches of the store (entries.h). A
// batch is written when all ranks of the host have come, or when no other one has come for a while. Pure,
// time included.
//
// Example: ranks 4 to 7 of a host of four give their entries of "t". With the fourth one the relay writes
// "t/rank4" and answers all four when the store has it. Had rank 7 been late, the other three would have been
// written 50 ms after the third one, and rank 7 under a key of its own.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "rueda/store/entries.h"
#include "rueda/store/shared_reads.h"

namespace rueda::store {

class EntryBatches {
 public:
  static constexpr Nanos kFewMissing = 10 * kMillisecond;   // at most one rank is, or nobody knows
  static constexpr Nanos kManyMissing = 50 * kMillisecond;  // ranks of one host start close together
  static constexpr Nanos kMostPatience = kSecond;           // since the first one

  explicit EntryBatches(QuestionId first_question) : next_question_(first_question) {}

  void take(ClientId client, const Command& command, Nanos now, BoardOutput& out);
  void forget(ClientId client);
  void answered(QuestionId question, const Reply& reply, BoardOutput& out);
  void expire(Nanos now, BoardOutput& out);
  [[nodiscard]] std::optional<Nanos> due() const;

 private:
  using Givers = std::map<Rank, ClientId>;  // to whom an answer is owed
  struct Table {
    Entries waiting;
    Givers givers;
    Nanos first = 0, last = 0;
    Rank host_size = 0;
    std::map<Rank, Rank> written;  // of each rank that was written: the lowest rank of its batch
    [[nodiscard]] bool is_complete() const {
      return host_size > 0 && waiting.size() + written.size() >= static_cast<size_t>(host_size);
    }
    [[nodiscard]] Nanos due() const;
  };
  struct Batch {
    std::string table;
    Rank lowest = 0;
    Entries mine = {};
    Givers givers = {};
    std::string sent = {};  // what the store is to have under the key; empty: it was asked what it has
    int tries = 0;
  };

  Table& table_of(const std::string& name);
  void write_waiting(const std::string& name, Table& table, BoardOutput& out);
  void write(Batch batch, const std::string& expected, BoardOutput& out);
  void write_new(const std::string& name, Entries entries, Givers givers, BoardOutput& out);
  void look(Batch batch, BoardOutput& out);
  void ask(Batch batch, Command command, BoardOutput& out);
  void meet_rival(Batch batch, const std::string& there, BoardOutput& out);
  void finish(const Batch& batch, const Reply& reply, BoardOutput& out);

  std::map<std::string, Table> tables_;
  std::map<QuestionId, Batch> asked_;
  QuestionId next_question_;
};

}  // namespace rueda::store
