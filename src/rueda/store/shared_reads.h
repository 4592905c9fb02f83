// Ranks of a host that ask for the same key at about the same time: the relay asks the store once and answers
// all of them. Pure, time included.
//
// Example: rank 4 waits for "table" up to 250 ms, and the relay asks. Rank 5 asks for it as well and joins.
// The answer goes to both. Rank 6 comes later and says that the value never changes: it has it at once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/store/messages.h"

namespace rueda::store {

// Numbers of clients, and of questions that a relay has put to the store.
using ClientId = uint32_t;
using QuestionId = uint32_t;

// What a relay is to send now.
struct BoardOutput {
  std::vector<std::pair<ClientId, Reply>> replies;
  std::vector<std::pair<QuestionId, Command>> questions;
};

class SharedReads {
 public:
  static constexpr size_t kMaxKnownBytes = size_t{64} << 20;

  // first_question: its questions have this number and every second one after it.
  explicit SharedReads(QuestionId first_question) : next_question_(first_question) {}

  void take(ClientId client, const Command& command, Nanos now, BoardOutput& out);
  void forget(ClientId client);
  void answered(QuestionId question, const Reply& reply, Nanos now, BoardOutput& out);
  // To be called when due() is past.
  void expire(Nanos now, BoardOutput& out);
  [[nodiscard]] std::optional<Nanos> due() const;
  [[nodiscard]] size_t known_bytes() const { return known_bytes_; }

 private:
  struct Reader {
    ClientId client = 0;
    Nanos oldest = 0;  // an answer must have been asked for then, or later
    Nanos until = 0;
  };
  // Waiting for a key and looking for it are different questions.
  using Question = std::pair<std::string, bool>;  // key, whether to wait
  struct State {
    std::optional<Reply> known;
    Nanos known_since = 0;  // when it was asked for
    std::optional<QuestionId> asking;
    Nanos asking_since = 0;
    std::vector<Reader> readers;
  };

  void ask(const Question& question, State& state, Nanos now, BoardOutput& out);
  void keep(State& state, const Reply& reply);
  void forget_known();

  std::map<Question, State> states_;
  std::map<QuestionId, Question> asked_;
  QuestionId next_question_;
  size_t known_bytes_ = 0;
};

}  // namespace rueda::store
